"""The core at scale: a full fleet that work keeps arriving at and leaving."""

import heapq
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.frame import Result, bench, peak_mib
from shoal.bounds.prices import prices
from shoal.core import events as ev
from shoal.core.decisions import Decision, Retract, Start
from shoal.core.policies import Policy
from shoal.core.validate import Validator, check
from shoal.core.world import World
from shoal.loop.disk import FastDisk
from shoal.loop.engine import Loop, NoRecorder
from shoal.loop.garbage import tended
from shoal.loop.recording import FolderRecorder
from shoal.loop.records import Header
from shoal.model.node import Device, Leaf, Node, Taint, TaintEffect
from shoal.model.request import DeviceRequest, Request, Toleration, TolerationOperator
from shoal.model.workload import Outcome, Placement, PodSet, Workload

SEED = 20_261_129
DEVICES = 8
LEVEL = 0.85
ZONES = 16
BUSY_ZONES = 5
"""Zones kept for work that asks for them by selector, and so much of it that it has to wait."""
BUSY_LEVEL = 1.05
GANG = 512
TOLERANT = (Toleration("kept", TolerationOperator.EXISTS),)
ONE_DEVICE = Request(devices=DeviceRequest(1), tolerations=TOLERANT)
EIGHT = Request(96_000, 524_288, DeviceRequest(DEVICES), tolerations=TOLERANT)
SHAPES = 2400
"""Request shapes drawn from, so that well over 2,000 of them occur."""


@dataclass
class Measured:
    """What one run in steady state came to."""

    starts: int = 0
    retracted: int = 0
    waited: int = 0
    seconds: float = 0.0
    pricing_seconds: float = 0.0
    cycle_seconds: list[float] = field(default_factory=list)
    shapes: int = 0
    peak_mib: float = 0.0


def fleet(nodes: int) -> Iterator[Node]:
    """Yield nodes of eight devices with 128 cores, in zones of equal size, some of them kept."""
    for n in range(nodes):
        name = f"node-{n:05}"
        devices = tuple(
            Device(f"{name}/{d}", "H100-80GB", (Leaf(f"{name}/{d}", 81_559),))
            for d in range(DEVICES)
        )
        zone = n % ZONES
        kept = (Taint("kept", TaintEffect.NO_SCHEDULE),) if zone < BUSY_ZONES else ()
        labels = {"zone": f"zone-{zone:02}", "kubernetes.io/hostname": name}
        yield Node(name, 128_000, 1_048_576, 110, devices, labels, kept)


def shapes(rng: np.random.Generator, zones: range, count: int) -> list[Request]:
    """Return different request shapes: CPU, memory, devices, and a selector for one of `zones`."""
    kept = zones.start < BUSY_ZONES
    made: dict[Request, None] = {}
    while len(made) < count:
        devices = int(rng.choice([1, 1, 1, 1, 2, 2, 4, 8]))
        zone = f"zone-{rng.integers(zones.start, zones.stop):02}"
        made[
            Request(
                cpu_milli=int(rng.integers(2, 15)) * 1000 * devices,
                memory_mib=int(rng.integers(8, 97)) * 1024 * devices,
                devices=DeviceRequest(devices),
                selector=(("zone", zone),) if kept or rng.random() < 0.3 else (),
                tolerations=TOLERANT if kept else (),
            )
        ] = None
    return list(made)


class Nobody:
    """An executor for measurements of the core alone."""

    def carry_out(self, decision: Decision) -> None:
        """Do nothing."""


