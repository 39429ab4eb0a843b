"""Guarantees on a fleet that has become smaller, and what grows back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.tenancy.accounts import Bound
from shoal.core.tenancy.shrinking import Shrinking
from shoal.core.world import World
from shoal.model.fractions import RATE_ONE, UNIT
from shoal.model.queue import UNITS, Queue, QueueTree
from shoal.model.verdict import Reason
from shoal.model.workload import WorkloadType
from tests.core.build import node
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work

NOTEBOOK = WorkloadType.NOTEBOOK


def guaranteed(case: Case, *names: str, accelerator: str = "H100") -> list[float]:
    """Devices that queues are guaranteed."""
    tenants = case.world.tenants
    return [tenants.guarantee(name, accelerator).units / UNIT for name in names]


def lose(case: Case, name: str, *numbers: int) -> None:
    """Devices of a node are out of order."""
    case.happen(*(ev.DeviceLost(0, name, f"{name}/{number}") for number in numbers))


def test_a_device_that_is_out_of_order_counts_for_a_while() -> None:
    """Ten devices are promised as 6 + 3 + 1; after five minutes without two, 8 are: 5 + 2 + 1."""
    case = Case([node("n", 8), node("m", 2)], tree(queue("a", 6), queue("b", 3), queue("c", 1)))
    lose(case, "m", 0, 1)
    case.to("4:59")
    assert guaranteed(case, "a", "b", "c") == [6, 3, 1]
    assert case.turn().look_again_us == 5 * MINUTE_US
    case.to("5:00")
    assert guaranteed(case, "a", "b", "c") == [5, 2, 1]
    case.to(9)
    case.happen(ev.DeviceReturned(0, "m", "m/0"), ev.DeviceReturned(0, "m", "m/1"))
    assert guaranteed(case, "a", "b", "c") == [6, 3, 1]


def test_a_node_that_is_gone_counts_no_longer() -> None:
    case = Case([node("n", 8), node("m", 2)], tree(queue("a", 5), queue("b", 5)))
    case.happen(ev.NodeCordoned(0, "m", cordoned=True))
    case.to(60)
    assert guaranteed(case, "a", "b") == [5, 5]
    case.happen(ev.NodeLost(0, "m"))
    assert guaranteed(case, "a", "b") == [4, 4]


def test_devices_that_a_node_no_longer_lists_count_for_a_while() -> None:
    case = Case([node("n", 8)], tree(queue("a", 8)))
    case.happen(ev.NodeSeen(0, node("n", 5)))
    case.to(4)
    assert guaranteed(case, "a") == [8]
    case.to(6)
    assert guaranteed(case, "a") == [5]
    case.happen(ev.NodeSeen(0, node("n", 8)))
    assert guaranteed(case, "a") == [8]


def test_what_is_spare_above_goes_before_what_is_promised_below() -> None:
    queues = (
        Queue("team", "root", guarantee=(("H100", 6),)),
        Queue("x", "team", guarantee=(("H100", 2),)),
        Queue("y", "team", guarantee=(("H100", 2),)),
    )
    case = Case([node("n", 4), node("m", 2)], tree(*queues))
    case.happen(ev.NodeLost(0, "m"))
    assert guaranteed(case, "team", "x", "y") == [4, 2, 2]
    lose(case, "n", 0)
    case.to(5)
    assert guaranteed(case, "team", "x", "y") == [3, 2, 1]


def test_nobody_has_less_than_is_used_inside() -> None:
    """a uses 5 of 6, b none of 6: of the six that are left one is b's."""
    case = Case([node("n", 6), node("m", 6)], tree(queue("a", 6), queue("b", 6)))
    case.submit(*(work(f"a/{k}", type_=NOTEBOOK) for k in range(5)))
    case.happen(ev.NodeLost(0, "m"))
    assert guaranteed(case, "a", "b") == [5, 1]
    case.end("a/0", "a/1")
    case.to(1)
    assert guaranteed(case, "a", "b") == [3, 3]


def test_what_comes_later_is_no_part_of_a_guarantee_that_has_shrunk() -> None:
    """Borrowing beyond the five that are left makes them no more."""
    case = Case([node("n", 10), node("m", 2)], tree(queue("a", 6), queue("b", 6)))
    case.happen(ev.NodeLost(0, "m"))
    assert guaranteed(case, "a", "b") == [5, 5]
    case.submit(*(batch(f"a/{k}") for k in range(10)))
    case.to(1)
    assert (case.holds("a"), guaranteed(case, "a", "b")) == (10_000, [5, 5])
    case.submit(work("b/0", 5))
    assert (case.holds("a"), case.holds("b")) == (5000, 5000)


