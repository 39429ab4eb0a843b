"""Keeping a store equal to what the API server has, through everything that can break.

Four layers, each a generator with one job:

- `_stream` is one HTTP request: it cuts lines, decodes them, and ends with the request;
- `_follow` resumes streams at the last version, for as long as the server remembers it;
- `_session` lists everything, marks the end of the list with `Listed`, then follows;
- `steps` starts sessions for ever, with a growing, jittered pause after trouble.

`Reflector.run` feeds the steps to a store. A new session begins with `Begun`; the store compares
its list with what it has, so deletions that nobody saw become deletions.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from shoal.kubernetes.api.backoff import STEADY, Backoff
from shoal.kubernetes.api.client import ALL, PAGE_SIZE, Client, Selection
from shoal.kubernetes.api.errors import (
    BadRequestError,
    GoneError,
    InvalidError,
    KubernetesError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
)
from shoal.kubernetes.api.lines import split_lines
from shoal.kubernetes.api.store import Store
from shoal.kubernetes.api.transport import Call
from shoal.kubernetes.wire.kinds import WatchEvent
from shoal.kubernetes.wire.meta import Object

T = TypeVar("T", bound=Object)

_log = structlog.get_logger(__name__)

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streaming list."""


@dataclass(frozen=True)
class Begun:
    """A list begins; what was seen before stays until the list is complete."""


@dataclass(frozen=True)
class Found(Generic[T]):
    """One object of a paged list."""

    object: T


@dataclass(frozen=True)
class Listed:
    """The list is complete as of `version`; what follows are changes to it."""

    version: str


Step = Begun | Found[T] | Listed | WatchEvent[T]
"""What a reflector sees."""


@dataclass(frozen=True)
class WatchOptions:
    """How to watch."""

    silence_s: float = 90.0
    """When a stream counts as dead. Bookmarks come about once a minute, however quiet it is."""
    shortest_s: int = 300
    """The least time after which the server ends a stream; at most twice that. It spreads the
    clients over the API servers."""
    page_size: int = PAGE_SIZE
    streams_lists: bool = True
    """Whether to ask for lists as a stream first (on by default in servers since 1.34)."""
    backoff: Backoff = STEADY


DEFAULT_OPTIONS: Final = WatchOptions()


