"""The published policies against small cases computed by hand from their formulas."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.shape import Shapes
from shoal.core.demand import Prices, TaskClass
from shoal.core.placing.eligibility import fitting_leaves
from shoal.core.policies import POLICIES, Policy
from shoal.core.policies.fgd import Fgd, Fragmentation, sigmoid_thresholds
from shoal.core.policies.pieces import LeafRule, TieRule
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Placement
from tests.core.build import job, node, policy, share, started, submit, whole, world_of


def fleet_with(*held: tuple[Request, tuple[int, ...]], cpu: int = 96, devices: int = 8) -> Fleet:
    """One node n on which each request holds the devices with these numbers."""
    fleet = Fleet()
    fleet.see(node("n", devices, cpu=cpu))
    for pod, (request, numbers) in enumerate(held):
        fleet.take(request, Placement(pod, "n", tuple(f"n/{d}" for d in numbers)))
    return fleet


def score(name: str, fleet: Fleet, request: Request) -> int:
    """The score of the only node for a request."""
    shape = Shapes().of(request)
    rows = np.array([0], dtype=np.intp)
    fits = fitting_leaves(fleet, shape, rows)
    scores, _ = policy(name).scorer(Prices()).score(fleet, shape, rows, fits)
    return int(scores[0])


def test_dot_product() -> None:
    """c = 64,000 and U = 4,000; cpu = 32,000, kq = 2,000:
    100 (1 - (0.5 * 0.25 + 0.5 * 0.25) / 2) = 87.5.
    """
    fleet = fleet_with((whole(4, 32), (0, 1, 2, 3)))
    assert score("dot-product", fleet, whole(2, 32)) == 87


def test_dot_product_of_a_pod_without_devices() -> None:
    """100 (1 - (0.5 * 0.25) / 2) = 93.75."""
    fleet = fleet_with((whole(4, 32), (0, 1, 2, 3)))
    assert score("dot-product", fleet, Request(32_000)) == 93


def test_best_fit() -> None:
    """c - cpu = 32,000 and U - kq = 2,000: 100 (1 - 0.125 - 0.125) = 75, exactly."""
    fleet = fleet_with((whole(4, 32), (0, 1, 2, 3)))
    assert score("best-fit", fleet, whole(2, 32)) == 75


def test_best_fit_rounds_down() -> None:
    """One milli of compute more left than for 75."""
    fleet = fleet_with((whole(4, 32), (0, 1, 2, 3)))
    assert score("best-fit", fleet, Request(32_000, 0, share(999).devices)) == 68
    assert score("best-fit", fleet, Request(31_999, 0, DeviceRequest(2))) == 74


@pytest.mark.parametrize(
    ("held", "request_", "expected"),
    [
        pytest.param([], whole(1), 25 + 0, id="empty: U = 8000, b = 0, nobody holds a device"),
        pytest.param([(whole(1), (0,))], whole(1), 75 + 3, id="only this class: b = 25/8 = 3"),
        pytest.param([(whole(2), (0, 1))], whole(1), 0 + 6, id="only others: b = 50/8 = 6"),
        pytest.param(
            [(whole(2), (0, 1)), (whole(1), (2,))], whole(1), 50 + 9, id="among others: b = 9"
        ),
        pytest.param([(share(500), (0,))], share(100), 75 + 1, id="shares are a class: b = 1"),
        pytest.param([(share(500), (0,))], whole(1), 0 + 1, id="shares are another class"),
        pytest.param([(whole(1), (0,))], Request(1000), 0, id="no devices"),
    ],
)
def test_clustering(
    held: list[tuple[Request, tuple[int, ...]]], request_: Request, expected: int
) -> None:
    """75 + b, 50 + b, 25 + b or b, with b = floor(25 (8000 - U) / 8000)."""
    assert score("clustering", fleet_with(*held), request_) == expected


@pytest.mark.parametrize(
    ("held", "request_", "expected"),
    [
        pytest.param([], whole(1), 25, id="empty node of 8: max(33 - 8, 8)"),
        pytest.param([(whole(1), (0,))], whole(2), 48, id="two free devices: max(50 - 2, 33)"),
        pytest.param([(share(300), (0,))], whole(7), 43, id="seven free devices"),
        pytest.param(
            [(share(455), (0,))], share(100), 95, id="used, r = 545: 100 - floor(54 / 10)"
        ),
        pytest.param(
            [(share(955), (0,))], share(100), 49, id="does not fit the used one: one free device"
        ),
        pytest.param(
            [(share(455), (0,)), (share(755), (1,))],
            share(100),
            98,
            id="the fuller used one, r = 245: 100 - floor(24 / 10)",
        ),
        pytest.param([(whole(1), (0,))], Request(1000), 0, id="no devices"),
    ],
)
def test_packing(
    held: list[tuple[Request, tuple[int, ...]]], request_: Request, expected: int
) -> None:
    """Used devices, then free ones of used nodes, then empty nodes."""
    assert score("packing", fleet_with(*held), request_) == expected


def test_packing_of_a_large_empty_node() -> None:
    """An empty node of 20 devices: max(33 - 20, 20)."""
    assert score("packing", fleet_with(devices=20), whole(1)) == 20


def test_pack_and_spread_mirror_each_other() -> None:
    """`pack` takes the fuller node and leaf, `spread` the emptier ones."""
    half = job("half", share(500))
    for name, nodes, leaf in (("pack", ["a"], "a/0"), ("spread", ["b"], "b/0")):
        world = world_of(node("a", 2), node("b", 2))
        world.fleet.take(share(300), Placement(0, "a", ("a/0",)))
        came = submit(world, half, which=policy(name))
        assert started(came) == {"half": nodes}
        assert world.entries["half"].held[0].leaves == (leaf,)


def test_spread_takes_the_emptier_leaf() -> None:
    """On the one node there is."""
    world = world_of(node("a", 2))
    world.fleet.take(share(300), Placement(0, "a", ("a/0",)))
    submit(world, job("w", share(100)), which=policy("spread"))
    assert world.entries["w"].held[0].leaves == ("a/1",)


def test_published_policies_share_the_fullest_leaf() -> None:
    """A share goes to the feasible device with least free."""
    world = world_of(node("a", 3))
    world.fleet.take(share(300), Placement(0, "a", ("a/1",)))
    world.fleet.take(share(800), Placement(0, "a", ("a/2",)))
    submit(world, job("w", share(300)), which=policy("best-fit"))
    assert world.entries["w"].held[0].leaves == ("a/1",)


def test_random_differs_by_pod() -> None:
    """Many pods, each on eight equal empty nodes, hit all of them."""
    seen = set()
    for number in range(40):
        world = world_of(*(node(f"n{i}", 1) for i in range(8)))
        came = submit(world, job(f"w{number}", whole(1)), which=policy("random"))
        seen.update(started(came)[f"w{number}"])
    assert len(seen) == 8


def test_every_policy_has_a_scorer() -> None:
    """By name; another name is refused with the list of names."""
    for name in POLICIES:
        scorer = policy(name).scorer(Prices())
        assert scorer.tie_rule in TieRule
        assert scorer.leaf_rule in LeafRule
    with pytest.raises(ValueError, match=r"no placement policy named 'fdg'; write one of .*fgd"):
        Policy("fdg").scorer(Prices())
    with pytest.raises(ValueError, match="needs to be told which demand"):
        Policy("fgd").scorer(Prices())


# FGD ------------------------------------------------------------------------------------------


def fragment(free: list[int], cpu: int, task: TaskClass) -> int:
    """F_n(m) word for word: the published case distinction."""
    devices = task.request.devices
    total = sum(free)
    quantum = 1000 if devices.whole else devices.compute_milli
    enough = sum(1 for r in free if r >= quantum) >= devices.count
    if not devices.count or cpu < task.request.cpu_milli or not enough:
        return total
    if devices.accelerators and "H100" not in devices.accelerators:
        return total
    return sum(r for r in free if r < quantum)


def mean_fragment(free: list[int], cpu: int, demand: tuple[TaskClass, ...]) -> Fraction:
    """F_n: the mean over the classes."""
    weight = sum(task.weight for task in demand)
    return Fraction(sum(task.weight * fragment(free, cpu, task) for task in demand), weight)


def published_score(difference: Fraction) -> int:
    """floor(100 / (1 + exp(-D/1000)))."""
    return math.floor(100 / (1 + math.exp(-float(difference) / 1000)))


def test_fragments_by_hand() -> None:
    """Two devices with 1000 and 400 free, 8 cores, three classes of weight 2, 1 and 1.

    One whole device: 400 is too little, F = 400. Half a device: 400 again. No device: 1400.
    F = (2 * 400 + 400 + 1400) / 4 = 650.
    """
    demand = (TaskClass(whole(1), 2), TaskClass(share(500), 1), TaskClass(Request(1000), 1))
    fleet = fleet_with((share(600, cpu=0), (1,)), cpu=8, devices=2)
    amount, weight = Fragmentation(fleet, demand).amount()
    assert Fraction(amount, weight) == 650


def test_thresholds_are_the_sigmoid() -> None:
    """ln(1) = 0 for 50; 1000 ln(51/49) = 40.005...; the largest is 1000 ln(99) = 4595.1."""
    bounds = sigmoid_thresholds(1)
    assert bounds[49] == 0
    assert bounds[50] == 41
    assert bounds[98] == 4596
    assert bounds[0] == -4595
    assert len(bounds) == 99
    assert sigmoid_thresholds(1000)[50] == 40_006


free_devices = st.lists(st.sampled_from([0, 100, 190, 400, 500, 810, 1000]), min_size=1, max_size=4)
classes = st.builds(
    TaskClass,
    st.one_of(
        st.builds(whole, st.integers(1, 4), st.integers(1, 8)),
        st.builds(
            lambda q, c: share(q, cpu=c), st.sampled_from([100, 500, 810]), st.integers(1, 8)
        ),
        st.builds(lambda c: Request(c * 1000), st.integers(1, 8)),
        st.just(whole(1, 1, "A100")),
    ),
    st.integers(1, 9),
)


@example(free=[1000], cpu=4, demand=(TaskClass(share(100, cpu=4), 1),), asked=share(500))
@example(free=[1000], cpu=4, demand=(TaskClass(share(100, cpu=4), 1),), asked=Request(2000))
@given(
    free=free_devices,
    cpu=st.integers(4, 12),
    demand=st.lists(classes, min_size=1, max_size=4).map(tuple),
    asked=st.sampled_from([share(100), share(500), share(810), whole(1), whole(2), Request(2000)]),
)
def test_fgd_scores_as_published(
    free: list[int], cpu: int, demand: tuple[TaskClass, ...], asked: Request
) -> None:
    """Integer thresholds, sums and tables give what the published formula gives."""
    held = [(share(1000 - r, cpu=0), (d,)) for d, r in enumerate(free) if r < 1000]
    fleet = fleet_with(*held, cpu=cpu, devices=len(free))
    quantum = 1000 if asked.devices.whole else asked.devices.compute_milli
    fits = [d for d, r in enumerate(free) if r >= quantum]
    if len(fits) < asked.devices.count:
        return
    before = mean_fragment(free, cpu * 1000, demand)
    left = cpu * 1000 - asked.cpu_milli
    best: tuple[int, int] | None = None
    for first in fits if asked.devices.count == 1 else [0]:
        chosen = [first] if asked.devices.count == 1 else fits[: asked.devices.count]
        after = [r - quantum * (d in chosen) for d, r in enumerate(free)]
        value = published_score(before - mean_fragment(after, left, demand))
        if best is None or value > best[0]:
            best = (value, first)
    shape = Shapes().of(asked)
    rows = np.array([0], dtype=np.intp)
    scores, leaves = Fgd(demand).score(fleet, shape, rows, fitting_leaves(fleet, shape, rows))
    assert best is not None
    assert int(scores[0]) == best[0]
    if not asked.devices.whole:
        assert leaves is not None
        assert int(leaves[0]) == best[1]


def test_fgd_takes_the_device_it_scored() -> None:
    """A half goes beside the half that is taken, since that leaves whole devices whole."""
    world = world_of(node("a", 3, cpu=64))
    world.fleet.take(share(500), Placement(0, "a", ("a/1",)))
    submit(world, job("w", share(500)), which=policy("fgd"))
    assert world.entries["w"].held[0].leaves == ("a/1",)


def test_fragmentation_follows_the_fleet() -> None:
    """What was brought up to date step by step equals what is computed afresh."""
    world = world_of(*(node(f"n{i}", 4) for i in range(5)))
    demand = policy("fgd").demand
    followed = Fragmentation(world.fleet, demand)
    for number, asked in enumerate([share(300), whole(2), share(700), Request(1000), whole(4)]):
        submit(world, job(f"w{number}", asked), which=policy("spread"))
        assert followed.amount() == Fragmentation(world.fleet, demand).amount()
