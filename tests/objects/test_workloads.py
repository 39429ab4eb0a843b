"""From owners to workloads."""

from typing import Any

import msgspec
import pytest

from shoal.kubernetes.wire.kinds import JOBS, REPLICA_SETS
from shoal.model.refusal import Refusal
from shoal.model.workload import Workload, WorkloadType
from shoal.objects.owners import FORMS, read_group
from shoal.objects.workloads import group_of_job, group_of_replicas, workload_of
from tests.objects.small import catalogue, manifest

GPU = {"nvidia.com/gpu": "2"}


def owner(api_version: str, kind: str, **spec: Any) -> dict[str, Any]:
    template = manifest(GPU, {"shoal.dev/type": "training"})
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "w", "namespace": "ns", "uid": "u"},
        "spec": {"template": template, **spec},
    }


def only(body: dict[str, Any], slot: int = 0) -> Workload:
    said = workload_of(read_group(body), catalogue(), slot=slot, created_us=7)
    assert isinstance(said, Workload), said
    return said


def test_a_bare_pod_is_a_workload() -> None:
    body = {"apiVersion": "v1", "kind": "Pod", **manifest(GPU)}
    body["metadata"]["uid"] = "pod-uid"
    said = only(body)
    assert (said.uid, said.name, said.namespace, said.created_us) == ("pod-uid", "p", "ns", 7)
    assert [(s.count, s.request.devices.count) for s in said.pod_sets] == [(1, 2)]


@pytest.mark.parametrize(
    ("spec", "succeeded", "count"),
    [
        ({}, 0, 1),
        ({"parallelism": 6}, 0, 6),
        ({"parallelism": 6, "completions": 4}, 0, 4),
        ({"parallelism": 2, "completions": 8}, 0, 2),
        ({"parallelism": 4, "completions": 8}, 6, 2),
        ({"parallelism": 0}, 0, 1),
    ],
)
def test_a_job_is_a_gang_of_those_that_may_run_at_once(
    spec: dict[str, int], succeeded: int, count: int
) -> None:
    body = owner("batch/v1", "Job", **spec) | {"status": {"succeeded": succeeded}}
    said = only(body)
    assert said.uid == "u"
    assert said.type is WorkloadType.TRAINING
    assert [s.count for s in said.pod_sets] == [count]
    assert group_of_job(JOBS.read(msgspec.json.encode(body))).count == count


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_K02_each_replica_has_a_slot(kind: str) -> None:
    body = owner("apps/v1", kind, replicas=2)
    group = read_group(body)
    assert group.uids == ("u/0", "u/1")
    assert [only(body, slot).uid for slot in (0, 1)] == ["u/0", "u/1"]
    assert [s.count for s in only(body, 1).pod_sets] == [1]
    assert only(body, 1).name == "w/1"
    assert group_of_replicas(REPLICA_SETS.read(msgspec.json.encode(body))).uids == group.uids


def test_a_template_that_asks_for_nonsense_is_refused() -> None:
    body = owner("batch/v1", "Job")
    body["spec"]["template"]["metadata"]["annotations"]["shoal.dev/memory"] = "0"
    assert isinstance(workload_of(read_group(body), catalogue()), Refusal)


def sets(said: Workload) -> list[tuple[str, int, int]]:
    return [(each.name, each.count, each.request.devices.count) for each in said.pod_sets]


def test_all_pods_of_a_job_set_start_together() -> None:
    jobs = [
        {"name": "driver", "template": {"spec": {"template": manifest()}}},
        {
            "name": "workers",
            "replicas": 2,
            "template": {"spec": {"parallelism": 4, "template": manifest(GPU)}},
        },
    ]
    body = owner("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=jobs)
    assert sets(only(body)) == [("driver", 1, 0), ("workers", 8, 2)]


def test_all_pods_of_a_pytorch_job_start_together_and_train() -> None:
    roles = {
        "Worker": {"replicas": 2, "template": manifest(GPU)},
        "Master": {"template": manifest(GPU)},
    }
    said = only(owner("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=roles))
    assert sets(said) == [("master", 1, 2), ("worker", 2, 2)]
    assert said.type is WorkloadType.TRAINING


def test_all_pods_of_a_ray_job_start_together() -> None:
    cluster = {
        "headGroupSpec": {"template": manifest()},
        "workerGroupSpecs": [
            {"groupName": "big", "replicas": 2, "numOfHosts": 2, "template": manifest(GPU)},
            {"groupName": "small", "minReplicas": 1, "template": manifest(GPU)},
        ],
    }
    body = owner("ray.io/v1", "RayJob", rayClusterSpec=cluster)
    assert sets(only(body)) == [("head", 1, 0), ("big", 4, 2), ("small", 1, 2)]
    del body["spec"]["rayClusterSpec"]
    with pytest.raises(ValueError, match="no pods of its own"):
        read_group(body)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_notebook_is_one_pod_and_a_notebook(version: str) -> None:
    body = owner(f"kubeflow.org/{version}", "Notebook", template=manifest(GPU))
    said = only(body)
    assert sets(said) == [("pods", 1, 2)]
    assert said.type is WorkloadType.NOTEBOOK


def test_what_the_pods_say_goes_before_what_their_owner_is() -> None:
    template = manifest(GPU, {"shoal.dev/type": "batch"})
    assert only(owner("kubeflow.org/v1", "Notebook", template=template)).type is WorkloadType.BATCH


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"replicas": 0}, "Deployment w has no pods; write how many it is to have"),
        ({"replicas": -1}, "Deployment w has -1 pods; write 0 or more"),
        ({"replicas": 20_001}, "Deployment w has 20,001 pods, and 20,000 is the most"),
    ],
)
def test_counts_that_nobody_means_are_refused(spec: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_group(owner("apps/v1", "Deployment", **spec))


def test_every_kind_is_read_from_nothing_but_its_template() -> None:
    for api_version, kind in FORMS:
        with pytest.raises(ValueError, match=r"would not take|pods"):
            read_group({"apiVersion": api_version, "kind": kind, "spec": 7})


def test_other_kinds_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        ValueError, match="Pod, Job, Deployment, ReplicaSet, StatefulSet, JobSet, PyTorchJob"
    ):
        read_group({"apiVersion": "apps/v1", "kind": "DaemonSet"})
    with pytest.raises(ValueError, match="would not take"):
        read_group({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"replicas": "two"}})
    with pytest.raises(
        ValueError, match=r"a PyTorchJob of v1 .* write apiVersion: kubeflow.org/v1"
    ):
        read_group({"apiVersion": "v1", "kind": "PyTorchJob"})
