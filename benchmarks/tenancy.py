"""Teams that share a fleet in virtual time: they lend, take back, checkpoint and come back.

Eight teams with guarantees of nine tenths of the fleet, each with all four types of work: inference
and notebooks within the guarantee, training in gangs, and batch that borrows what is idle. Demand
goes up and down, for each team at its own hours, so that guarantees are lent and wanted back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random

from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, Freeze, Resize, Start
from shoal.core.events import Event
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.loop.engine import Loop, NoRecorder
from shoal.model.fractions import UNIT
from shoal.model.node import Device, Leaf, Node
from shoal.model.queue import EvictionBounds, Queue, QueueTree
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

ACCELERATOR = "H100"
DEVICES = 8
TEAMS = 8
RECLAIM_WITHIN_US = 10 * MINUTE_US
CHECKPOINT_US = 15 * MINUTE_US
ARRIVALS_PCT = 75
"""Workloads in an hour that come where all teams are busy, per hundred devices of the fleet."""

PERSON_US = 2 * MINUTE_US
"""How long it takes until somebody who is called looks at frozen evictions and resumes them."""


def fleet(nodes: int) -> tuple[Node, ...]:
    """So many nodes of eight devices each."""

    def device(name: str) -> Device:
        return Device(name, ACCELERATOR, (Leaf(name, 81_920, 1000, 1),))

    return tuple(
        Node(f"n{n}", 128_000, 1 << 20, 110, tuple(device(f"n{n}/{d}") for d in range(DEVICES)))
        for n in range(nodes)
    )


def teams(nodes: int) -> QueueTree:
    """The teams, in two departments, each guaranteed its part of nine tenths of the fleet."""
    each = nodes * DEVICES * 9 // 10 // TEAMS
    bounds = EvictionBounds(
        minimum_run_us=30 * MINUTE_US,
        per_workload_per_day=4,
        device_hours_lost_per_day=40,
        checkpoint_interval_us=30 * MINUTE_US,
    )
    departments = [Queue(f"d{n}", "org", guarantee=((ACCELERATOR, 4 * each),)) for n in range(2)]
    leaves = [
        Queue(
            f"t{n}",
            f"d{n // 4}",
            guarantee=((ACCELERATOR, each),),
            weight=1 + n % 2,
            reclaim_within_us=RECLAIM_WITHIN_US,
            grace_max_us=5 * MINUTE_US,
            eviction=bounds,
        )
        for n in range(TEAMS)
    ]
    return QueueTree((Queue("org"), *departments, *leaves))


@dataclass
class Teams:
    """What the teams ask for, from one seed."""

    seed: int
    nodes: int

    def arrivals(self, end_us: int) -> Iterator[tuple[Workload, int]]:
        """Yield workloads in the order of their coming, with how long each runs."""
        chance = Random(self.seed)  # noqa: S311 - a simulation's
        at_us, number = 0, 0
        mean_us = HOUR_US * 100 // (ARRIVALS_PCT * self.nodes * DEVICES)
        while True:
            at_us += int(chance.expovariate(1) * mean_us)
            if at_us > end_us:
                return
            team = chance.randrange(TEAMS)
            hour = (at_us // HOUR_US + 3 * team) % 24
            if chance.random() > (1.0 if 8 <= hour < 18 else 0.25):
                continue
            number += 1
            yield self._one(chance, f"t{team}", number, at_us)

    def _one(self, chance: Random, team: str, number: int, at_us: int) -> tuple[Workload, int]:
        kind = chance.choices(list(WorkloadType), weights=(4, 1, 1, 6))[0]
        pods = chance.choice((1, 2, 4, 8)) if kind is WorkloadType.TRAINING else 1
        hours = chance.lognormvariate(0.3, 0.8) if pods > 1 else chance.lognormvariate(-0.3, 0.9)
        run_us = int(min(hours, 20) * HOUR_US)
        declares = chance.random() < 0.5
        request = Request(4000, 1024, DeviceRequest(1))
        minimum = 1 if pods == 8 and chance.random() < 0.3 else None
        workload = Workload(
            f"{team}/{kind.value}-{number}",
            (PodSet("main", pods, request, minimum),),
            queue=team,
            type=kind,
            priority=chance.choice((0, 0, 0, 10)),
            created_us=at_us,
            user=f"u{chance.randrange(4)}",
            run_us=run_us + 10 * MINUTE_US if declares else None,
            grace_us=chance.choice((5, 30, 120)) * SECOND_US,
        )
        return workload, run_us


@dataclass
class Rights:
    """Since when each waiting workload has had an unmet right to what it asks for.

    Work of a team has one, in the order of the team's queue, up to the team's guarantee; what alone
    would be beyond that keeps nobody else from it.
    """

    world: World
    since_us: dict[str, int] = field(default_factory=dict)
    delays_us: list[int] = field(default_factory=list)
    delayed: dict[str, int] = field(default_factory=dict)
    """The longest delay of each workload that had to wait for a guarantee."""

    def look(self, now_us: int) -> None:
        """Bring the rights up to date."""
        entitled: dict[str, None] = {}
        waiting: dict[str, list[tuple[tuple[int, int, str], int]]] = {}
        for group in self.world.waiting.groups.values():
            for order in group.members:
                waiting.setdefault(group.queue, []).append((order, group.pods))
        for uid in self.world.reserving:
            entry = self.world.entries[uid]
            if entry.reserved is not None and entry.reserved.evicted:
                entitled[uid] = None
        tenants = self.world.tenants
        for queue, members in waiting.items():
            bound = tenants.guarantee(queue, ACCELERATOR)
            left = (bound.units - tenants.held(queue, bound)) // UNIT
            for (_, _, uid), devices in sorted(members):
                if devices > left:
                    continue
                left -= devices
                entitled[uid] = None
        for uid in [uid for uid in self.since_us if uid not in entitled]:
            if uid not in self.world.entries or not self.world.entries[uid].held:
                del self.since_us[uid]
        for uid in entitled:
            self.since_us.setdefault(uid, now_us)

    def started(self, uid: str, now_us: int) -> None:
        """Note that a workload starts."""
        since_us = self.since_us.pop(uid, None)
        delay_us = 0 if since_us is None else now_us - since_us
        self.delays_us.append(delay_us)
        if delay_us:
            self.delayed[uid] = max(delay_us, self.delayed.get(uid, 0))


class Play:
    """A run. Implements the loop's executor; what ends, stops and reports has its time."""

    def __init__(
        self,
        nodes: int,
        seed: int,
        queues: QueueTree,
        check: Callable[[Event], None] | None = None,
        world: World | None = None,
    ) -> None:
        self.world = world or World()
        self.now_us = 0
        self.rights = Rights(self.world)
        self.evictions: list[Evict] = []
        self.freezes = 0
        self._chance = Random(seed)  # noqa: S311 - a simulation's
        self._loop = Loop(self.world, Policy("pack"), seed, self, NoRecorder(), check)
        self._due: list[tuple[int, int, Event, int | None]] = []
        self._count = 0
        self._left_us: dict[str, int] = {}
        self._began_us: dict[str, int] = {}
        self.feed(ev.QueuesSet(0, queues))
        for node in fleet(nodes):
            self.feed(ev.NodeSeen(0, node))

    def feed(self, event: Event) -> None:
        """Let something happen."""
        self._loop.feed(event)

    def schedule(self, event: Event, attempt: int | None = None) -> None:
        """Let something happen later, if the workload it is about is then in the same start."""
        self._count += 1
        heappush(self._due, (event.at_us, self._count, event, attempt))

    def run(self, arrivals: Iterator[tuple[Workload, int]], end_us: int) -> None:
        """Let workloads come until the end."""
        for workload, run_us in arrivals:
            self.until(workload.created_us)
            self.submit(workload, run_us)
            self.turn()
        self.until(end_us)

    def submit(self, workload: Workload, run_us: int) -> None:
        """A workload comes that will run so long; nothing is decided yet."""
        self._left_us[workload.uid] = run_us
        self.feed(ev.WorkloadSubmitted(self.now_us, workload))

    def until(self, end_us: int) -> None:
        """Let time pass."""
        while True:
            times_us = [self._due[0][0]] if self._due else []
            again_us = self.world.waiting.next_us()
            if again_us is not None:
                times_us.append(max(again_us, self.now_us + 1))
            next_us = min(times_us, default=end_us)
            if next_us >= end_us:
                break
            self.now_us = next_us
            while self._due and self._due[0][0] <= next_us:
                self._happen(*heappop(self._due)[2:])
            self.turn()
        self.now_us = end_us

    def turn(self) -> None:
        """Decide until nothing is left to decide."""
        self.rights.look(self.now_us)
        while not self._loop.turn(self.now_us).complete:
            pass
        self.rights.look(self.now_us)

    def _happen(self, event: Event, attempt: int | None) -> None:
        uid = getattr(event, "uid", None)
        entry = self.world.entries.get(uid) if uid is not None else None
        if attempt is not None and (entry is None or entry.attempt != attempt):
            return
        if isinstance(event, ev.WorkloadEnded) and entry is not None and entry.evicting:
            return
        if isinstance(event, ev.CheckpointReported) and entry is not None:
            self.schedule(replace(event, at_us=self.now_us + CHECKPOINT_US), attempt)
            event = replace(event, taken_us=self.now_us)
        self.feed(event)

    def carry_out(self, decision: Decision) -> None:
        """Let a decision come true."""
        if isinstance(decision, Start):
            self._start(decision)
        elif isinstance(decision, Resize):
            for placement in decision.placements:
                self.feed(ev.PodStarted(self.now_us, decision.workload, placement.pod))
        elif isinstance(decision, Evict):
            self._stop(decision)
        elif isinstance(decision, Freeze):
            self.freezes += 1
            self.schedule(ev.EvictionsResumed(self.now_us + PERSON_US, "on call"))

    def _start(self, decision: Start) -> None:
        uid = decision.workload
        entry = self.world.entries[uid]
        self.rights.started(uid, self.now_us)
        self._began_us[uid] = self.now_us
        for placement in decision.placements:
            self.feed(ev.PodStarted(self.now_us, uid, placement.pod))
        ends_us = self.now_us + self._left_us.get(uid, HOUR_US)
        self.schedule(ev.WorkloadEnded(ends_us, uid, Outcome.COMPLETED), entry.attempt)
        if entry.workload.type is WorkloadType.TRAINING:
            report = ev.CheckpointReported(self.now_us + CHECKPOINT_US, uid, 0)
            self.schedule(report, entry.attempt)

    def _stop(self, decision: Evict) -> None:
        uid = decision.workload
        entry = self.world.entries[uid]
        self.evictions.append(decision)
        stops_us = self.now_us + int(self._chance.random() * decision.grace_us)
        for pod in decision.pods:
            self.schedule(ev.PodEnded(stops_us, uid, pod), entry.attempt)
        if all(pod in entry.evicting for pod in entry.held):
            saved_us = entry.checkpoint_us or self._began_us[uid]
            self._left_us[uid] -= max(0, saved_us - self._began_us[uid])
