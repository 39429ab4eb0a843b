"""The loop as it lives: 1,000 events a second at a steady state, written down, and followed."""

import gc
import resource
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np

from benchmarks.frame import Result, bench
from benchmarks.steady import BUSY_ZONES, SEED, ZONES, fleet, shapes
from shoal.core import events as ev
from shoal.core.decisions import Decision, Start
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.loop.engine import Loop
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

SECONDS = 240
STARTS_AFTER_S = 0.1
POLICY = Policy("best-fit")


@dataclass
class Lived:
    """What the writer or the follower measured; times in seconds."""

    late_s: list[float] = field(default_factory=list)
    """Of the writer: from when an event was due to the decision about it being safe."""
    behind_s: list[float] = field(default_factory=list)
    """Of the follower: how old the newest item was that it took in, after each look."""
    peak_mib: float = 0.0
    segments: int = 0
    waiting: int = 0
    workloads: int = 0


class LivingFleet:
    """A fleet that is full, and work that comes and goes so that the number of workloads stays."""

    def __init__(self) -> None:
        self.rng = np.random.Generator(np.random.PCG64(SEED))
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
            _, uid = self.starting.popleft()
            self.running.append(uid)
            return ev.PodStarted(at_us, uid, 0)
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
    writer.step(0, (ev.NodeSeen(0, node) for node in fleet(NODES)))
    while len(world.entries) < WORKLOADS:
        life.now_s = time.time()
        at_us = int(life.now_s * 1e6)
        writer.step(at_us, [life.arrival(at_us) for _ in range(500)])
    gc.freeze()
    lived.waiting = sum(1 for entry in world.entries.values() if entry.group is not None)
    told.put("full")
    began_s = time.time()
    made = 0
    while made < seconds * RATE:
        life.now_s = time.time()
        due = int((life.now_s - began_s) * RATE)
        if due == made:
            time.sleep(1 / RATE)
            continue
        due_s = [began_s + number / RATE for number in range(made, due)]
        writer.step(int(life.now_s * 1e6), (life.next(at_s, len(world.entries)) for at_s in due_s))
        end_s = time.time()
        lived.late_s += [end_s - at_s for at_s in due_s]
        made = due
    recorder.close()
    lived.workloads = len(world.entries)
    lived.segments = len(list(folder.glob("*.shoal")))
    lived.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told.put("done")
    return lived


def follow(folder: Path, told: "Queue[str]") -> Lived:
    """Follow from the newest snapshot on, and note how far behind that is once it has caught up."""
    lived = Lived()
    told.get()
    replica = Replica(folder)
    caught_up = False
    while told.empty():
        taken = replica.catch_up()
        caught_up = caught_up or not taken
        if caught_up and taken:
            lived.behind_s.append(time.time() - replica.at_us / 1e6)
        if not taken:
            time.sleep(0.02)
    lived.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
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
    late = float(np.quantile(writer.late_s, 0.99))
    yield Result("an event's decision made safe, p99, 1,000 events/s", late, "s", at_most=1)
    yield Result("an event's decision made safe, at most", max(writer.late_s), "s")
    behind = float(np.quantile(follower.behind_s, 0.99))
    yield Result("a replica behind the loop, p99", behind, "s", at_most=1)
    yield Result("a replica behind the loop, at most", max(follower.behind_s), "s")
    yield Result("memory of the loop, 50,000 workloads", writer.peak_mib, "MiB", at_most=2048)
    yield Result("memory of a replica, 50,000 workloads", follower.peak_mib, "MiB")
    yield Result("workloads in the living loop", writer.workloads, "", at_least=WORKLOADS * 0.98)
    yield Result("segments begun by the living loop", writer.segments - 1, "", at_least=2)
