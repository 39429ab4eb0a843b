"""The worked examples of the page on evictions are what is decided, to the hundredth of an hour."""

from dataclasses import replace

from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, Reserve, Start
from shoal.core.world import World
from shoal.model.queue import EvictionBounds, Priority, Queue, QueueTree
from shoal.model.verdict import Reason
from shoal.model.workload import PodSet, Workload, WorkloadType
from tests.core.build import decide, node, whole, world_of
from tests.core.cases import Case, batch, queue, tree
from tests.core.cases import work as training

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
NOON_US = 12 * HOUR_US

BOUNDS = EvictionBounds(
    minimum_run_us=30 * MINUTE_US,
    per_workload_per_day=4,
    device_hours_lost_per_day=20,
    checkpoint_interval_us=30 * MINUTE_US,
)
TREE = QueueTree(
    (
        Queue(
            "company",
            guarantee=(("H100", 16),),
            priorities=(Priority("urgent", 100), Priority("normal", 0)),
            eviction=BOUNDS,
        ),
        Queue("a", "company", guarantee=(("H100", 8),), eviction=BOUNDS, grace_max_us=MINUTE_US),
        Queue("b", "company", guarantee=(("H100", 8),), eviction=BOUNDS, grace_max_us=MINUTE_US),
    )
)


def work(
    uid: str,
    kind: WorkloadType,
    devices: int,
    pods: int = 1,
    *,
    minimum: int | None = None,
    priority: str = "normal",
) -> Workload:
    """Work of a queue, which its uid names, that takes two minutes to stop."""
    return Workload(
        uid,
        (PodSet("main", pods, whole(devices), minimum),),
        queue=uid[0],
        type=kind,
        grace_us=2 * MINUTE_US,
        priority_name=priority,
    )


def runs(world: World, workload: Workload, since_us: int, saved_us: int | None = None) -> None:
    """Have a workload start and run since a time; with `saved_us`, its work is safe up to then."""
    world.apply(ev.WorkloadSubmitted(since_us, replace(workload, created_us=since_us)))
    (start,) = decide(world, now_us=since_us).decisions
    assert isinstance(start, Start)
    for placement in start.placements:
        world.apply(ev.PodStarted(since_us, workload.uid, placement.pod))
    if saved_us is not None:
        world.apply(ev.CheckpointReported(saved_us, workload.uid, saved_us))


def asks(world: World, workload: Workload, now_us: int = NOON_US) -> tuple[Decision, ...]:
    """Submit a workload and return what is decided."""
    world.apply(ev.WorkloadSubmitted(now_us, replace(workload, created_us=now_us)))
    return decide(world, now_us=now_us).decisions


def evictions(decisions: tuple[Decision, ...]) -> list[tuple[str, tuple[int, ...], float]]:
    """Who goes, which pods, and the device hours that are lost."""
    return [
        (each.workload, each.pods, round(each.lost_device_us / HOUR_US, 2))
        for each in decisions
        if isinstance(each, Evict)
    ]


def fleet(*, sweeps: int) -> World:
    """Two nodes of eight H100, on which b holds all: sweeps, a fine-tuning, an elastic training."""
    world = world_of(node("n1", 8), node("n2", 8))
    world.apply(ev.QueuesSet(0, TREE))
    for number in range(sweeps):
        runs(world, work(f"b/sweep{number}", WorkloadType.BATCH, 1), NOON_US - 2 * HOUR_US)
    rest = work("b/rest", WorkloadType.TRAINING, 4 - sweeps) if sweeps < 4 else None
    if rest is not None:
        runs(world, rest, NOON_US - 20 * MINUTE_US)
    fine = work("b/fine", WorkloadType.TRAINING, 4)
    runs(world, fine, NOON_US - 3 * HOUR_US, NOON_US - 25 * MINUTE_US)
    big = work("b/big", WorkloadType.TRAINING, 1, 8, minimum=4)
    runs(world, big, NOON_US - 3 * HOUR_US, NOON_US - 5 * MINUTE_US)
    return world


def test_batch_goes_before_training_and_the_pods_that_an_elastic_gang_can_spare_before_others() -> (
    None
):
    with_batch = asks(fleet(sweeps=4), work("a/p", WorkloadType.TRAINING, 4))
    assert evictions(with_batch) == [(f"b/sweep{n}", (0,), 0.5) for n in range(4)]
    (kept,) = [each for each in with_batch if isinstance(each, Reserve)]
    assert kept.reason is Reason.RECLAIM
    assert {each.grace_us for each in with_batch if isinstance(each, Evict)} == {MINUTE_US}
    without = asks(fleet(sweeps=0), work("a/p", WorkloadType.TRAINING, 4))
    assert evictions(without) == [("b/big", (4, 5, 6, 7), 0.33)]


def test_nobody_within_a_guarantee_goes_for_another_queue() -> None:
    world = fleet(sweeps=4)
    asks(world, work("a/p", WorkloadType.TRAINING, 8))
    assert sum(len(each.evicting) for each in world.entries.values()) > 0
    assert evictions(asks(world, work("a/more", WorkloadType.TRAINING, 1))) == []


