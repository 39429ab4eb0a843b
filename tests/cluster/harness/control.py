"""Commands to a simulator in another process: one JSON line each way, on a unix socket."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.harness.processes import Failed

Handler = Callable[..., Awaitable[Any]]

# An answer may list every node of a large cluster.
LONGEST_LINE = 64 << 20


async def serve(path: Path, handlers: Mapping[str, Handler]) -> asyncio.Server:
    """Answer commands: `do` chooses the handler, the other keys are its arguments."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            command = msgspec.json.decode(line)
            try:
                said = {"answer": await handlers[command.pop("do")](**command)}
            except Exception as error:  # noqa: BLE001 (whatever it is, it is told to the tests)
                said = {"error": f"{type(error).__name__}: {error}"}
            writer.write(msgspec.json.encode(said) + b"\n")
            await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(answer, path, limit=LONGEST_LINE)


def answers(path: Path) -> bool:
    """Whether somebody listens; the socket's file is there a moment before that."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def ask(path: Path, do: str, **arguments: Any) -> Any:
    """Send one command and wait for its answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(msgspec.json.encode({"do": do, **arguments}) + b"\n")
        with connection.makefile("rb") as answers:
            line = answers.readline()
    if not line:
        raise Failed(f"the simulator at {path} ended while it was asked to {do}")
    said = msgspec.json.decode(line)
    if "error" in said:
        raise Failed(f"{do}: {said['error']}")
    return said["answer"]
