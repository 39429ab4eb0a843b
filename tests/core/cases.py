"""Cases in virtual time: what a case says happens to a world that is decided upon.

Times are minutes since the case began, as the case files write them: `10` or `10:30`. There is a
cycle whenever something happened, and whenever time alone may change something, as the loop says;
the last cycle never says that this is later.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import Cycle, cycle
from shoal.core.decisions import Decision, Evict, Freeze, GiveUp, Reserve, Resize, Start, Wait
from shoal.core.validate import Validator, check, check_answers
from shoal.core.world import World
from shoal.loop.periods import look_again_us
from shoal.model.node import Node
from shoal.model.queue import Queue, QueueTree, Quota
from shoal.model.verdict import Verdict
from shoal.model.workload import Outcome, Placement, PodSet, Workload, WorkloadType
from tests.core.build import SEED, policy, whole

MINUTE_US = 60_000_000
SECOND_US = 1_000_000
AMPLE = 100_000


def us(time: str | float) -> int:
    """`10:30` or minutes, in microseconds."""
    if isinstance(time, str):
        minutes, _, seconds = time.partition(":")
        return int(minutes) * MINUTE_US + int(seconds or 0) * SECOND_US
    return int(time * MINUTE_US)


def quota(**devices: int) -> Quota:
    """Devices by accelerator."""
    return tuple(sorted(devices.items()))


def queue(
    name: str,
    guarantee: int = 0,
    limit: int | None = None,
    *,
    accelerator: str = "H100",
    **more: object,
) -> Queue:
    """A queue under the root with G and L of the case's accelerator."""
    made = Queue(
        name,
        "root",
        guarantee=((accelerator, guarantee),),
        limit=() if limit is None else ((accelerator, limit),),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def tree(*queues: Queue, root: Queue | None = None) -> QueueTree:
    """Queues under one root without bounds."""
    return QueueTree((root or Queue("root"), *queues))


@dataclass(frozen=True)
class Seen:
    """A decision and when it was taken, in microseconds."""

    at_us: int
    decision: Decision


@dataclass
class Case:
    """One case. Everything it is asked to do happens at its present time."""

    nodes: Iterable[Node]
    queues: QueueTree
    stops_us: dict[str, int] = field(default_factory=dict)
    """How long the pods of a workload take to stop; those of others stop at once."""

    def __post_init__(self) -> None:
        self.now_us = 0
        self.world = World()
        self.validator = Validator(self.world)
        self.seen: list[Seen] = []
        self._due: list[tuple[int, int, ev.Event]] = []
        self._count = 0
        self._look_us: int | None = None
        self.feed(ev.QueuesSet(0, self.queues))
        for node in self.nodes:
            self.feed(ev.NodeSeen(0, node))

    # What happens -----------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Let something happen now."""
        self.world.apply(event)
        self.validator.applied(event)

    def submit(self, *workloads: Workload) -> None:
        """Workloads come, and are decided upon."""
        for workload in workloads:
            made = replace(workload, created_us=self.now_us)
            self.feed(ev.WorkloadSubmitted(self.now_us, made))
        self.turn()

    def adopt(self, workload: Workload, *nodes: str) -> None:
        """A workload is found running, a pod on each of these nodes."""
        placements = []
        fleet = self.world.fleet
        made = replace(workload, created_us=self.now_us)
        for pod, name in enumerate(nodes):
            count = workload.pod_sets[0].request.devices.count
            row = fleet.row_of[name]
            leaves = [
                leaf
                for column, leaf in enumerate(fleet.leaves[row])
                if fleet.leaf_tenants_free[row, column] == fleet.leaf_tenants[row, column]
            ]
            placements.append(Placement(pod, name, tuple(leaves[:count])))
        self.feed(ev.WorkloadAdopted(self.now_us, made, tuple(placements)))

    def end(self, *uids: str, outcome: Outcome = Outcome.COMPLETED) -> None:
        """Workloads end."""
        for uid in uids:
            self.feed(ev.WorkloadEnded(self.now_us, uid, outcome))
        self.turn()

    def set_queues(self, queues: QueueTree) -> None:
        """The queues change."""
        self.feed(ev.QueuesSet(self.now_us, queues))
        self.turn()

    def happen(self, *events: ev.Event) -> None:
        """Other events happen now."""
        for event in events:
            self.feed(replace(event, at_us=self.now_us))
        self.turn()

    def schedule(self, at_us: int, event: ev.Event) -> None:
        """Let an event happen later."""
        self._count += 1
        heappush(self._due, (at_us, self._count, event))

    # Time -------------------------------------------------------------------------------------

    def to(self, time: str | float) -> None:
        """Let time pass."""
        end_us = us(time)
        while True:
            times_us = [self._due[0][0]] if self._due else []
            if self._look_us is not None and self._look_us > self.now_us:
                times_us.append(self._look_us)
            next_us = min(times_us, default=end_us)
            if next_us >= end_us:
                break
            self._at(next_us)
        self._at(end_us)

    def _at(self, at_us: int) -> None:
        self.now_us = at_us
        self._happen_due()
        self.turn()

    def run_for(self, seconds: int) -> None:
        """Let so many seconds pass."""
        self.to((self.now_us + seconds * SECOND_US) / MINUTE_US)

    def run_on(self, cycles: int = 100) -> None:
        """Another so many cycles, a second apart, in which nothing new is decided."""
        before = len(self.seen)
        for _ in range(cycles):
            self._at(self.now_us + SECOND_US)
        assert self.seen[before:] == []

    def _happen_due(self) -> None:
        while self._due and self._due[0][0] <= self.now_us:
            self.feed(heappop(self._due)[2])

    def turn(self) -> Cycle:
        """Decide until there is nothing left to decide, and carry it out."""
        while True:
            came = cycle(self.world, policy(), self.now_us, SEED, Budget(AMPLE))
            for decision in came.decisions:
                self.seen.append(Seen(self.now_us, decision))
                self.feed(ev.Decided(self.now_us, decision))
            self.feed(ev.Cycled(self.now_us, AMPLE, came.complete, came.examined))
            carried = [self._carry_out(decision) for decision in came.decisions]
            self._happen_due()
            if came.complete and not any(carried):
                self._look_us = look_again_us(self.world)
                assert no_later(came.look_again_us, self._look_us)
                check(self.world)
                check_answers(self.world)
                return came

    def _carry_out(self, decision: Decision) -> bool:
        """Make a decision come true; whether there is more to decide now."""
        if isinstance(decision, Start | Resize):
            for placement in decision.placements:
                self.feed(ev.PodStarted(self.now_us, decision.workload, placement.pod))
            return True
        if isinstance(decision, Evict):
            stops_us = self.stops_us.get(decision.workload, 0)
            for pod in decision.pods:
                gone = ev.PodEnded(self.now_us + stops_us, decision.workload, pod)
                self.schedule(gone.at_us, gone)
            return not stops_us
        return isinstance(decision, Reserve | GiveUp | Freeze)

    # What came of it --------------------------------------------------------------------------

    @property
    def evictions(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """When, of whom, which pods."""
        return [
            (clock(seen.at_us), seen.decision.workload, seen.decision.pods)
            for seen in self.seen
            if isinstance(seen.decision, Evict)
        ]

    @property
    def evicted(self) -> list[tuple[str, str, int]]:
        """When, of whom, and the device minutes that were lost."""
        return [
            (clock(seen.at_us), seen.decision.workload, seen.decision.lost_device_us // MINUTE_US)
            for seen in self.seen
            if isinstance(seen.decision, Evict)
        ]

    @property
    def grown(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """When, whom, which pods were given that it lacked."""
        return [
            (
                clock(seen.at_us),
                seen.decision.workload,
                tuple(p.pod for p in seen.decision.placements),
            )
            for seen in self.seen
            if isinstance(seen.decision, Resize)
        ]

    def starts(self, uid: str) -> list[str]:
        """When a workload was started."""
        return [
            clock(seen.at_us)
            for seen in self.seen
            if isinstance(seen.decision, Start) and seen.decision.workload == uid
        ]

    def nodes_of(self, uid: str) -> list[str]:
        """Where its pods are now."""
        return [placement.node for _, placement in sorted(self.world.entries[uid].held.items())]

    def verdict(self, uid: str) -> Verdict:
        """Why a workload waits, as it was told last."""
        for seen in reversed(self.seen):
            if isinstance(seen.decision, Wait) and uid in seen.decision.workloads:
                return seen.decision.verdict
        raise AssertionError(f"{uid} was never told why it waits")

    def holds(self, name: str) -> int:
        """Devices that a queue holds of all accelerators, in thousandths."""
        return sum(self.world.tenants.used_units(name).values()) * 1000 // 840_000


def no_later(one_us: int | None, other_us: int | None) -> bool:
    """Whether a time, None for never, does not come after another one."""
    return other_us is None or (one_us is not None and one_us <= other_us)


def clock(at_us: int) -> str:
    """A time as case files write it."""
    return f"{at_us // MINUTE_US}:{at_us // SECOND_US % 60:02}"


def work(
    uid: str,
    devices: int = 1,
    name: str = "",
    *,
    type_: WorkloadType = WorkloadType.TRAINING,
    pods: int = 1,
    minimum: int | None = None,
    accelerators: tuple[str, ...] = (),
    **more: object,
) -> Workload:
    """`uid` is queue/name, or the queue is given; so many pods with so many devices each."""
    request = whole(devices, 0, *accelerators)
    made = Workload(
        uid,
        (PodSet("main", pods, request, minimum),),
        queue=name or uid.partition("/")[0],
        type=type_,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def batch(uid: str, devices: int = 1, name: str = "", **more: object) -> Workload:
    """The same as a batch job."""
    return work(uid, devices, name, type_=WorkloadType.BATCH, **more)  # type: ignore[arg-type]
