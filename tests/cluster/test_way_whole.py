"""All of it at once: admission, the scheduler with its own rights only, a real kubelet, people."""

import json
from collections.abc import Iterator

import pytest

from tests.cluster.admission import MANAGED, MANAGED_DRA, Admission
from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import job, pod, running
from tests.cluster.way import (
    POD,
    Shoal,
    account,
    ask,
    bound,
    events_of,
    gated,
    managed,
    node_of,
    wait_bound,
)

pytestmark = [pytest.mark.cluster]


@pytest.fixture
def shoal(cluster: Cluster) -> Iterator[Shoal]:
    """A scheduler under its own account, behind admission."""
    with Admission(cluster) as admission:
        own = account(admission)
        shoal = Shoal(cluster, kubeconfig=own, lease_namespace="shoal", refused_after=30)
        yield shoal
        shoal.check()
        shoal.process.stop()


def test_plain_manifests_run_where_shoal_said(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 4)
    cluster.fake_nodes.add("dra", 1, 4, channels=["dra"])
    for namespace in (MANAGED, MANAGED_DRA):
        cluster.api.create(job("train", 1, parallelism=2, namespace=namespace))
        cluster.api.create(pod("one", 2, namespace=namespace))
    wait_bound(cluster, 3, MANAGED, seconds=60)
    wait_bound(cluster, 3, MANAGED_DRA, seconds=60)
    for namespace, node in ((MANAGED, "gpu-0"), (MANAGED_DRA, "dra-0")):
        assert set(bound(cluster, namespace).values()) == {node}
        for each in cluster.api.list(POD, namespace):
            assert each["metadata"]["annotations"]["shoal.dev/plan"]
    held = json.loads(ask(cluster, "get", "nodes", "-o", "json"))
    assert [(row["node"], row["held"]) for row in held] == [("dra-0", 4), ("gpu-0", 4)]
    # Gone and free again: nothing of the owner's is left behind.
    for namespace in (MANAGED, MANAGED_DRA):
        cluster.api.delete("batch/v1/Job", "train", namespace)
        cluster.api.delete(POD, "one", namespace, grace_s=0)
        for each in cluster.api.list(POD, namespace):
            cluster.api.delete(POD, each["metadata"]["name"], namespace, grace_s=0)
    eventually(lambda: shoal.metric('shoal_devices{state="free"}') == 8, 60, "devices are held")


def test_a_real_kubelet_runs_what_shoal_placed(cluster: Cluster) -> None:
    managed(cluster)
    kubelet = cluster.kubelet("real", devices=2)
    shoal = Shoal(cluster)
    cluster.api.create(gated("a", 1))
    cluster.api.create(gated("b", 1))
    for name in ("a", "b"):
        cluster.api.wait(POD, name, "team", until=running, seconds=90)
    # Later than the others: pods of one second have no order that a test could know.
    cluster.api.create(gated("c", 1))
    eventually(lambda: events_of(cluster, "c"), 30, "c was not told to wait")
    shoal.check()
    assert "c" not in bound(cluster)
    # The plugin restarts under running pods: nothing moves, and nothing new starts meanwhile.
    kubelet.plugin.kill()
    cluster.api.wait(
        "v1/Node",
        "real",
        until=lambda o: o["status"]["allocatable"].get("nvidia.com/gpu") == "0",
        seconds=60,
    )
    shoal.check()
    assert sorted(bound(cluster)) == ["a", "b"]
    kubelet.plugin.start()
    cluster.api.delete(POD, "a", "team")
    cluster.api.wait(POD, "c", "team", until=running, seconds=90)
    shoal.check()


def test_people_are_told_why_and_only_once(cluster: Cluster) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 2, 2)
    shoal = Shoal(cluster)
    cluster.api.create(gated("big", 4))
    eventually(lambda: events_of(cluster, "big"), 30, "nothing was said")
    assert [reason for reason, _ in events_of(cluster, "big")] == ["Waiting"]
    assert "too few devices" in events_of(cluster, "big")[0][1]
    said = ask(cluster, "why", "big", "-n", "team")
    assert "position  1 of 1" in said
    assert "2 nodes have too few devices" in said
    cluster.api.create(gated("small", 1))
    wait_bound(cluster, 1)
    shoal.check()
    assert len(events_of(cluster, "big")) == 1
    said = ask(cluster, "why", "small", "-n", "team")
    assert f"on {bound(cluster)['small']} with" in said
    answer = json.loads(ask(cluster, "why", "big", "-n", "team", "-o", "json"))
    assert answer["verdict"]["obstacles"] == [{"reason": "whole-devices", "nodes": 2}]
    total = ask(cluster, "top", "-o", "json")
    rows = {(r["namespace"]): r["devices"] for r in json.loads(total)}
    assert rows == {"all": 4, "team": 1, "free": 3}
    pods = {r["pod"]: r for r in json.loads(ask(cluster, "get", "pods", "-o", "json"))}
    assert (pods["big"]["stage"], pods["small"]["stage"]) == ("gated", "bound")


@pytest.mark.timeout(600)
def test_release_lets_5000_gated_pods_go_and_shoal_stops_acting(cluster: Cluster) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 1, 8)
    shoal = Shoal(cluster)
    cluster.api.create_all([gated(f"p{n}") for n in range(5000)])
    wait_bound(cluster, 8, seconds=120)
    said = ask(cluster, "release", "--yes")
    assert "released 4,992 pods in 1 namespaces" in said
    left = [p for p in cluster.api.list(POD, "team") if p["spec"].get("schedulingGates")]
    assert left == []
    cluster.api.create(gated("later"))
    shoal.check()
    assert node_of(cluster.api.get(POD, "later", "team")) == ""
    assert shoal.metric('shoal_workloads{state="waiting"}') == 0
