"""One run of the inflation protocol: a workload, a policy, a seed."""

from collections import Counter
from time import perf_counter

from shoal.bounds.prices import prices
from shoal.core.decisions import Decision, Start, Wait
from shoal.core.demand import TaskClass, merged
from shoal.core.events import PodMoved, PricesSet, WorkloadEnded, WorkloadSubmitted
from shoal.core.policies import Policy
from shoal.core.policies.fgd import Fragmentation
from shoal.model.request import Request
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, PodSet, Workload
from shoal.simulation.curve import Meter
from shoal.simulation.demand import task_classes
from shoal.simulation.inflation import LOAD_PCT, inflated
from shoal.simulation.results import Run
from shoal.simulation.trace import Trace, capacity_milli, demand_milli
from shoal.simulation.virtual import VirtualTime

ARRIVAL_US = 1_000_000
"""Virtual time between two arrivals. Nothing depends on it, because nothing ends."""


def run(
    trace: Trace,
    policy: str,
    seed: int,
    *,
    learned: bool = False,
    moves_pct: int = 0,
    until_pct: int = LOAD_PCT,
) -> Run:
    """Submit the inflated trace pod by pod, and measure after each what the fleet came to.

    It ends when as much has arrived as rounds to more than `until_pct` percent of the fleet.

    The policy `fragmentation` is given the trace's demand, or has to learn it from the arrivals.
    For a pod that fits nowhere running pods may be moved, altogether at most `moves_pct` percent of
    those that run at the time.
    """
    start = perf_counter()
    demand = task_classes(trace)
    priced = policy == "fragmentation"
    time = VirtualTime(trace.nodes, Policy(policy, demand), seed, learns=priced and learned)
    if priced and not learned:
        expected = merged(TaskClass(pod.request, 1) for pod in trace.pods)
        time.feed(PricesSet(0, prices(trace.nodes, expected)))
    fragmentation = Fragmentation(time.world.fleet, demand)
    end_milli = capacity_milli(trace.nodes) * (2 * until_pct + 1) // 200
    meter = Meter(capacity_milli(trace.nodes))
    mover = Mover(time, moves_pct)
    lacked: Counter[Reason] = Counter()
    asked = [demand_milli(pod.request) for pod in trace.pods]
    pod_sets = [(PodSet("pod", 1, pod.request),) for pod in trace.pods]
    allocated_milli = 0
    for number, index in enumerate(inflated(trace, seed)):
        if meter.arrived_milli > end_milli:
            break
        now_us = number * ARRIVAL_US
        uid = f"{trace.pods[index].name}/{number}"
        time.feed(WorkloadSubmitted(now_us, Workload(uid, pod_sets[index], created_us=now_us)))
        obstacle = _obstacle(time.turn())
        if obstacle is not None and mover.make_room(uid, trace.pods[index].request):
            obstacle = _obstacle(time.turn())
        if obstacle is None:
            allocated_milli += asked[index]
        else:
            lacked[obstacle] += 1
            time.feed(WorkloadEnded(now_us, uid, Outcome.CANCELLED))
        numerator, denominator = fragmentation.amount()
        meter.arrival(
            asked[index], allocated_milli, numerator / denominator, failed=obstacle is not None
        )
    seconds = perf_counter() - start
    return Run(
        trace.workload,
        policy,
        seed,
        meter.curves(),
        lacked,
        seconds,
        demand="learned" if priced and learned else "given",
        moves=mover.moves,
    )


class Mover:
    """Carries out moves that make room, as long as they stay under their share of what runs.

    Nothing ends in these runs, so a request for which no moves were found is not looked at again
    before others were moved.
    """

    def __init__(self, time: VirtualTime, most_pct: int) -> None:
        self._time = time
        self._most_pct = most_pct
        self.moves = 0
        """Moves so far."""
        self._hopeless: set[Request] = set()

    def make_room(self, uid: str, request: Request) -> bool:
        """Move running pods so that the waiting pod `uid` fits; whether that was possible."""
        if not self._most_pct or request in self._hopeless:
            return False
        running = len(self._time.world.entries) - 1
        left = self._most_pct * running // 100 - self.moves
        moves = self._time.propose_moves(uid, left)
        for move in moves:
            self._time.feed(PodMoved(self._time.now_us, move.uid, move.target))
        self.moves += len(moves)
        if moves:
            self._hopeless.clear()
        elif left > 1:
            self._hopeless.add(request)
        return bool(moves)


def _obstacle(decisions: tuple[Decision, ...]) -> Reason | None:
    """Return what stood in the way of the only pod that waited, None if it started."""
    for decision in decisions:
        if isinstance(decision, Start):
            return None
        if isinstance(decision, Wait):
            return decision.reason
    raise AssertionError("a pod that arrives in virtual time starts or is told why not")