def test_the_minimum_run_protects_from_a_higher_priority_and_less_where_devices_are_borrowed() -> (
    None
):
    """Half an hour against the queue's own; against a lender what `reclaimWithin` leaves: nine."""
    for asker, minutes in (("b/urgent", 30), ("a/p", 9)):
        for age_min, goes in ((minutes - 1, False), (minutes, True)):
            world = world_of(node("n1", 8), node("n2", 8))
            world.apply(ev.QueuesSet(0, TREE))
            for name in ("x", "y"):
                since_us = NOON_US - age_min * MINUTE_US
                runs(world, work(f"b/{name}", WorkloadType.TRAINING, 8), since_us)
            urgent = work(asker, WorkloadType.TRAINING, 8, priority="urgent")
            assert bool(evictions(asks(world, urgent))) is goes, (asker, age_min)


def test_what_work_may_lose_in_a_day_bounds_preemption_and_not_reclaim() -> None:
    none = replace(BOUNDS, device_hours_lost_per_day=0)
    tree = QueueTree(tuple(replace(queue, eviction=none) for queue in TREE.queues))
    for asker, goes in (("b/urgent", []), ("a/p", ["b/x"])):
        world = world_of(node("n1", 8), node("n2", 8))
        world.apply(ev.QueuesSet(0, tree))
        for name, saved_min in (("y", 20), ("x", 10)):
            saved_us = NOON_US - saved_min * MINUTE_US
            kind = WorkloadType.TRAINING
            runs(world, work(f"b/{name}", kind, 8), NOON_US - 2 * HOUR_US, saved_us)
        urgent = work(asker, WorkloadType.TRAINING, 8, priority="urgent")
        assert [uid for uid, _, _ in evictions(asks(world, urgent))] == goes


def test_what_was_evicted_causes_no_preemption_when_it_comes_back() -> None:
    world = world_of(node("n1", 8), node("n2", 8))
    world.apply(ev.QueuesSet(0, TREE))
    runs(world, work("b/normal", WorkloadType.TRAINING, 8), NOON_US - HOUR_US)
    again = work("b/urgent", WorkloadType.TRAINING, 8, priority="urgent")
    runs(world, again, NOON_US - HOUR_US)
    (held,) = world.entries["b/urgent"].held.values()
    world.apply(ev.NodeCordoned(NOON_US, held.node, cordoned=True))
    order = Evict("e", "b/urgent", (0,), (), 0, True, 0, Reason.RECLAIM)
    world.apply(ev.Decided(NOON_US, order))
    world.apply(ev.PodEnded(NOON_US, "b/urgent", 0))
    assert evictions(decide(world, now_us=NOON_US).decisions) == []
    fresh = work("b/fresh", WorkloadType.TRAINING, 8, priority="urgent")
    assert [uid for uid, _, _ in evictions(asks(world, fresh))] == ["b/normal"]


def test_a_gang_that_was_made_smaller_grows_again_in_what_nobody_who_waits_can_use() -> None:
    case = Case([node("n1", 8)], tree(queue("a", 4), queue("b")))
    case.submit(training("b/big", pods=8, minimum=2))
    case.to(10 * 60)
    case.submit(training("a/p", 4))
    assert sorted(case.world.entries["b/big"].held) == [0, 1, 2, 3]
    case.to("630:00")
    case.submit(batch("b/sweep", 2), training("b/six", 6))
    case.to(11 * 60)
    case.end("a/p")
    assert case.starts("b/sweep") == ["660:00"]
    assert case.grown == [("660:00", "b/big", (4, 5))]
    case.to(12 * 60)
    case.end("b/sweep")
    assert case.grown[1:] == [("720:00", "b/big", (6, 7))]
    assert case.world.entries["b/six"].group is not None
    case.to(630 + 24 * 60)
    assert case.world.entries["b/six"].reserved is not None
    assert len(case.evictions) == 1


def test_whose_kept_places_give_way_to_whom() -> None:
    """A node of 8 devices, of which 4 are guaranteed to a and 2 to b; 3 are held by others."""

    def kept_for(gang: int) -> Case:
        case = Case([node("n1", 8)], tree(queue("a", 4), queue("b", 2), queue("c", 2)))
        for number in range(3):
            case.adopt(training(f"x/{number}", recreated=False, run_us=600 * MINUTE_US), "n1")
        case.submit(training("a/gang", gang))
        return case

    case = kept_for(8)
    assert list(case.world.reserving) == ["a/gang"]
    case.submit(training("b/note", type_=WorkloadType.NOTEBOOK))
    assert case.starts("b/note") == ["0:00"]
    case = kept_for(8)
    case.submit(*(training(f"a/{number}") for number in range(4)))
    assert [case.starts(f"a/{number}") for number in range(4)] == [["0:00"]] * 4
    case = kept_for(8)
    case.to(24 * 60)
    case.submit(training("a/late"))
    assert case.starts("a/late") == []
