"""Starts that do not come true on a real cluster: taken back, and planned again."""

from collections.abc import Iterator

import pytest

from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import allocated, claim, pod
from tests.cluster.way import (
    CLAIM,
    JOB,
    NODE,
    POD,
    Shoal,
    ask,
    bound,
    claiming,
    events_of,
    gated,
    gated_job,
    managed,
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


def test_what_kube_scheduler_refuses_goes_elsewhere_and_costs_no_retry(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 2, 1)
    cluster.scheduler.kill()
    cluster.api.create(gated_job("train", 1))
    planned = eventually(lambda: _released(cluster), 30, "nothing was released")
    # Somebody binds a pod of his own there, past every scheduler.
    cluster.api.create(pod("thief", 1, nodeName=planned))
    cluster.scheduler.start()
    found = wait_bound(cluster, 1, seconds=60)
    assert set(found.values()) == {"gpu-0", "gpu-1"} - {planned}
    job = cluster.api.get(JOB, "train", "team")
    assert not job["status"].get("failed")
    said = [
        note
        for each in cluster.api.list("events.k8s.io/v1/Event", "team")
        if each["reason"] == "StartFailed"
        for note in [each["note"]]
    ]
    assert any(f"node {planned}" in note and "nvidia.com/gpu" in note for note in said)


def _released(cluster: Cluster) -> str:
    """The node to which some pod was let go."""
    for each in cluster.api.list(POD, "team"):
        affinity = each["spec"].get("affinity", {}).get("nodeAffinity")
        if affinity and not each["spec"].get("schedulingGates"):
            required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
            name: str = required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
            return name
    return ""


def test_a_gang_that_is_not_whole_in_time_is_taken_back_whole(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 2, 1)
    cluster.scheduler.kill()
    cluster.api.create(gated_job("train", 2))
    eventually(
        lambda: (
            sum(not p["spec"].get("schedulingGates") for p in cluster.api.list(POD, "team")) == 2
        ),
        30,
        "the gang was not released",
    )
    cluster.api.create(pod("thief", 1, nodeName="gpu-1"))
    cluster.scheduler.start()

    def all_wait() -> bool:
        pods = cluster.api.list(POD, "team")
        return len(pods) == 2 and all(p["spec"].get("schedulingGates") for p in pods)

    eventually(all_wait, 60, lambda: f"bound are {bound(cluster)}")
    assert not cluster.api.get(JOB, "train", "team")["status"].get("failed")
    cluster.fake_nodes.add("more", 1, 1)
    assert sorted(wait_bound(cluster, 2).values()) == ["gpu-0", "more-0"]


def test_a_bare_pod_says_that_it_must_be_created_again_to_go_elsewhere(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 2, 1)
    cluster.scheduler.kill()
    cluster.api.create(gated("a"))
    planned = eventually(lambda: _released(cluster), 30, "nothing was released")
    cluster.api.create(pod("thief", 1, nodeName=planned))
    cluster.scheduler.start()
    eventually(
        lambda: any(reason == "HeldBack" for reason, _ in events_of(cluster, "a")),
        60,
        lambda: f"said was {events_of(cluster, 'a')}",
    )
    note = next(note for reason, note in events_of(cluster, "a") if reason == "HeldBack")
    assert f"pinned to node {planned}" in note
    assert "create the pod again" in note
    said = ask(cluster, "why", "a", "-n", "team")
    assert f"let go for {planned}" in said
    assert "Insufficient nvidia.com/gpu" in said
    # It goes on by itself when its node has room.
    cluster.api.delete(POD, "thief", grace_s=0)
    assert wait_bound(cluster, 1) == {"a": planned}


def test_a_bare_pod_with_a_claim_gets_another_device_of_its_node(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("dra", 1, 2, channels=["dra"])
    cluster.scheduler.kill()
    cluster.api.create(claiming("a"))
    eventually(lambda: cluster.api.find(CLAIM, "a.shoal.dev", "claims"), 30, "no claim was made")
    wanted = cluster.api.get(CLAIM, "a.shoal.dev", "claims")["spec"]["devices"]["requests"]
    expression = wanted[0]["exactly"]["selectors"][0]["cel"]["expression"]
    uuids = cluster.fake_nodes.devices("dra-0")
    taken = next(uuid for uuid in uuids if uuid in expression)
    eventually(
        lambda: not cluster.api.get(POD, "a", "claims")["spec"].get("schedulingGates"),
        30,
        "it was not released",
    )
    # Somebody else's claim gets that device first.
    cluster.api.create(claim("theirs", [taken]))
    number = uuids.index(taken)
    result = {"request": "gpu-0", "driver": "gpu.nvidia.com", "pool": "dra-0"}
    allocation = {"devices": {"results": [result | {"device": f"gpu-{number}"}]}}
    api = cluster.api
    api.run(
        api._api.patch(
            CLAIM, "theirs", {"status": {"allocation": allocation}}, subresource="status"
        )
    )
    cluster.scheduler.start()
    assert wait_bound(cluster, 1, "claims", seconds=60) == {"a": "dra-0"}
    held = allocated(cluster.api.get(CLAIM, "a.shoal.dev", "claims"))
    assert held == [("dra-0", f"gpu-{1 - number}")]


def test_a_claim_that_a_user_deletes_is_made_again(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("dra", 1, 1, channels=["dra"])
    cluster.scheduler.kill()
    cluster.api.create(claiming("a"))
    first = cluster.api.wait(CLAIM, "a.shoal.dev", "claims", until=bool)
    eventually(
        lambda: not cluster.api.get(POD, "a", "claims")["spec"].get("schedulingGates"),
        30,
        "it was not released",
    )
    cluster.api.delete(CLAIM, "a.shoal.dev", "claims")
    cluster.api.wait(
        CLAIM,
        "a.shoal.dev",
        "claims",
        until=lambda o: o["metadata"]["uid"] != first["metadata"]["uid"],
    )
    cluster.scheduler.start()
    assert wait_bound(cluster, 1, "claims") == {"a": "dra-0"}


def test_k07_a_quota_that_refuses_the_second_claim_undoes_the_first(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("dra", 1, 8, channels=["dra"])
    hard = {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "1"}
    quota = {"metadata": {"name": "team", "namespace": "claims"}, "spec": {"hard": hard}}
    cluster.api.create({"apiVersion": "v1", "kind": "ResourceQuota"} | quota)
    cluster.api.wait("v1/ResourceQuota", "team", "claims", until=lambda o: o["status"].get("used"))
    cluster.api.create(claiming("a", 2))
    eventually(
        lambda: any(reason == "HeldBack" for reason, _ in events_of(cluster, "a", "claims")),
        30,
        "nothing was said",
    )
    note = next(note for _, note in events_of(cluster, "a", "claims"))
    assert "ResourceQuota team in claims" in note
    assert "0 used, 2 asked, 1 allowed, 1 too many" in note
    assert cluster.api.find(CLAIM, "a.shoal.dev", "claims") is None
    hard = {"gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "2"}
    cluster.api.patch("v1/ResourceQuota", "team", {"spec": {"hard": hard}}, "claims")
    assert wait_bound(cluster, 1, "claims") == {"a": "dra-0"}


def test_a_node_that_vanishes_before_its_pod_is_bound_is_planned_around(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 2, 1)
    cluster.scheduler.kill()
    cluster.api.create(gated_job("train", 1))
    planned = eventually(lambda: _released(cluster), 30, "nothing was released")
    cluster.fake_nodes.remove(planned)
    cluster.api.wait_gone(NODE, planned)
    cluster.scheduler.start()
    found = wait_bound(cluster, 1)
    assert set(found.values()) == {"gpu-0", "gpu-1"} - {planned}
