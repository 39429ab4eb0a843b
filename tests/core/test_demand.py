"""Demand as it is learned from arrivals."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.demand import (
    FIRST_PRICING_PODS,
    HALF_LIFE_PODS,
    LONGEST_PRICING_PODS,
    Demand,
    TaskClass,
    merged,
)
from shoal.model.request import DeviceRequest, Request
from tests.core.build import share, whole


def weights(demand: Demand) -> dict[Request, int]:
    return {each.request: each.weight for each in demand.classes()}


def test_nothing_is_expected_of_an_empty_history() -> None:
    assert Demand().classes() == ()
    assert not Demand().pricing_due


def test_arrivals_of_one_kind_are_one_class_wherever_they_may_run() -> None:
    demand = Demand()
    demand.arrived(whole(1), 3)
    demand.arrived(Request(1000, 0, DeviceRequest(1), selector=(("zone", "a"),)), 1)
    demand.arrived(Request(1000, 0, DeviceRequest(1, accelerators=("B", "A"))), 1)
    demand.arrived(Request(1000, 0, DeviceRequest(1, accelerators=("A", "B"))), 1)
    assert [each.request.devices.accelerators for each in demand.classes()] == [(), ("A", "B")]


def test_an_arrival_counts_half_after_the_half_life() -> None:
    demand = Demand()
    demand.arrived(whole(1), 100)
    demand.arrived(whole(2), HALF_LIFE_PODS - 100)
    demand.arrived(whole(4), 100)
    found = weights(demand)
    assert abs(found[whole(4)] - 2 * found[whole(1)]) < 0.01 * found[whole(4)]


def test_what_no_longer_arrives_is_forgotten() -> None:
    demand = Demand()
    demand.arrived(whole(1), 1)
    demand.arrived(whole(2), 30 * HALF_LIFE_PODS)
    assert list(weights(demand)) == [whole(2)]


@given(st.lists(st.tuples(st.sampled_from([whole(1), share(300)]), st.integers(1, 1500))))
def test_many_at_once_teach_as_much_as_one_by_one(arrivals: list[tuple[Request, int]]) -> None:
    at_once, singly = Demand(), Demand()
    for request, pods in arrivals:
        at_once.arrived(request, pods)
        for _ in range(pods):
            singly.arrived(request, 1)
    assert at_once.pods == singly.pods
    for request, weight in weights(singly).items():
        assert abs(weights(at_once)[request] - weight) <= 1 + weight // 1000


def test_prices_are_due_early_and_then_more_and_more_rarely() -> None:
    demand = Demand()
    due = []
    for number in range(1, 6001):
        demand.arrived(whole(1), 1)
        if demand.pricing_due:
            demand.priced()
            due.append(number)
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert due[0] == FIRST_PRICING_PODS
    assert gaps == sorted(gaps)
    assert gaps[-1] == LONGEST_PRICING_PODS


def test_what_was_learned_can_be_kept_and_restored() -> None:
    demand, again = Demand(), Demand()
    demand.arrived(whole(1), 1234)
    demand.priced()
    again.restore(demand.learned())
    assert again.learned() == demand.learned()
    for each in (demand, again):
        each.arrived(share(200), 900)
    assert again.learned() == demand.learned()


def test_given_classes_are_merged_as_learned_ones_are() -> None:
    near = Request(1000, 0, DeviceRequest(1), selector=(("zone", "a"),))
    classes = [TaskClass(near, 2), TaskClass(share(100), 4), TaskClass(whole(1), 1)]
    assert merged(classes) == (TaskClass(share(100), 4), TaskClass(whole(1), 3))
