"""The loop as it lives: 1,000 events a second at a steady state, written down, and followed."""

import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np

from benchmarks.frame import Result, bench, peak_mib
from benchmarks.steady import BUSY_ZONES, SEED, ZONES, fleet, shapes
from shoal.bounds.prices import prices
from shoal.core import events as ev
from shoal.core.decisions import Decision, Start
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.loop.engine import Loop
from shoal.loop.garbage import tended
from shoal.loop.inbox import Inbox
from shoal.loop.recording import FolderRecorder
from shoal.loop.records import Header
from shoal.loop.replica import Replica
from shoal.loop.writer import Writer
from shoal.model.request import Request
from shoal.model.workload import Outcome, PodSet, Workload

NODES = 5_000
WORKLOADS = 50_000
RATE = 1_000
"""Events a second."""

SECONDS = 75
STARTS_AFTER_S = 0.1
FOLLOW_S = 0.05
"""The follower looks so often, as that of `shoal up` does."""

POLICY = Policy("fragmentation")


@dataclass
class Lived:
    """What the writer or the follower measured; times in seconds."""

    late_s: list[float] = field(default_factory=list)
    """Of the writer: from when an event was due to the decision about it being safe."""
    behind_s: list[float] = field(default_factory=list)
    """Of the follower: how old what it showed had become by the end of each look."""
    peak_mib: float = 0.0
    segments: int = 0
    waiting: tuple[int, int] = (0, 0)
    """Workloads that waited at the beginning, and at the end."""
    workloads: int = 0
    seconds: float = 0.0
    """What the events took; more than was asked for where they came faster than they went."""


class LivingFleet:
    """A fleet that is full, and work that comes and goes so that the number of workloads stays."""

    def __init__(self) -> None:
        self.rng = np.random.Generator(np.random.PCG64(SEED))
        self.nodes = list(fleet(NODES))
        self.free_zones = shapes(self.rng, range(BUSY_ZONES, ZONES), 1000)
        self.busy_zones = shapes(self.rng, range(BUSY_ZONES), 500)
        self.running: list[str] = []
        self.starting: deque[tuple[float, str]] = deque()
        self.number = 0
        self.now_s = time.time()

    def carry_out(self, decision: Decision) -> None:
        """Let the pod of a workload start a little later."""
        if isinstance(decision, Start):
            self.starting.append((self.now_s + STARTS_AFTER_S, decision.workload))

    def stop(self, uid: str, now_us: int) -> None:
        """Nobody asks for it."""
        raise AssertionError(uid, now_us)

    def _started(self, at_us: int) -> ev.Event:
        _, uid = self.starting.popleft()
        self.running.append(uid)
        return ev.PodStarted(at_us, uid, 0)

    def filling(self, world: World) -> Iterator[ev.Event]:
        """Yield starts of all that are about to, prices if they are due, and some arrivals."""
        at_us = int(self.now_s * 1e6)
        while self.starting:
            yield self._started(at_us)
        yield from self.priced(world)
        for _ in range(min(500, WORKLOADS - len(world.entries))):
            yield self.arrival(at_us)

    def happens(self, due_s: list[float], world: World) -> Iterator[ev.Event]:
        """Yield what was due at these times, and new prices where the demand asks for them."""
        for at_s in due_s:
            yield self.next(at_s, len(world.entries))
        yield from self.priced(world)

    def priced(self, world: World) -> Iterator[ev.Event]:
        """Yield prices where they are due, as an embedded fleet does."""
        if world.demand.pricing_due:
            made = prices(self.nodes, world.demand.classes())
            yield ev.PricesSet(int(self.now_s * 1e6), made)

    def arrival(self, at_us: int) -> ev.Event:
        """Return a new workload: mostly for zones with room, else for those that are full."""
        self.number += 1
        group = self.free_zones if self.rng.random() < 0.6 else self.busy_zones
        return self._submitted(at_us, group[int(self.rng.integers(len(group)))])

    def _submitted(self, at_us: int, request: Request) -> ev.Event:
        uid = f"w{self.number:08}"
        pods = (PodSet("main", 1, request),)
        return ev.WorkloadSubmitted(at_us, Workload(uid, pods, created_us=at_us))

    def next(self, at_s: float, workloads: int) -> ev.Event:
        """Return what happens next: a start that is due, else an end or an arrival."""
        at_us = int(at_s * 1e6)
        if self.starting and self.starting[0][0] <= at_s:
            return self._started(at_us)
        if workloads < WORKLOADS or not self.running:
            return self.arrival(at_us)
        place = int(self.rng.integers(len(self.running)))
        self.running[place], self.running[-1] = self.running[-1], self.running[place]
        return ev.WorkloadEnded(at_us, self.running.pop(), Outcome.COMPLETED)


