"""Fair shares against an oracle that finds them another way, and by hand."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.tenancy.shares import Claim, divide, fair_shares
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.queue import UNITS, Queue, QueueTree
from shoal.model.workload import PodSet, Workload
from tests.core.build import decide, node, share, submit, whole, world_of

amounts = st.fractions(0, 20, max_denominator=6)


def oracle(claims: Sequence[Claim], devices: Fraction) -> dict[str, Fraction]:
    """Divide by fixing whoever breaks a floor or cap, and dividing anew among the others.

    Whichever of the broken floors and broken caps weigh more are fixed first, as flexible lengths
    are resolved in CSS (Flexible Box Layout, section 9.7).
    """
    by_name = {claim.name: claim for claim in claims}

    def children(name: str) -> list[Claim]:
        return [claim for claim in claims if claim.parent == name]

    def cap(claim: Claim) -> Fraction:
        asked = claim.demand + sum(map(cap, children(claim.name)), Fraction(0))
        return asked if claim.limit is None else min(asked, claim.limit)

    def floor(claim: Claim) -> Fraction:
        promised = sum(map(floor, children(claim.name)), Fraction(0))
        return min(cap(claim), max(claim.guarantee, promised))

    shares: dict[str, Fraction] = {}

    def among(siblings: list[Claim], available: Fraction) -> None:
        available = min(available, sum(map(cap, siblings), Fraction(0)))
        floors = sum(map(floor, siblings), Fraction(0))
        if floors > available:
            fixed = {c.name: floor(c) * available / floors for c in siblings}
        else:
            fixed = {}
            while len(fixed) < len(siblings):
                free = [c for c in siblings if c.name not in fixed]
                rest = available - sum(fixed.values(), Fraction(0))
                weights = sum(c.weight for c in free)
                wanted = {c.name: rest * c.weight / weights for c in free}
                bound = {c.name: min(cap(c), max(floor(c), wanted[c.name])) for c in free}
                strain = sum(bound[name] - wanted[name] for name in wanted)
                for name, want in wanted.items():
                    change = bound[name] - want
                    if not strain or change * strain > 0:
                        fixed[name] = bound[name]
        shares.update(fixed)
        for claim in siblings:
            among(children(claim.name), fixed[claim.name])

    among([claim for claim in claims if claim.parent not in by_name], devices)
    return shares


@st.composite
def three_levels(draw: st.DrawFn) -> list[Claim]:
    """A root, up to four teams, up to four projects in each."""
    claims = [Claim("root", "", Fraction(1))]
    for team in range(draw(st.integers(1, 4))):
        projects = draw(st.integers(0, 4))
        for name, parent, leaf in (
            (f"t{team}", "root", not projects),
            *((f"t{team}p{project}", f"t{team}", True) for project in range(projects)),
        ):
            claims.append(
                Claim(
                    name,
                    parent,
                    draw(st.fractions(Fraction(1, 10), 9, max_denominator=10)),
                    draw(st.one_of(st.just(Fraction(0)), amounts)),
                    draw(st.one_of(st.none(), amounts)),
                    draw(amounts) if leaf else Fraction(0),
                )
            )
    return claims


@given(three_levels(), st.fractions(0, 60, max_denominator=4))
def test_shares_are_those_of_the_oracle(claims: list[Claim], devices: Fraction) -> None:
    """Exactly; and nobody gets more than it asks for or may have, nothing is left that is asked."""
    shares = divide(claims, devices)
    assert shares == oracle(claims, devices)
    for claim in claims:
        if claim.limit is not None:
            assert shares[claim.name] <= claim.limit
        children = [each for each in claims if each.parent == claim.name]
        below = sum((shares[each.name] for each in children), Fraction(0))
        assert not children or below == shares[claim.name]
        assert children or shares[claim.name] <= claim.demand


def claim(name: str, weight: int, guarantee: int, demand: int, limit: int | None = None) -> Claim:
    """A leaf below the root."""
    most = None if limit is None else Fraction(limit)
    return Claim(name, "root", Fraction(weight), Fraction(guarantee), most, Fraction(demand))


@pytest.mark.parametrize(
    ("leaves", "devices", "expected"),
    [
        ([claim("p", 7, 8, 8), claim("q", 9, 8, 9)], 16, {"p": 8, "q": 8}),
        ([claim("a", 1, 0, 4), claim("b", 1, 0, 6)], 8, {"a": 4, "b": 4}),
        ([claim("p", 1, 3, 9), claim("q", 4, 0, 9), claim("r", 2, 0, 9)], 9, {"p": 3, "q": 4}),
        ([claim("p", 1, 0, 9, limit=2), claim("q", 1, 0, 9)], 8, {"p": 2, "q": 6}),
        ([claim("p", 1, 6, 9), claim("q", 1, 3, 9)], 3, {"p": 2, "q": 1}),
    ],
    ids=["Q02", "Q05", "guarantee-first", "limit", "too-few-for-guarantees"],
)
def test_shares_by_hand(leaves: list[Claim], devices: int, expected: dict[str, int]) -> None:
    """The cases, and the example of the documentation."""
    shares = divide([Claim("root", "", Fraction(1)), *leaves], Fraction(devices))
    assert {name: shares[name] for name in expected} == expected


def work(uid: str, queue: str, devices: int, pods: int = 1, *accelerators: str) -> Workload:
    """A workload for whole devices."""
    return Workload(uid, (PodSet("main", pods, whole(devices, 1, *accelerators)),), queue)


def a_world(*queues: Queue) -> World:
    """Eight H100 and eight A100, and these queues under one root."""
    world = world_of(node("h", 8), node("a", 8, accelerator="A100"))
    below = [Queue("root"), *queues]
    world.apply(ev.QueuesSet(0, QueueTree(tuple(below))))
    return world


def test_q05_what_runs_and_what_waits_asks() -> None:
    """Q05: a runs three and waits for one, b runs five and waits for one: four and four."""
    world = world_of(node("n1", 8))
    world.apply(ev.QueuesSet(0, QueueTree((Queue("root"), Queue("a", "root"), Queue("b", "root")))))
    submit(world, *(work(f"a{i}", "a", 1) for i in range(3)), work("b1", "b", 1))
    submit(world, work("b2", "b", 4))
    submit(world, work("b3", "b", 1), work("a4", "a", 1))
    assert fair_shares(world) == {"root": {"H100": 8}, "a": {"H100": 4}, "b": {"H100": 4}}


def test_q02_guarantees_come_first() -> None:
    """Q02: weights 7 and 9 divide nothing, because guarantees add up to the fleet."""
    world = world_of(node("n1", 8), node("n2", 8))
    quota = (("H100", 8),)
    queues = (
        Queue("root"),
        Queue("p", "root", guarantee=quota, weight=7),
        Queue("q", "root", guarantee=quota, weight=9),
    )
    world.apply(ev.QueuesSet(0, QueueTree(queues)))
    submit(world, work("p1", "p", 4), *(work(f"q{i}", "q", 1) for i in range(1, 10)))
    submit(world, work("w", "p", 1, 4))
    shares = fair_shares(world)
    assert [shares[name]["H100"] for name in "pq"] == [8, 8]


def test_what_several_accelerators_would_do_for_counts_on_each() -> None:
    """Four devices of any kind are two of each; a quota on both together is divided alike."""
    world = a_world(Queue("q", "root", limit=(("A100|H100", 6),)), Queue("r", "root"))
    for each in (work("w", "q", 1, 8), work("v", "r", 1, 8, "H100")):
        world.apply(ev.WorkloadSubmitted(0, each))
    assert fair_shares(world)["q"] == {"A100": 3, "H100": 3}
    assert fair_shares(world)["r"] == {"A100": 0, "H100": 5}


def test_units_are_divided_by_exchange_rates() -> None:
    """Six units of twelve, as an A100 counts half, are half of each accelerator."""
    queues = (Queue("root"), Queue("q", "root", limit=((UNITS, 6),)))
    world = world_of(node("h", 8), node("a", 8, accelerator="A100"))
    world.apply(ev.QueuesSet(0, QueueTree(queues, rates=(("A100", 500),))))
    world.apply(ev.WorkloadSubmitted(0, work("w", "q", 1, 16)))
    assert fair_shares(world)["q"] == {"A100": 4, "H100": 4}


def test_shares_of_devices_and_lowered_weights_count_as_what_they_are() -> None:
    """A share of 30 % asks for 0.3; a spent budget leaves a tenth of the weight."""
    world = world_of(node("n", 8))
    world.apply(ev.QueuesSet(0, QueueTree((Queue("root"), Queue("a", "root"), Queue("b", "root")))))
    part = Workload("w", (PodSet("main", 1, share(300)),), "a")
    world.apply(ev.WorkloadSubmitted(0, part))
    assert fair_shares(world)["a"]["H100"] == Fraction(3, 10)
    for uid, queue in (("v", "a"), ("u", "b")):
        world.apply(ev.WorkloadSubmitted(0, work(uid, queue, 1, 44)))
    assert fair_shares(world)["b"]["H100"] == 4
    world.tenants.lowered.add("a")
    assert fair_shares(world)["b"]["H100"] == Fraction(80, 11)


def test_what_is_held_is_asked_for() -> None:
    """Running work counts by what it is charged."""
    world = world_of(node("n", 8))
    world.apply(ev.QueuesSet(0, QueueTree((Queue("root"), Queue("a", "root")))))
    submit(world, work("w", "a", 3))
    decide(world)
    assert world.tenants.used_units("a") == {"H100": 3 * UNIT}
    assert fair_shares(world)["a"]["H100"] == 3
