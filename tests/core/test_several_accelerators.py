"""Gangs whose pod sets name different accelerators, and what others give back on each."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Evict
from shoal.model.node import Node
from shoal.model.queue import EvictionBounds, Queue
from shoal.model.verdict import Reason
from shoal.model.workload import Placement, PodSet, Workload, WorkloadType
from tests.core.build import node, whole
from tests.core.cases import MINUTE_US, Case, batch, queue, quota, tree, work

HOPPER, AMPERE = "H100", "A100"


def fleet(hoppers: int, amperes: int) -> list[Node]:
    """One node of each accelerator."""
    return [node("h", hoppers), node("a", amperes, accelerator=AMPERE)]


def gang(uid: str, trainers: int = 2, rewards: int = 1, **more: object) -> Workload:
    """Trainers on the one accelerator and reward models on the other, a device for each pod."""
    sets = (
        PodSet("trainer", trainers, whole(1, 0, HOPPER)),
        PodSet("reward", rewards, whole(1, 0, AMPERE)),
    )
    return replace(work(uid), pod_sets=sets, **more)  # type: ignore[arg-type]


def lender(name: str = "a", **devices: int) -> Queue:
    """A queue with these guarantees."""
    return replace(queue(name), guarantee=quota(**devices))


def lent_out(*queues: Queue, hoppers: int = 4, amperes: int = 2) -> Case:
    """Jobs of one device fill both nodes at 0:00, 1:00 and so on; the last lose least."""
    case = Case(fleet(hoppers, amperes), tree(*queues, queue("b")))
    for minute in range(max(hoppers, amperes)):
        case.to(minute)
        on_hopper = batch(f"b/h{minute}", accelerators=(HOPPER,))
        on_ampere = batch(f"b/a{minute}", accelerators=(AMPERE,))
        case.submit(*[on_hopper][: hoppers - minute], *[on_ampere][: max(0, amperes - minute)])
    case.to(10)
    return case


def gone(case: Case) -> list[str]:
    """Who was evicted."""
    return sorted(uid for _, uid, _ in case.evictions)


def exact(case: Case) -> set[bool]:
    """What the records say of whether no other choice would have cost less."""
    return {seen.decision.exact for seen in case.seen if isinstance(seen.decision, Evict)}


def test_a_gang_on_two_accelerators_takes_back_what_is_guaranteed_on_each() -> None:
    case = lent_out(lender(H100=2, A100=1))
    case.submit(gang("a/p"))
    assert case.starts("a/p") == ["10:00"]
    assert gone(case) == ["b/a1", "b/h2", "b/h3"]
    assert exact(case) == {True}
    case.run_on()


def test_a_gang_takes_nothing_where_it_is_short_of_a_right_on_one_accelerator() -> None:
    case = lent_out(lender(H100=2))
    case.submit(gang("a/p"))
    assert case.evictions == []
    case.to(20)
    case.end("b/a0")
    assert case.starts("a/p") == ["20:00"]
    assert gone(case) == ["b/h2", "b/h3"]


def test_a_gang_borrows_what_is_free_on_the_accelerator_on_which_it_has_no_right() -> None:
    case = lent_out(lender(H100=2), amperes=0)
    case.happen(ev.NodeSeen(0, node("a", 1, accelerator=AMPERE)))
    case.submit(gang("a/p"))
    assert case.starts("a/p") == ["10:00"]
    assert gone(case) == ["b/h2", "b/h3"]


def test_what_is_free_is_no_part_of_what_others_give_back() -> None:
    """The gang that goes holds both, but the reward model finds a device that nobody gave back."""
    case = Case(fleet(2, 2), tree(lender(H100=1), queue("b")))
    case.submit(gang("b/v", 2, 1))
    case.to(10)
    case.submit(gang("a/p", 1, 1))
    assert case.starts("a/p") == ["10:00"]
    assert gone(case) == ["b/v"]


def test_a_gang_gets_nothing_of_what_a_victim_holds_where_it_has_no_right_to_that() -> None:
    case = Case(fleet(2, 1), tree(lender(H100=1), queue("b")))
    case.submit(gang("b/v", 2, 1))
    case.to(10)
    case.submit(gang("a/p", 1, 1))
    assert case.evictions == []


def test_a_gang_within_a_guarantee_on_one_accelerator_gives_back_what_it_borrows_on_another() -> (
    None
):
    case = Case(fleet(2, 1), tree(lender("a", A100=1), lender("b", H100=2)))
    case.submit(gang("b/v", 2, 1))
    case.to(10)
    case.submit(work("a/p", accelerators=(AMPERE,)))
    assert case.starts("a/p") == ["10:00"]
    assert gone(case) == ["b/v"]
    case.run_on()


def test_a_gang_is_not_taken_from_where_it_is_within_its_guarantee() -> None:
    case = Case(fleet(2, 1), tree(lender("a", H100=1), lender("b", H100=1), queue("c")))
    case.adopt(work("c/stays", accelerators=(HOPPER,), recreated=False), "h")
    case.submit(gang("b/v", 1, 1))
    assert case.starts("b/v") == ["0:00"]
    case.to(10)
    case.submit(work("a/p", accelerators=(HOPPER,)))
    assert case.evictions == []


def test_urgent_work_of_the_same_queue_goes_first_on_both_accelerators() -> None:
    case = Case(fleet(2, 1), tree(queue("q")))
    case.submit(gang("q/low"))
    case.to(10)
    case.submit(gang("q/high", priority=1))
    assert case.starts("q/high") == ["10:00"]
    assert gone(case) == ["q/low"]


def test_who_may_go_is_not_used_up_on_one_accelerator_where_both_are_short() -> None:
    """Of what b holds, it borrows two devices together; the two cheapest are on one of both."""
    both = (("A100|H100", 4),)
    case = Case(fleet(4, 2), tree(lender(H100=1, A100=1), replace(queue("b"), guarantee=both)))
    case.submit(*(batch(f"b/a{n}", accelerators=(AMPERE,)) for n in range(2)))
    case.to(5)
    case.submit(*(batch(f"b/h{n}", accelerators=(HOPPER,)) for n in range(4)))
    case.to(10)
    case.submit(gang("a/p", 1, 1))
    assert case.starts("a/p") == ["10:00"]
    assert len([uid for uid in gone(case) if uid.startswith("b/h")]) == 1
    assert len(gone(case)) == 2


def test_what_a_victim_holds_of_another_accelerator_is_not_held_against_the_others() -> None:
    """b borrows four. All of it may go if the gang, which holds least of that, goes first."""
    case = Case(fleet(2, 5), tree(lender("a", A100=2), lender("b", A100=1)))
    case.submit(work("b/old", 2, accelerators=(AMPERE,)))
    case.to(5)
    case.submit(gang("b/gang", 2, 1))
    case.to(8)
    case.submit(batch("b/new", 2, accelerators=(AMPERE,)))
    case.to(10)
    case.submit(work("a/p", pods=2, accelerators=(AMPERE,)))
    assert case.starts("a/p") == ["10:00"]
    assert gone(case) == ["b/new"]


def test_pod_sets_that_may_have_any_go_to_different_accelerators_where_one_will_not_do() -> None:
    case = lent_out(lender(H100=1, A100=1))
    sets = (PodSet("one", 1, whole(1, 0)), PodSet("other", 1, whole(1, 0)))
    case.submit(replace(work("a/p"), pod_sets=sets))
    assert case.starts("a/p") == ["10:00"]
    assert gone(case) == ["b/a1", "b/h3"]


def test_the_record_claims_nothing_where_victims_on_several_accelerators_would_cost_less() -> None:
    case = Case(fleet(2, 2), tree(lender(H100=2, A100=2), queue("b")))
    for minute in (0, 9):
        case.to(minute)
        names = ((HOPPER,), (AMPERE,))
        case.submit(*(batch(f"b/{n[0]}{minute}", accelerators=n) for n in names))
    case.to(10)
    case.submit(work("a/p", pods=2))
    assert case.starts("a/p") == ["10:00"]
    assert len(case.evictions) == 2
    assert exact(case) == {False}


def test_a_gang_waits_until_work_on_each_accelerator_may_go() -> None:
    bounds = EvictionBounds(minimum_run_us=30 * MINUTE_US)
    lenders = replace(lender(H100=1, A100=1), reclaim_within_us=20 * MINUTE_US)
    case = Case(fleet(1, 1), tree(lenders, queue("b", eviction=bounds)))
    case.submit(batch("b/h", accelerators=(HOPPER,)))
    case.to(5)
    case.submit(batch("b/a", accelerators=(AMPERE,)))
    case.to(10)
    case.submit(gang("a/p", 1, 1))
    case.to(60)
    assert case.starts("a/p") == ["25:00"]
    assert [at for at, _, _ in case.evictions] == ["25:00"] * 2


def test_who_merely_began_on_borrowed_devices_of_both_accelerators_goes_once() -> None:
    """His queue borrows no longer, and what was freed elsewhere is held by what stays."""
    both = "A100|H100"
    lends = replace(queue("a"), guarantee=quota(**{both: 3}), placeable=quota(**{both: 2}))
    case = Case(fleet(4, 2), tree(lends, replace(queue("b"), guarantee=quota(**{both: 3}))))

    def stays(uid: str, devices: int, accelerator: str) -> Workload:
        return replace(work(uid, devices, accelerators=(accelerator,)), recreated=False)

    case.adopt(stays("b/x", 1, AMPERE), "a")
    places = (("h", "h/0"), ("h", "h/1"), ("a", "a/1"))
    placements = tuple(Placement(pod, at, (leaf,)) for pod, (at, leaf) in enumerate(places))
    case.feed(ev.WorkloadAdopted(0, gang("b/g"), placements))
    case.end("b/x")
    case.adopt(stays("c/y", 2, HOPPER), "h")
    case.adopt(stays("c/z", 1, AMPERE), "a")
    case.to(20)
    case.submit(gang("a/p"))
    assert case.evictions == [("20:00", "b/g", (0, 1, 2))]
    assert case.starts("a/p") == ["20:00"]


# Work that may have any of several accelerators -----------------------------------------------


@pytest.mark.parametrize("accelerators", [(), (HOPPER,), (AMPERE, HOPPER)])
def test_work_that_may_have_several_makes_room_on_the_one_where_others_may_go(
    accelerators: tuple[str, ...],
) -> None:
    """The queue is guaranteed no A100, which nobody can change by going; its H100 are full."""
    case = Case(fleet(4, 4), tree(queue("q", 4, 4)))
    case.submit(*(batch(f"q/{number}", accelerators=(HOPPER,)) for number in range(4)))
    case.to(30)
    notebook = work("q/n", type_=WorkloadType.NOTEBOOK, priority=100, accelerators=accelerators)
    case.submit(notebook)
    assert case.starts("q/n") == ["30:00"]
    assert gone(case) == ["q/0"]


def test_who_is_told_one_of_several_obstacles_is_told_what_others_could_make_room_for() -> None:
    """Nobody goes for what is not more urgent; the limit on H100 is what it waits for."""
    case = Case(fleet(4, 4), tree(queue("q", 4, 4)))
    case.submit(*(batch(f"q/{number}", accelerators=(HOPPER,)) for number in range(4)))
    case.submit(work("q/n", type_=WorkloadType.NOTEBOOK))
    over = case.verdict("q/n").over_quota
    assert over is not None
    assert (over.reason, over.accelerators) == (Reason.LIMIT, HOPPER)
    assert case.evictions == []


def test_an_obstacle_that_nobody_can_remove_is_told_where_there_is_no_other() -> None:
    case = Case(fleet(0, 4), tree(queue("q", 4, 4)))
    case.submit(work("q/n", type_=WorkloadType.NOTEBOOK, priority=100))
    over = case.verdict("q/n").over_quota
    assert over is not None
    assert (over.reason, over.accelerators) == (Reason.GUARANTEE, AMPERE)
