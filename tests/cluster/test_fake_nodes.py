"""Pods on fake nodes, decided by the real scheduler and controllers."""

from collections.abc import Callable

import pytest

from tests.cluster.harness.api import ApiError, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import allocated, claim, condition, job, pod, running

pytestmark = pytest.mark.cluster

POD = "v1/Pod"
NODE = "v1/Node"
CLAIM = "resource.k8s.io/v1/ResourceClaim"
CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"

NAME = "gadgets.test.dev"
GADGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": NAME},
    "spec": {
        "group": "test.dev",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}

POLICY = (
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "none"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": "false", "message": "no pods today"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "none"},
        "spec": {"policyName": "none", "validationActions": ["Deny"]},
    },
)


def phase(wanted: str) -> Callable[[dict[str, dict[str, str]]], bool]:
    return lambda body: body["status"].get("phase") == wanted


def test_a_plain_pod_runs(cluster: Cluster) -> None:
    cluster.fake_nodes.add("cpu", devices=0)
    cluster.api.create(pod("plain"))
    there = cluster.api.wait(POD, "plain", until=running)
    assert there["spec"]["nodeName"] == "cpu-0"
    assert there["status"]["podIP"].startswith("10.")


def test_device_pods_fill_a_node_and_the_next_one_waits(cluster: Cluster) -> None:
    (node,) = cluster.fake_nodes.add("gpu", devices=4)
    cluster.api.create_all(pod(f"p{each}", devices=2) for each in range(2))
    held = [
        device["resourceID"]
        for each in range(2)
        for status in cluster.api.wait(POD, f"p{each}", until=running)["status"][
            "containerStatuses"
        ]
        for resource in status["allocatedResourcesStatus"]
        for device in resource["resources"]
    ]
    assert sorted(held) == sorted(cluster.fake_nodes.devices(node))

    cluster.api.create(pod("late", devices=1))
    cluster.api.wait(POD, "late", until=lambda it: condition(it, "PodScheduled") == "False")
    cluster.api.delete(POD, "p0")
    cluster.api.wait(POD, "late", until=running)


