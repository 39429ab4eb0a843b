"""Web servers that listen for a while and leave no connection behind."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from aiohttp import web


@asynccontextmanager
async def listening(
    runner: web.AppRunner, host: str | None, port: int, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve what `runner` runs while the context lasts, under TLS with `context`; yields the port.

    Port 0: any; host None: all addresses. Answers under way at the end are given. Raises OSError.
    """
    await runner.setup()
    server = cast("web.Server", runner.server)  # it is there until the runner cleans up
    try:
        async with _accepting(server, host, port, context) as bound:
            yield bound
    finally:
        open_ = [each.transport for each in server.connections]
        await runner.cleanup()
        for transport in open_:
            if transport is not None and context is not None:
                # Nobody has to wait for the other side's goodbye under TLS.
                transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def _accepting(
    made: Callable[[], asyncio.Protocol],
    host: str | None,
    port: int,
    context: ssl.SSLContext | None,
) -> AsyncIterator[int]:
    """Accept connections while the context lasts, each with the protocol that is `made` for it.

    Connections that are still opening at the end are closed. asyncio would lose those (of Python
    3.11) that it has accepted in the turn in which it stops, and would go on with TLS on others.
    """
    loop = asyncio.get_running_loop()
    opening: set[asyncio.Task[object]] = set()

    def opens() -> asyncio.Protocol:
        # This is called in the task that opens the connection, and that ends when it is open.
        task = asyncio.current_task()
        if task is not None:
            opening.add(task)
            task.add_done_callback(opening.discard)
        return made()

    accepting = await loop.create_server(opens, host, port, ssl=context)
    try:
        yield int(accepting.sockets[0].getsockname()[1])
    finally:
        for each in accepting.sockets:
            loop.remove_reader(each.fileno())
        await asyncio.sleep(0)  # what has been accepted begins to open
        accepting.close()
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
