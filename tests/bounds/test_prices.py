"""Prices that the program's duals come to."""

import pytest

from shoal.bounds.prices import MOST_CLASSES, MOST_RESERVED, UNFIT, prices
from shoal.core.demand import Prices, TaskClass
from shoal.model.request import Request
from tests.core.build import node, share, whole

FLEET = [node(f"n{i}", 4) for i in range(50)]


def test_nothing_asked_for_or_no_devices_gives_no_prices() -> None:
    assert prices(FLEET, []) == Prices()
    assert prices(FLEET, [TaskClass(Request(1000), 1)]) == Prices()
    assert prices([node("a")], [TaskClass(whole(1), 1)]) == Prices()


def test_equal_inputs_give_equal_prices() -> None:
    demand = [TaskClass(whole(1), 5), TaskClass(share(300), 7), TaskClass(Request(4000), 2)]
    assert prices(FLEET, demand) == prices(FLEET, demand)


def test_where_more_is_asked_for_than_there_is_a_device_is_worth_about_itself() -> None:
    (only,) = prices(FLEET, [TaskClass(whole(1), 1)]).classes
    assert 500_000 < only.worth <= 1_000_000
    assert not only.shortfalls


def test_small_shares_that_are_in_want_are_worth_less() -> None:
    """With shares of 810 only, 190 of every device are left; who fits there gets them cheaply."""
    few = prices(FLEET, [TaskClass(share(810), 9), TaskClass(share(190), 1)])
    worth = {c.demand.request.devices.compute_milli: c.worth for c in few.classes}
    assert worth[190] / 190 < worth[810] / 810


def test_a_scarce_accelerator_costs_those_who_could_go_elsewhere() -> None:
    fleet = [*FLEET, *(node(f"t{i}", 2, accelerator="T4") for i in range(10))]
    found = prices(fleet, [TaskClass(whole(1), 10), TaskClass(whole(1, 1, "T4"), 4)])
    any_, bound_ = found.classes
    assert dict(any_.shortfalls)["T4"] > 0
    assert "T4" not in dict(bound_.shortfalls)
    scarce = dict(found.scarcity)
    assert list(scarce) == ["T4"]
    assert scarce["T4"] > 1000


def test_where_a_class_does_not_fit_its_shortfall_says_so() -> None:
    fleet = [*FLEET, node("small", 4, accelerator="T4", cpu=2)]
    found = prices(fleet, [TaskClass(whole(1, 8), 1)])
    assert found.classes[0].shortfalls == (("T4", UNFIT),)


def test_many_classes_are_merged_by_what_they_ask_of_devices() -> None:
    demand = [TaskClass(whole(1, 1 + i % 7), 1) for i in range(MOST_CLASSES)]
    demand += [TaskClass(whole(2, 3), 2), TaskClass(whole(2, 6), 1)]
    found = prices(FLEET, demand).classes
    assert len(found) == MOST_CLASSES + 1
    assert found[-1].demand == TaskClass(whole(2, 4), 3)


def test_memory_of_devices_counts_where_it_is_the_larger_share() -> None:
    found = prices(FLEET, [TaskClass(share(100, 60), 1), TaskClass(share(100, 0), 1)])
    large, small = found.classes
    assert large.worth > 2 * small.worth


def test_rooms_are_reserved_where_few_nodes_have_the_hosts_for_a_class() -> None:
    fleet = [*FLEET, *(node(f"b{i}", 4, cpu=256) for i in range(10))]
    demand = [TaskClass(share(810), 200), TaskClass(whole(4, 200), 2)]
    usual, few = prices(fleet, demand).classes
    assert usual.reserve == 0
    assert 0 < few.reserve < 4_000_000
    _, more = prices(fleet, [TaskClass(share(810), 200), TaskClass(whole(4, 200), 6)]).classes
    assert more.reserve > few.reserve


def test_no_rooms_are_reserved_for_what_any_or_no_node_could_take() -> None:
    demand = [TaskClass(share(810), 200), TaskClass(whole(4, 4), 2), TaskClass(whole(4, 999), 2)]
    assert [each.reserve for each in prices(FLEET, demand).classes] == [0, 0, 0]


def test_few_classes_get_a_reserve_those_with_the_largest() -> None:
    fleet = [*FLEET, *(node(f"b{i}", 4, cpu=256) for i in range(40))]
    demand = [TaskClass(share(810), 200)]
    demand += [TaskClass(whole(4, 200 + i), 1) for i in range(MOST_RESERVED + 4)]
    reserves = [each.reserve for each in prices(fleet, demand).classes]
    assert sum(reserve > 0 for reserve in reserves) == MOST_RESERVED


def test_the_less_often_something_was_seen_the_fewer_rooms_are_reserved_for_it() -> None:
    fleet = [*FLEET, *(node(f"b{i}", 4, cpu=256) for i in range(10))]

    def reserve(seen: int, arrival: int | None) -> int:
        demand = [TaskClass(share(810), 100 * seen), TaskClass(whole(4, 200), seen)]
        return prices(fleet, demand, arrival=arrival).classes[1].reserve

    known = reserve(4, None)
    assert 0 < reserve(1, 1) < reserve(4, 1) < reserve(16, 1) < known
    assert reserve(1, 1) == pytest.approx(known / 2, rel=0.01)
    assert reserve(400, 100) == reserve(4, 1)
