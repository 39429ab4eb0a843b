"""What Shoal has to remember that no other object of the cluster says: one ConfigMap of its own.

The leader writes it when it has changed, at most every few seconds and when it ends; who leads
next reads it. It can be lost or be a little old: then a bound is counted anew, a node is tried once
more, demand is learned again. Nothing that holds a device depends on it.
"""

import asyncio
import base64
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from shoal.core import events as ev
from shoal.core.snapshots import evictions_kept
from shoal.core.world import World
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
)
from shoal.kubernetes.watching.history import Ended, Past
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.wire.cluster import ConfigMap
from shoal.kubernetes.wire.kinds import CONFIG_MAPS
from shoal.loop.records import RecordingError, decode, encode
from shoal.model.queue import QueueTree

_log = structlog.get_logger(__name__)

KEY: Final = "memory"
"""The key in the ConfigMap."""

EVERY_S: Final = 5.0
"""How often it is written, at most."""

RESTORED: Final = (
    ev.EvictionsRestored,
    ev.UsageRestored,
    ev.DeclaredRestored,
    ev.SpendingRestored,
    ev.DemandRestored,
)
"""Kinds of event that it keeps; whatever else it should hold is passed over."""


class Content(msgspec.Struct, frozen=True):
    """What is kept: events that restore what the core has learned, and pasts of workloads.

    `refusals` says until when (us) pods of an owner are not planned on a node again; `ended`, by
    owner, what ran for as long as it may; `queues` are those that were kept to, as
    they are written.
    """

    events: bytes = b""
    pasts: dict[str, Past] = {}
    refusals: dict[str, dict[str, int]] = {}
    ended: dict[str, tuple[Ended, ...]] = {}
    queues: QueueTree = QueueTree()


_decoder = msgspec.msgpack.Decoder(Content)


class Memory:
    """The ConfigMap as it is read and written."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        """Name the ConfigMap."""
        self._client = client
        self._name = name
        self._namespace = namespace
        self._version = ""
        self._written = b""
        self._trouble = ""

    async def read(self) -> Content:
        """What is kept; nothing where there is no ConfigMap, or none that can be read."""
        try:
            found = await self._client.get(CONFIG_MAPS, self._name, self._namespace)
        except NotFoundError:
            self._version = ""
            return Content()
        except KubernetesError as error:
            _log.warning("nothing is remembered", why=str(error))
            return Content()
        self._version = found.metadata.resource_version
        self._written = found.binary_data.get(KEY, b"")
        try:
            return _decoder.decode(zlib.decompress(self._written))
        except (zlib.error, msgspec.MsgspecError) as error:
            _log.warning("what is remembered cannot be read", why=str(error))
            return Content()

    async def write(self, content: Content) -> None:
        """Keep something, if it differs from what is kept."""
        body = zlib.compress(msgspec.msgpack.encode(content))
        if body == self._written:
            return
        data = {KEY: base64.b64encode(body).decode()}
        try:
            kept = await self._put(data)
        except (AlreadyExistsError, ConflictError, NotFoundError):
            # Another leader has written: it knows better, and a later try will say so.
            self._version = await self._version_now()
        except KubernetesError as error:
            if str(error) != self._trouble:
                _log.warning("not remembered", why=str(error))
            self._trouble = str(error)
        else:
            self._trouble = ""
            self._version, self._written = kept.metadata.resource_version, body

    async def _put(self, data: dict[str, str]) -> ConfigMap:
        if not self._version:
            body = {"metadata": {"name": self._name}, "binaryData": data}
            return await self._client.create(CONFIG_MAPS, body, self._namespace)
        body = {"metadata": {"resourceVersion": self._version}, "binaryData": data}
        return await self._client.patch(CONFIG_MAPS, self._name, body, self._namespace)

    async def _version_now(self) -> str:
        try:
            found = await self._client.get(CONFIG_MAPS, self._name, self._namespace)
        except KubernetesError:
            return ""
        return found.metadata.resource_version

    async def run(self, content: Callable[[], Content | None]) -> None:
        """Keep what `content` says (None: nothing, now) until cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                now = content()
                if now is not None:
                    await self.write(now)
        finally:
            # A write that was cut off may have arrived: then the first of these finds a conflict.
            for _ in range(2):
                now = content()
                if now is not None:
                    await self.write(now)


def content_of(world: World, source: Source, queues: QueueTree, now_us: int) -> Content:
    """What is to be remembered of a world and of what is known beside it."""
    return Content(
        b"".join(encode(event) for event in _learned(world)),
        source.pasts(),
        source.units.refused_now(now_us),
        dict(source.units.timed_out.ended),
        queues,
    )


def events_of(content: Content) -> Iterator[ev.Event]:
    """The events by which the core remembers."""
    try:
        yield from (each for each in decode(content.events) if isinstance(each, RESTORED))
    except RecordingError as error:
        _log.warning("what was learned cannot be read", why=str(error))


def _learned(world: World) -> Iterator[ev.Event]:
    """What the core has learned, without a time, so that it is equal while nothing is learned."""
    yield evictions_kept(world, 0)
    if world.tenants.past is not None:
        yield ev.UsageRestored(0, world.tenants.now_us, world.tenants.past_written())
    ratios = world.declared.kept()
    if ratios:
        yield ev.DeclaredRestored(0, ratios)
    accounts = world.spending.kept()
    if accounts:
        # Whoever is found running later has been counted up to here.
        counted = (replace(each, watched_us=each.counted_us) for each in accounts)
        yield ev.SpendingRestored(0, tuple(counted))
    yield ev.DemandRestored(0, world.demand.learned())
