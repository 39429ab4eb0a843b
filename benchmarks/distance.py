"""How far what queues hold is from their fair shares, in virtual time.

The distance is the time average of the sum over queues of |held - fair|, over twice the devices: 0
where everybody holds its share, 1 where all is held by those who should hold nothing.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

import numpy as np

from benchmarks.fairness import nodes
from benchmarks.frame import Result, bench
from benchmarks.steady import SEED, Nobody
from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, Start
from shoal.core.policies import Policy
from shoal.core.tenancy.shares import Claim, divide, fair_shares
from shoal.core.world import World
from shoal.loop.engine import Loop, NoRecorder
from shoal.model.fractions import UNIT
from shoal.model.queue import Queue, QueueTree
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType

ACCELERATOR = "H100-80GB"
NODES = 50
DEVICES = 8 * NODES
SECOND_US = 1_000_000
MINUTE_S = 60
BURST_S = 45 * MINUTE_S
LONGEST_S = 10 * MINUTE_S
SHIFT_S = 8 * 60 * MINUTE_S


@dataclass(frozen=True)
class Job:
    """Work of a queue: so many pods of so many devices, for so long, from when it is submitted."""

    uid: str
    queue: str
    type: WorkloadType
    pods: int
    devices: int
    run_s: int
    at_s: int


def tree() -> QueueTree:
    """Three teams of four projects, with weights and guarantees of half of the fleet."""
    queues = [Queue("root")]
    queues += [Queue(f"team-{t}", "root", weight=1 + t) for t in range(3)]
    for team in range(3):
        for project in range(4):
            guarantee = ((ACCELERATOR, DEVICES * (1 + project) // 60),)
            name = f"team-{team}-{project}"
            queues.append(Queue(name, f"team-{team}", guarantee=guarantee, weight=1 + project))
    return QueueTree(tuple(queues))


def held(world: World, queue: str) -> Fraction:
    """Return what a queue holds, in devices."""
    return Fraction(sum(world.tenants.used_units(queue).values()), UNIT)


class Run:
    """Jobs on a fleet that Shoal decides about; whoever is evicted stops at once."""

    def __init__(self, queues: QueueTree, jobs: list[Job]) -> None:
        self.world = World()
        self.loop = Loop(self.world, Policy("pack"), SEED, Nobody(), NoRecorder())
        self.leaves = [queue.name for queue in queues.leaves()]
        self.now_s = 0
        self._jobs = {job.uid: job for job in jobs}
        self._arrivals = deque(sorted(jobs, key=lambda job: (job.at_s, job.uid)))
        self._ends: list[tuple[int, str, int]] = []
        self._starts = dict.fromkeys(self._jobs, 0)
        for node in nodes(NODES):
            self.loop.feed(ev.NodeSeen(0, node))
        self.loop.feed(ev.QueuesSet(0, queues))

    def step(self) -> None:
        """Let a second pass."""
        self.now_s += 1
        now_us = self.now_s * SECOND_US
        news = False
        while self._arrivals and self._arrivals[0].at_s < self.now_s:
            job = self._arrivals.popleft()
            request = Request(devices=DeviceRequest(job.devices))
            sets = (PodSet("main", job.pods, request),)
            workload = Workload(job.uid, sets, job.queue, job.type, 0, now_us)
            self.loop.feed(ev.WorkloadSubmitted(now_us, workload))
            news = True
        while self._ends and self._ends[0][0] <= self.now_s:
            _, uid, start = heapq.heappop(self._ends)
            if self._starts[uid] == start:
                self.loop.feed(ev.WorkloadEnded(now_us, uid, Outcome.COMPLETED))
                news = True
        while news:
            came = self.loop.turn(now_us)
            carried = [self._carry_out(decision, now_us) for decision in came.decisions]
            news = any(carried) or not came.complete

    def _carry_out(self, decision: Decision, now_us: int) -> bool:
        if isinstance(decision, Start):
            self._starts[decision.workload] += 1
            end_s = self.now_s + self._jobs[decision.workload].run_s
            end = end_s, decision.workload, self._starts[decision.workload]
            heapq.heappush(self._ends, end)
            for placement in decision.placements:
                self.loop.feed(ev.PodStarted(now_us, decision.workload, placement.pod))
        elif isinstance(decision, Evict):
            self._starts[decision.workload] += 1
            for pod in decision.pods:
                self.loop.feed(ev.PodEnded(now_us, decision.workload, pod))
            return True
        return False

    def distance(self) -> float:
        """Return how far the leaves are from their fair shares now."""
        fair = fair_shares(self.world)
        away = [abs(held(self.world, name) - fair[name][ACCELERATOR]) for name in self.leaves]
        return float(sum(away) / (2 * DEVICES))


class Ideal:
    """The same jobs where every freed device goes at once to the queue furthest below its share.

    Nodes and gangs do not matter there: a device is held for as long as its job runs, from when the
    device came to it. Nobody is evicted.
    """

    def __init__(self, queues: QueueTree, jobs: list[Job]) -> None:
        self.queues = queues
        self.leaves = [queue.name for queue in queues.leaves()]
        self.now_s = 0
        self._arrivals = deque(sorted(jobs, key=lambda job: (job.at_s, job.uid)))
        self._waiting: dict[str, deque[int]] = {name: deque() for name in self.leaves}
        self._held = dict.fromkeys(self.leaves, 0)
        self._ends: list[tuple[int, str]] = []

    def step(self) -> None:
        """Let a second pass."""
        self.now_s += 1
        news = False
        while self._arrivals and self._arrivals[0].at_s < self.now_s:
            job = self._arrivals.popleft()
            self._waiting[job.queue] += [job.run_s] * (job.pods * job.devices)
            news = True
        while self._ends and self._ends[0][0] <= self.now_s:
            self._held[heapq.heappop(self._ends)[1]] -= 1
            news = True
        if not news:
            return
        fair = self.fair()
        while sum(self._held.values()) < DEVICES:
            waiting = [name for name in self.leaves if self._waiting[name]]
            if not waiting:
                break
            name = max(waiting, key=lambda name: fair[name] - self._held[name])
            heapq.heappush(self._ends, (self.now_s + self._waiting[name].popleft(), name))
            self._held[name] += 1

    def fair(self) -> dict[str, Fraction]:
        """Return the fair shares now."""
        claims = [
            Claim(
                queue.name,
                queue.parent,
                Fraction(queue.weight),
                Fraction(dict(queue.guarantee or ()).get(ACCELERATOR, 0)),
                None,
                Fraction(self._held.get(queue.name, 0) + len(self._waiting.get(queue.name, ()))),
            )
            for queue in self.queues.queues
        ]
        return divide(claims, Fraction(DEVICES))

    def distance(self) -> float:
        """Return how far the leaves are from their fair shares now."""
        fair = self.fair()
        away = [abs(self._held[name] - fair[name]) for name in self.leaves]
        return float(sum(away) / (2 * DEVICES))


def bursts() -> list[Job]:
    """Return one-device jobs of one to ten minutes: bursts that keep every queue backlogged."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    numbers = count()
    leaves = [queue.name for queue in tree().leaves()]
    jobs = []
    for burst, names in enumerate((leaves[::2], leaves[1::2], leaves)):
        for name in names:
            for _ in range(1600):
                run_s = int(rng.integers(MINUTE_S, LONGEST_S + 1))
                uid = f"j{next(numbers):06}"
                jobs.append(Job(uid, name, WorkloadType.BATCH, 1, 1, run_s, burst * BURST_S))
    return jobs


