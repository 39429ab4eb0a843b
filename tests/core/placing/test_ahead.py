"""Places that are kept ahead for who has waited too long, though nobody knows when others end."""

from dataclasses import replace

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import cycle
from shoal.core.decisions import Reserve, Retract, Start
from shoal.model.queue import EvictionBounds, Priority, Queue
from shoal.model.workload import Outcome, PodSet, Workload
from tests.core.build import SEED, node, policy, share, whole
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, us, work


def patient() -> Queue:
    """A queue that is guaranteed nothing, and whose work starves after an hour."""
    return queue("lab", starvation_after_us=60 * MINUTE_US)


def fixed(uid: str, devices: int = 1) -> Workload:
    """Work that is never evicted."""
    return work(uid, devices, recreated=False)


def test_what_is_free_is_kept_first_and_beside_it_what_began_first() -> None:
    """On the node that is nearest to being free; `x/b` began before `x/a`."""
    case = Case([node("n1", 4), node("n2", 4)], tree(patient()))
    case.adopt(fixed("x/three", 3), "n1")
    case.adopt(fixed("x/b"), "n2")
    case.to(1)
    case.adopt(fixed("x/a"), "n2")
    case.submit(work("lab/gang", 3))
    case.to(61)
    reserved = case.world.entries["lab/gang"].reserved
    assert reserved is not None
    (place,) = reserved.placements
    held = case.world.entries["x/b"].held[0]
    assert (place.node, held.leaves[0] in place.leaves) == ("n2", True)
    assert case.world.entries["x/a"].held[0].leaves[0] not in place.leaves


def test_who_does_not_have_to_end_runs_on_beside_a_kept_place() -> None:
    """On the other node there is room already, of which nobody else is to have anything."""
    nodes = [node("n1", 2), node("n2", 4, accelerator="A100")]
    case = Case(nodes, tree(patient()))
    case.adopt(fixed("x/a"), "n2")
    case.adopt(fixed("x/b"), "n2")
    case.adopt(fixed("x/note"), "n1")
    both = PodSet("h", 1, whole(2, 1, "H100")), PodSet("a", 1, whole(2, 1, "A100"))
    case.submit(replace(work("lab/gang"), pod_sets=both))
    case.to(60)
    reserved = case.world.entries["lab/gang"].reserved
    assert reserved is not None
    assert [place.leaves for place in reserved.placements] == [
        ("n1/0", "n1/1"),
        ("n2/2", "n2/3"),
    ]


def test_what_a_start_that_is_taken_back_held_is_free_once() -> None:
    """The pods of a gang need more than the only device has, whoever ends."""
    case = Case([node("n", 1)], tree(patient()))
    one, two = PodSet("one", 1, share(600)), PodSet("two", 2, share(600))
    case.feed(ev.WorkloadSubmitted(0, replace(work("lab/fails"), pod_sets=(one,))))
    (start,) = cycle(case.world, policy(), 0, SEED, Budget(1000)).decisions
    case.feed(ev.Decided(0, start))
    case.submit(replace(work("lab/gang"), pod_sets=(two,)))
    case.to("59:59")
    case.schedule(us(60), ev.StartFailed(us(60), "lab/fails", 1, 0))
    case.to(60)
    assert any(isinstance(seen.decision, Retract) for seen in case.seen)
    assert not [seen for seen in case.seen if isinstance(seen.decision, Reserve)]


def test_what_goes_for_others_gives_back_its_quota_once() -> None:
    """Before a gang has the right to two devices both that run have to be gone, the last at 90."""
    lab = queue("lab", limit=2, accelerator="A100|H100", starvation_after_us=60 * MINUTE_US)
    nodes = [node("h", 2), node("a", 2, accelerator="A100")]
    case = Case(nodes, tree(lab, queue("b", 1)))
    soon, late = work("lab/soon"), work("lab/late", recreated=False)
    case.adopt(replace(late, run_us=90 * MINUTE_US), "h")
    case.submit(replace(soon, run_us=70 * MINUTE_US))
    gang = PodSet("gang", 1, whole(2, 1, "A100"))
    case.submit(replace(work("lab/gang"), pod_sets=(gang,)))
    case.to("59:59")
    case.schedule(us(60), ev.WorkloadSubmitted(us(60), on_h100("b/w", us(60))))
    case.to(60)
    assert case.evicted == [("60:00", "lab/soon", 60)]
    reserved = case.world.entries["lab/gang"].reserved
    assert reserved is not None
    assert reserved.at_us == us(90)


