"""Manifests of what owns pods: a *form* for each kind says how it makes them.

Fields are Kubernetes' and those of the projects that define the kinds: JobSet
(`jobset.x-k8s.io/v1alpha2`), Kubeflow's training operator (`kubeflow.org/v1`, PyTorchJob) and
notebook controller, KubeRay (`ray.io/v1`, RayJob).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal.model.workload import WorkloadType
from shoal.objects.annotations import PREFIX
from shoal.objects.manifests import Metadata, Part, Pod, read_manifest
from shoal.objects.workloads import (
    PODS,
    Group,
    TemplateSet,
    group_of_job,
    group_of_pod,
    group_of_replicas,
    job_pods,
)

MOST_PODS: Final = 20_000
"""Pods of one owner at once: more than any cluster that Kubernetes supports runs of one."""


class _JobSpec(Part, frozen=True):
    """See `JobSpecLike`; Kubernetes' defaults."""

    parallelism: int = 1
    completions: int | None = None
    active_deadline_seconds: int | None = None
    template: Pod = Pod()


class _JobStatus(Part, frozen=True):
    """See `JobStatusLike`."""

    succeeded: int = 0


class _Job(Part, frozen=True):
    """See `JobLike`."""

    metadata: Metadata = Metadata()
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _ReplicaSpec(Part, frozen=True):
    """See `ReplicaSpecLike`; Kubernetes' defaults."""

    replicas: int = 1
    template: Pod = Pod()


class _Replicas(Part, frozen=True):
    """See `ReplicasLike`."""

    metadata: Metadata = Metadata()
    spec: _ReplicaSpec = _ReplicaSpec()


class _JobTemplate(Part, frozen=True):
    """The template of the Jobs of a JobSet."""

    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(Part, frozen=True):
    """Equal Jobs of a JobSet."""

    name: str = ""
    replicas: int = 1
    template: _JobTemplate = _JobTemplate()


class _JobSetSpec(Part, frozen=True):
    """What a JobSet runs."""

    replicated_jobs: tuple[_ReplicatedJob, ...] = ()


class _JobSet(Part, frozen=True):
    """A JobSet."""

    metadata: Metadata = Metadata()
    spec: _JobSetSpec = _JobSetSpec()


class _RunPolicy(Part, frozen=True):
    """On what terms a PyTorchJob runs."""

    active_deadline_seconds: int | None = None


class _PyTorchJobSpec(Part, frozen=True):
    """What a PyTorchJob runs: pods by their role."""

    run_policy: _RunPolicy = _RunPolicy()
    pytorch_replica_specs: dict[str, _ReplicaSpec] = {}  # noqa: RUF012 - copied by msgspec


class _PyTorchJob(Part, frozen=True):
    """A PyTorchJob."""

    metadata: Metadata = Metadata()
    spec: _PyTorchJobSpec = _PyTorchJobSpec()


class _RayHead(Part, frozen=True):
    """The head of a Ray cluster."""

    template: Pod = Pod()


class _RayWorkers(Part, frozen=True):
    """Equal workers of a Ray cluster, each of so many hosts."""

    group_name: str = "workers"
    replicas: int | None = None
    min_replicas: int = 0
    num_of_hosts: int = 1
    template: Pod = Pod()


class _RayCluster(Part, frozen=True):
    """The Ray cluster of a RayJob."""

    head_group_spec: _RayHead = _RayHead()
    worker_group_specs: tuple[_RayWorkers, ...] = ()


class _RayJobSpec(Part, frozen=True):
    """What a RayJob runs; without a cluster of its own it uses one that exists."""

    ray_cluster_spec: _RayCluster | None = None
    active_deadline_seconds: int | None = None


class _RayJob(Part, frozen=True):
    """A RayJob."""

    metadata: Metadata = Metadata()
    spec: _RayJobSpec = _RayJobSpec()


class _NotebookSpec(Part, frozen=True):
    """What a Notebook runs."""

    template: Pod = Pod()


class _Notebook(Part, frozen=True):
    """A Notebook of Kubeflow."""

    metadata: Metadata = Metadata()
    spec: _NotebookSpec = _NotebookSpec()


def _group_of_job(owner: _Job) -> Group:
    _check_job(f"Job {owner.metadata.name}", owner.spec)
    return group_of_job(owner)


def _check_job(called: str, spec: _JobSpec) -> None:
    """Raise ValueError for a Job without pods; of one that runs there is at least one left."""
    for field, count in (("parallelism", spec.parallelism), ("completions", spec.completions)):
        if count is not None and count < 1:
            raise ValueError(f"{called} has {field}: {count}, and so no pods; write 1 or more")