class Stream:
    """Poisson arrivals with exponential run times of mean 1, offered at the levels above."""

    def __init__(self, nodes: int) -> None:
        rng = self.rng = np.random.Generator(np.random.PCG64(SEED))
        busy_share = BUSY_LEVEL * BUSY_ZONES / (LEVEL * ZONES)
        busy = int(SHAPES * busy_share)
        self.shapes = shapes(rng, range(BUSY_ZONES), busy)
        self.shapes += shapes(rng, range(BUSY_ZONES, ZONES), SHAPES - busy)
        mean = sum(request.devices.count for request in self.shapes) / SHAPES
        self.capacity = nodes * DEVICES
        self.rate = LEVEL * self.capacity / mean
        self.now = 0.0
        self.number = 0
        self.held = 0
        self.running: list[tuple[float, str]] = []
        self.requests: dict[str, Request] = {}
        self.seen: set[Request] = set()

    def arrive(self) -> Workload:
        """Return the next arrival."""
        self.number += 1
        uid = f"w{self.number:07}"
        request = self.shapes[int(self.rng.integers(SHAPES))]
        self.requests[uid] = request
        self.seen.add(request)
        return Workload(uid, (PodSet("main", 1, request),), created_us=self.number)

    def started(self, uid: str) -> None:
        """Draw the run time of a workload that has just started."""
        self.held += self.requests[uid].devices.count
        heapq.heappush(self.running, (self.now + float(self.rng.exponential()), uid))

    def until_next(self) -> Iterator[str]:
        """Let time pass until the next arrival and yield whose run time is over by then."""
        self.now += float(self.rng.exponential(1 / self.rate))
        while self.running and self.running[0][0] <= self.now:
            _, uid = heapq.heappop(self.running)
            self.held -= self.requests.pop(uid).devices.count
            yield uid


def steady(nodes: int, arrivals: int, policy: Policy, *, validated: bool = False) -> Measured:
    """Fill a fleet to its level, then time `arrivals` arrivals, one cycle each, with recording.

    The time counted is that of applying, cycling and recording after the fill. Kept apart is that
    of looking for garbage, which a platform does between events, and that of pricing from learned
    demand, which is made off the hot path.
    """
    measured = Measured()
    stream = Stream(nodes)
    world = World()
    with tempfile.TemporaryDirectory() as folder:
        header = Header(str(SEED), policy)
        recorder = FolderRecorder(Path(folder) / "recording", header, disk=FastDisk())
        checker = Validator(world).applied if validated else None
        loop = Loop(world, policy, SEED, Nobody(), recorder, checker)
        for node in fleet(nodes):
            loop.feed(ev.NodeSeen(0, node))
        while stream.held < LEVEL * stream.capacity:
            loop.feed(ev.WorkloadSubmitted(stream.number, stream.arrive()))
            _set_prices(loop, policy, stream.number)
            _take_in(stream, loop.turn(stream.number).decisions)
        with tended() as garbage:
            for _ in range(arrivals):
                _one_arrival(stream, loop, measured)
                garbage.look()
                measured.pricing_seconds += _set_prices(loop, policy, stream.number)
                if validated and stream.number % 500 == 0:
                    check(world)
        recorder.close()
    measured.shapes = len(stream.seen)
    measured.peak_mib = peak_mib()
    return measured


def _set_prices(loop: Loop, policy: Policy, at_us: int) -> float:
    """Make prices where the default policy is due for them, as a thread beside the loop would.

    Returns the seconds that it took.
    """
    world = loop.world
    if policy.name != "fragmentation" or not world.demand.pricing_due:
        return 0.0
    begin = time.perf_counter()
    nodes = [node for node in world.fleet.nodes if node is not None]
    made = ev.PricesSet(at_us, prices(nodes, world.demand.classes()))
    seconds = time.perf_counter() - begin
    loop.feed(made)
    return seconds


def _one_arrival(stream: Stream, loop: Loop, measured: Measured) -> None:
    at_us = stream.number + 1
    ended = [ev.WorkloadEnded(at_us, uid, Outcome.COMPLETED) for uid in stream.until_next()]
    submitted = ev.WorkloadSubmitted(at_us, stream.arrive())
    begin = time.perf_counter()
    for event in ended:
        loop.feed(event)
    loop.feed(submitted)
    before_cycle = time.perf_counter()
    decisions = loop.turn(at_us).decisions
    end = time.perf_counter()
    measured.seconds += end - begin
    measured.cycle_seconds.append(end - before_cycle)
    started = _take_in(stream, decisions)
    measured.starts += len(started)
    measured.waited += submitted.workload.uid not in started
    measured.retracted += sum(1 for decision in decisions if isinstance(decision, Retract))


