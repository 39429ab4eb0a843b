"""Bytes to and from an API server: connections, credentials, tries, counts.

A call is repeated while that can help and only for a bounded time: when the server did not answer,
when it asks to come back (429, 503 and whatever carries Retry-After), and once after a 401 with
fresh credentials. Every write of Shoal is safe to repeat, because it carries a precondition, a
name of its own or the same content; whoever must know learns from `StatusError.maybe_done` that an
earlier try may have arrived. There is no way to send a PUT.
"""

import asyncio
import contextlib
import socket
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, Self

import aiohttp
import msgspec

from shoal.kubernetes.api.backoff import PROMPT, Backoff
from shoal.kubernetes.api.errors import (
    CAUSE_DISRUPTION_BUDGET,
    Status,
    StatusDetails,
    StatusError,
    UnreachableError,
    status_error,
)
from shoal.kubernetes.api.identity import Credentials, Identity

Verb = Literal["GET", "LIST", "WATCH", "POST", "PATCH", "DELETE"]
"""What Shoal does to an API server. There is no PUT."""

_METHOD: Final[dict[Verb, str]] = {
    "GET": "GET",
    "LIST": "GET",
    "WATCH": "GET",
    "POST": "POST",
    "PATCH": "PATCH",
    "DELETE": "DELETE",
}
_WRITES: Final = frozenset({"POST", "PATCH", "DELETE"})
_COME_BACK_CODES: Final = frozenset({429, 502, 503, 504})
_READ_BUFFER_BYTES: Final = 1 << 18
_FAREWELL_S: Final = 30.0
"""How long closing waits for connections to end that have been shut down, as they do at once."""

_status = msgspec.json.Decoder(Status)


@dataclass
class Counters:
    """What a transport has done. `calls` counts answers by verb, resource and code (0: none)."""

    calls: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    retries: Counter[str] = field(default_factory=Counter)
    credentials_read: int = 0

    def of(self, verb: str) -> int:
        """How many answers calls of this verb have had."""
        return sum(n for (each, _, _), n in self.calls.items() if each == verb)


@dataclass(frozen=True)
class Limits:
    """Bounds of a transport. Times are in seconds."""

    concurrency: int = 48
    """Calls at once, watches aside: what a small API server answers fastest, as measured."""
    connect_s: float = 10.0
    answer_s: float = 30.0
    """The longest silence of a server that owes an answer."""
    patience_s: float = 30.0
    """How long a call is repeated; a caller with a plan of its own gives 0."""


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True)
class Call:
    """One call: `resource` is what it is counted under."""

    verb: Verb
    path: str
    resource: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"

    def __str__(self) -> str:
        """The call as error messages name it."""
        return f"{self.verb} {self.path}"