def _group_of_job_set(owner: _JobSet) -> Group:
    for job in owner.spec.replicated_jobs:
        _check_job(f"the Job {job.name} of JobSet {owner.metadata.name}", job.template.spec)
    sets = tuple(
        TemplateSet(
            job.name, job.replicas * job_pods(job.template.spec), job.template.spec.template
        )
        for job in owner.spec.replicated_jobs
    )
    return Group(owner.metadata, sets, together=True)


def _group_of_pytorch_job(owner: _PyTorchJob) -> Group:
    sets = tuple(
        TemplateSet(role.lower(), spec.replicas, spec.template)
        for role, spec in sorted(owner.spec.pytorch_replica_specs.items())
    )
    return Group(
        owner.metadata,
        sets,
        together=True,
        type=WorkloadType.TRAINING,
        deadline_s=owner.spec.run_policy.active_deadline_seconds,
    )


def _group_of_ray_job(owner: _RayJob) -> Group:
    cluster = owner.spec.ray_cluster_spec
    if cluster is None:
        raise ValueError(
            f"the RayJob {owner.metadata.name} uses a cluster that exists and has no pods of its"
            " own; write spec.rayClusterSpec"
        )
    workers = tuple(
        TemplateSet(each.group_name, _ray_workers(each) * each.num_of_hosts, each.template)
        for each in cluster.worker_group_specs
    )
    head = TemplateSet("head", 1, cluster.head_group_spec.template)
    deadline_s = owner.spec.active_deadline_seconds
    return Group(owner.metadata, (head, *workers), together=True, deadline_s=deadline_s)


def _ray_workers(group: _RayWorkers) -> int:
    return group.min_replicas if group.replicas is None else group.replicas


def _group_of_notebook(owner: _Notebook) -> Group:
    pods = TemplateSet(PODS, 1, owner.spec.template)
    return Group(owner.metadata, (pods,), together=True, type=WorkloadType.NOTEBOOK)


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of owner makes pods: the struct that its manifest is read as, and the reading.

    `group` takes that struct, or any object with the same fields.
    """

    struct: type[Part]
    group: Callable[[Any], Group]


_NOTEBOOK: Final = Form(_Notebook, _group_of_notebook)

FORMS: Final[Mapping[tuple[str, str], Form]] = {
    ("v1", "Pod"): Form(Pod, group_of_pod),
    ("batch/v1", "Job"): Form(_Job, _group_of_job),
    ("apps/v1", "Deployment"): Form(_Replicas, group_of_replicas),
    ("apps/v1", "ReplicaSet"): Form(_Replicas, group_of_replicas),
    ("apps/v1", "StatefulSet"): Form(_Replicas, group_of_replicas),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): Form(_JobSet, _group_of_job_set),
    ("kubeflow.org/v1", "PyTorchJob"): Form(_PyTorchJob, _group_of_pytorch_job),
    ("ray.io/v1", "RayJob"): Form(_RayJob, _group_of_ray_job),
    ("kubeflow.org/v1", "Notebook"): _NOTEBOOK,
    ("kubeflow.org/v1beta1", "Notebook"): _NOTEBOOK,
}
"""The form of each known kind, by `apiVersion` and `kind`."""


def read_group(manifest: Mapping[str, Any]) -> Group:
    """The pods of the owner in a manifest.

    Raises ValueError with a sentence for a kind that has no form, for fields of a wrong type, and
    for what has no pods, or more than there can be.
    """
    api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
    form = FORMS.get((str(api_version), str(kind)))
    if form is None:
        raise ValueError(_unknown(str(api_version or "")[:100], str(kind or "")[:100]))
    group = form.group(read_manifest(manifest, form.struct))
    for each in group.sets:
        if each.count < 0:
            raise ValueError(f"{kind} {group.metadata.name} has {each.count} pods; write 0 or more")
    if not group.count:
        raise ValueError(f"{kind} {group.metadata.name} has no pods; write how many it is to have")
    if group.count > MOST_PODS:
        raise ValueError(
            f"{kind} {group.metadata.name} has {group.count:,} pods, and {MOST_PODS:,} is the most"
        )
    return group


def _unknown(api_version: str, kind: str) -> str:
    if not api_version or not kind:
        return f"names no {'kind' if api_version else 'apiVersion'}; write it"
    versions = [version for version, name in FORMS if name == kind]
    if versions:
        return f"a {kind} of {api_version} is not known; write apiVersion: {versions[0]}"
    if api_version.startswith(PREFIX):
        return f"{kind} is of pools and queues, which have no pods; give it to shoal apply"
    known = ", ".join(dict.fromkeys(name for _, name in FORMS))
    return f"pods of a {api_version} {kind} are not known; write one of {known}"
