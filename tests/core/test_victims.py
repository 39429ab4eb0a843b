"""In which order victims are compared, each rule by itself, with the example of the docs."""

from dataclasses import replace

from shoal.core import events as ev
from shoal.model.queue import EvictionBounds
from shoal.model.workload import PodSet, Workload, WorkloadType
from tests.core.build import node, whole
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work

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