def write(folder: Path, seconds: float, told: "Queue[str]") -> Lived:
    """Fill the fleet, say so, and then live at the rate."""
    life, lived = LivingFleet(), Lived()
    world = World()
    recorder = FolderRecorder(folder, Header(str(SEED), POLICY))
    writer = Writer(Loop(world, POLICY, SEED, life, recorder), recorder, Inbox(), life)
    writer.step(0, (ev.NodeSeen(0, node) for node in life.nodes))
    while len(world.entries) < WORKLOADS or life.starting:
        life.now_s = time.time()
        writer.step(int(life.now_s * 1e6), life.filling(world))
    waiting = count_waiting(world)
    told.put("full")
    with tended() as garbage:
        began_s = time.time()
        while len(lived.late_s) < seconds * RATE:
            life.now_s = time.time()
            due = range(len(lived.late_s), int((life.now_s - began_s) * RATE))
            if not due:
                time.sleep(1 / RATE)
                continue
            due_s = [began_s + number / RATE for number in due]
            writer.step(int(life.now_s * 1e6), life.happens(due_s, world))
            end_s = time.time()
            lived.late_s += [end_s - at_s for at_s in due_s]
            garbage.look()
        lived.seconds = time.time() - began_s
    recorder.close()
    lived.waiting = (waiting, count_waiting(world))
    lived.workloads = len(world.entries)
    lived.segments = len(list(folder.glob("*.shoal")))
    lived.peak_mib = peak_mib()
    told.put("done")
    return lived


def count_waiting(world: World) -> int:
    """Return how many workloads wait."""
    return sum(1 for entry in world.entries.values() if entry.group is not None)


def follow(folder: Path, told: "Queue[str]") -> Lived:
    """Follow from the newest snapshot on, and note how far behind that is once it has caught up."""
    lived = Lived()
    told.get()
    replica = Replica(folder)
    caught_up = False
    with tended() as garbage:
        while told.empty():
            showed_us = replica.at_us
            taken = replica.catch_up()
            if caught_up and taken:
                lived.behind_s.append(time.time() - showed_us / 1e6)
            caught_up = caught_up or not taken
            if not taken:
                garbage.look()
                time.sleep(FOLLOW_S)
    lived.peak_mib = peak_mib()
    return lived


def live(seconds: float) -> tuple[Lived, Lived]:
    """Let one process write and another follow."""
    context = get_context("spawn")
    with tempfile.TemporaryDirectory() as name, context.Manager() as manager:
        told = manager.Queue()
        folder = Path(name) / "recording"
        with context.Pool(2) as pool:
            follower = pool.apply_async(follow, (folder, told))
            writer = pool.apply_async(write, (folder, seconds, told))
            return writer.get(), follower.get()


@bench
def living_loop() -> Iterator[Result]:
    """5,000 nodes, 50,000 workloads, 1,000 events a second on a real disk, and a replica."""
    writer, follower = live(SECONDS)
    rate = len(writer.late_s) / writer.seconds
    yield Result("events taken in by the living loop", rate, "1/s", at_least=0.99 * RATE)
    late = float(np.quantile(writer.late_s, 0.99))
    yield Result("an event's decision made safe, p99, 1,000 events/s", late, "s", at_most=1)
    yield Result("an event's decision made safe, at most", max(writer.late_s), "s")
    behind = float(np.quantile(follower.behind_s, 0.99))
    yield Result("a replica behind the loop, p99", behind, "s", at_most=1)
    yield Result("a replica behind the loop, at most", max(follower.behind_s), "s", at_most=1)
    yield Result("memory of the loop, 50,000 workloads", writer.peak_mib, "MiB", at_most=2048)
    yield Result("memory of a replica, 50,000 workloads", follower.peak_mib, "MiB")
    yield Result("workloads in the living loop", writer.workloads, "", at_least=WORKLOADS * 0.98)
    before, after = writer.waiting
    yield Result("workloads waiting at the end over the start", after / before, "", at_most=1.02)
    yield Result("segments begun by the living loop", writer.segments - 1, "", at_least=1)
