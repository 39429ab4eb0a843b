"""The default policy against values computed by hand, and on fleets unlike the trace's."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.shape import Shapes
from shoal.core.demand import ClassPrice, Prices, TaskClass
from shoal.core.placing.eligibility import fitting_leaves
from shoal.core.policies import Policy
from shoal.core.policies.fragmentation import HANDICAP, Fragmentation
from shoal.core.policies.values import CELLS, LeafKind, Values
from shoal.core.world import World
from shoal.model.node import Node
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Outcome, Placement
from tests.core.build import (
    SEED,
    decide,
    device,
    divided,
    job,
    node,
    share,
    started,
    submit,
    whole,
    world_of,
)

FRAGMENTATION = Policy("fragmentation")
KIND = LeafKind("H100", 1000, 80, shared=True, undivided=True)
UNIT = 1_000_000
"""A device in thousandths of a price unit."""


def priced(*classes: tuple[Request, int, int], scarcity: dict[str, int] | None = None) -> Prices:
    """Prices of classes given as request, weight and worth in price units."""
    return Prices(
        tuple(ClassPrice(TaskClass(r, weight), 1000 * worth) for r, weight, worth in classes),
        tuple((scarcity or {}).items()),
    )


def world_with(prices: Prices, *nodes: Node) -> World:
    """A world where prices were set."""
    world = world_of(*nodes)
    world.apply(ev.PricesSet(0, prices))
    return world


def scores(fleet: Fleet, prices: Prices, request: Request) -> list[int]:
    """Scores of all nodes without the handicap; all of them have to be able to take the pod."""
    shape = Shapes().of(request)
    rows = np.arange(fleet.size, dtype=np.intp)
    fits = fitting_leaves(fleet, shape, rows)
    found, _ = Fragmentation(prices).score(fleet, shape, rows, fits)
    return [int(score) for score in found]


# Values ---------------------------------------------------------------------------------------


def test_a_leaf_is_worth_the_best_filling() -> None:
    """500 and 300 milli worth 400 and 270: 1000 is worth 2 x 400 or 3 x 270 = 810."""
    prices = priced((share(500, cpu=0), 1, 400), (share(300, cpu=0), 1, 270))
    table = Values(prices).of(KIND, 1).by_compute[:, 0]
    assert table[CELLS] == 810_000
    assert table[50] == 400_000
    assert table[49] == 270_000
    assert table[29] == 0
    assert all(low <= high for low, high in pairwise(table.tolist()))


def test_host_resources_are_charged_at_every_price() -> None:
    """A pod with 4 CPU and worth 1000: at c a CPU, a device is worth 1000 - 4 c, not below 0."""
    values = Values(priced((whole(1, 4), 1, 1000)))
    table = values.of(KIND, 1).by_compute[CELLS]
    for price, worth in zip(values.hosts.cpu.tolist(), table.tolist(), strict=True):
        assert worth == max(0, UNIT - 4 * price)


def test_classes_of_one_size_count_by_how_often_they_come() -> None:
    prices = priced((share(500, cpu=0), 3, 400), (share(500, 0, cpu=0, count=1), 1, 400))
    assert Values(prices).of(KIND, 1).by_compute[CELLS, 0] == 800_000


def test_a_class_that_loses_much_on_an_accelerator_is_not_counted_on_there() -> None:
    cheap = ClassPrice(TaskClass(whole(1, 0), 1000), 500_000, (("H100", 400_000),))
    dear = ClassPrice(TaskClass(whole(1, 0, "H100"), 1), 900_000)
    assert Values(Prices((cheap, dear))).of(KIND, 1).by_compute[CELLS, 0] > 890_000


def test_several_whole_devices_are_worth_more_together() -> None:
    prices = priced((whole(1, 0), 1, 500), (whole(4, 0), 1, 3000))
    together = Values(prices).of(KIND, 8).together[:, 0]
    assert together.tolist() == [0, 0, 0, 0, UNIT, UNIT, UNIT, UNIT, 2 * UNIT]


def test_memory_of_devices_limits_the_value_where_it_is_asked_for() -> None:
    """Shares of a tenth with 40 of 80 MiB: two of them fit."""
    tables = Values(priced((share(100, 40, cpu=0), 1, 300))).of(KIND, 1)
    assert tables.by_memory is not None
    assert tables.by_compute[CELLS, 0] == 3_000_000
    assert tables.by_memory[CELLS, 0] == 600_000
    assert tables.by_memory[49, 0] == 0


def test_an_exclusive_partition_is_worth_its_best_single_pod() -> None:
    kind = LeafKind("A100", 500, 40, shared=False, undivided=False)
    tables = Values(priced((share(100, cpu=0), 1, 90), (share(400, cpu=0), 1, 200))).of(kind, 2)
    assert tables.by_compute[-1, 0] == 200_000


# Scores ---------------------------------------------------------------------------------------


def test_the_score_is_the_value_lost() -> None:
    """Shares of 810 and 190, worth 600 and 100. A share of 190 costs 100 on an empty device (of 700
    600 are left) and where 190 are free, but 300 where 810 are: of 600 three shares are left.
    """
    fleet = Fleet()
    for name in ("empty", "low", "high"):
        fleet.see(node(name, 1))
    fleet.take(share(190, cpu=0), Placement(0, "low", ("low/0",)))
    fleet.take(share(810, cpu=0), Placement(1, "high", ("high/0",)))
    prices = priced((share(810, cpu=0), 1, 600), (share(190, cpu=0), 1, 100))
    assert scores(fleet, prices, share(190, cpu=0)) == [-100_000, -300_000, -100_000]


def test_scarcity_is_charged() -> None:
    fleet = Fleet()
    fleet.see(node("a", 1))
    fleet.see(node("b", 1, accelerator="L4"))
    prices = priced((whole(1, 0), 1, 1000), scarcity={"L4": 800})
    common, scarce = scores(fleet, prices, whole(1, 0))
    assert common - scarce == 28_000
    half = scores(fleet, prices, share(500, cpu=0))
    assert half[0] - half[1] == 14_000


def test_rooms_that_few_nodes_have_are_kept() -> None:
    """A pod that needs 8 devices and 60 CPU fits on `big` only, until something has gone there."""
    few = ClassPrice(TaskClass(whole(8, 60), 1), 0, reserve=90_000)
    named = ClassPrice(TaskClass(whole(8, 60, "T4"), 1), 0, reserve=70_000)
    world = world_of(node("big", 8, cpu=64), node("small", 8, cpu=32))
    assert scores(world.fleet, Prices((few, named)), whole(1, 0)) == [-90_000, 0]
    assert scores(world.fleet, Prices((few, named)), share(100, cpu=0)) == [-90_000, 0]
    assert scores(world.fleet, Prices((few, named)), Request(4_000)) == [0, 0]
    assert scores(world.fleet, Prices((few, named)), Request(5_000)) == [-90_000, 0]
    several = DeviceRequest(2, whole=False, compute_milli=500)
    assert scores(world.fleet, Prices((few, named)), Request(0, 0, several)) == [-90_000, 0]
    world.fleet.take(share(100, cpu=0), Placement(0, "big", ("big/0",)))
    assert scores(world.fleet, Prices((few, named)), whole(1, 0)) == [0, 0]


def test_shares_complement_each_other() -> None:
    """A share of 190 goes where 190 are left, not to a whole device, whatever the node order."""
    prices = priced((whole(1), 5, 1000), (share(810), 5, 810), (share(190), 1, 10))
    world = world_with(prices, *(node(f"n{i}", 1) for i in range(9)))
    came = submit(world, job("big", share(810)), which=FRAGMENTATION)
    (home,) = started(came)["big"]
    came = submit(world, job("small", share(190)), which=FRAGMENTATION)
    assert started(came)["small"] == [home]


def test_big_pods_keep_whole_nodes() -> None:
    """Single devices are taken from the broken node as long as pods of four are worth more."""
    prices = priced((whole(1), 5, 500), (whole(4), 5, 4000))
    world = world_with(prices, *(node(f"n{i}", 4) for i in range(5)))
    homes = set()
    for number in range(4):
        came = submit(world, job(f"one{number}", whole(1)), which=FRAGMENTATION)
        homes.update(started(came)[f"one{number}"])
    assert len(homes) == 1


def test_cpu_that_runs_out_is_not_wasted() -> None:
    """A pod with many CPUs goes where they are plenty, if devices with few CPUs can be used."""
    prices = priced((whole(1, 8), 9, 1000), (Request(16_000), 1, 0))
    world = world_with(prices, node("rich", 2, cpu=64), node("poor", 2, cpu=16))
    came = submit(world, job("host", Request(16_000)), which=FRAGMENTATION)
    assert started(came)["host"] == ["rich"]


def test_host_memory_that_runs_out_is_not_wasted() -> None:
    eight = Request(1000, 8000, DeviceRequest(1))
    prices = priced((eight, 9, 1000), (Request(1000, 16_000), 1, 0))
    nodes = [node("rich", 2, memory=64_000), node("poor", 2, memory=16_000)]
    world = world_with(prices, *nodes)
    came = submit(world, job("host", Request(1000, 16_000)), which=FRAGMENTATION)
    assert started(came)["host"] == ["rich"]


def test_device_memory_that_runs_out_is_not_wasted() -> None:
    """A light pod with much memory joins the device whose compute is taken."""
    prices = priced((whole(1), 5, 1000), (share(500, 10), 5, 500), (share(50, 40), 5, 400))
    world = world_with(prices, *(node(f"n{i}", 1) for i in range(6)))
    (home,) = started(submit(world, job("busy", share(900, 10)), which=FRAGMENTATION))["busy"]
    came = submit(world, job("memory", share(50, 40)), which=FRAGMENTATION)
    assert started(came)["memory"] == [home]


def test_pods_gather_on_the_first_nodes_of_the_order() -> None:
    """Of equal nodes the first is taken, again and again, and the handicap is what decides."""
    world = world_with(priced((share(100), 1, 100)), *(node(f"n{i}", 1) for i in range(20)))
    homes = []
    for number in range(20):
        came = submit(world, job(f"w{number}", share(100)), which=FRAGMENTATION)
        homes += started(came)[f"w{number}"]
    assert len(set(homes)) == 3, "eight pods a device"
    board = world.board(FRAGMENTATION, SEED)
    shape = world.shape_of(share(100))
    board.best(shape, "x")
    points = [board.points(shape, row) for row in range(world.fleet.size)]
    free = [p for row, p in enumerate(points) if world.fleet.names[row] not in homes]
    assert 0 < max(free) - min(free) < HANDICAP


# What a real fleet has ------------------------------------------------------------------------


def test_without_history_small_pods_fill_what_is_broken_and_whole_nodes_stay() -> None:
    world = world_of(*(node(f"n{i}", 4) for i in range(4)))
    homes = set()
    for number, request in enumerate((share(500), whole(1), share(400), whole(1), whole(1))):
        came = submit(world, job(f"w{number}", request), which=FRAGMENTATION)
        homes.update(started(came)[f"w{number}"])
    assert len(homes) == 1


def test_pods_of_no_known_class_find_their_place() -> None:
    world = world_with(priced((whole(1), 1, 1000)), node("a", 2), node("b", 2))
    came = submit(world, job("w", share(333, 7, cpu=3)), which=FRAGMENTATION)
    assert len(started(came)["w"]) == 1


def test_what_leaves_makes_room_again() -> None:
    world = world_with(priced((share(500), 1, 500)), node("a", 1))
    for number in range(5):
        came = submit(world, job(f"w{number}", share(500)), which=FRAGMENTATION)
        assert f"w{number}" in started(came)
        if number:
            world.apply(ev.WorkloadEnded(2, f"w{number - 1}", Outcome.COMPLETED))


def test_an_accelerator_that_arrives_later_is_valued_with_those_who_may_use_it() -> None:
    world = world_with(priced((whole(1), 1, 900)), node("a", 1))
    assert "w0" in started(submit(world, job("w0", whole(1)), which=FRAGMENTATION))
    world.apply(ev.NodeSeen(1, node("new", 2, accelerator="B300")))
    came = submit(world, job("w1", whole(1)), which=FRAGMENTATION)
    assert started(came)["w1"] == ["new"]


def test_partitions_and_devices_stand_side_by_side() -> None:
    cards = (divided("m/0", 2), device("m/1", "A100"))
    world = world_with(
        priced((share(400), 1, 300), (whole(1), 1, 1000)), Node("m", 32_000, 1000, 10, cards)
    )
    came = submit(world, job("small", share(400)), which=FRAGMENTATION)
    assert started(came)["small"] == ["m"]
    (placement,) = world.entries["small"].held.values()
    assert placement.leaves[0].startswith("m/0/")


def test_shares_on_several_devices_are_scored() -> None:
    world = world_with(priced((share(300, count=2), 1, 600)), node("a", 3), node("b", 1))
    came = submit(world, job("two", share(300, count=2)), which=FRAGMENTATION)
    assert started(came)["two"] == ["a"]


def test_new_prices_are_used_at_once() -> None:
    """First shares are worth nothing beside whole devices, then whole devices nothing."""
    world = world_with(priced((whole(1), 1, 1000), (share(500), 1, 10)), node("a", 1), node("b", 1))
    (first,) = started(submit(world, job("w0", share(500)), which=FRAGMENTATION))["w0"]
    came = submit(world, job("w1", share(500)), which=FRAGMENTATION)
    assert started(came)["w1"] == [first]
    board = world.board(FRAGMENTATION, SEED)
    world.apply(ev.PricesSet(3, priced((share(500), 1, 500))))
    shape = world.shape_of(whole(1))
    other = next(row for row in range(2) if world.fleet.names[row] != first)
    before = board.points(shape, other)
    world.apply(ev.PricesSet(4, priced((share(500), 1, 50))))
    assert board.points(shape, other) > before


requests = st.sampled_from(
    [
        whole(1),
        whole(2),
        share(190),
        share(500, 30),
        share(300, count=2),
        Request(3000),
        whole(4, 9),
    ]
)


@given(
    st.lists(requests, min_size=1, max_size=25),
    st.lists(st.tuples(requests, st.integers(1, 9), st.integers(0, 1500)), max_size=6),
)
def test_values_kept_up_to_date_equal_values_computed_anew(
    asked: list[Request], classes: list[tuple[Request, int, int]]
) -> None:
    world = world_with(priced(*classes), node("a", 4), node("b", 2, accelerator="L4"), node("c"))
    for number, request in enumerate(asked):
        submit(world, job(f"w{number}", request), which=FRAGMENTATION)
        if number % 3 == 2:
            world.apply(ev.WorkloadEnded(2, f"w{number - 1}", Outcome.COMPLETED))
            decide(world, FRAGMENTATION)
    again = World()
    for event in world.snapshot(5):
        again.apply(event)
    for request in {*asked, share(810)}:
        shape = world.shape_of(request)
        other = again.shape_of(request)
        mine, theirs = world.board(FRAGMENTATION, SEED), again.board(FRAGMENTATION, SEED)
        mine.best(shape, "x")
        theirs.best(other, "x")
        for name in ("a", "b", "c"):
            row, same = world.fleet.row_of[name], again.fleet.row_of[name]
            assert mine.points(shape, row) == theirs.points(other, same)


@given(st.lists(st.tuples(requests, st.integers(1, 9), st.integers(0, 1500)), max_size=6))
def test_a_pod_never_adds_value(classes: list[tuple[Request, int, int]]) -> None:
    fleet = Fleet()
    fleet.see(node("a", 4, memory=64_000))
    for request in (whole(1), share(500), Request(1000)):
        assert scores(fleet, priced(*classes), request)[0] <= 0


@pytest.mark.parametrize("request_", [whole(2), share(190), Request(3000)])
def test_scores_do_not_depend_on_what_was_scored_before(request_: Request) -> None:
    prices = priced((whole(1), 5, 900), (share(190), 2, 100))
    fleet = Fleet()
    for name in ("a", "b"):
        fleet.see(node(name, 2))
    together = scores(fleet, prices, request_)
    alone = Fleet()
    alone.see(node("b", 2))
    assert scores(alone, prices, request_) == together[1:]
