"""From a gated pod to a bound one on a real cluster."""

from collections.abc import Iterator

import pytest

from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import allocated, namespace, pod
from tests.cluster.way import (
    CLAIM,
    DEPLOYMENT,
    JOB,
    POD,
    Shoal,
    ask,
    bound,
    claiming,
    gated,
    gated_deployment,
    gated_job,
    managed,
    node_of,
    wait_bound,
)

pytestmark = [pytest.mark.cluster]


@pytest.fixture
def shoal(cluster: Cluster) -> Iterator[Shoal]:
    """A scheduler whose world is compared with the API server after the test."""
    managed(cluster)
    managed(cluster, "claims", "dra")
    shoal = Shoal(cluster)
    yield shoal
    shoal.check()


def test_a_bare_pod_is_bound_where_shoal_said(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 2, 2)
    cluster.api.create(gated("a", 2))
    found = cluster.api.wait(POD, "a", "team", until=node_of)
    plan = found["metadata"]["annotations"]["shoal.dev/plan"]
    assert f'"node":"{node_of(found)}"' in plan
    terms = found["spec"]["affinity"]["nodeAffinity"]
    required = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert required[0]["matchFields"][0]["values"] == [node_of(found)]


def test_a_claim_is_pinned_to_the_planned_devices(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("dra", 2, 4, channels=["dra"])
    cluster.api.create(claiming("a", 2))
    cluster.api.create(claiming("b", 2))
    for name in ("a", "b"):
        found = cluster.api.wait(POD, name, "claims", until=node_of)
        claim = cluster.api.get(CLAIM, f"{name}.shoal.dev", "claims")
        uuids = [
            cluster.fake_nodes.devices(pool)[int(device.removeprefix("gpu-"))]
            for pool, device in allocated(claim)
        ]
        assert {pool for pool, _ in allocated(claim)} == {node_of(found)}
        assert all(uuid in found["metadata"]["annotations"]["shoal.dev/plan"] for uuid in uuids)
        assert claim["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    # The claim goes with its pod.
    cluster.api.delete(POD, "a", "claims")
    cluster.api.wait_gone(CLAIM, "a.shoal.dev", "claims", seconds=60)


def test_a_job_starts_whole_or_not_at_all(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("small", 1, 2)
    cluster.api.create(gated_job("train", 4))
    eventually(lambda: len(cluster.api.list(POD, "team")) == 4, 30, "the Job made no 4 pods")
    eventually(lambda: "waiting" in ask(cluster, "get", "workloads"), 30, "it does not wait")
    assert bound(cluster) == {}
    cluster.fake_nodes.add("other", 1, 2)
    assert sorted(wait_bound(cluster, 4).values()) == ["other-0", "other-0", "small-0", "small-0"]


def test_a_deployment_starts_pod_by_pod(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 2)
    cluster.api.create(gated_deployment("web", 3))
    wait_bound(cluster, 2)
    cluster.api.patch(DEPLOYMENT, "web", {"spec": {"replicas": 2}}, "team")
    eventually(lambda: len(cluster.api.list(POD, "team")) == 2, 30, "it has other than 2 pods")


def test_a_job_that_completes_frees_its_devices(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 1)
    short = {"fake-node/runs-for": "0.5"}
    cluster.api.create(gated_job("first", 1, annotations=short))
    cluster.api.create(gated_job("second", 1, annotations=short))
    for name in ("first", "second"):
        cluster.api.wait(JOB, name, "team", until=lambda o: o["status"].get("succeeded") == 1)


def test_devices_that_others_took_are_respected(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 2)
    cluster.api.create(pod("theirs", 1))
    cluster.api.wait(POD, "theirs", until=node_of)
    cluster.api.create(gated("a", 2))
    eventually(lambda: "too few" in ask(cluster, "why", "a", "-n", "team"), 30, "it says nothing")
    assert bound(cluster) == {}
    cluster.api.delete(POD, "theirs", grace_s=0)
    assert wait_bound(cluster, 1) == {"a": "gpu-0"}


def test_an_observed_namespace_is_watched_and_not_touched(cluster: Cluster, shoal: Shoal) -> None:
    cluster.api.create(namespace("watched"))
    cluster.api.wait("v1/ServiceAccount", "default", "watched", until=bool)
    cluster.fake_nodes.add("gpu", 1, 2)
    # Another scheduler's pod, which nobody binds, and one that kube-scheduler binds.
    cluster.api.create(pod("waits", 1, namespace="watched", schedulerName="nobody"))
    cluster.api.create(pod("runs", 1, namespace="watched"))
    cluster.api.wait(POD, "runs", "watched", until=lambda o: o["status"]["phase"] == "Running")
    said = ask(cluster, "why", "waits", "-n", "watched")
    assert "would start on gpu-0" in said
    assert "only observes namespace watched" in said
    assert "watched/runs" in ask(cluster, "get", "devices")
    for name in ("waits", "runs"):
        found = cluster.api.get(POD, name, "watched")
        managers = {each["manager"] for each in found["metadata"]["managedFields"]}
        assert not any("shoal" in manager for manager in managers)


def test_a_pod_that_asks_for_more_than_it_may_is_held_back_with_a_sentence(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 1, 2)
    wrong = gated("a", 1, annotations={"shoal.dev/isolation": "steel"})
    cluster.api.create(wrong)
    said = eventually(
        lambda: _line(ask(cluster, "why", "a", "-n", "team"), "held back"), 30, "not held back"
    )
    assert "steel" in said


def _line(text: str, start: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(start)), "")
