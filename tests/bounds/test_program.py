"""The linear program on small fleets whose optimum is known, and against any packing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.bounds.patterns import Grid, best_patterns
from shoal.bounds.program import Program
from shoal.bounds.types import LeafGroup, NodeType, node_types
from shoal.model.request import DeviceRequest, Request
from tests.core.build import divided, node, share, whole


def most(types: tuple[NodeType, ...], *wanted: tuple[Request, float]) -> float:
    """The most devices that can be given to these requests."""
    requests = [request for request, _ in wanted]
    return (
        Program(types, requests, devices(requests))
        .most(np.array([amount for _, amount in wanted]))
        .value
    )


def devices(requests: list[Request]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What each request asks for, in devices."""
    asked = [request.devices for request in requests]
    return np.array([a.count * (1 if a.whole else a.compute_milli / 1000) for a in asked])


ONE = node_types([node("a", 1)])
FOUR = node_types([node("a", 4)])


def test_nodes_that_are_equal_are_one_type() -> None:
    types = node_types([node("a", 2), node("b", 2, labels={"zone": "x"}), node("c", 4)])
    assert [kind.nodes for kind in types] == [2, 1]
    assert [kind.leaves for kind in types] == [2, 4]


def test_partitions_are_groups_of_their_own() -> None:
    cards = (divided("a/0", 2), *node("a", 1).devices)
    (kind,) = node_types([node("a", 0).__class__("a", 1000, 1000, 10, cards)])
    assert [(g.accelerator, g.undivided, g.shared, g.count) for g in kind.groups] == [
        ("A100", False, False, 2),
        ("H100", True, True, 1),
    ]


def test_shares_that_do_not_fit_together_leave_their_rest_unused() -> None:
    assert most(ONE, (share(600), 5)) == pytest.approx(0.6)


def test_shares_complement_each_other() -> None:
    assert most(ONE, (share(810), 5), (share(190), 5)) == pytest.approx(1.0)


def test_a_leaf_may_be_divided_among_patterns() -> None:
    """A fifth of the device holds five shares of 200 each, the rest one of 810."""
    assert most(ONE, (share(810), 5), (share(200), 1)) == pytest.approx(0.2 + 0.8 * 0.81)


def test_what_is_not_asked_for_is_not_allocated() -> None:
    assert most(FOUR, (whole(1), 1.5), (share(500), 1)) == pytest.approx(2.0)


def test_cpu_limits_what_devices_can_be_used() -> None:
    assert most(node_types([node("a", 4, cpu=20)]), (whole(1, 10), 4)) == pytest.approx(2.0)


def test_pods_of_more_than_half_a_node_take_a_node_each() -> None:
    types = node_types([node("a", 4), node("b", 4)])
    assert most(types, (whole(3), 10)) == pytest.approx(6.0)
    assert most(types, (whole(2), 10)) == pytest.approx(8.0)


def test_an_accelerator_that_is_not_allowed_is_not_used() -> None:
    types = node_types([node("a", 2), node("b", 2, accelerator="L4")])
    assert most(types, (whole(1, 1, "L4"), 4)) == pytest.approx(2.0)


def test_device_memory_limits_shares() -> None:
    assert most(ONE, (share(100, 60), 10)) == pytest.approx(0.1)
    assert most(ONE, (share(100, 20), 10)) == pytest.approx(0.4)
    assert most(ONE, (share(500, 20), 10), (share(100, 60), 10)) == pytest.approx(1.0, abs=0.1)


def test_a_partition_that_is_exclusive_serves_one_pod() -> None:
    cards = (divided("a/0", 2),)
    types = node_types([node("a", 0).__class__("a", 64_000, 1000, 10, cards)])
    assert most(types, (share(100), 10)) == pytest.approx(0.2)
    assert most(types, (whole(1), 10)) == 0


