"""From what owns pods to workloads: which pods start together, and how many there are.

A *form* says how one kind of owner makes pods; `FORMS` has one for each kind that is known. A Job's
pods start together, as many as may run at once. Each pod of a Deployment or a ReplicaSet is a
workload of its own, in one of so many *slots*: a pod that replaces another takes its slot, and with
it the place in the queue, the arrival and the history. A pod without an owner is a workload.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from shoal.catalog.catalog import Catalog
from shoal.model.refusal import Refusal
from shoal.model.workload import PodSet, Workload
from shoal.objects.manifests import Metadata, MetadataLike, Part, Pod, PodLike, read_manifest
from shoal.objects.pods import DEFAULT_RULES, Rules, reading_of


class JobSpecLike(Protocol):
    """The part of a Job's spec that says how many pods it runs, and which."""

    @property
    def parallelism(self) -> int:
        """Pods at once."""

    @property
    def completions(self) -> int | None:
        """Pods that must succeed."""

    @property
    def template(self) -> PodLike:
        """What its pods are made from."""


class JobStatusLike(Protocol):
    """The part of a Job's status that says how much is left."""

    @property
    def succeeded(self) -> int:
        """Pods that have succeeded."""


class JobLike(Protocol):
    """A Job."""

    @property
    def metadata(self) -> MetadataLike:
        """Whose uid the workload has."""

    @property
    def spec(self) -> JobSpecLike:
        """What it runs."""

    @property
    def status(self) -> JobStatusLike:
        """How far it is."""


class ReplicaSpecLike(Protocol):
    """The part of a controller's spec that says how many equal pods it keeps, and which."""

    @property
    def replicas(self) -> int:
        """Pods at once."""

    @property
    def template(self) -> PodLike:
        """What its pods are made from."""


class ReplicasLike(Protocol):
    """A controller that keeps so many equal pods."""

    @property
    def metadata(self) -> MetadataLike:
        """Whose uid its workloads' uids begin with."""

    @property
    def spec(self) -> ReplicaSpecLike:
        """What it keeps."""


@dataclass(frozen=True, slots=True)
class Group:
    """The pods of one owner.

    Attributes:
        metadata: of the owner.
        count: pods at once.
        together: whether they start together or not at all; else each by itself, in a slot.
        template: what its pods are made from, or the pod itself.
    """

    metadata: MetadataLike
    count: int
    together: bool
    template: PodLike

    @property
    def uids(self) -> tuple[str, ...]:
        """Uids of its workloads: one for a gang, else one for each slot."""
        if self.together:
            return (self.metadata.uid,)
        return tuple(slot_uid(self.metadata.uid, slot) for slot in range(self.count))


def slot_uid(owner_uid: str, slot: int) -> str:
    """The uid of the workload in a slot, numbered from 0."""
    return f"{owner_uid}/{slot}"


def group_of_pod(pod: PodLike) -> Group:
    """The group of a pod that nothing owns."""
    return Group(pod.metadata, 1, together=True, template=pod)


def group_of_job(job: JobLike) -> Group:
    """The gang of a Job: as many pods as may still run at once, at least one."""
    count = job.spec.parallelism
    if job.spec.completions is not None:
        count = min(count, job.spec.completions - job.status.succeeded)
    return Group(job.metadata, max(1, count), together=True, template=job.spec.template)


def group_of_replicas(owner: ReplicasLike) -> Group:
    """The slots of a Deployment or a ReplicaSet."""
    return Group(owner.metadata, owner.spec.replicas, together=False, template=owner.spec.template)


def workload_of(
    group: Group,
    catalog: Catalog,
    rules: Rules = DEFAULT_RULES,
    *,
    slot: int = 0,
    created_us: int = 0,
) -> Workload | Refusal:
    """The workload of a gang, or the one in `slot`; a refusal if its template asks for nonsense."""
    reading = reading_of(group.template, catalog, rules)
    if isinstance(reading, Refusal):
        return reading
    meta = group.metadata
    return Workload(
        uid=meta.uid if group.together else slot_uid(meta.uid, slot),
        pod_sets=(PodSet("pods", group.count if group.together else 1, reading.request),),
        queue=reading.annotations.queue,
        type=reading.annotations.type,
        created_us=created_us,
        name=meta.name if group.together else f"{meta.name}/{slot}",
        namespace=meta.namespace,
    )


class _JobSpec(Part, frozen=True):
    """See `JobSpecLike`; Kubernetes' defaults."""

    parallelism: int = 1
    completions: int | None = None
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


@dataclass(frozen=True, slots=True)
class Form:
    """How one kind of owner makes pods: the struct that its manifest is read as, and the reading.

    `group` takes that struct, or any object with the same fields.
    """

    struct: type[Part]
    group: Callable[[Any], Group]


FORMS: Final[Mapping[tuple[str, str], Form]] = {
    ("v1", "Pod"): Form(Pod, group_of_pod),
    ("batch/v1", "Job"): Form(_Job, group_of_job),
    ("apps/v1", "Deployment"): Form(_Replicas, group_of_replicas),
    ("apps/v1", "ReplicaSet"): Form(_Replicas, group_of_replicas),
}
"""The form of each known kind, by `apiVersion` and `kind`."""


def read_group(manifest: Mapping[str, Any]) -> Group:
    """The pods of the owner in a manifest.

    Raises ValueError with a sentence for a kind that has no form, and for fields of a wrong type.
    """
    api_version, kind = manifest.get("apiVersion"), manifest.get("kind")
    form = FORMS.get((str(api_version), str(kind)))
    if form is None:
        known = ", ".join(name for _, name in FORMS)
        raise ValueError(f"pods of a {api_version} {kind} are not known; write one of {known}")
    return form.group(read_manifest(manifest, form.struct))
