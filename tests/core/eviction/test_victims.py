"""In which order victims are compared, each rule by itself, with the example of the docs."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Evict
from shoal.core.eviction.victims import victims_of
from shoal.model.queue import EvictionBounds
from shoal.model.workload import PodSet, Workload, WorkloadType
from tests.core.build import node, whole
from tests.core.cases import MINUTE_US, SECOND_US, Case, batch, queue, tree, work

HALF_AN_HOUR = EvictionBounds(checkpoint_interval_us=30 * MINUTE_US)


def gang(uid: str, pods: int, needed: int) -> Workload:
    """A training of pods with one device each, of which so many are needed."""
    pod_sets = (PodSet("main", pods, whole(1, 0), needed),)
    return Workload(uid, pod_sets, queue="b", type=WorkloadType.TRAINING)


def noon(first: Workload) -> Case:
    """The queues of the docs at 12:00, three hours after they began, with `first` since 10:00."""
    b = replace(queue("b", 8), eviction=HALF_AN_HOUR)
    case = Case([node("n1", 8), node("n2", 8)], tree(queue("a", 8), b))
    case.submit(gang("b/big", 8, 4), work("b/fine", 4))
    case.to(60)
    made = [replace(first, uid=f"b/sweep{number}") for number in range(4)]
    case.submit(*made)
    case.to(155)
    case.happen(ev.CheckpointReported(0, "b/fine", 155 * MINUTE_US))
    case.to(175)
    case.happen(ev.CheckpointReported(0, "b/big", 175 * MINUTE_US))
    case.to(180)
    case.submit(work("a/asker", 4))
    return case


def test_work_lost_by_others_than_batch_counts_first() -> None:
    """Four sweeps lose most, two device hours, but they are batch: nobody else loses anything."""
    case = noon(batch("b/sweep"))
    assert sorted(case.evicted) == [("180:00", f"b/sweep{n}", 30) for n in range(4)]


def test_then_work_lost_in_total_counts() -> None:
    """Were the sweeps training, the pods that the elastic gang can do without would go."""
    case = noon(work("b/sweep"))
    assert case.evictions == [("180:00", "b/big", (4, 5, 6, 7))]
    assert case.evicted == [("180:00", "b/big", 20)]


def test_then_fewer_workloads_go() -> None:
    """Two of one device or one of two lose as much: the one goes, although it is more urgent."""
    case = Case([node("n1", 4)], tree(queue("a", 2), queue("b")))
    case.submit(batch("b/x"), batch("b/y"), batch("b/z", 2, priority=5))
    case.to(10)
    case.submit(work("a/asker", 2))
    assert case.evicted == [("10:00", "b/z", 20)]


def test_then_the_least_urgent_go() -> None:
    """Of two that lose as much the one of lower priority goes, whatever their names are."""
    case = Case([node("n1", 2)], tree(queue("a", 1), queue("b")))
    case.submit(batch("b/x", priority=1), batch("b/y"))
    case.to(10)
    case.submit(work("a/asker"))
    assert case.evicted == [("10:00", "b/y", 10)]


def test_of_an_elastic_gang_the_last_pods_go_first() -> None:
    case = Case([node("n1", 4)], tree(queue("a", 2), queue("b")))
    case.submit(gang("b/big", 4, 1))
    case.to(10)
    case.submit(work("a/one"))
    case.to(20)
    case.submit(work("a/two"))
    assert case.evictions == [("10:00", "b/big", (3,)), ("20:00", "b/big", (2,))]


def test_a_service_loses_no_more_than_it_can_do_without() -> None:
    """Nor does anything else of a type that is never taken whole, however urgent others are."""
    case = Case([node("n1", 3)], tree(queue("q", 3)))
    case.submit(
        work("q/service", pods=2, minimum=1, type_=WorkloadType.INFERENCE),
        work("q/notebook", type_=WorkloadType.NOTEBOOK),
    )
    case.to(10)
    case.submit(work("q/urgent", priority=9))
    assert case.evictions == [("10:00", "q/service", (1,))]
    case.submit(work("q/urgent2", priority=9))
    assert len(case.evictions) == 1


def test_what_nobody_makes_again_is_never_evicted() -> None:
    """Neither for a higher priority nor, where a guarantee has gone, for a lender."""
    case = Case([node("n1", 1)], tree(queue("q", 1)))
    case.submit(batch("q/bare", recreated=False))
    assert case.starts("q/bare") == ["0:00"]
    case.to(10)
    case.submit(work("q/urgent", priority=9))
    case.set_queues(tree(queue("q"), queue("a", 1)))
    case.submit(work("a/lender"))
    assert case.evictions == []


def test_nobody_takes_back_more_than_the_guarantee() -> None:
    """With a guarantee of two, what asks for three at once evicts nobody, and two is two."""
    case = Case([node("n1", 4)], tree(queue("a", 2), queue("b")))
    case.submit(*(batch(f"b/b{n}") for n in range(4)))
    case.to(10)
    case.submit(work("a/three", 3))
    assert case.evictions == []
    case.submit(work("a/two", 2))
    case.submit(work("a/one"))
    assert len(case.evictions) == 2


def test_what_was_evicted_does_not_preempt_what_is_less_urgent() -> None:
    """It waits for a place of two devices, of which less urgent work holds one."""
    case = Case([node("n1", 2)], tree(queue("q")))
    case.submit(work("q/middle", 2, priority=1))
    case.to(10)
    case.submit(work("q/high", priority=2))
    case.submit(work("q/low"))
    case.to(20)
    case.end("q/high")
    case.to(60)
    assert case.starts("q/middle") == ["0:00"]
    assert [uid for _, uid, _ in case.evictions] == ["q/middle"]
    case.submit(work("q/fresh", 2, priority=1))
    assert [uid for _, uid, _ in case.evictions] == ["q/middle", "q/low"]


@pytest.mark.parametrize(("pods_s", "expected_s"), [(10, 10), (60, 30)])
def test_the_queue_never_makes_grace_longer(pods_s: int, expected_s: int) -> None:
    case = Case([node("n1", 1)], tree(queue("a", 1), queue("b", grace_max_us=30 * SECOND_US)))
    case.submit(batch("b/b1", grace_us=pods_s * SECOND_US))
    case.to(1)
    case.submit(work("a/a1"))
    (evict,) = (seen.decision for seen in case.seen if isinstance(seen.decision, Evict))
    assert evict.grace_us == expected_s * SECOND_US


def test_bounds_are_those_of_the_nearest_queue_that_writes_them() -> None:
    """The team writes the minimum run, one project a shorter one, the other none."""
    long, short = (EvictionBounds(minimum_run_us=n * MINUTE_US) for n in (60, 5))
    queues = tree(
        queue("team", eviction=long),
        replace(queue("own"), parent="team", eviction=short),
        replace(queue("none"), parent="team"),
    )
    case = Case([node("n1", 2)], queues)
    case.submit(work("own/x"), work("none/x"))
    case.to(10)
    case.submit(work("own/urgent", priority=1), work("none/urgent", priority=1))
    assert case.evictions == [("10:00", "own/x", (0,))]
    case.to(61)
    assert case.evictions[1:] == [("60:00", "none/x", (0,))]


def test_none_goes_for_a_gang_that_can_be_spared() -> None:
    """x loses least, but beside it a notebook stays, and the gang needs two devices a node."""
    nodes = [node(f"n{number}", 2) for number in (1, 2, 3)]
    case = Case(nodes, tree(queue("a", 4), queue("b"), queue("c", 1)))
    case.adopt(work("c/notebook", type_=WorkloadType.NOTEBOOK), "n1")
    case.submit(batch("b/p", 2), batch("b/q", 2))
    case.to(5)
    case.submit(batch("b/x"))
    assert case.nodes_of("b/x") == ["n1"]
    case.to(10)
    case.submit(work("a/gang", 2, pods=2))
    assert sorted(case.evicted) == [("10:00", "b/p", 20), ("10:00", "b/q", 20)]
    assert sorted(case.nodes_of("a/gang")) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("type_", "grace_min", "held"),
    [
        (WorkloadType.NOTEBOOK, 0, 1),
        (WorkloadType.INFERENCE, 0, 8),
        (WorkloadType.INFERENCE, 60, 1),
    ],
)
def test_pods_that_work_can_do_without_borrow_only_where_they_go(
    type_: WorkloadType, grace_min: int, held: int
) -> None:
    """A notebook never gives any back, and who takes an hour to stop does not in ten minutes."""
    case = Case([node("n1", 8)], tree(queue("a", 1), queue("b", 7)))
    grace_us = grace_min * MINUTE_US
    case.submit(work("a/x", pods=8, minimum=1, type_=type_, grace_us=grace_us))
    assert case.holds("a") == held * 1000
    case.submit(work("b/y", 7))
    assert case.holds("b") == 7000


def test_what_is_left_of_a_gang_whose_needed_pods_have_ended_goes_once() -> None:
    """Its pods go one by one; all of them together would be the same pods once more."""
    case = Case([node("n1", 4)], tree(queue("a", 3), queue("b")))
    case.submit(gang("b/big", 3, 1))
    case.to(10)
    case.happen(ev.PodEnded(0, "b/big", 0))
    left = victims_of(case.world, case.world.entries["b/big"], case.now_us)
    assert sorted(pod for victim in left for pod in victim.pods) == [1, 2]
    case.submit(work("a/asker", 3))
    assert case.evictions == [("10:00", "b/big", (2,))]


def replicas(floor: int, count: int, type_: WorkloadType = WorkloadType.INFERENCE) -> Case:
    """A service of so many replicas, each a workload of its own, in a queue that has two devices.

    Six are another queue's, which asks for them from 10:00 on.
    """
    case = Case([node("n1", 8)], tree(queue("serve", 2), queue("lab", 6)))
    for number in range(count):
        spare = number >= floor
        case.submit(work(f"serve/{number}", type_=type_, spare=spare))
    case.to(10)
    return case


def test_replicas_that_a_service_can_do_without_borrow_and_are_taken_back() -> None:
    """Of five the floor of two stays, whoever asks, and the others come back when there is room."""
    case = replicas(2, 5)
    assert case.holds("serve") == 5000
    case.to(20)
    case.submit(work("lab/w", 5))
    assert [uid for _, uid, _ in case.evictions] == ["serve/2", "serve/3"]
    case.submit(work("lab/v"))
    assert case.holds("serve") == 2000
    assert [len(case.starts(f"serve/{number}")) for number in range(5)] == [1] * 5
    case.end("lab/w")
    assert [len(case.starts(f"serve/{number}")) for number in range(5)] == [1, 1, 2, 2, 2]


def test_the_floor_of_a_service_stands_on_its_own_guarantee() -> None:
    """Nor is there anything spare about other types of work that are never taken back."""
    assert replicas(5, 5).holds("serve") == 2000
    assert replicas(2, 5, WorkloadType.NOTEBOOK).holds("serve") == 2000


def test_more_urgent_work_of_its_queue_takes_a_spare_replica_and_no_other() -> None:
    case = Case([node("n1", 2)], tree(queue("serve", 2)))
    case.submit(work("serve/0", type_=WorkloadType.INFERENCE))
    case.submit(work("serve/1", type_=WorkloadType.INFERENCE, spare=True))
    case.to(60)
    case.submit(work("serve/urgent", priority=10), work("serve/more", priority=10))
    assert [uid for _, uid, _ in case.evictions] == ["serve/1"]


def test_what_takes_too_long_to_stop_to_borrow_is_not_taken_back() -> None:
    """It is within its guarantee, and what borrows beside it goes, although that costs more."""
    case = Case([node("n1", 2)], tree(queue("a", 1), queue("b", 1)))
    case.submit(work("b/old"))
    case.to(30)
    case.submit(batch("b/slow", grace_us=30 * MINUTE_US))
    case.to(40)
    case.submit(work("a/p"))
    assert case.evictions == [("40:00", "b/old", (0,))]


def test_what_takes_too_long_to_stop_goes_for_more_urgent_work_of_its_queue() -> None:
    case = Case([node("n1", 1)], tree(queue("b", 1)))
    case.submit(batch("b/slow", grace_us=30 * MINUTE_US))
    case.to(40)
    case.submit(work("b/p", priority=1))
    assert case.evictions == [("40:00", "b/slow", (0,))]
