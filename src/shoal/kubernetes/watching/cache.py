"""All that one process watches, as one thing to run and to wait for."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from shoal.kubernetes.api.client import ALL, Client, Selection
from shoal.kubernetes.api.reflector import DEFAULT_OPTIONS, Reflector, WatchOptions
from shoal.kubernetes.api.store import Indexer, Store
from shoal.kubernetes.wire.kinds import Kind
from shoal.kubernetes.wire.meta import Object

T = TypeVar("T", bound=Object)


class WatchCache:
    """Stores of several kinds, each with its reflector."""

    def __init__(self, client: Client, options: WatchOptions = DEFAULT_OPTIONS) -> None:
        """Watch nothing yet."""
        self._client = client
        self._options = options
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._stores: list[Store[Any]] = []

    def watch(
        self,
        kind: Kind[T],
        selection: Selection = ALL,
        indexes: Mapping[str, Indexer[T]] | None = None,
    ) -> Store[T]:
        """The store of what `selection` takes of a kind; to be called before `run`.

        A kind that the server does not have keeps the cache from ever being listed: ask
        `Client.serves` first where that may be.
        """
        store = Store(kind, indexes)
        name = f"{kind.resource} {selection.namespace} {selection.labels} {selection.fields}"
        if name in self._reflectors:
            raise ValueError(f"{name.strip()} is watched already; share its store")
        self._reflectors[name] = Reflector(self._client, store, selection, self._options)
        self._stores.append(store)
        return store

    async def run(self) -> None:
        """Keep all stores equal to the cluster, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, reflector in self._reflectors.items():
                tasks.create_task(reflector.run(), name=f"watch {name.strip()}")

    @property
    def is_listed(self) -> bool:
        """Whether everything has been seen whole: before that, nothing may be decided."""
        return all(store.is_listed for store in self._stores)

    async def wait_listed(self) -> None:
        """Wait until everything has been seen whole."""
        for store in self._stores:
            await store.wait_listed()

    def troubles(self) -> dict[str, str]:
        """What cannot be seen now, and why; empty while all is well."""
        return {
            name.strip(): reflector.trouble
            for name, reflector in self._reflectors.items()
            if reflector.trouble is not None
        }
