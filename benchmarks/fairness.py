"""The order of the tenant tree: how fast it is at scale, and how evenly it serves."""

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.frame import Result, bench
from benchmarks.steady import SEED, Nobody
from shoal.core import events as ev
from shoal.core.decisions import Start
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.loop.engine import Loop, NoRecorder
from shoal.loop.garbage import tended
from shoal.model.node import Device, Leaf, Node
from shoal.model.queue import Queue, QueueTree
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType

NODES = 5000
DEVICES = 8
TEAMS = 20
PROJECTS = 50
WAITING = 50_000
ENDS = 32
"""Workloads that end between two cycles."""
BUDGET = 64
"""Places searched for in a cycle, so that each is short."""


def nodes(count: int, devices: int = DEVICES) -> Iterator[Node]:
    """Yield nodes of so many whole devices."""
    for n in range(count):
        name = f"node-{n:05}"
        cards = tuple(
            Device(f"{name}/{d}", "H100-80GB", (Leaf(f"{name}/{d}", 81_559),))
            for d in range(devices)
        )
        yield Node(name, 16_000 * devices, 131_072 * devices, 110, cards)


def organisation() -> QueueTree:
    """Return teams of projects with weights and limits."""
    queues = [Queue("root")]
    queues += [Queue(f"team-{team:02}", "root", weight=1 + team % 3) for team in range(TEAMS)]
    for team in range(TEAMS):
        queues += [
            Queue(
                f"team-{team:02}-{project:02}",
                f"team-{team:02}",
                limit=(("H100-80GB", 120),),
                weight=1 + project % 4,
            )
            for project in range(PROJECTS)
        ]
    return QueueTree(tuple(queues))


@dataclass
class Throughput:
    """What admitting from a long backlog came to."""

    fill_starts: int = 0
    fill_seconds: float = 0.0
    starts: int = 0
    seconds: float = 0.0
    cycle_seconds: list[float] = field(default_factory=list)
    shapes: set[Request] = field(default_factory=set)


class Backlog:
    """Many queues with work waiting in all of them, on a fleet that is full."""

    def __init__(self) -> None:
        self.rng = np.random.Generator(np.random.PCG64(SEED))
        self.loop = Loop(World(), Policy("pack"), SEED, Nobody(), NoRecorder())
        self.tree = organisation()
        self.leaves = [queue.name for queue in self.tree.leaves()]
        self.requests: dict[str, Request] = {}
        self.number = 0
        self.running: list[tuple[float, str]] = []
        self.measured = Throughput()
        for node in nodes(NODES):
            self.loop.feed(ev.NodeSeen(0, node))
        self.loop.feed(ev.QueuesSet(0, self.tree))
        for _ in range(WAITING):
            self.loop.feed(self.arrival())

    def arrival(self) -> ev.WorkloadSubmitted:
        """Return the next workload, of any queue and shape."""
        self.number += 1
        uid = f"w{self.number:07}"
        devices = int(self.rng.choice([1, 1, 2, 4, 8]))
        cpu = int(self.rng.choice([4, 8, 12, 16]))
        request = Request(1000 * cpu * devices, 65_536 * devices, DeviceRequest(devices))
        self.requests[uid] = request
        queue = self.leaves[int(self.rng.integers(len(self.leaves)))]
        sets = (PodSet("main", 1, request),)
        workload = Workload(uid, sets, queue, WorkloadType.TRAINING, 0, self.number)
        return ev.WorkloadSubmitted(self.number, workload)

    def turn(self) -> tuple[int, float, bool]:
        """Run a cycle: how many it started, how long it took, whether nothing was left to do."""
        begin = time.process_time()
        came = self.loop.turn(self.number, BUDGET)
        seconds = time.process_time() - begin
        started = [each.workload for each in came.decisions if isinstance(each, Start)]
        for uid in started:
            end = float(self.rng.exponential())
            heapq.heappush(self.running, (self.number + 100_000 * end, uid))
            self.measured.shapes.add(self.requests.pop(uid))
        return len(started), seconds, came.complete

    def fill(self) -> None:
        """Start from the backlog until the fleet is full."""
        complete = False
        while not complete:
            starts, seconds, complete = self.turn()
            self.measured.fill_starts += starts
            self.measured.fill_seconds += seconds
            self.measured.cycle_seconds.append(seconds)

    def go_on(self, cycles: int) -> None:
        """Let work end, work arrive in its place, and cycles start what fits."""
        measured = self.measured
        for _ in range(cycles):
            ended = [heapq.heappop(self.running)[1] for _ in range(ENDS)]
            missing = WAITING - len(self.requests)
            arrivals = [self.arrival() for _ in range(missing)]
            begin = time.process_time()
            for uid in ended:
                self.loop.feed(ev.WorkloadEnded(self.number, uid, Outcome.COMPLETED))
            for event in arrivals:
                self.loop.feed(event)
            measured.seconds += time.process_time() - begin
            starts, seconds, _ = self.turn()
            measured.starts += starts
            measured.seconds += seconds
            measured.cycle_seconds.append(seconds)


@bench
def queues_throughput() -> Iterator[Result]:
    """50,000 waiting in 1,000 queues on 5,000 nodes, 16 shapes, no disk; in its own CPU time."""
    backlog = Backlog()
    with tended():
        backlog.fill()
        backlog.go_on(400)
    measured = backlog.measured
    filled = measured.fill_starts / measured.fill_seconds
    yield Result("admissions from 1,000 queues, empty fleet", filled, "1/s", at_least=500)
    rate = measured.starts / measured.seconds
    yield Result("admissions from 1,000 queues, full fleet", rate, "1/s", at_least=500)
    p99 = float(np.quantile(np.array(measured.cycle_seconds), 0.99)) * 1000
    yield Result("p99 of a cycle with 1,000 queues", p99, "ms", at_most=100)
    yield Result("request shapes with 1,000 queues", len(measured.shapes), "", at_least=16)
