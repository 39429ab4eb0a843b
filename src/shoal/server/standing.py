"""What the API stands on: the doors of a platform, the catalogue, and what people wrote."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shoal.catalog.catalog import Catalog
from shoal.core.policies import Policy
from shoal.core.queueing.order import in_turn
from shoal.core.world import Entry, State, World
from shoal.loop.doors import Doors
from shoal.loop.story import Life, Story
from shoal.model.fractions import UNIT, charge_units, fraction_up
from shoal.model.node import Device, Leaf
from shoal.model.queue import QueueTree
from shoal.model.workload import Workload
from shoal.objects.files import Written
from shoal.objects.meaning import without_closed
from shoal.objects.quotas import Names, names_of
from shoal.objects.tree import words_of
from shoal.texts.language import Language


def _forgets(texts: Sequence[tuple[str, str]]) -> None:
    """Keep nothing."""


@dataclass
class Standing:
    """A platform that is running, and what is known about it beside its world.

    `keep` makes the files safe that people wrote, as names and texts, so that a platform that
    begins again finds them.
    """

    doors: Doors
    catalog: Catalog
    written: Written
    version: str
    keep: Callable[[Sequence[tuple[str, str]]], None] = _forgets
    names: Names = field(init=False)
    words: Mapping[str, str] = field(init=False)
    """What people wrote, by the accelerators that the world counts together."""

    def __post_init__(self) -> None:
        self.names = names_of(self.catalog)
        self.words = words_of(self.written.tree, self.names)

    def take(self, written: Written) -> None:
        """Have this be what people wrote, for everybody who looks from now on."""
        with self.doors.replica.lock:
            self.written = written
            self.words = words_of(written.tree, self.names)

    def now(self) -> datetime:
        """The platform's time."""
        return moment(self.doors.now_us())

    @contextmanager
    def reading(self, language: Language = Language.ENGLISH) -> Iterator["Look"]:
        """Hold the replica still while it is read."""
        with self.doors.replica.lock:
            yield Look(self, language)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a leaf is."""

    node: str
    device: Device
    leaf: Leaf


class Look:
    """One look at the replica, which holds still while it lasts; what is derived is kept."""

    def __init__(self, standing: Standing, language: Language) -> None:
        replica = standing.doors.replica
        self.standing = standing
        self.language = language
        self.words = standing.words
        self.written = standing.written
        self.world: World = replica.world
        self.story: Story = replica.story
        self.at_us = replica.at_us
        self.offset = replica.offset
        header = replica.header
        self.policy = header.policy if header is not None else Policy("pack")
        self.seed = int(header.seed) if header is not None and header.seed.isdecimal() else 0
        counted = {queue.name for queue in self.world.tenants.tree.queues}
        self.tree: QueueTree = without_closed(self.written.tree, counted)
        """The queues that people wrote, and those that close and are not empty yet."""
        self._places: dict[str, Place] | None = None
        self._holders: dict[str, list[tuple[Entry, int]]] | None = None
        self._kept: dict[str, list[tuple[Entry, int]]] | None = None
        self._orders: dict[str, dict[str, int]] | None = None

    @property
    def places(self) -> Mapping[str, Place]:
        """Where each leaf of a present node is, by the leaf's name."""
        if self._places is None:
            self._places = {
                leaf.name: Place(node.name, device, leaf)
                for node in self.world.fleet.nodes
                if node is not None
                for device in node.devices
                for leaf in device.leaves
            }
        return self._places

    @property
    def holders(self) -> Mapping[str, list[tuple[Entry, int]]]:
        """Who holds each leaf, as workload and number of the pod, by the leaf's name."""
        if self._holders is None:
            self._holders = {}
            for entry in self.world.entries.values():
                for pod, placement in entry.held.items():
                    for leaf in placement.leaves:
                        self._holders.setdefault(leaf, []).append((entry, pod))
        return self._holders

    @property
    def kept(self) -> Mapping[str, list[tuple[Entry, int]]]:
        """For whom each leaf is kept, as workload and number of the pod, by the leaf's name."""
        if self._kept is None:
            self._kept = {}
            for uid in self.world.reserving:
                entry = self.world.entries[uid]
                for placement in entry.reserved.placements if entry.reserved else ():
                    for leaf in placement.leaves:
                        self._kept.setdefault(leaf, []).append((entry, placement.pod))
        return self._kept

    def lost(self, node: str, device: str) -> bool:
        """Whether a device is out of order."""
        return device in self.world.fleet.lost_devices.get(node, frozenset())

    def order(self, queue: str) -> Mapping[str, int]:
        """The place, from 1, of each workload that waits in a queue and may ever start there."""
        if self._orders is None:
            waiting: dict[str, list[Entry]] = {}
            for entry in self.world.entries.values():
                verdict = entry.group.verdict if entry.group is not None else None
                never = verdict is not None and verdict.never
                if entry.state is State.WAITING and not never:
                    waiting.setdefault(entry.workload.queue, []).append(entry)
            self._orders = {
                name: {
                    each.workload.uid: place
                    for place, each in enumerate(in_turn(self.world, name, entries), start=1)
                }
                for name, entries in waiting.items()
            }
        return self._orders.get(queue, {})

    def lives(self) -> Iterator[Life]:
        """Every workload that is known: those that have not ended, and the last that have."""
        yield from self.story.lives.values()
        yield from self.story.ended.values()

    def state(self, life: Life) -> str:
        """Where a workload stands: waiting, starting, running, evicting, stopping or ended.

        Work of which only some pods are evicted runs on.
        """
        if life.ended_us is not None:
            return "ended"
        entry = self.world.entries.get(life.workload.uid)
        if entry is None:
            return "ended"
        if life.stopping_us is not None and entry.state is not State.WAITING:
            return "stopping"
        if entry.held and entry.held.keys() <= entry.evicting.keys():
            return "evicting"
        return entry.state.value

    def units(self, entry: Entry, pod: int, leaf: str) -> int:
        """What a pod is charged for a leaf, in units of a device; a whole one if it is gone."""
        devices = entry.request_of(pod).devices
        place = self.places.get(leaf)
        if devices.whole or place is None:
            return UNIT
        whole = max(sum(each.memory_mib for each in place.device.leaves), devices.memory_mib, 1)
        compute = min(devices.compute_milli, 1000) * (UNIT // 1000)
        return charge_units(fraction_up(devices.memory_mib, whole), compute)


def devices_of(workload: Workload) -> int:
    """How many devices a workload asks for, over all pods."""
    return sum(each.count * each.request.devices.count for each in workload.pod_sets)


def id_of(uid: str) -> str:
    """A workload's uid as one segment of a path, escaped as in a JSON pointer (RFC 6901)."""
    return uid.replace("~", "~0").replace("/", "~1")


def uid_of(identity: str) -> str:
    """The uid behind an id."""
    return identity.replace("~1", "/").replace("~0", "~")


def moment(at_us: int) -> datetime:
    """A time of the control plane, in UTC."""
    return datetime.fromtimestamp(at_us // 1_000_000, UTC).replace(microsecond=at_us % 1_000_000)


def moment_or_none(at_us: int | None) -> datetime | None:
    """A time that may not have come."""
    return None if at_us is None else moment(at_us)
