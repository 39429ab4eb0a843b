"""Real kubelets: what they do with devices, with only the plugin's devices simulated."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import pod, running
from tests.cluster.harness.processes import Failed

pytestmark = pytest.mark.cluster

POD = "v1/Pod"


def allocatable(cluster: Cluster, node: str) -> int:
    status = cluster.api.get("v1/Node", node)["status"]
    return int(status["allocatable"].get("nvidia.com/gpu", "0"))


def devices(body: dict[str, Any]) -> list[str]:
    return [
        device["resourceID"]
        for status in body["status"]["containerStatuses"]
        for resource in status.get("allocatedResourcesStatus", [])
        for device in resource["resources"]
    ]


def health(body: dict[str, Any]) -> list[str]:
    return [
        device["health"]
        for status in body["status"]["containerStatuses"]
        for resource in status.get("allocatedResourcesStatus", [])
        for device in resource["resources"]
    ]


def test_a_kubelet_gives_a_pod_the_devices_that_the_plugin_prefers(cluster: Cluster) -> None:
    kubelet = cluster.kubelet("real", devices=8)
    kubelet.prefer([kubelet.devices[6], kubelet.devices[3]])
    cluster.api.create(pod("two", devices=2))
    there = cluster.api.wait(POD, "two", until=running)
    wanted = {kubelet.devices[3], kubelet.devices[6]}
    assert [set(each) for each in kubelet.allocated()] == [wanted]
    assert kubelet.asked() == [{"available": kubelet.devices, "size": 2}]
    assert set(devices(there)) == wanted
    cluster.api.delete(POD, "two")
    cluster.api.wait_gone(POD, "two")


def test_an_ill_device_is_offered_no_more_and_its_pod_runs_on(cluster: Cluster) -> None:
    kubelet = cluster.kubelet("real", devices=2)
    cluster.api.create(pod("one", devices=1))
    (held,) = devices(cluster.api.wait(POD, "one", until=running))
    kubelet.set_health([held], healthy=False)
    eventually(lambda: allocatable(cluster, "real") == 1, 20, "the ill device is still offered")

    told = cluster.api.wait(POD, "one", until=lambda it: health(it) == ["Unhealthy"])
    assert running(told)
    kubelet.set_health([held], healthy=True)
    kubelet.ready()


def test_a_plugin_that_restarts_takes_its_devices_away_for_a_while(cluster: Cluster) -> None:
    kubelet = cluster.kubelet("real", devices=2)
    cluster.api.create(pod("before", devices=1))
    first = devices(cluster.api.wait(POD, "before", until=running))
    kubelet.plugin.kill()
    eventually(lambda: allocatable(cluster, "real") == 0, 20, "the devices are still offered")
    kubelet.plugin.start()
    kubelet.ready()
    cluster.api.create(pod("after", devices=1))
    second = devices(cluster.api.wait(POD, "after", until=running))
    assert sorted(first + second) == sorted(kubelet.devices)


def test_a_kubelet_that_is_killed_keeps_what_it_gave(cluster: Cluster) -> None:
    kubelet = cluster.kubelet("real", devices=2)
    cluster.api.create(pod("before", devices=1))
    first = devices(cluster.api.wait(POD, "before", until=running))
    kubelet.process.kill()
    kubelet.process.start()
    # The node is shown with its devices all the while; a pod that comes before the plugin has
    # registered again fails (UnexpectedAdmissionError).
    eventually(lambda: kubelet.registrations() == 2, 30, kubelet.plugin.tail)
    kubelet.ready()
    cluster.api.create(pod("after", devices=1))
    second = devices(cluster.api.wait(POD, "after", until=running))
    assert sorted(first + second) == sorted(kubelet.devices)
    assert running(cluster.api.get(POD, "before"))


def test_kubelets_and_fake_nodes_stand_side_by_side(cluster: Cluster) -> None:
    cluster.fake_nodes.add("fake", devices=1)
    kubelets = [cluster.kubelet(name, devices=3) for name in ("real-a", "real-b")]
    for name, count in (("a", 3), ("b", 3), ("c", 1)):
        cluster.api.create(pod(name, devices=count))
    there = {name: cluster.api.wait(POD, name, until=running) for name in "abc"}
    nodes = {name: body["spec"]["nodeName"] for name, body in there.items()}
    assert nodes["c"] == "fake-0"
    assert {nodes["a"], nodes["b"]} == {"real-a", "real-b"}
    assert [len(each.allocated()) for each in kubelets] == [1, 1]
    # Their mounts are seen in their own namespaces alone.
    assert str(cluster.directory) not in Path("/proc/self/mounts").read_text()


def test_without_root_a_kubelet_says_what_to_do(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failed, match="run the tests as root"):
        cluster.kubelet("real")
