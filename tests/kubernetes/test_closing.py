"""What is closed leaves no connection open: a transport whenever its calls ended, or a server."""

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from aiohttp import web

from shoal.kubernetes.admission.certificates import Pair, issue, server_context, use
from shoal.kubernetes.api.identity import Credentials
from shoal.kubernetes.api.listening import listening
from shoal.kubernetes.api.transport import Call, Transport
from tests.kubernetes.fake_api import BOUND_S, PATIENT

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Deaf:
    """A server on TLS that says `says` to every request, and then never reads or closes again.

    A server that is busy, or that a network has cut off, does as little when a client says goodbye.
    """

    def __init__(self, context: ssl.SSLContext, says: bytes) -> None:
        self._context, self._says = context, says
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            with contextlib.suppress(OSError):
                self._speak(connection)

    def _speak(self, connection: socket.socket) -> None:
        connection.settimeout(BOUND_S)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(incoming, outgoing, server_side=True)
        steps: list[Callable[[], object]] = [
            tls.do_handshake,
            lambda: tls.read(65536),
            lambda: tls.write(self._says),
        ]
        while steps:
            try:
                steps[0]()
                steps.pop(0)
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                heard = connection.recv(65536)
                if not heard:
                    return
                incoming.write(heard)
        connection.sendall(outgoing.read())

    def close(self) -> None:
        """Stop to listen, and let go of all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._listener, *self._open):
            each.close()


Work = Callable[[Transport, asyncio.Event], Coroutine[object, object, None]]


@dataclass(frozen=True)
class Here:
    """An identity for a server on this machine."""

    port: int
    tls: ssl.SSLContext

    async def credentials(self) -> Credentials:
        return Credentials(server=f"https://127.0.0.1:{self.port}", tls=self.tls)


@pytest.fixture(scope="module")
def pair() -> tuple[Pair, bytes]:
    return issue(["127.0.0.1"], datetime.now(UTC))


@contextmanager
def deaf(pair: tuple[Pair, bytes], says: bytes) -> Iterator[Here]:
    served, authority = pair
    context = server_context()
    use(context, served)
    server = Deaf(context, says)
    try:
        yield Here(server.port, ssl.create_default_context(cadata=authority.decode()))
    finally:
        server.close()


async def watch(transport: Transport, seen: asyncio.Event) -> None:
    call = Call("WATCH", "/api/v1/pods", "pods")
    async with transport.stream(call, BOUND_S) as pieces:
        async for _ in pieces:
            seen.set()
            await asyncio.Event().wait()


async def ask(transport: Transport, _seen: asyncio.Event) -> None:
    await transport.call(Call("GET", "/api/v1/pods", "pods"))


def left_open(identity: Here, steps: int | None, work: Work) -> list[str]:
    """What complains of being left open when a loop ends right after its transport.

    The call is cancelled after `steps` rounds of the loop, or (None) in the middle of its answer.
    """

    async def main() -> None:
        async with Transport(identity, PATIENT) as transport:
            seen = asyncio.Event()
            task = asyncio.ensure_future(work(transport, seen))
            if steps is None:
                await seen.wait()
            else:
                for _ in range(steps):
                    await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    return complaints(main())


def complaints(work: Coroutine[object, object, None]) -> list[str]:
    """What complains of being left open by something that ran in a loop."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(work)
        gc.collect()
    return [str(each.message) for each in caught if each.category is ResourceWarning]


def test_a_watch_that_is_cancelled(pair: tuple[Pair, bytes]) -> None:
    with deaf(pair, HEADERS + b"3\r\n{}\n\r\n") as identity:
        assert left_open(identity, None, watch) == []


@pytest.mark.parametrize("work", [watch, ask])
def test_a_call_that_is_cancelled_at_any_moment(pair: tuple[Pair, bytes], work: Work) -> None:
    with deaf(pair, b"") as identity:
        for steps in range(24):
            assert left_open(identity, steps, work) == [], steps


@pytest.mark.parametrize("under_tls", [False, True])
def test_whoever_connects_when_a_server_stops(pair: tuple[Pair, bytes], *, under_tls: bool) -> None:
    """At whatever moment that is, the connection ends, and is not left open until the loop ends."""
    context = server_context() if under_tls else None
    if context is not None:
        use(context, pair[0])

    async def main(steps: int) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            async with listening(web.AppRunner(web.Application()), "127.0.0.1", 0, context) as port:
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                for _ in range(steps):
                    await asyncio.sleep(0)
            connection.setblocking(False)
            async with asyncio.timeout(BOUND_S):
                with contextlib.suppress(ConnectionError):
                    assert await loop.sock_recv(connection, 1) == b""

    for steps in range(8):
        assert complaints(main(steps)) == [], steps