class Reflector(Generic[T]):
    """Reflects one kind, or a selection of it, into a store."""

    def __init__(
        self,
        client: Client,
        store: Store[T],
        selection: Selection = ALL,
        options: WatchOptions = DEFAULT_OPTIONS,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Reflect what `selection` takes of the store's kind."""
        self.trouble: str | None = None
        """What stands in the way of seeing the cluster as it is now; None while nothing does."""
        self.lists = 0
        """How many lists have been completed."""
        self._transport = client.transport
        self._client = client
        self._store = store
        self._kind = store.kind
        self._selection = selection
        self._options = options
        self._sleep = sleep
        self._chance = chance
        self._version = ""
        self._can_stream = options.streams_lists
        self._page_next = False

    async def run(self) -> None:
        """Feed the store for ever. Whoever runs it ends it by cancelling."""
        async with aclosing(self.steps()) as steps:
            async for step in steps:
                match step:
                    case WatchEvent():
                        self._store.apply(step)
                    case Found():
                        self._store.put(step.object)
                    case Begun():
                        self._store.begin_list()
                    case Listed():
                        self._store.end_list(step.version)

    async def steps(self) -> AsyncGenerator[Step[T], None]:
        """Sessions for ever."""
        tries = 0
        while True:
            try:
                async with aclosing(self._session()) as session:
                    async for step in session:
                        if isinstance(step, Listed):
                            tries = 0
                            self.lists += 1
                            self._well()
                        yield step
            except GoneError as error:
                _log.info("watch expired, listing again", kind=self._kind.resource, why=str(error))
            except KubernetesError as error:
                self._ill(error)
            tries += 1
            await self._sleep(self._options.backoff.delay_s(tries))

    async def _session(self) -> AsyncGenerator[Step[T], None]:
        """One list and the changes to it, until the server has forgotten where we are."""
        yield Begun()
        async with aclosing(self._list()) as listing:
            async for step in listing:
                yield step
        async with aclosing(self._follow()) as events:
            async for event in events:
                yield event

    async def _list(self) -> AsyncGenerator[Step[T], None]:
        """A list as a stream; in pages where streams are not served, or where one just failed."""
        streaming = self._can_stream and not self._page_next
        self._page_next = streaming
        if streaming:
            try:
                async with aclosing(self._streamed_list()) as listing:
                    async for step in listing:
                        yield step
            except (BadRequestError, InvalidError) as error:
                self._can_stream = False
                _log.info("no streaming lists here", kind=self._kind.resource, why=str(error))
            else:
                return
            # What the stream has shown may have gone before the pages are read.
            yield Begun()
        async for step in self._paged_list():
            yield step

    async def _streamed_list(self) -> AsyncGenerator[Step[T], None]:
        """A list as a watch whose first events are what is there.

        The same stream goes on with the changes. When it ends after the list was complete, the
        caller resumes; a list that a stream did not complete is asked for in pages next.
        """
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        listed = False
        try:
            async with aclosing(self._stream(query)) as events:
                async for event in events:
                    if listed:
                        self._version = event.object.metadata.resource_version
                        yield event
                    elif _ends_list(event):
                        listed = True
                        self._page_next = False
                        self._version = event.object.metadata.resource_version
                        yield Listed(self._version)
                    else:
                        yield event
        except (UnreachableError, ServerError, TooManyRequestsError) as error:
            if not listed:
                raise
            self._ill(error)
        if not listed:
            raise UnreachableError(
                f"the list of {self._kind.resource} ended before it was complete"
            )

    async def _paged_list(self) -> AsyncGenerator[Step[T], None]:
        """A list in pages, all of one moment."""
        version = ""
        pages = self._client.pages(self._kind, self._selection, self._options.page_size)
        async for page in pages:
            version = page.metadata.resource_version
            for item in page.items:
                yield Found(item)
            # Decoding a page holds the loop; let others have a turn before the next.
            await asyncio.sleep(0)
        self._version = version
        yield Listed(version)

    async def _follow(self) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes since the last version, over as many streams as it takes.

        Raises GoneError when the server no longer knows that version, and what else a server
        refuses for good.
        """
        failures = 0
        while True:
            heard = broke = False
            try:
                async with aclosing(self._stream({"resourceVersion": self._version})) as events:
                    async for event in events:
                        heard = True
                        self._version = event.object.metadata.resource_version
                        yield event
            except (UnreachableError, ServerError, TooManyRequestsError) as error:
                broke = True
                self._ill(error)
            failures = 0 if heard else failures + 1
            if broke or not heard:
                await self._sleep(self._options.backoff.delay_s(max(failures, 1)))

    async def _stream(self, query: Mapping[str, str]) -> AsyncGenerator[WatchEvent[T], None]:
        """The events of one request."""
        kind = self._kind
        longest_s = self._options.shortest_s * (1.0 + self._chance())
        call = Call(
            "WATCH",
            kind.path(self._selection.namespace),
            kind.resource,
            {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": f"{longest_s:.0f}"}
            | self._selection.query()
            | dict(query),
        )
        async with self._transport.stream(call, self._options.silence_s) as pieces:
            if "resourceVersion" in query:
                self._well()
            async for line in split_lines(pieces):
                yield kind.read_event(line)

    def _ill(self, error: KubernetesError) -> None:
        if self.trouble is None:
            _log.warning("watch broken", kind=self._kind.resource, why=str(error))
        self.trouble = str(error)

    def _well(self) -> None:
        if self.trouble is not None:
            _log.info("watch restored", kind=self._kind.resource)
        self.trouble = None


def _ends_list(event: WatchEvent[T]) -> bool:
    return (
        event.type == "BOOKMARK"
        and event.object.metadata.annotations.get(INITIAL_EVENTS_END) == "true"
    )
