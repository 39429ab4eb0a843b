"""What a time on a platform came to: who came, who waited how long, what was held and used."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from shoal.core import events as ev
from shoal.core.decisions import Evict, Start
from shoal.core.world import World
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, WorkloadType
from shoal.simulation.platform import Platform
from shoal.simulation.usage import uses

SAMPLES_US = 600_000_000
"""Time between two looks at what running work uses."""


class Tally:
    """Told of every event of a platform by `applied`, after it was applied."""

    def __init__(self) -> None:
        self.platform: Platform | None = None
        self.came: Counter[WorkloadType] = Counter()
        self.ended: Counter[tuple[WorkloadType, Outcome]] = Counter()
        self.waits_us: defaultdict[WorkloadType, list[int]] = defaultdict(list)
        """From creation to the first start, of all that started."""
        self.failures: Counter[str] = Counter()
        """Nodes and devices that failed."""
        self.evicted: Counter[Reason] = Counter()
        """Evictions decided, by reason."""
        self.lost_device_us = 0
        """The work that they cost at most."""
        self._types: dict[str, WorkloadType] = {}
        self._held: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        self._had: Counter[str] = Counter()
        self._sampled_us: int | None = None

    def applied(self, event: ev.Event) -> None:
        """Count an event."""
        match event:
            case ev.WorkloadSubmitted():
                self._types[event.workload.uid] = event.workload.type
                self.came[event.workload.type] += 1
            case ev.WorkloadEnded():
                kind = self._types.pop(event.uid, None)
                if kind is not None:
                    self.ended[kind, event.outcome] += 1
            case ev.Decided(decision=Start() as start):
                self._started(event.at_us, start)
            case ev.Decided(decision=Evict() as evict):
                self.evicted[evict.reason] += 1
                self.lost_device_us += evict.lost_device_us
            case ev.DeviceLost():
                self.failures["device"] += 1
            case ev.NodeLost():
                self.failures["node"] += 1
            case _:
                pass
        if self.platform is not None:
            self._sample(event.at_us, self.platform)

    def held(self, accelerator: str) -> float:
        """Return the part of the devices of an accelerator that was held, on average."""
        return self._held[accelerator] / max(1, self._had[accelerator])

    def used(self, accelerator: str) -> float:
        """Return the part of them that was busy."""
        return self._used[accelerator] / max(1, self._had[accelerator])

    def _started(self, at_us: int, decision: Start) -> None:
        platform = self.platform
        entry = platform.world.entries[decision.workload] if platform is not None else None
        if entry is not None and entry.attempt == 1:
            wait_us = at_us - entry.workload.created_us
            self.waits_us[entry.workload.type].append(wait_us)

    def _sample(self, at_us: int, platform: Platform) -> None:
        if self._sampled_us is None:
            self._sampled_us = at_us
        if at_us < self._sampled_us:
            return
        self._sampled_us += SAMPLES_US
        world = platform.world
        for accelerator, milli, held_milli in capacities(world):
            self._had[accelerator] += milli
            self._held[accelerator] += held_milli
        accelerator_of = {
            leaf.name: (device.accelerator, leaf.compute_milli)
            for node in world.fleet.nodes
            if node is not None
            for device in node.devices
            for leaf in device.leaves
        }
        for use in uses(platform.embedded.chance, world, platform.story, at_us):
            for leaf in use.leaves:
                accelerator, milli = accelerator_of.get(leaf, ("", 0))
                self._used[accelerator] += round(use.compute_pct * milli / 100)


def capacities(world: World) -> list[tuple[str, int, int]]:
    """Return accelerator, size and what is held of every leaf, in thousandths of a device.

    Held is the larger of the parts of its compute and of its memory.
    """
    fleet = world.fleet
    found = []
    for row, node in enumerate(fleet.nodes):
        for device in node.devices if node is not None else ():
            for leaf in device.leaves:
                at = (row, fleet.leaves[row].index(leaf.name))
                milli, mib = int(fleet.leaf_compute[at]), max(1, int(fleet.leaf_memory[at]))
                free_milli = int(fleet.leaf_compute_free[at])
                free_milli = min(free_milli, milli * int(fleet.leaf_memory_free[at]) // mib)
                found.append((device.accelerator, milli, milli - max(0, free_milli)))
    return found


def quantile(values: Sequence[int], part: float) -> int:
    """Return the value below which such a part of them lies; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0
