"""Equal inputs give byte-equal decisions: in another process, with another hash seed, without the
processor's vector instructions, and whatever the order in which nodes came.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shoal.core import events as ev
from shoal.core.decisions import Decision, Reserve, Start
from shoal.core.policies import POLICIES
from shoal.core.world import World
from shoal.loop.records import encode
from shoal.model.request import Request
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Placement
from tests.core.build import decide, job, node, policy, share, submit, whole

ASKS = [whole(1), whole(2), whole(4), share(300), share(700, 20), Request(2000), whole(1, 4)]


def decisions(name: str, order: int) -> list[Decision]:
    """What is decided about a stream of arrivals and ends; `order` shuffles how nodes come."""
    world = World()
    nodes = [node(f"n{i}", 4, cpu=16 + i % 3) for i in range(12)]
    for index in np.random.Generator(np.random.PCG64(order)).permutation(len(nodes)):
        world.apply(ev.NodeSeen(0, nodes[index]))
    made: list[Decision] = []
    for number in range(120):
        pods = 3 if number % 10 == 0 else 1
        workload = job(f"w{number}", ASKS[number % len(ASKS)], pods)
        world.apply(ev.WorkloadSubmitted(number, workload))
        if number % 3 == 2:
            world.apply(ev.WorkloadEnded(number, f"w{number // 2}", Outcome.COMPLETED))
        if number == 60:
            world.apply(ev.NodeLost(number, "n5"))
        if number == 80:
            world.apply(ev.NodeSeen(number, nodes[5]))
        made += decide(world, policy(name), number).decisions
    return made


def digest(name: str, order: int = 0) -> str:
    """The hash of all decisions as they are recorded."""
    data = b"".join(encode(ev.Decided(0, decision)) for decision in decisions(name, order))
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", POLICIES)
def test_the_order_in_which_nodes_came_does_not_matter(name: str) -> None:
    """Rows are an accident; ranks are keyed by name."""
    assert digest(name, 0) == digest(name, 1) == digest(name, 2)


def test_other_processes_decide_alike(repository: Path) -> None:
    """With other hash seeds, and on processors without vector instructions."""
    features = np._core._multiarray_umath.__cpu_dispatch__  # type: ignore[attr-defined]
    here = {name: digest(name) for name in POLICIES}
    code = (
        "import sys; from tests.core import test_determinism as t\n"
        "for name in t.POLICIES: print(name, t.digest(name))"
    )
    for environment in (
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "2", "NPY_DISABLE_CPU_FEATURES": " ".join(features)},
    ):
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            cwd=repository,
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
        )
        there = dict(line.split() for line in answer.stdout.splitlines())
        assert there == here


def test_a_restored_world_starts_those_whose_places_are_free_in_the_same_order() -> None:
    world = World()
    world.apply(ev.NodeSeen(0, node("n", 2)))
    submit(world, job("x", whole(2)))
    submit(world, job("b", whole(1)), job("a", whole(1)))
    for uid, leaf in (("b", "n/0"), ("a", "n/1")):
        places = (Placement(0, "n", (leaf,)),)
        kept = Reserve(f"reserve/{uid}", uid, places, None, ("x",), Reason.RECLAIM, -1, ((0,),))
        world.apply(ev.Decided(2, kept))
    world.apply(ev.WorkloadEnded(3, "x", Outcome.COMPLETED))
    again = World()
    for event in world.snapshot(3):
        again.apply(event)
    came = decide(world, now_us=4).decisions
    assert [each.workload for each in came if isinstance(each, Start)] == ["a", "b"]
    assert decide(again, now_us=4).decisions == came
