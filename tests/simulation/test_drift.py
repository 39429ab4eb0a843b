"""The default policy where demand changes: notebooks by day, training by night, new devices."""

from random import Random
from statistics import fmean

from shoal.bounds.prices import prices
from shoal.core.decisions import Start
from shoal.core.demand import TaskClass
from shoal.core.events import NodeSeen, PricesSet, WorkloadEnded, WorkloadSubmitted
from shoal.core.policies import Policy
from shoal.core.validate import check
from shoal.model.request import Request
from shoal.model.workload import Outcome, PodSet, Workload
from shoal.simulation.trace import capacity_milli, demand_milli
from shoal.simulation.virtual import VirtualTime
from tests.core.build import node, share, whole

Demand = tuple[TaskClass, ...]

DAY = (
    TaskClass(share(250, cpu=2), 40),
    TaskClass(share(500, cpu=4), 20),
    TaskClass(share(400, cpu=4), 20),
    TaskClass(whole(1, 6), 10),
    TaskClass(Request(8000), 5),
)
NIGHT = (
    TaskClass(whole(8, 80), 2),
    TaskClass(whole(4, 32), 4),
    TaskClass(whole(2, 16), 4),
    TaskClass(whole(1, 8), 4),
)
NEW = (TaskClass(whole(4, 16, "B200"), 2), TaskClass(share(500, cpu=2), 20), *NIGHT)
PHASES: tuple[Demand, ...] = (DAY, NIGHT, DAY, NIGHT, NEW, DAY, NEW)
STAY_PCT = 15
"""Pods that stay when the phase in which they came is over."""

OLD_NODES = (
    *(node(f"h{i}", 8, cpu=96) for i in range(24)),
    *(node(f"t{i}", 4, cpu=64, accelerator="T4") for i in range(12)),
)
NEW_NODES = tuple(node(f"b{i}", 4, cpu=64, accelerator="B200") for i in range(8))


def allocated(
    policy: str, seed: int, *, learned: bool, phases: tuple[Demand, ...] = PHASES
) -> float:
    """Devices that pods were given over all phases, of those that there were; in percent.

    In each phase as much is asked for as is there, or stays from before. Nothing waits: what does
    not fit has failed. Where demand is not learned, prices are set for each phase before it.
    """
    chance = Random(seed)  # noqa: S311 - its days have to come again
    nodes = OLD_NODES
    time = VirtualTime(nodes, Policy(policy), seed, learns=learned)
    running: dict[str, int] = {}
    taken = there = number = 0
    for phase, demand in enumerate(phases):
        if demand is NEW and nodes is OLD_NODES:
            nodes = OLD_NODES + NEW_NODES
            for each in NEW_NODES:
                time.feed(NodeSeen(phase, each))
        if not learned:
            time.feed(PricesSet(phase, prices(nodes, demand)))
        left_milli = capacity_milli(nodes) - sum(running.values())
        while left_milli > 0:
            (drawn,) = chance.choices(demand, [each.weight for each in demand])
            uid = f"w{number}"
            number += 1
            left_milli -= demand_milli(drawn.request)
            sets = (PodSet("pod", 1, drawn.request),)
            time.feed(WorkloadSubmitted(phase, Workload(uid, sets, created_us=phase)))
            if any(isinstance(decision, Start) for decision in time.turn()):
                running[uid] = demand_milli(drawn.request)
            else:
                time.feed(WorkloadEnded(phase, uid, Outcome.CANCELLED))
        check(time.world)
        taken += sum(running.values())
        there += capacity_milli(nodes)
        for uid in [uid for uid in running if chance.randrange(100) >= STAY_PCT]:
            del running[uid]
            time.feed(WorkloadEnded(phase, uid, Outcome.COMPLETED))
    return 100 * taken / there


def test_demand_that_changes_is_learned_as_it_comes() -> None:
    """Learning costs little beside being told, and is far from placing at random."""

    def mean(policy: str, *, learned: bool) -> float:
        return fmean(allocated(policy, seed, learned=learned) for seed in (1, 2, 3))

    learned = mean("fragmentation", learned=True)
    assert learned >= mean("fragmentation", learned=False) - 1.5
    assert learned >= mean("random", learned=False) + 3


def test_where_only_whole_devices_are_asked_for_best_fit_is_not_far_ahead() -> None:
    """A known weakness: best-fit comes to 99 % there and the default policy to 97."""

    def mean(policy: str) -> float:
        return fmean(allocated(policy, seed, learned=False, phases=(NIGHT,) * 4) for seed in (1, 2))

    ours = mean("fragmentation")
    assert ours >= mean("best-fit") - 3
    assert ours >= mean("random") + 5