def test_a_pod_that_was_bound_past_the_scheduler_is_refused(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu", devices=1)
    cluster.api.create(pod("first", devices=1))
    cluster.api.wait(POD, "first", until=running)
    cluster.api.create(pod("second", devices=1, nodeName="gpu-0"))
    refused = cluster.api.wait(POD, "second", until=phase("Failed"))
    assert refused["status"]["reason"] == "OutOfnvidia.com/gpu"


def test_a_pod_costs_one_write_to_start_and_one_to_end(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu", count=2)
    ends = {"fake-node/runs-for": "0.1"}
    fails = {**ends, "fake-node/exit-code": "3"}
    cluster.api.create_all(pod(f"ok{each}", 1, annotations=ends) for each in range(3))
    cluster.api.create(pod("bad", 1, annotations=fails))
    for each in range(3):
        cluster.api.wait(POD, f"ok{each}", until=phase("Succeeded"))
    failed = cluster.api.wait(POD, "bad", until=phase("Failed"))
    (status,) = failed["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3
    assert cluster.fake_nodes.counts()["status writes"] == 8
    assert cluster.fake_nodes.held("gpu-0") == cluster.fake_nodes.held("gpu-1") == {}


def test_a_deleted_pod_takes_its_time_within_its_grace(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu")
    slow = {"fake-node/stops-after": "600"}
    cluster.api.create(pod("slow", 1, annotations=slow, terminationGracePeriodSeconds=600))
    cluster.api.create(pod("bound", 1, annotations=slow, terminationGracePeriodSeconds=1))
    for name in ("slow", "bound"):
        cluster.api.wait(POD, name, until=running)
        cluster.api.delete(POD, name)
    cluster.api.wait_gone(POD, "bound")
    assert cluster.api.get(POD, "slow")["metadata"]["deletionTimestamp"]
    cluster.api.delete(POD, "slow", grace_s=0)
    cluster.api.wait_gone(POD, "slow")


def test_an_evicted_job_pod_fails_before_it_goes_and_is_made_again(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu")
    ignore = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    again = {
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [ignore]},
    }
    cluster.api.create(job("train", 1, fields=again))

    def pods() -> list[dict[str, dict[str, str]]]:
        return [it for it in cluster.api.list(POD, "default") if running(it)]

    (first,) = eventually(pods, 30, "the Job has no pod that runs")
    uid, name = first["metadata"]["uid"], first["metadata"]["name"]
    with pytest.raises(ApiError) as wrong:
        cluster.api.evict(name, uid="00000000-0000-0000-0000-000000000000")
    assert wrong.value.code == 409
    cluster.api.evict(name, uid=uid)
    cluster.api.wait_gone(POD, name)
    eventually(pods, 40, "the Job made no other pod")
    assert "failed" not in cluster.api.get("batch/v1/Job", "train")["status"]


def test_a_claim_takes_exactly_the_device_that_it_pins(cluster: Cluster) -> None:
    cluster.fake_nodes.add("dra", count=2, devices=8, channels=["dra"])
    wanted = cluster.fake_nodes.devices("dra-1")[5]
    cluster.api.create(claim("mine", [wanted]))
    cluster.api.create(pod("pinned", claims={"gpu": "mine"}))
    there = cluster.api.wait(POD, "pinned", until=running)
    assert there["spec"]["nodeName"] == "dra-1"
    mine = cluster.api.get(CLAIM, "mine")
    assert allocated(mine) == [("dra-1", "gpu-5")]
    assert [each["uid"] for each in mine["status"]["reservedFor"]] == [there["metadata"]["uid"]]

    cluster.api.create(claim("other", [wanted]))
    cluster.api.create(pod("late", claims={"gpu": "other"}))
    cluster.api.wait(POD, "late", until=lambda it: condition(it, "PodScheduled") == "False")
    cluster.api.delete(POD, "pinned")
    cluster.api.wait(POD, "late", until=running)


def test_a_shared_device_is_divided_by_memory(cluster: Cluster) -> None:
    cluster.fake_nodes.add("dra", devices=1, channels=["dra"], memory_mib=80 << 10, shared=True)
    (device,) = cluster.fake_nodes.devices("dra-0")
    for each in range(3):
        part = claim(f"c{each}", [device])
        exactly = part["spec"]["devices"]["requests"][0]["exactly"]
        exactly["capacity"] = {"requests": {"memory": "30Gi"}}
        cluster.api.create(part)
        cluster.api.create(pod(f"p{each}", claims={"gpu": f"c{each}"}))
    for each in range(3):
        cluster.api.wait(POD, f"p{each}", until=lambda it: condition(it, "PodScheduled"))
    there = [cluster.api.get(POD, f"p{each}") for each in range(3)]
    assert sum(condition(it, "PodScheduled") == "True" for it in there) == 2


def test_ill_devices_leave_both_channels_and_come_back(cluster: Cluster) -> None:
    both = ["device-plugin", "dra"]
    (node,) = cluster.fake_nodes.add("gpu", devices=4, channels=both)
    cluster.fake_nodes.set_devices(node, unhealthy=[1, 2])

    def offered() -> tuple[str, str, list[str]]:
        status = cluster.api.get(NODE, node)["status"]
        (slices,) = cluster.api.list("resource.k8s.io/v1/ResourceSlice")
        names = [each["name"] for each in slices["spec"].get("devices", [])]
        key = "nvidia.com/gpu"
        return status["capacity"][key], status["allocatable"][key], names

    assert offered() == ("4", "2", ["gpu-0", "gpu-3"])
    cluster.fake_nodes.set_devices(node)
    assert offered() == ("4", "4", ["gpu-0", "gpu-1", "gpu-2", "gpu-3"])
    cluster.fake_nodes.set_devices(node, count=0)
    assert offered() == ("0", "0", [])


def test_a_lost_node_becomes_unknown_and_comes_back(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster(node_grace_s=4)
    lost, kept = cluster.fake_nodes.add("gpu", count=2)
    cluster.api.create(pod("there", 1, nodeSelector={"kubernetes.io/hostname": lost}))
    cluster.api.wait(POD, "there", until=running)
    cluster.fake_nodes.lose(lost)
    cluster.api.wait(NODE, lost, until=lambda it: condition(it, "Ready") == "Unknown")
    cluster.api.wait(POD, "there", until=lambda it: condition(it, "Ready") == "False")
    assert condition(cluster.api.get(NODE, kept), "Ready") == "True"
    cluster.api.delete(POD, "there")
    assert cluster.api.get(POD, "there")["metadata"]["deletionTimestamp"]
    cluster.fake_nodes.recover(lost)
    cluster.api.wait(NODE, lost, until=lambda it: condition(it, "Ready") == "True")
    cluster.api.wait_gone(POD, "there")


def test_a_node_that_is_removed_takes_what_it_offered_along(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu", count=2, channels=["device-plugin", "dra"])
    cluster.fake_nodes.remove("gpu-0")
    (node,) = cluster.api.list(NODE)
    (slices,) = cluster.api.list("resource.k8s.io/v1/ResourceSlice")
    (lease,) = cluster.api.list("coordination.k8s.io/v1/Lease", "kube-node-lease")
    assert node["metadata"]["name"] == slices["spec"]["nodeName"] == "gpu-1"
    assert lease["metadata"]["name"] == "gpu-1"


def test_fake_nodes_that_are_killed_go_on_where_they_were(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu", devices=2)
    cluster.api.create(pod("first", 1))
    cluster.api.wait(POD, "first", until=running)
    before = cluster.fake_nodes.held("gpu-0")
    cluster.fake_nodes.process.kill()
    cluster.api.create(pod("second", 1))
    cluster.api.wait(POD, "second", until=lambda it: it["spec"].get("nodeName"))
    cluster.end_guests()

    cluster.fake_nodes.add("gpu", devices=2)
    cluster.api.wait(POD, "second", until=running)
    after = cluster.fake_nodes.held("gpu-0")
    assert len(after) == 2
    assert before.items() <= after.items()
    assert len({device for devices in after.values() for device in devices}) == 2


def test_a_reset_leaves_what_kubernetes_makes_itself(cluster: Cluster) -> None:
    kinds = "namespaces,nodes,deviceclasses,roles,clusterroles,configmaps,serviceaccounts"
    new = cluster.kubectl("get", kinds, "-A", "-o", "name")
    cluster.fake_nodes.add("gpu", channels=["dra"])
    cluster.namespace("team")
    cluster.api.create(pod("there", namespace="team"))
    cluster.api.patch("v1/Namespace", "default", {"metadata": {"labels": {"team": "a"}}})
    cluster.api.create(GADGETS)
    eventually(lambda: condition(cluster.api.get(CRD, NAME), "Established") == "True", 20, NAME)
    cluster.api.create({"apiVersion": "test.dev/v1", "kind": "Gadget", "metadata": {"name": "g"}})
    cluster.scheduler.kill()
    cluster.api_server.pause()

    cluster.reset()
    assert new == cluster.kubectl("get", kinds, "-A", "-o", "name")
    assert cluster.api.list(POD) == []
    assert "team" not in cluster.api.get("v1/Namespace", "default")["metadata"]["labels"]
    assert cluster.scheduler.running

    cluster.api.create(GADGETS)
    eventually(lambda: condition(cluster.api.get(CRD, NAME), "Established") == "True", 20, NAME)
    assert cluster.api.list("test.dev/v1/Gadget") == []


def test_a_policy_acts_no_more_after_a_reset(cluster: Cluster) -> None:
    for each in POLICY:
        cluster.api.create(each)

    def refuses() -> bool:
        try:
            cluster.api.create(pod("first"))
        except ApiError as error:
            return "no pods today" in error.message
        cluster.api.delete(POD, "first", grace_s=0)
        return False

    eventually(refuses, 30, "the policy does not act")
    cluster.reset()
    cluster.api.create(pod("second"))


def test_five_hundred_pods_cost_five_hundred_status_writes(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster(node_grace_s=240)
    cluster.fake_nodes.add("gpu", count=100)
    cluster.api.create_all(pod(f"p{each}", 1) for each in range(500))
    eventually(
        lambda: cluster.fake_nodes.counts()["status writes"] >= 500,
        90,
        lambda: str(cluster.fake_nodes.counts()),
    )
    assert all(running(each) for each in cluster.api.list(POD))
    assert cluster.fake_nodes.counts()["status writes"] == 500