class Transport:
    """A session with one API server; an async context manager."""

    def __init__(
        self,
        identity: Identity,
        limits: Limits = DEFAULT_LIMITS,
        *,
        user_agent: str = "shoal",
        backoff: Backoff = PROMPT,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare; connections open with the first call."""
        self.limits = limits
        self.counters = Counters()
        self._identity = identity
        self._user_agent = user_agent
        self._backoff = backoff
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._reading = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._sockets = _Sockets()
        self._credentials: Credentials | None = None
        self._renew_at_s: float | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=60.0, socket_factory=self._sockets.open
            ),
            read_bufsize=_READ_BUFFER_BYTES,
            auto_decompress=True,
            headers={
                "Accept": "application/json",
                # On a cluster's network, packing and unpacking costs more than it saves.
                "Accept-Encoding": "identity",
                "User-Agent": self._user_agent,
            },
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the session and its connections; none is open afterwards."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            await self._sockets.close()

    async def namespace(self) -> str:
        """The namespace of the context, or of the pod. Raises IdentityError."""
        return (await self._current_credentials()).namespace

    async def call(self, call: Call, patience_s: float | None = None) -> bytes:
        """The body of the answer.

        Raises UnreachableError, StatusError (the subclass of its code) and IdentityError, once no
        try is left or `patience_s` (default: of the limits) is spent.
        """
        started_s = self._monotonic_s()
        patience_s = self.limits.patience_s if patience_s is None else patience_s
        maybe_done = renewed = False
        tries = 0
        while True:
            error: UnreachableError | StatusError
            asked_s: float | None = None
            try:
                async with self._slots:
                    return await self._try(call)
            except UnreachableError as unreachable:
                error = unreachable
            except StatusError as refused:
                error = refused
                error.maybe_done = maybe_done
                asked_s = refused.status.retry_after_s
                if refused.status.code == 401 and not renewed:
                    renewed = True
                    continue
                if not _is_worth_repeating(call, refused):
                    raise
            maybe_done = maybe_done or _may_have_arrived(call, error)
            tries += 1
            delay_s = self._backoff.delay_s(tries, asked_s)
            if self._monotonic_s() + delay_s - started_s > patience_s:
                raise error
            self.counters.retries[call.verb] += 1
            await self._sleep(delay_s)

    @asynccontextmanager
    async def stream(self, call: Call, silence_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of the answer as it comes, in pieces of any size; tried once.

        Raises UnreachableError, also later when nothing came for `silence_s` or the connection
        broke, and StatusError. Streams take no slot of the concurrency limit.
        """
        async with self._open(call, silence_s) as response:
            yield self._pieces(call, response)

    async def _pieces(self, call: Call, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for piece in response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{call}: {_words(error)}") from error

    async def _try(self, call: Call) -> bytes:
        async with self._open(call, self.limits.answer_s) as response:
            try:
                return await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise UnreachableError(f"{call}: {_words(error)}") from error

    @asynccontextmanager
    async def _open(self, call: Call, silence_s: float) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a call and look at the status of the answer."""
        if self._session is None:
            raise RuntimeError("enter the transport (async with) before calling")
        credentials = await self._current_credentials()
        headers = {"Content-Type": call.content_type} if call.body else {}
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        started_s = self._monotonic_s()
        try:
            response = await self._session.request(
                _METHOD[call.verb],
                credentials.server + call.path,
                params=call.query,
                data=call.body or None,
                headers=headers,
                ssl=credentials.tls or False,
                server_hostname=credentials.server_name,
                proxy=credentials.proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self.limits.connect_s, sock_read=silence_s
                ),
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count(call, 0, started_s)
            raise UnreachableError(f"{call}: {_words(error)}") from error
        async with response:
            if response.status >= 300:
                status = await _read_status(response)
                self._count(call, response.status, started_s)
                if status.code == 401 and self._credentials is credentials:
                    self._renew_at_s = float("-inf")
                raise status_error(status, str(call))
            self._count(call, response.status, started_s)
            yield response

    def _count(self, call: Call, code: int, started_s: float) -> None:
        self.counters.calls[call.verb, call.resource, code] += 1
        self.counters.seconds[call.verb, call.resource] += self._monotonic_s() - started_s

    async def _current_credentials(self) -> Credentials:
        """The credentials in use, read again when they are due; one reader at a time."""
        async with self._reading:
            due = self._renew_at_s is not None and self._monotonic_s() >= self._renew_at_s
            if self._credentials is None or due:
                fresh = await self._identity.credentials()
                self.counters.credentials_read += 1
                self._credentials = fresh
                self._renew_at_s = (
                    None if fresh.lifetime_s is None else self._monotonic_s() + fresh.lifetime_s
                )
            return self._credentials


class _Sockets:
    """The sockets of a session, among them those that the session itself has lost sight of.

    A call that is cancelled leaves its connection to asyncio, which takes its time: it waits up to
    30 s for a peer's goodbye, and goes on opening a connection whose call was cancelled just
    before TLS began. A loop that ends meanwhile would leave them open.
    """

    def __init__(self) -> None:
        self._known: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """A new socket for an address; what aiohttp calls a socket factory."""
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._known.add(opened)
        return opened

    async def close(self) -> None:
        """Shut down what is open, and wait until whoever owns it has seen that and closed it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                while still := [each for each in self._known if each.fileno() >= 0]:
                    for each in still:
                        with contextlib.suppress(OSError):
                            each.shutdown(socket.SHUT_RDWR)
                    await asyncio.sleep(0.001)


def _is_worth_repeating(call: Call, error: StatusError) -> bool:
    """Whether the same call may succeed soon.

    An eviction that a budget forbids will not, and neither will a write that made the server
    fail (500) unless it asks to come back: a pod under two disruption budgets is answered so.
    """
    status = error.status
    if status.has_cause(CAUSE_DISRUPTION_BUDGET):
        return False
    if status.code == 500:
        return call.verb not in _WRITES or status.retry_after_s is not None
    return status.code in _COME_BACK_CODES


def _may_have_arrived(call: Call, error: UnreachableError | StatusError) -> bool:
    """Whether a failed try may have been carried out: no answer, or the answer of a middleman."""
    if call.verb not in _WRITES:
        return False
    return isinstance(error, UnreachableError) or error.status.code in (500, 502, 504)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _read_status(response: aiohttp.ClientResponse) -> Status:
    """The server's Status; for answers of proxies, one made from the code and the first words."""
    try:
        body = await response.content.read(1 << 16)
    except (aiohttp.ClientError, TimeoutError, OSError):
        body = b""
    try:
        status = _status.decode(body)
    except msgspec.DecodeError:
        status = Status(message=body[:200].decode("utf-8", "replace").strip())
    details = status.details
    asked = response.headers.get("Retry-After", "")
    if asked.isdecimal() and len(asked) < 6:
        base = details or StatusDetails()
        details = msgspec.structs.replace(base, retry_after_seconds=int(asked))
    return msgspec.structs.replace(status, code=response.status, details=details)