def test_forced_classes_are_placed_first() -> None:
    types = node_types([node("a", 4, cpu=20)])
    requests = [whole(1, 10), Request(15_000)]
    program = Program(types, requests, devices(requests))
    wanted = np.array([4.0, 1.0])
    assert program.most(wanted).value == pytest.approx(2.0)
    assert program.most(wanted, np.array([False, True])).value == pytest.approx(0.5)
    with pytest.raises(ValueError, match="do not all fit"):
        program.most(np.array([1.0, 2.0]), np.array([False, True]))


def test_solving_again_forgets_the_demand_before() -> None:
    requests = [share(810), share(190)]
    program = Program(FOUR, requests, devices(requests))
    first = program.most(np.array([4.0, 4.0]))
    program.most(np.array([1.0, 0.0]))
    assert program.most(np.array([4.0, 4.0])).value == pytest.approx(first.value)


def test_the_largest_load_is_where_something_no_longer_fits() -> None:
    requests = [whole(1), share(600)]
    program = Program(FOUR, requests, devices(requests))
    assert program.largest_load(np.array([1.0, 1.0])) == pytest.approx(2.0)
    assert Program(FOUR, [whole(5)], np.array([5.0])).most(np.array([1.0])).value == 0
    impossible = Program(FOUR, [whole(5)], np.array([5.0]))
    assert impossible.largest_load(np.array([1.0])) == 0


def test_a_class_that_is_in_want_of_pods_has_its_whole_value_as_shadow() -> None:
    requests = [whole(1), share(500)]
    solution = Program(FOUR, requests, devices(requests)).most(np.array([100.0, 1.0]))
    assert solution.shadow[0] == pytest.approx(0)
    assert solution.shadow[1] == pytest.approx(0)
    slack = Program(FOUR, requests, devices(requests)).most(np.array([1.0, 1.0]))
    assert slack.shadow == pytest.approx([1.0, 0.5])


def test_shortfall_tells_what_is_lost_off_the_best_place() -> None:
    types = node_types([node("a", 2), node("b", 2, accelerator="L4")])
    requests = [whole(1), whole(1, 1, "L4")]
    solution = Program(types, requests, devices(requests)).most(np.array([1.0, 5.0]))
    assert solution.shortfall[0] == pytest.approx([0, 1])
    assert solution.shortfall[1] == pytest.approx([np.inf, 0])


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5, unique=True),
    st.lists(st.floats(0.01, 2), min_size=5, max_size=5),
)
def test_the_best_pattern_is_worth_as_much_as_any(sizes: list[int], worth: list[float]) -> None:
    prices = np.array([worth[: len(sizes)]])
    grid = Grid.of([(50 * size, 0) for size in sizes], 1000, 0)
    (found,), (counts,) = best_patterns(grid, prices)
    assert found == pytest.approx(float(counts @ prices[0]))
    assert sum(c * s for c, s in zip(counts, sizes, strict=True)) <= 20
    for size, price in zip(sizes, prices[0], strict=True):
        assert found >= price * (20 // size) - 1e-9


@given(
    st.lists(
        st.tuples(st.sampled_from([110, 190, 300, 470, 500, 810]), st.integers(1, 8)),
        min_size=1,
        max_size=14,
    ),
    st.integers(1, 3),
)
def test_no_packing_beats_the_bound(pods: list[tuple[int, int]], devices_: int) -> None:
    types = node_types([node(f"n{i}", devices_, cpu=8) for i in range(2)])
    assert types[0].groups[0] == LeafGroup("H100", 1000, 80, True, True, devices_)
    free = [[1000] * devices_ for _ in range(2)]
    cpu = [8, 8]
    packed = 0
    for milli, cores in pods:
        for n in range(2):
            fits = [d for d in range(devices_) if free[n][d] >= milli]
            if cores <= cpu[n] and fits:
                free[n][fits[0]] -= milli
                cpu[n] -= cores
                packed += milli
                break
    wanted = [
        (Request(1000 * cores, 0, DeviceRequest(1, whole=False, compute_milli=milli)), 1.0)
        for milli, cores in pods
    ]
    assert most(types, *wanted) >= packed / 1000 - 1e-9
