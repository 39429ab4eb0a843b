"""A server on a Unix socket of the user, in a thread beside the platform."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Final

import uvicorn

from shoal.server.address import AddressError, bind
from shoal.server.app import make_app
from shoal.server.standing import Standing

BEGIN_S: Final = 60.0
"""How long the server may take to begin, as it does at once unless the machine is very busy."""

END_S: Final = 3
"""How long answers that are under way may take when it stops."""

GONE_S: Final = 60.0
"""How long to wait for the server to be gone, which it is soon after, however busy the machine."""


class _Server(uvicorn.Server):
    """Signals are for the process to handle, not for one of its parts.

    And whoever connects while it stops is not kept waiting.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop to accept, then shut down what is open.

        uvicorn does both at once: it would not know of a connection that is opening then, which
        would stay open, and wait for it in vain.
        """
        for each in sockets or ():
            asyncio.get_running_loop().remove_reader(each)
        for _ in range(2):
            await asyncio.sleep(0)  # what has been accepted begins to open, and is open
        await super().shutdown(sockets)


@contextmanager
def serving(standing: Standing, path: Path) -> Iterator[Path]:
    """Serve the API on a socket while the context lasts. Raises `AddressError`."""
    listening = bind(path)
    app = make_app(standing)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=END_S,
        limit_concurrency=512,
    )
    server = _Server(config)
    thread = Thread(target=_run, args=(server, listening), name="shoal-server", daemon=True)
    thread.start()
    try:
        until = monotonic() + BEGIN_S
        while not server.started:
            if not thread.is_alive() or monotonic() > until:
                raise AddressError(f"the server on {path} did not start")
            sleep(0.01)
        yield path
    finally:
        app.state.closing.set()
        server.should_exit = True
        thread.join(END_S + GONE_S)
        listening.close()
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _run(server: _Server, listening: socket.socket) -> None:
    asyncio.run(server.serve(sockets=[listening]))
