"""Explanations: numbers that are true at the moment they name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.core import events as ev
from shoal.model.node import Device, Leaf, Node
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.model.workload import Outcome
from shoal.server.app import make_app
from tests.server.client import Api, why
from tests.server.rig import A100, H100, NOW_US, job, node, platform, pod

SHARE = {"memory": "10Gi", "accelerators": "A100"}
ON_X = (Requirement("x", Operator.EXISTS),)


def with_requests(manifest: dict[str, Any], **requests: str) -> dict[str, Any]:
    manifest["spec"]["containers"][0]["resources"]["requests"] = requests
    return manifest


def test_a_wait_is_explained_with_numbers_that_are_true_now(api: Api) -> None:
    big = job("big", 4, 2, accelerators="H100")
    api.submit(job("llm", 4), job("small", 2, accelerators="H100"), big)
    said = why(api, "big")
    assert (said["placed_pods"], said["fitting_nodes"]) == (0, 0)
    assert [(each["reason"], each["nodes"]) for each in said["obstacles"]] == [
        ("whole-devices", 2),
        ("accelerator", 1),
        ("taint", 1),
    ]
    assert [
        (each["node"], each["free"]["devices"], each["needed"]["devices"], each["short_of"])
        for each in said["candidates"]
    ] == [("n2", 2, 4, ["devices"]), ("n1", 0, 4, ["devices"])]
    assert [(each["name"], each["devices"], each["nodes"]) for each in said["holders"]] == [
        ("llm", 4.0, ["n1"]),
        ("small", 2.0, ["n2"]),
    ]
    assert said["workload"]["position"] == said["workload"]["waiting_in_queue"] == 1
    api.rig.step(ev.WorkloadEnded(NOW_US, api.rig.uid("small"), Outcome.COMPLETED))
    said = why(api, "big")
    assert (said["placed_pods"], said["fitting_nodes"]) == (1, 1)
    assert said["obstacles"][0] == {
        "reason": "whole-devices",
        "nodes": 1,
        "text": "1 node has too few devices that are wholly free",
    }


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            job("j", 5, accelerators="H100"),
            "a pod asks for 5 devices of one node, and the most that a node could give is 4.",
        ),
        (job("j", 1, accelerators="B300"), "no node has B300."),
        (
            pod("j", memory="100Gi", isolation="shared"),
            "a pod asks for 102,400 MiB of one device, and the largest has 81,559 MiB.",
        ),
        (
            job("j", 4, 3, accelerators="H100"),
            "3 pods start together, and all nodes hold 2 of them when they are empty.",
        ),
        (
            pod("j", memory="10Gi", isolation="driver"),
            "no device isolates its tenants as much as is asked for (driver).",
        ),
        (
            job("j", 1, 3, queue="serving", type="inference", isolation="shared", **SHARE),
            "3 pods start together, and all nodes hold 2 of them when they are empty.",
        ),
        (
            with_requests(pod("j"), cpu="33"),
            "a pod asks for 33,000 milli-CPU, and the largest node has 32,000.",
        ),
        (
            with_requests(pod("j"), memory="257Gi"),
            "a pod asks for 263,168 MiB of host memory, and the largest node has 262,144 MiB.",
        ),
    ],
)
def test_X06_never_is_said_at_once_with_the_largest_that_exists(
    api: Api, manifest: dict[str, Any], said: str
) -> None:
    api.submit(manifest)
    answer = why(api, "j")
    assert answer["never"]
    assert answer["headline"] == f"Never on this fleet: {said}"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (
            job("j", 1, type="notebook", accelerators="H100"),
            (
                "no node that serves work of type notebook could hold a pod of it, and another node"
                " could."
            ),
        ),
        (
            job("j", 2, 2, type="notebook"),
            (
                "2 pods start together, and the nodes that serve work of type notebook hold 1 of"
                " them when they are empty."
            ),
        ),
    ],
)
def test_never_is_said_of_pools_where_other_nodes_would_do(
    api: Api, manifest: dict[str, Any], said: str
) -> None:
    api.submit(manifest)
    answer = why(api, "j")
    assert (answer["never"], answer["headline"]) == (True, f"Never with these pools: {said}")
    api.rig.step(ev.NodeSeen(NOW_US, node("n5", H100, 4, "nobody's")))
    assert not why(api, "j")["never"], "a node in no pool serves every type"


def test_a_node_that_only_its_labels_keep_from_being_served_is_no_proof(api: Api) -> None:
    both = replace(node("n5", H100, 4, "shared"), labels={"shoal.dev/pool": "shared", "x": "y"})
    api.submit(job("j", 1, type="notebook", accelerators="H100"))
    twice = replace(api.rig.written.pools[1], name="twice", nodes=Selector(ON_X))
    api.rig.step(ev.PoolsSet(NOW_US, (*api.rig.written.pools, twice)), ev.NodeSeen(NOW_US, both))
    said = why(api, "j")
    assert not said["never"]
    assert ("several-pools", 1) in [(e["reason"], e["nodes"]) for e in said["obstacles"]]


def test_never_counts_only_the_pods_that_have_to_run(api: Api) -> None:
    api.submit(job("first", 4, accelerators="H100"))
    api.submit(job("j", 4, 3, accelerators="H100", minimum="2"))
    assert why(api, "j")["workload"]["state"] == "waiting"
    assert not why(api, "j")["never"], "two of the three have to run, and for them there is room"


def test_what_isolates_enough_may_be_too_small(tmp_path: Path) -> None:
    slices = tuple(Leaf(f"n1-0/{k}", 10_240, 142) for k in range(7))
    cards = (Device("n1-0", A100, slices), Device("n1-1", A100, (Leaf("n1-1", 80_000, tenants=4),)))
    fleet = (Node("n1", 32_000, 262_144, 110, cards),)
    with platform(tmp_path, queues=None, fleet=fleet) as rig:
        api = Api(make_app(rig.standing))
        api.rig = rig
        api.submit(
            pod("j", memory="20Gi", isolation="hardware"),
            pod("k", memory="10Gi", isolation="hardware"),
        )
        assert why(api, "j")["headline"] == (
            "Never on this fleet: a pod asks for 20,480 MiB of one device that isolates its"
            " tenants as much as hardware, and the largest such has 10,240 MiB."
        )
        assert why(api, "k")["workload"]["state"] == "running"


def test_X06_what_a_larger_node_could_hold_is_no_longer_never(api: Api) -> None:
    api.submit(job("j", 5, accelerators="H100"), job("waits", 4, 2, accelerators="H100"))
    api.submit(job("too", 4, 2, accelerators="H100"))
    assert (why(api, "j")["never"], why(api, "too")["never"]) == (True, False)
    api.rig.step(ev.NodeSeen(NOW_US, replace(node("n5", H100, 8, "training"), cordoned=True)))
    said = why(api, "j")
    assert not said["never"]
    assert said["headline"] == ""


def test_X05_nodes_are_not_blamed_for_the_workloads_own_trial(api: Api) -> None:
    api.submit(job("r", 2, accelerators="H100"), job("gang", 2, 4, accelerators="H100"))
    said = why(api, "gang")
    assert (said["placed_pods"], said["fitting_nodes"]) == (3, 2)
    assert [each["reason"] for each in said["obstacles"]] == ["accelerator", "taint"]
    assert said["headline"] == (
        "All 4 pods start together, and only 3 of them find a node. Nodes with room for one: 2."
    )


def test_X02_what_is_short_is_named(api: Api) -> None:
    greedy = pod("greedy", 0, type="batch")
    greedy["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "32"}
    greedy["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n3"}
    needs = pod("needs", 1, type="batch", accelerators="A100")
    needs["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "8"}
    api.submit(greedy, needs)
    said = why(api, "needs")
    assert said["obstacles"][0]["reason"] == "cpu"
    (near,) = said["candidates"]
    assert near["short_of"] == ["cpu_milli"]
    assert (near["free"]["cpu_milli"], near["free"]["devices"]) == (0, 2)


def test_X03_position_counts_those_of_the_queue_that_are_ahead(api: Api) -> None:
    api.submit(
        job("r", 4, 2),
        job("a", 4, 2, accelerators="H100"),
        job("other", 4, 2, queue="nlp", accelerators="H100"),
        job("b", 3, 2, accelerators="H100"),
    )
    found = api.ask("/workloads", state="waiting")["items"]
    assert {each["name"]: (each["position"], each["waiting_in_queue"]) for each in found} == {
        "a": (1, 2),
        "b": (2, 2),
        "other": (1, 1),
    }


def test_Q01_what_can_never_start_has_no_position(api: Api) -> None:
    api.submit(
        job("r", 4, 2),
        job("huge", 8, 10, accelerators="H100"),
        job("b", 3, 2, accelerators="H100"),
    )
    found = api.ask("/workloads", state="waiting")["items"]
    assert {each["name"]: (each["position"], each["waiting_in_queue"]) for each in found} == {
        "huge": (None, 1),
        "b": (1, 1),
    }
    assert why(api, "huge")["over_quota"]["asked"] == 80


def test_a_share_is_explained_by_the_devices_that_have_room_for_it(api: Api) -> None:
    # What nobody makes again cannot be taken back, and would need a guarantee of its own.
    def share(name: str) -> dict[str, Any]:
        asked = {"memory": "70Gi", "accelerators": "A100", "isolation": "shared"}
        return pod(name, 1, type="batch", recreate="true", **asked)

    api.submit(*(share(f"s{n}") for n in range(3)))
    said = why(api, "s2")
    assert said["obstacles"][0]["reason"] == "leaf-room"
    assert said["candidates"][0]["free"]["devices"] == 0
    assert [each["name"] for each in said["holders"]] == ["s0", "s1"]


def test_a_limit_is_explained_in_the_words_of_who_wrote_it(tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    head = "apiVersion: shoal.dev/v1alpha1\nkind: AcceleratorQueue\n"
    queues.write_text(
        f"{head}metadata: {{name: top}}\nspec: {{limit: {{H100: 5}}}}\n---\n"
        f"{head}metadata: {{name: vision}}\nspec: {{parent: top}}\n"
    )
    with platform(tmp_path, queues=queues) as rig:
        api = Api(make_app(rig.standing))
        api.rig = rig
        api.submit(job("a", 4, accelerators="H100"), job("b", 2, accelerators="H100"))
        said = why(api, "b")
        assert said["stage"] == "quota"
        assert said["over_quota"] == {
            "reason": "limit",
            "queue": "top",
            "accelerators": "H100",
            "used": 4.0,
            "asked": 2.0,
            "bound": 5.0,
        }
        assert said["headline"] == (
            "Queue top holds 4 H100; with 2 more it would hold 6 of limit 5."
        )
        assert [each["name"] for each in said["holders"]] == ["a"]
        assert (said["obstacles"], said["candidates"]) == ([], [])
        before = list(rig.replica.world.snapshot(0))
        why(api, "b")
        assert list(rig.replica.world.snapshot(0)) == before


def test_running_and_ended_work_is_explained_too(api: Api) -> None:
    api.submit(job("j", 4, 2))
    assert why(api, "j")["summary"] == "It runs on n1, n2."
    api.rig.step(ev.WorkloadEnded(NOW_US, api.rig.uid("j"), Outcome.FAILED))
    said = why(api, "j")
    assert said["summary"] == "It has failed."
    assert [each["step"] for each in said["moments"]][-1] == "ended"
    assert said["obstacles"] == said["holders"] == []


def test_explaining_leaves_the_replica_as_it_was(api: Api) -> None:
    api.submit(job("llm", 4, 2), job("gang", 4, 3, accelerators="H100"))
    api.rig.step()
    before = list(api.rig.replica.world.snapshot(0))
    why(api, "gang")
    assert list(api.rig.replica.world.snapshot(0)) == before


def test_a_fleet_without_any_node_is_explained(tmp_path: Path) -> None:
    with platform(tmp_path, fleet=()) as rig:
        api = Api(make_app(rig.standing))
        api.rig = rig
        api.submit(job("j"))
        said = why(api, "j")
        assert said["obstacles"] == [{"reason": "no-nodes", "nodes": 0, "text": "there is no node"}]
