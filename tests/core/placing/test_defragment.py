"""Moves of running pods that make room for one that fits nowhere."""

import pytest

from shoal.core import events as ev
from shoal.core.placing.defragment import Move, propose
from shoal.core.world import World
from shoal.model.node import Node
from shoal.model.request import Request
from shoal.model.workload import Placement
from tests.core.build import (
    SEED,
    decide,
    job,
    node,
    policy,
    share,
    started,
    submit,
    whole,
    world_of,
)

BEST_FIT = policy()


def running(world: World, uid: str, request: Request, node_name: str, *leaves: int) -> None:
    """A pod that runs on these devices of a node."""
    place = Placement(0, node_name, tuple(f"{node_name}/{leaf}" for leaf in leaves))
    world.apply(ev.WorkloadAdopted(0, job(uid, request), (place,)))


def waiting(request: Request, *nodes: Node, **held: tuple[Request, str, int]) -> World:
    """A world where pod `w` waits for room that others hold."""
    world = world_of(*nodes)
    for uid, (asked, name, leaf) in held.items():
        running(world, uid, asked, name, leaf)
    submit(world, job("w", request), which=BEST_FIT)
    return world


def proposed(world: World, most: int = 2) -> tuple[Move, ...]:
    return propose(world, BEST_FIT, SEED, "w", most)


def carry_out(world: World, moves: tuple[Move, ...]) -> dict[str, list[str]]:
    for move in moves:
        world.apply(ev.PodMoved(5, move.uid, move.target))
    return started(decide(world, BEST_FIT, 6))


def test_a_small_pod_makes_way_for_a_whole_device() -> None:
    world = waiting(
        whole(1),
        node("a", 1),
        node("b", 1),
        small=(share(200), "a", 0),
        other=(share(300), "b", 0),
    )
    (move,) = proposed(world)
    assert (move.uid, move.source.node, move.target.node) == ("small", "a", "b")
    assert carry_out(world, (move,)) == {"w": ["a"]}


def test_two_pods_make_way_only_if_two_may_be_moved() -> None:
    world = waiting(
        whole(1),
        node("a", 1),
        node("b", 1),
        one=(share(200), "a", 0),
        two=(share(200), "a", 0),
        other=(share(500), "b", 0),
        another=(share(100), "b", 0),
    )
    assert proposed(world, 1) == ()
    moves = proposed(world, 2)
    assert len(moves) == 2
    assert carry_out(world, moves) == {"w": [moves[0].source.node]}


def test_a_pod_that_holds_cpu_alone_makes_way() -> None:
    world = world_of(node("a", 1, cpu=8), node("b", 0, cpu=8))
    running(world, "host", Request(6000), "a")
    submit(world, job("w", whole(1, 4)), which=BEST_FIT)
    (move,) = proposed(world)
    assert (move.uid, move.target.node) == ("host", "b")


def test_more_than_is_gained_is_not_interrupted() -> None:
    world = waiting(
        share(349),
        node("a", 1),
        node("b", 1),
        large=(share(652), "a", 0),
        other=(share(350), "b", 0),
        third=(share(650), "b", 0),
    )
    assert proposed(world) == ()


def test_pods_that_have_nowhere_to_go_stay() -> None:
    world = waiting(
        whole(1),
        node("a", 1),
        node("b", 1),
        small=(share(200), "a", 0),
        other=(share(900), "b", 0),
    )
    assert proposed(world) == ()


def test_pods_of_a_gang_stay() -> None:
    world = world_of(node("a", 1), node("b", 1), node("c", 1))
    places = (Placement(0, "a", ("a/0",)), Placement(1, "b", ("b/0",)))
    world.apply(ev.WorkloadAdopted(0, job("gang", share(200), 2), places))
    running(world, "other", share(300), "c", 0)
    submit(world, job("w", whole(1)), which=BEST_FIT)
    assert [move.uid for move in proposed(world)] == ["other"]


@pytest.mark.parametrize("request_", [Request(64_000), whole(9)])
def test_what_no_moves_can_help_gets_no_proposal(request_: Request) -> None:
    world = waiting(request_, node("a", 1), node("b", 1), small=(share(200), "a", 0))
    assert proposed(world) == ()


def test_one_that_fits_or_is_unknown_gets_no_proposal() -> None:
    world = world_of(node("a", 1))
    world.apply(ev.WorkloadSubmitted(0, job("w", whole(1))))
    assert proposed(world) == ()
    assert propose(world, BEST_FIT, SEED, "nobody", 5) == ()


def test_old_news_of_moves_changes_nothing() -> None:
    world = world_of(node("a", 1), node("b", 1))
    running(world, "x", share(200), "a", 0)
    before = list(world.snapshot(0))
    world.apply(ev.PodMoved(1, "gone", Placement(0, "b", ("b/0",))))
    world.apply(ev.PodMoved(1, "x", Placement(3, "b", ("b/0",))))
    assert list(world.snapshot(0)) == before
