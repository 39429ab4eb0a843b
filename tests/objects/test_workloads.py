"""From owners to workloads."""

from typing import Any

import msgspec
import pytest

from shoal.kubernetes.wire.kinds import JOBS, REPLICA_SETS
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.workload import Workload, WorkloadType
from shoal.objects.owners import FORMS, read_group
from shoal.objects.workloads import group_of_job, group_of_replicas, workload_of
from shoal.texts.language import Language
from shoal.texts.refusals import refusal_text
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


def test_of_a_job_that_a_cluster_runs_there_is_a_pod_whatever_it_says_by_now() -> None:
    body = owner("batch/v1", "Job", parallelism=0)
    assert group_of_job(JOBS.read(msgspec.json.encode(body))).count == 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"parallelism": 0}, "has parallelism: 0, and so no pods; write 1 or more"),
        ({"parallelism": -3}, "has parallelism: -3, and so no pods; write 1 or more"),
        ({"parallelism": 2, "completions": 0}, "has completions: 0, and so no pods; write 1"),
    ],
)
def test_a_job_that_would_have_no_pods_gets_none(spec: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"^Job w {said}"):
        read_group(owner("batch/v1", "Job", **spec))
    workers = {"name": "workers", "template": {"spec": {**spec, "template": manifest(GPU)}}}
    with pytest.raises(ValueError, match=f"^the Job workers of JobSet w {said}"):
        read_group(owner("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[workers]))


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
    with pytest.raises(ValueError, match=r"AcceleratorPool is of pools and queues, .* shoal apply"):
        read_group({"apiVersion": "shoal.dev/v1alpha1", "kind": "AcceleratorPool"})
    for less, said in (({"kind": "Pod"}, "apiVersion"), ({"apiVersion": "v1"}, "kind")):
        with pytest.raises(ValueError, match=f"^names no {said}; write it$"):
            read_group(less)


def nested(depth: int) -> Any:
    """Lists in lists, so deep."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


# What people declare ----------------------------------------------------------------------------

HOUR_US = 3_600_000_000


def annotated(body: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """The manifest with annotations on its pods, without their prefix."""
    pods = body if body["kind"] == "Pod" else body["spec"]["template"]
    pods["metadata"]["annotations"] |= {f"shoal.dev/{k}": v for k, v in annotations.items()}
    return body


def bare(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **manifest(GPU, **spec)}


def refused(body: dict[str, Any]) -> Refusal:
    said = workload_of(read_group(body), catalogue())
    assert isinstance(said, Refusal), said
    return said


@pytest.mark.parametrize(
    ("annotation", "deadline_s", "hours"),
    [(None, None, None), ("2h", None, 2), (None, 7200, 2), ("3h", 7200, 2), ("1h", 7200, 1)],
)
def test_how_long_work_runs_is_what_was_declared_or_its_owners_deadline(
    annotation: str | None, deadline_s: int | None, hours: int | None
) -> None:
    spec = {"activeDeadlineSeconds": deadline_s} if deadline_s else {}
    body = owner("batch/v1", "Job", **spec)
    if annotation:
        annotated(body, run=annotation)
    assert only(body).run_us == (None if hours is None else hours * HOUR_US)


@pytest.mark.parametrize(
    "body",
    [
        bare(activeDeadlineSeconds=3600),
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "w", "uid": "u"},
            "spec": {
                "runPolicy": {"activeDeadlineSeconds": 3600},
                "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": manifest(GPU)}},
            },
        },
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": "w", "uid": "u"},
            "spec": {
                "activeDeadlineSeconds": 3600,
                "rayClusterSpec": {"headGroupSpec": {"template": manifest(GPU)}},
            },
        },
    ],
)
def test_owners_with_a_deadline_of_their_own_declare_it(body: dict[str, Any]) -> None:
    assert only(body).run_us == HOUR_US


def test_a_deadline_of_a_jobs_pods_is_not_the_jobs_as_they_are_made_again() -> None:
    body = owner("batch/v1", "Job")
    body["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 60
    assert only(body).run_us is None


def test_the_longest_set_of_pods_says_how_long_a_gang_runs() -> None:
    def role(run: str) -> dict[str, Any]:
        return {"replicas": 1, "template": manifest(GPU, {"shoal.dev/run": run})}

    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "w", "uid": "u"},
        "spec": {"pytorchReplicaSpecs": {"Master": role("3h"), "Worker": role("1h")}},
    }
    assert only(body).run_us == 3 * HOUR_US


def test_a_gang_may_need_fewer_pods_than_it_would_like() -> None:
    body = annotated(owner("batch/v1", "Job", parallelism=4), minimum="2")
    assert [(each.count, each.minimum, each.needed) for each in only(body).pod_sets] == [(4, 2, 2)]
    assert only(owner("batch/v1", "Job", parallelism=4)).pod_sets[0].minimum is None


def test_a_minimum_is_one_to_all_of_a_gangs_pods() -> None:
    said = refused(annotated(owner("batch/v1", "Job", parallelism=4), minimum="5"))
    assert refusal_text(said) == (
        "shoal.dev/minimum is 5, and there are 4 pods; write a number from 1 to 4"
    )
    said = refused(annotated(owner("apps/v1", "Deployment", replicas=4), minimum="2"))
    assert refusal_text(said) == (
        "shoal.dev/minimum says how many pods of a gang, or replicas of inference, have to run, and"
        " the pods of w neither start together nor are such replicas; leave it out"
    )
    assert "推理服务的副本" in refusal_text(said, Language.CHINESE)
    assert refused(annotated(bare(), minimum="0")).code is RefusalCode.NOT_A_COUNT


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_of_a_services_replicas_those_in_the_lowest_slots_are_its_floor(kind: str) -> None:
    body = annotated(owner("apps/v1", kind, replicas=4), type="inference", minimum="2")
    replicas = [only(body, slot) for slot in range(4)]
    assert [each.spare for each in replicas] == [False, False, True, True]
    assert {each.pod_sets for each in replicas} == {replicas[0].pod_sets}
    assert replicas[0].pod_sets[0].minimum is None, "each of them is one pod, which it needs"
    body = annotated(owner("apps/v1", kind, replicas=4), type="inference", minimum="9")
    assert not any(only(body, slot).spare for slot in range(4)), "it may grow to more than nine"
    body = annotated(owner("apps/v1", kind, replicas=4), type="inference")
    assert not any(only(body, slot).spare for slot in range(4))


@pytest.mark.parametrize("type_", ["training", "notebook", "batch"])
def test_only_inference_has_replicas_that_can_be_done_without(type_: str) -> None:
    body = annotated(owner("apps/v1", "Deployment", replicas=4), type=type_, minimum="2")
    assert refused(body).code is RefusalCode.NOT_A_GANG


def test_an_inference_gang_has_a_minimum_of_pods_and_is_never_spare() -> None:
    said = only(annotated(owner("batch/v1", "Job", parallelism=4), type="inference", minimum="2"))
    assert (said.spare, said.pod_sets[0].minimum) == (False, 2)


def test_what_pods_take_to_stop_is_their_longest_grace() -> None:
    assert only(bare()).grace_us == 30_000_000
    assert only(bare(terminationGracePeriodSeconds=0)).grace_us == 0
    body = owner("batch/v1", "Job")
    body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 600
    assert only(body).grace_us == 600_000_000


@pytest.mark.parametrize("seconds", [2**31, 10**18, 2**63 - 1, 10**30])
def test_no_time_is_longer_than_68_years(seconds: int) -> None:
    """What Kubernetes lets people write has to fit where microseconds are kept."""
    longest_us = (2**31 - 1) * 1_000_000
    said = only(bare(terminationGracePeriodSeconds=seconds, activeDeadlineSeconds=seconds))
    assert (said.grace_us, said.run_us) == (longest_us, longest_us)
    assert only(owner("batch/v1", "Job", activeDeadlineSeconds=seconds)).run_us == longest_us


def test_a_manifest_that_is_nested_too_deep_is_said_to_be() -> None:
    with pytest.raises(ValueError, match="would not take this manifest: it is nested too deep"):
        read_group(bare(x=nested(900)))


def test_a_bare_pod_is_made_again_only_if_somebody_says_so() -> None:
    assert not only(bare()).recreated
    assert only(annotated(bare(), recreate="true")).recreated
    assert only(owner("batch/v1", "Job")).recreated
    # Nobody makes his work impossible to evict by saying that it is not.
    said = refused(annotated(owner("batch/v1", "Job"), recreate="false"))
    assert refusal_text(said) == "shoal.dev/recreate is 'false'; write one such as: true"


def test_who_asks_is_never_read_from_what_he_wrote() -> None:
    said = refused(annotated(bare(), user="somebody-else"))
    assert refusal_text(said) == "shoal.dev/user is written by Shoal; leave it out"
    told = workload_of(read_group(bare()), catalogue(), user="ann")
    assert isinstance(told, Workload)
    assert (told.user, only(bare()).user) == ("ann", "")


@pytest.mark.parametrize("text", ["", "2", "0h", "2 h", "-1h", "h", "1h1d", "99999d"])
def test_a_run_time_that_is_none_is_refused(text: str) -> None:
    said = refused(annotated(bare(), run=text))
    assert said.code is RefusalCode.NOT_A_DURATION
    assert "such as 2h or 1h30m" in refusal_text(said)


@pytest.mark.parametrize(("type_", "apart"), [("inference", "u"), ("notebook", "")])
def test_replicas_of_inference_are_kept_apart(type_: str, apart: str) -> None:
    body = owner("apps/v1", "Deployment", replicas=2)
    notes = {"shoal.dev/type": type_, "shoal.dev/memory": "5Gi"}
    body["spec"]["template"] = manifest({"nvidia.com/gpu": "1"}, notes)
    whole = manifest({"nvidia.com/gpu": "1"}, {"shoal.dev/type": type_})
    for template in (body["spec"]["template"], whole):
        body["spec"]["template"] = template
        for slot in range(2):
            (pods,) = only(body, slot).pod_sets
            assert pods.request.devices.apart == apart


def test_what_an_owner_runs_decides_what_its_shares_get_where_they_do_not_say() -> None:
    template = manifest({"nvidia.com/gpu": "1"}, {"shoal.dev/memory": "5Gi"})
    trains = {"Worker": {"replicas": 2, "template": template}}
    training = {
        **owner("kubeflow.org/v1", "PyTorchJob"),
        "spec": {"pytorchReplicaSpecs": trains},
    }
    assert only(training).pod_sets[0].request.devices.whole
    deployed = owner("apps/v1", "Deployment", replicas=1)
    deployed["spec"]["template"] = template
    assert not only(deployed).pod_sets[0].request.devices.whole
