"""From owners to workloads."""

from typing import Any

import msgspec
import pytest

from shoal.kubernetes.wire.kinds import JOBS, REPLICA_SETS
from shoal.model.refusal import Refusal
from shoal.model.workload import Workload, WorkloadType
from shoal.objects.workloads import group_of_job, group_of_replicas, read_group, workload_of
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


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
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


def test_other_kinds_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="Pod, Job, Deployment, ReplicaSet"):
        read_group({"apiVersion": "apps/v1", "kind": "DaemonSet"})
    with pytest.raises(ValueError, match="would not take"):
        read_group({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"replicas": "two"}})
