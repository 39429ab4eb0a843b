"""A live copy of all objects of one kind, fed by a reflector and read by the rest of Shoal.

Invariants:

- What subscribers have been told adds up to the contents: each change is told once, as (old, new),
  after the store and its indexes hold it. A new uid under an old name is told as a deletion and an
  addition.
- Between lists the copy only moves forward. Events that come again or late change nothing.
- A list is the truth: what it lacks is deleted, also when the deletions were missed, and what it
  has replaces what was there, also when its version is smaller (a cluster restored from a backup).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, ValuesView
from typing import Generic, TypeVar

from shoal.kubernetes.wire.kinds import Kind, WatchEvent
from shoal.kubernetes.wire.meta import Object

T = TypeVar("T", bound=Object)

Key = tuple[str, str]
"""Namespace (empty for what is of the cluster) and name."""

Subscriber = Callable[[T | None, T | None], None]
"""Told (old, new); without old it is an addition, without new a deletion."""

Indexer = Callable[[T], Iterable[str]]
"""The values under which an object is found in an index."""


class Store(Generic[T]):
    """The objects of one kind by key and by declared indexes. Of one event loop."""

    def __init__(self, kind: Kind[T], indexes: Mapping[str, Indexer[T]] | None = None) -> None:
        """An empty store, not yet listed."""
        self.kind = kind
        self.revision = 0
        """Grows with every change."""
        self.late = 0
        """How many events came late or again."""
        self._objects: dict[Key, T] = {}
        self._indexers = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {name: {} for name in self._indexers}
        self._subscribers: list[Subscriber[T]] = []
        self._listed = asyncio.Event()
        self._seen: set[Key] | None = None
        self._floor: int | None = None

    # Reading

    def __len__(self) -> int:
        """How many objects there are."""
        return len(self._objects)

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object of this name, or None."""
        return self._objects.get((namespace, name))

    def values(self) -> ValuesView[T]:
        """All objects, in no promised order; not to be kept across an await."""
        return self._objects.values()

    def by(self, index: str, value: str) -> Collection[T]:
        """The objects under this value of a declared index; not to be kept across an await."""
        return self._indexes[index].get(value, {}).values()

    @property
    def is_listed(self) -> bool:
        """Whether the whole kind has been seen at least once."""
        return self._listed.is_set()

    async def wait_listed(self) -> None:
        """Wait until the whole kind has been seen."""
        await self._listed.wait()

    def subscribe(self, subscriber: Subscriber[T]) -> Callable[[], None]:
        """Tell `subscriber` of what is there now, then of every change; returns what ends that.

        Subscribers run inside the feeding of the store: they are short and never raise.
        """
        for known in list(self._objects.values()):
            subscriber(None, known)
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    # Feeding

    def begin_list(self) -> None:
        """A list starts: from here to `end_list` the versions' order says nothing."""
        self._seen = set()

    def put(self, found: T) -> None:
        """An object of the list."""
        if self._seen is not None:
            self._seen.add(found.key)
        self._replace(found)

    def end_list(self, version: str) -> None:
        """The list is complete as of `version`: what it did not name is gone."""
        seen = self._seen if self._seen is not None else set()
        self._seen = None
        self._floor = _number(version)
        for key in [key for key in self._objects if key not in seen]:
            self._remove(key)
        self._listed.set()

    def apply(self, event: WatchEvent[T]) -> None:
        """One event of a watch, in the order of the watch."""
        changed = event.object
        if self._is_late(changed.metadata.resource_version):
            self.late += 1
            return
        if event.type in ("ADDED", "MODIFIED"):
            self.put(changed)
        elif event.type == "DELETED":
            known = self._objects.get(changed.key)
            if known is None or known.uid != changed.uid:
                self.late += 1
                return
            self._remove(changed.key)

    def _is_late(self, version: str) -> bool:
        """Whether a watch has passed this version already.

        A watch delivers the events of a kind in the order of their versions, and since 1.35
        versions of one kind may be compared as integers (KEP-5504; all API servers before it
        number them so as well). A version that is no integer is taken to be in order.
        """
        if self._seen is not None:
            return False
        number = _number(version)
        if number is None:
            return False
        if self._floor is not None and number < self._floor:
            return True
        self._floor = number
        return False

    def _replace(self, found: T) -> None:
        known = self._objects.get(found.key)
        if known is not None and known.uid != found.uid:
            self._remove(found.key)
            known = None
        if known is not None:
            version = known.metadata.resource_version
            if version and version == found.metadata.resource_version:
                return
        self._objects[found.key] = found
        self._index(known, found)
        self._tell(known, found)

    def _remove(self, key: Key) -> None:
        known = self._objects.pop(key)
        self._index(known, None)
        self._tell(known, None)

    def _index(self, old: T | None, new: T | None) -> None:
        for name, values_of in self._indexers.items():
            index = self._indexes[name]
            if old is not None:
                for value in values_of(old):
                    bucket = index.get(value)
                    if bucket is not None:
                        bucket.pop(old.key, None)
                        if not bucket:
                            del index[value]
            if new is not None:
                for value in values_of(new):
                    index.setdefault(value, {})[new.key] = new

    def _tell(self, old: T | None, new: T | None) -> None:
        self.revision += 1
        for subscriber in self._subscribers:
            subscriber(old, new)


def _number(version: str) -> int | None:
    return int(version) if version.isascii() and version.isdecimal() else None
