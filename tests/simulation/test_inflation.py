from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shoal.model.node import Device, Leaf, Node
from shoal.simulation.demand import task_classes
from shoal.simulation.inflation import LOAD_PCT, expected_arrivals, inflated
from shoal.simulation.trace import Trace, capacity_milli, demand_milli
from tests.simulation.small import share, trace, whole


def fleet(devices: int) -> tuple[Node, ...]:
    cards = tuple(Device(f"n/{i}", "L4", (Leaf(f"n/{i}", 0),)) for i in range(devices))
    return (Node("n", 10**6, 10**6, 1000, cards),)


def asked_milli(given_trace: Trace, order: list[int]) -> int:
    return sum(demand_milli(given_trace.pods[i].request) for i in order)


requests = st.lists(
    st.one_of(st.integers(1, 999).map(share), st.integers(1, 8).map(whole)), min_size=1, max_size=30
)


@given(asked=requests, seed=st.integers(0, 2**63 - 1))
def test_arrivals_are_the_whole_trace_and_draws_up_to_the_load(
    asked: list[object], seed: int
) -> None:
    small = trace(fleet(200), *asked)  # type: ignore[arg-type]
    order = inflated(small, seed)
    n = len(small.pods)
    most_milli = capacity_milli(small.nodes) * LOAD_PCT // 100
    assert sorted(order[:n]) == list(range(n))
    assert asked_milli(small, order[:-1]) <= most_milli
    # One more of any pod would have gone over the load, but for a draw of the largest.
    assert asked_milli(small, order) > most_milli - 1000
    # A draw is tested by one of its devices, so the last may go over by seven of its eight.
    assert asked_milli(small, order) <= most_milli + 7000


@given(asked=requests, seed=st.integers(0, 1000))
def test_a_trace_above_the_load_is_cut_to_it(asked: list[object], seed: int) -> None:
    small = trace(fleet(1), *asked, *[whole(1)] * 5)  # type: ignore[arg-type]
    order = inflated(small, seed)
    kept = [i for i, count in Counter(order).items() if count == 1]
    assert asked_milli(small, order) <= 1300 + 7000
    assert len(kept) <= len(small.pods)


def test_the_seed_alone_decides_the_order() -> None:
    small = trace(fleet(20), *[whole(1)] * 7, *[share(300)] * 9)
    assert inflated(small, 1) == inflated(small, 1)
    assert inflated(small, 1) != inflated(small, 2)


def test_draws_are_spread_over_the_trace() -> None:
    small = trace(fleet(1000), whole(1), whole(1), whole(1), whole(1))
    counts = Counter(inflated(small, 7))
    assert len(counts) == 4
    assert min(counts.values()) > 250


def test_the_number_of_arrivals_is_foreseen() -> None:
    small = trace(fleet(100), whole(1), share(500), whole(2), share(500))
    assert abs(len(inflated(small, 3)) - expected_arrivals(small)) <= 5


def test_classes_are_the_frequent_requests_that_cover_95_percent() -> None:
    small = trace(fleet(1), *[whole(1)] * 50, *[share(300)] * 44, *[whole(2)] * 4, *[whole(4)] * 2)
    classes = task_classes(small)
    assert [(c.request.devices.count, c.weight) for c in classes] == [(1, 50), (1, 44), (2, 4)]
    assert all(c.request.memory_mib == 0 for c in classes)
    assert classes[0].request.cpu_milli == 1000


def test_exactly_95_percent_is_enough() -> None:
    small = trace(fleet(1), *[whole(1)] * 95, *[whole(2)] * 5)
    assert len(task_classes(small)) == 1