@bench
def fairness_bursts() -> Iterator[Result]:
    """Twelve backlogged queues on 400 devices, from the longest run time after each burst on."""
    run = Run(tree(), bursts())
    distances = []
    while run.now_s < 3 * BURST_S:
        run.step()
        if run.now_s % BURST_S >= LONGEST_S and run.now_s % 30 == 0:
            distances.append(run.distance())
    mean = 100 * float(np.mean(distances))
    yield Result("distance from fair shares after bursts", mean, "%", at_most=2)


def mix() -> list[Job]:
    """Return eight hours of the four types, so much of it that all queues wait now and then."""
    rng = np.random.Generator(np.random.PCG64(SEED + 1))
    numbers = count()
    leaves = [queue.name for queue in tree().leaves()]
    kinds = (  # type, share of arrivals, pods, devices of each, mean minutes
        (WorkloadType.TRAINING, 0.25, (1, 2, 4), (4, 8), 180),
        (WorkloadType.BATCH, 0.5, (1,), (1, 2), 30),
        (WorkloadType.INFERENCE, 0.05, (1, 2), (1,), 720),
        (WorkloadType.NOTEBOOK, 0.2, (1,), (1,), 90),
    )
    jobs = []
    at_s = 0.0
    while at_s < SHIFT_S:
        at_s += float(rng.exponential(50))
        kind, _, pods, devices, minutes = kinds[rng.choice(4, p=[each[1] for each in kinds])]
        run_s = max(MINUTE_S, int(rng.exponential(minutes * MINUTE_S)))
        name = leaves[int(rng.integers(len(leaves)))]
        size = int(rng.choice(pods)), int(rng.choice(devices))
        jobs.append(Job(f"j{next(numbers):06}", name, kind, *size, run_s, int(at_s)))
    return jobs


@bench
def fairness_mix() -> Iterator[Result]:
    """Eight hours of the four types with the defaults, beside an ideal division of the jobs."""
    jobs = mix()
    for name, run in (("shipped defaults", Run(tree(), jobs)), ("ideal", Ideal(tree(), jobs))):
        distances = []
        while run.now_s < SHIFT_S:
            run.step()
            if run.now_s % (5 * MINUTE_S) == 0:
                distances.append(run.distance())
        mean = 100 * float(np.mean(distances))
        yield Result(f"distance from fair shares, four types, {name}", mean, "%")