def _take_in(stream: Stream, decisions: tuple[Decision, ...]) -> set[str]:
    started = {decision.workload for decision in decisions if isinstance(decision, Start)}
    for uid in sorted(started):
        stream.started(uid)
    return started


def alone(function: Callable[..., Measured], *arguments: object) -> Measured:
    """Call a function in a process of its own, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


@bench
def steady_state() -> Iterator[Result]:
    """5,000 nodes of eight devices at 85 %, 50,000 arrivals of over 2,000 shapes, best-fit."""
    measured = alone(steady, 5000, 50_000, Policy("best-fit"))
    cycles = np.array(measured.cycle_seconds)
    rate = (measured.starts - measured.retracted) / measured.seconds
    yield Result("starts in steady state, 5,000 nodes", rate, "1/s", at_least=2000)
    p99 = float(np.quantile(cycles, 0.99)) * 1000
    yield Result("p99 of a cycle in steady state", p99, "ms", at_most=100)
    yield Result("memory in steady state", measured.peak_mib, "MiB", at_most=1536)
    yield Result("request shapes in steady state", measured.shapes, "", at_least=2000)
    waited = 100 * measured.waited / len(cycles)
    yield Result("arrivals that did not fit at first", waited, "%", at_least=20)


@bench
def steady_state_validated() -> Iterator[Result]:
    """The same with every invariant checked after every event, shorter."""
    measured = alone(_validated, 5000, 5000)
    yield Result("starts in steady state, validated", measured.starts / measured.seconds, "1/s")


def _validated(nodes: int, arrivals: int) -> Measured:
    return steady(nodes, arrivals, Policy("best-fit"), validated=True)


@bench
def cost_by_fleet_size() -> Iterator[Result]:
    """What a start costs at 500, 5,000 and 20,000 nodes, the same stream of shapes."""
    costs = {}
    for nodes in (500, 5000, 20_000):
        measured = alone(steady, nodes, 20_000, Policy("best-fit"))
        costs[nodes] = 1e6 * measured.seconds / measured.starts
        yield Result(f"cost of a start, {nodes:,} nodes", costs[nodes], "us")
    ratio = costs[20_000] / costs[500]
    yield Result("cost of a start at 20,000 nodes over one at 500", ratio, "", at_most=3)


@bench
def gangs() -> Iterator[Result]:
    """A gang of 512 eight-device pods on 5,000 nodes: when it fits, and one device short."""
    for taken, outcome in ((5000 - GANG, "placed"), (5000 - GANG + 1, "refused")):
        loop = Loop(World(), Policy("best-fit"), SEED, Nobody(), NoRecorder())
        nodes = list(fleet(5000))
        for node in nodes:
            loop.feed(ev.NodeSeen(0, node))
        for node in nodes[:taken]:
            holder = Workload(f"on {node.name}", (PodSet("main", 1, ONE_DEVICE),))
            place = Placement(0, node.name, (node.devices[0].leaves[0].name,))
            loop.feed(ev.WorkloadAdopted(0, holder, (place,)))
        loop.feed(ev.WorkloadSubmitted(1, Workload("gang", (PodSet("worker", GANG, EIGHT),))))
        begin = time.perf_counter()
        (decision,) = loop.turn(1).decisions
        seconds = time.perf_counter() - begin
        if isinstance(decision, Start) != (outcome == "placed"):
            raise AssertionError(f"the gang was not {outcome}: {decision}")
        yield Result(f"gang of 512 eight-device pods {outcome}", seconds, "s", at_most=1)
