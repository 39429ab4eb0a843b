"""Evictions do not go round in circles: where nothing new happens, every chain of them ends."""

from random import Random

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, Resize, Start
from shoal.core.policies import Policy
from shoal.core.validate import check
from shoal.model.queue import EvictionBounds, Queue, QueueTree
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType
from shoal.simulation.virtual import VirtualTime
from tests.core.build import node, whole

HOUR_US = 3_600_000_000
ARRIVED_US = 10 * HOUR_US
"""When everybody has come; from then on nothing new happens."""

QUIET_US = 40 * HOUR_US
END_US = 90 * HOUR_US


def tree(random: Random, devices: int) -> QueueTree:
    """A random tree of two levels with guarantees for at most all devices, and no bounds."""
    bounds = EvictionBounds(minimum_run_us=random.choice([None, HOUR_US]))
    queues = [Queue("root", guarantee=(("H100", devices),), eviction=bounds)]
    left = devices
    for team in range(random.randint(2, 3)):
        mine = random.randint(0, left)
        left -= mine
        queues.append(Queue(f"t{team}", "root", guarantee=(("H100", mine),), eviction=bounds))
        for project in range(random.randint(0, 2)):
            part = random.randint(0, mine)
            mine -= part
            granted = (("H100", part),)
            queues.append(Queue(f"t{team}p{project}", f"t{team}", guarantee=granted))
    return QueueTree(tuple(queues))


def workloads(random: Random, queues: QueueTree, most: int) -> list[Workload]:
    """Random work that never ends: gangs, elastic ones, and of several priorities."""
    leaves = [queue.name for queue in queues.leaves()]
    found = []
    for number in range(random.randint(6, 20)):
        pods = random.choice([1, 1, 2, 4])
        minimum = random.choice([None, 1])
        found.append(
            Workload(
                f"w{number}",
                (PodSet("main", pods, whole(random.randint(1, most)), minimum),),
                queue=random.choice(leaves),
                type=random.choice([WorkloadType.TRAINING, WorkloadType.BATCH]),
                priority=random.choice([0, 0, 1, 2]),
                created_us=random.randint(0, ARRIVED_US),
                run_us=random.choice([None, HOUR_US]),
            )
        )
    return found


def greedy(random: Random, queues: QueueTree, devices: int) -> list[Workload]:
    """Elastic work of some queues that takes all that is free, to the last device."""
    names = [queue.name for queue in queues.leaves() if random.random() < 0.7]
    return [
        Workload(
            f"greedy-{name}",
            (PodSet("main", devices, whole(1), 1),),
            queue=name,
            type=random.choice([WorkloadType.TRAINING, WorkloadType.BATCH]),
            priority=random.choice([0, 1]),
            created_us=random.randint(0, ARRIVED_US),
        )
        for name in names
    ]


def lived(seed: int, *, grows: bool = False) -> tuple[VirtualTime, list[tuple[int, Decision]]]:
    """Let everybody come, and then time pass; return all decisions with their times.

    `grows`: some of it takes all that is free, which becomes so as other work ends until then.
    """
    random = Random(seed)  # noqa: S311 - nothing is kept secret
    per_node, nodes = random.choice([2, 4, 8]), random.randint(1, 4)
    fleet = tuple(node(f"n{n}", per_node) for n in range(nodes))
    time = VirtualTime(fleet, Policy("best-fit"), seed, stop_us=random.choice([0, 60_000_000]))
    queues = tree(random, per_node * nodes)
    time.feed(ev.QueuesSet(0, queues))
    decided: list[tuple[int, Decision]] = []
    come = workloads(random, queues, per_node)
    if grows:
        come = come[: random.randint(3, 8)]
        for work in come[: len(come) // 2]:
            end_us = work.created_us + random.randint(1, 4) * HOUR_US
            if end_us < ARRIVED_US:
                time.schedule(ev.WorkloadEnded(end_us, work.uid, Outcome.COMPLETED))
        come += greedy(random, queues, per_node * nodes)
    for workload in sorted(come, key=lambda each: each.created_us):
        decided += [(time.now_us, each) for each in time.run_until(workload.created_us)]
        time.feed(ev.WorkloadSubmitted(workload.created_us, workload))
        decided += [(time.now_us, each) for each in time.turn()]
    for hour in range(10, 90):
        decided += [(hour * HOUR_US, each) for each in time.run_until((hour + 1) * HOUR_US)]
    return time, decided


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(4))
def test_where_nothing_new_happens_every_chain_of_evictions_ends(block: int) -> None:
    evictions = 0
    for seed in range(40 * block, 40 * block + 40):
        time, decided = lived(seed)
        check(time.world)
        assert not time.world.evictions.frozen, "it is not the guard that ends them"
        late = [
            decision
            for at_us, decision in decided
            if at_us >= QUIET_US and isinstance(decision, Evict | Start)
        ]
        assert late == [], f"seed {seed} does not come to rest"
        evictions += sum(isinstance(decision, Evict) for _, decision in decided)
    assert evictions > 40, "there was hardly anything to go round in circles"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(4))
def test_what_grows_again_where_it_was_made_smaller_does_not_drive_evictions(block: int) -> None:
    evictions = smaller = grown = 0
    for seed in range(40 * block, 40 * block + 40):
        time, decided = lived(seed, grows=True)
        check(time.world)
        assert not time.world.evictions.frozen, "it is not the guard that ends them"
        late = [
            decision
            for at_us, decision in decided
            if at_us >= QUIET_US and isinstance(decision, Evict | Resize | Start)
        ]
        assert late == [], f"seed {seed} does not come to rest"
        found = [decision for _, decision in decided]
        evictions += sum(isinstance(each, Evict) for each in found)
        smaller += sum(isinstance(each, Evict) and 0 not in each.pods for each in found)
        grown += sum(isinstance(each, Resize) for each in found)
    assert evictions > 40
    assert smaller > 20
    assert grown > 5
