"""Places that are kept ahead for who has waited too long, though nobody knows when others end."""

from dataclasses import replace

from shoal.model.queue import Queue
from shoal.model.workload import PodSet, Workload
from tests.core.build import node, whole
from tests.core.cases import MINUTE_US, Case, queue, tree, work


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
