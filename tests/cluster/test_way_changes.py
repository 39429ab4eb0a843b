"""What changes under running and waiting work on a real cluster."""

from collections.abc import Iterator

import pytest

from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import pod, running
from tests.cluster.way import (
    NODE,
    POD,
    Shoal,
    bound,
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
    shoal = Shoal(cluster, refused_after=30)
    yield shoal
    shoal.check()


def quiet(cluster: Cluster, shoal: Shoal) -> None:
    """Wait until the scheduler has taken in all that there is."""
    shoal.check()


def test_a_device_plugin_that_restarts_moves_nothing(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 4)
    cluster.api.create(gated("a", 2))
    wait_bound(cluster, 1)
    before = cluster.api.get(POD, "a", "team")["metadata"]
    cluster.fake_nodes.set_devices("gpu-0", count=0)
    cluster.api.wait(
        NODE, "gpu-0", until=lambda o: o["status"]["allocatable"]["nvidia.com/gpu"] == "0"
    )
    cluster.api.create(gated("b"))
    quiet(cluster, shoal)
    assert bound(cluster) == {"a": "gpu-0"}
    cluster.fake_nodes.set_devices("gpu-0", count=4)
    assert wait_bound(cluster, 2) == {"a": "gpu-0", "b": "gpu-0"}
    after = cluster.api.get(POD, "a", "team")["metadata"]
    assert after["annotations"] == before["annotations"]
    assert "deletionTimestamp" not in after


def test_devices_that_came_are_used_and_those_that_went_are_not(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 1, 2)
    for name in ("a", "b", "c"):
        cluster.api.create(gated(name))
    wait_bound(cluster, 2)
    cluster.fake_nodes.set_devices("gpu-0", count=3)
    assert len(wait_bound(cluster, 3)) == 3
    cluster.fake_nodes.set_devices("gpu-0", count=2)
    cluster.api.wait(
        NODE, "gpu-0", until=lambda o: o["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    )
    quiet(cluster, shoal)
    cluster.api.delete(POD, "a", "team", grace_s=0)
    cluster.api.create(gated("d"))
    quiet(cluster, shoal)
    assert "d" not in bound(cluster)


def test_k05_a_device_is_free_when_its_pod_is_gone(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 1)
    slow = gated(
        "a", annotations={"fake-node/stops-after": "600"}, terminationGracePeriodSeconds=600
    )
    cluster.api.create(slow)
    cluster.api.wait(POD, "a", "team", until=running)
    cluster.api.create(gated("b"))
    cluster.api.delete(POD, "a", "team")
    quiet(cluster, shoal)
    # Variant C: a restart in the meantime makes no new work of the dying pod.
    shoal.process.kill()
    shoal.start()
    quiet(cluster, shoal)
    assert shoal.metric('shoal_workloads{state="waiting"}') == 1
    cluster.api.delete(POD, "a", "team", grace_s=0)
    cluster.api.wait(POD, "b", "team", until=node_of, seconds=60)
    assert cluster.api.find(POD, "a", "team") is None


def test_k06_a_short_not_ready_moves_nothing(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 3, 8)
    cluster.api.create(gated_job("g", 2, 8))
    busy = sorted(wait_bound(cluster, 2).values())
    away, spare = busy[0], ({f"gpu-{n}" for n in range(3)} - set(busy)).pop()
    before = {p["metadata"]["uid"] for p in cluster.api.list(POD, "team")}
    cluster.fake_nodes.set_ready(False, away)
    cluster.api.wait(
        NODE,
        away,
        until=lambda o: any(
            c["type"] == "Ready" and c["status"] != "True" for c in o["status"]["conditions"]
        ),
    )
    cluster.api.create(gated("w", 8))
    cluster.api.wait(POD, "w", "team", until=lambda o: node_of(o) == spare)
    cluster.api.create(gated("x", 8))
    cluster.fake_nodes.set_ready(True, away)
    quiet(cluster, shoal)
    now = {p["metadata"]["uid"]: node_of(p) for p in cluster.api.list(POD, "team")}
    assert before <= set(now)
    assert sorted(now[uid] for uid in before) == busy


def test_k06_a_replacement_is_never_pinned_to_a_node_that_is_away(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 2, 8)
    cluster.api.create(gated_job("g", 2, 8, retries=6))
    away = min(wait_bound(cluster, 2).values())
    lost = next(name for name, node in bound(cluster).items() if node == away)
    cluster.fake_nodes.set_ready(False, away)
    cluster.api.wait(NODE, away, until=lambda o: o["spec"].get("taints"))
    cluster.api.delete(POD, lost, "team", grace_s=0)
    eventually(
        lambda: [p for p in cluster.api.list(POD, "team") if p["spec"].get("schedulingGates")],
        60,
        "no replacement came",
    )
    quiet(cluster, shoal)
    assert away not in bound(cluster).values()
    cluster.fake_nodes.set_ready(True, away)
    assert sorted(wait_bound(cluster, 2, seconds=90).values()) == ["gpu-0", "gpu-1"]


def test_k02_replaced_pods_keep_their_places(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 2)
    cluster.api.create(gated_deployment("web", 2))
    wait_bound(cluster, 2)
    cluster.api.create(gated("other"))
    for _ in range(5):
        old = {p["metadata"]["uid"] for p in cluster.api.list(POD, "team", labels="app=web")}
        for name in bound(cluster):
            cluster.api.delete(POD, name, "team", grace_s=0)

        def replaced(old: set[str] = old) -> bool:
            pods = cluster.api.list(POD, "team", labels="app=web")
            fresh = [p for p in pods if p["metadata"]["uid"] not in old]
            return len(fresh) == 2 and all(node_of(p) for p in fresh)

        eventually(replaced, 30, lambda: f"bound are {bound(cluster)}")
        assert "other" not in bound(cluster)
    running_now = shoal.metric('shoal_workloads{state="running"}')
    waiting = shoal.metric('shoal_workloads{state="waiting"}')
    assert (running_now, waiting) == (2, 1)


def test_a_pod_that_its_owner_deletes_while_it_waits_leaves_no_trace(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 1, 1)
    cluster.api.create(gated("a"))
    wait_bound(cluster, 1)
    for name in ("b", "c"):
        cluster.api.create(gated(name))
    quiet(cluster, shoal)
    cluster.api.delete(POD, "b", "team")
    cluster.api.delete(POD, "a", "team", grace_s=0)
    assert wait_bound(cluster, 1) == {"c": "gpu-0"}


def test_a_lost_node_takes_no_new_work_and_its_pods_are_planned_elsewhere(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.fake_nodes.add("gpu", 1, 1)
    cluster.api.create(gated_deployment("web", 1))
    wait_bound(cluster, 1)
    cluster.fake_nodes.add("spare", 1, 1)
    cluster.fake_nodes.remove("gpu-0")
    name = next(iter(bound(cluster)))
    # Kubernetes deletes pods of nodes that are gone after a while; a person is faster.
    cluster.api.delete(POD, name, "team", grace_s=0)
    found = eventually(
        lambda: [n for n in bound(cluster).values() if n == "spare-0"], 60, "not moved"
    )
    assert found == ["spare-0"]


def test_pods_without_accelerators_fill_nodes_too(cluster: Cluster, shoal: Shoal) -> None:
    cluster.fake_nodes.add("gpu", 1, 2, cpu="8")
    filler = pod("filler")
    filler["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "6"}}
    cluster.api.create(filler)
    cluster.api.wait(POD, "filler", until=node_of)
    wide = gated("a")
    wide["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
    cluster.api.create(wide)
    quiet(cluster, shoal)
    assert bound(cluster) == {}
    cluster.api.delete(POD, "filler", grace_s=0)
    assert wait_bound(cluster, 1) == {"a": "gpu-0"}