def on_h100(uid: str, created_us: int) -> Workload:
    """Work that takes nothing but an H100."""
    pods = PodSet("one", 1, whole(1, 1, "H100"))
    return replace(work(uid), pod_sets=(pods,), created_us=created_us)


def test_who_ends_before_fills_in_behind_a_place_as_soon_as_it_is_kept() -> None:
    case = Case([node("n", 4)], tree(queue("a", 4), queue("b")))
    case.submit(work("a/runs", 2, run_us=us(60)))
    case.submit(work("a/gang", 4), work("b/short", run_us=us(30)))
    reserved = case.world.entries["a/gang"].reserved
    assert reserved is not None
    assert reserved.at_us == us(60)
    assert case.starts("b/short") == ["0:00"]


def test_a_place_gives_way_to_a_guarantee_as_soon_as_it_is_kept() -> None:
    """`a` comes first by its guarantee of an A100, and beyond its guarantees somebody starves."""
    a = replace(queue("a", 1, accelerator="A100"), starvation_after_us=us(60))
    nodes = [node("h", 2), node("x", 1, accelerator="A100")]
    case = Case(nodes, tree(a, queue("z", 1)))
    case.adopt(fixed("other/h"), "h")
    case.adopt(fixed("other/x"), "x")
    case.submit(work("a/gang", 2, accelerators=("H100",)))
    for uid, name in (("a/first", "A100"), ("z/w", "H100")):
        came = work(uid, accelerators=(name,), created_us=us(60))
        case.schedule(us(60), ev.WorkloadSubmitted(us(60), came))
    case.to(60)
    assert case.starts("z/w") == ["60:00"]


def test_nothing_is_kept_for_who_can_make_others_go_in_its_turn() -> None:
    """More urgent work comes as what is on the A100 is protected no longer, and has to wait."""
    bounds = EvictionBounds(minimum_run_us=us(60))
    priorities = Priority("hi", 100), Priority("lo", 0)
    c = Queue(
        "c",
        "root",
        guarantee=(("A100", 1), ("H100", 1)),
        reclaim_within_us=us(90),
        priorities=priorities,
        starvation_after_us=us(30),
    )
    nodes = [node("h", 1), node("x", 1, accelerator="A100")]
    case = Case(nodes, tree(c, queue("b", eviction=bounds)))
    case.submit(batch("b/x", accelerators=("A100",)))
    case.to(1)
    case.submit(work("c/patient", accelerators=("A100",)))
    case.to(10)
    case.submit(batch("b/h", accelerators=("H100",)))
    urgent = work("c/urgent", accelerators=("H100",), priority=100, created_us=us(60))
    case.schedule(us(60), ev.WorkloadSubmitted(us(60), urgent))
    case.to(60)
    assert case.evicted == [("60:00", "b/x", 60)]
    assert case.starts("c/patient") == ["60:00"]


def test_what_was_kept_is_for_others_at_once_where_its_owner_starts_elsewhere() -> None:
    case = Case([node("n1", 2), node("n2", 2)], tree(queue("a", 4)))
    case.adopt(work("a/known", 2, run_us=us(60)), "n1")
    case.adopt(fixed("a/other", 2), "n2")
    case.submit(work("a/gang", 2))
    reserved = case.world.entries["a/gang"].reserved
    assert reserved is not None
    assert [place.node for place in reserved.placements] == ["n1"]
    case.feed(ev.WorkloadEnded(case.now_us, "a/other", Outcome.COMPLETED))
    came = cycle(case.world, policy(), case.now_us, SEED, Budget(100))
    (start,) = came.decisions
    assert isinstance(start, Start)
    assert [place.node for place in start.placements] == ["n2"]
    assert not came.complete, "others may start on n1"