def test_what_cannot_be_returned_fits_what_is_left() -> None:
    case = Case([node("n", 4), node("m", 2)], tree(queue("a", 3), queue("b", 3)))
    lose(case, "m", 0, 1)
    case.submit(work("b/0", type_=NOTEBOOK))
    case.to(5)
    assert guaranteed(case, "a", "b") == [2, 2]
    case.submit(*(work(f"b/{k}", type_=NOTEBOOK) for k in (1, 2)))
    over = case.verdict("b/2").over_quota
    assert over is not None
    assert (over.reason, over.bound_units) == (Reason.GUARANTEE, 2 * UNIT)
    assert not case.verdict("b/2").never
    case.happen(ev.DeviceReturned(0, "m", "m/0"), ev.DeviceReturned(0, "m", "m/1"))
    assert case.starts("b/2") == ["5:00"]


def test_a_snapshot_remembers_what_is_missed_and_what_is_left() -> None:
    case = Case([node("n", 6), node("m", 6)], tree(queue("a", 6), queue("b", 6)))
    case.submit(*(work(f"a/{k}", type_=NOTEBOOK) for k in range(5)))
    case.happen(ev.NodeLost(0, "m"))
    lose(case, "n", 5)
    case.to(3)
    again = World()
    events = tuple(case.world.snapshot(case.now_us))
    for event in events:
        again.apply(event)
    assert tuple(again.snapshot(case.now_us)) == events
    case.world = again
    assert guaranteed(case, "a", "b") == [5, 1]
    case.turn()
    case.to("4:59")
    assert guaranteed(case, "a", "b") == [5, 1]
    case.to("5:00")
    assert guaranteed(case, "a", "b") == [5, 0]


def test_an_accelerator_shrinks_by_itself_under_a_group() -> None:
    """Of two H100 and two A100 an H100 is gone: that is no matter of who has the A100."""
    queues = (
        Queue("x", "root", guarantee=(("H100", 2),)),
        Queue("y", "root", guarantee=(("A100", 2),)),
    )
    nodes = [node("h", 2), node("a", 2, accelerator="A100")]
    root = Queue("root", guarantee=(("A100|H100", 4),), shrink_after_us=0)
    case = Case(nodes, tree(*queues, root=root))
    lose(case, "h", 1)
    assert guaranteed(case, "root", "x") == [3, 1]
    assert guaranteed(case, "y", accelerator="A100") == [2]


def test_units_shrink_by_exchange_rates() -> None:
    """Two H100 and five A100 are 4 units; without an H100, 3: two children of two get 2 and 1."""
    queues = (
        Queue("x", "root", guarantee=((UNITS, 2),)),
        Queue("y", "root", guarantee=((UNITS, 2),)),
    )
    nodes = [node("h", 2), node("a", 5, accelerator="A100")]
    made = replace(
        tree(*queues, root=Queue("root", shrink_after_us=0)), rates=(("A100", 400), ("H100", 1000))
    )
    case = Case(nodes, made)
    assert guaranteed(case, "x", "y") == [2, 2]
    lose(case, "h", 1)
    assert guaranteed(case, "root", "x", "y") == [3, 2, 1]


promises = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5)


@given(promised=promises, devices=st.integers(0, 30))
def test_what_is_left_adds_up(promised: list[tuple[int, int]], devices: int) -> None:
    """Nobody gets more than was promised or less than is used; otherwise nothing is left over."""
    bounds = [(Bound("H100", ("H100",), UNIT * sum(size for size, _ in promised)),)]
    bounds += [(Bound("H100", ("H100",), UNIT * size),) for size, _ in promised]
    count = len(promised)
    children = {0: list(range(1, count + 1))} | {n: [] for n in range(1, count + 1)}
    paths = [(0,), *((n, 0) for n in range(1, count + 1))]
    floors = [UNIT * min(size, used) for size, used in promised]
    shrinking = Shrinking(bounds, children, paths, lambda *_: RATE_ONE)
    capacity = {"H100": UNIT * devices}
    left = [
        bound.units
        for (bound,) in shrinking.shrunk(
            capacity, [(sum(floors),), *((floor,) for floor in floors)], bounds
        )
    ]
    total = sum(size for size, _ in promised)
    assert left[0] == max(UNIT * min(total, devices), sum(floors))
    assert sum(left[1:]) == left[0]
    for units, floor, (size, _) in zip(left[1:], floors, promised, strict=True):
        assert floor <= units <= UNIT * size
    if devices < total and not any(floors):
        for units, (size, _) in zip(left[1:], promised, strict=True):
            assert abs(units - UNIT * size * devices / total) < UNIT


@pytest.mark.parametrize("written", [(), (Queue("root"),)])
def test_without_guarantees_nothing_shrinks(written: tuple[Queue, ...]) -> None:
    case = Case([node("n", 2)], QueueTree(written))
    lose(case, "n", 0, 1)
    case.to(10)
    assert case.world.tenants.remembered()[1] == ()


def test_a_device_that_was_out_of_order_is_gone_with_its_node() -> None:
    """It counts for a while only as long as its node may bring it back."""
    case = Case([node("n", 8), node("m", 2)], tree(queue("a", 5), queue("b", 5)))
    lose(case, "m", 0, 1)
    case.to(1)
    assert guaranteed(case, "a", "b") == [5, 5]
    case.happen(ev.NodeLost(0, "m"))
    assert guaranteed(case, "a", "b") == [4, 4]
