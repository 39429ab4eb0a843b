"""From what owns pods to workloads: which pods start together, and how many there are.

The pods of a Job start together, as many as may run at once, and so do all pods of a JobSet, a
PyTorchJob or a RayJob. Each pod of a Deployment, a ReplicaSet or a StatefulSet is a workload of its
own, in one of so many *slots*: a pod that replaces another takes its slot, and with it the place in
the queue, the arrival and the history. A pod without an owner is a workload.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from shoal.catalog.catalog import Catalog
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.request import Request
from shoal.model.workload import PodSet, Workload, WorkloadType
from shoal.objects.annotations import MINIMUM, TYPE, refuse
from shoal.objects.manifests import MetadataLike, PodLike
from shoal.objects.pods import DEFAULT_RULES, Reading, Rules, reading_of

SECOND_US: Final = 1_000_000

LONGEST_S: Final = (1 << 31) - 1
"""The longest time that is read, 68 years: some fields of Kubernetes hold any number of seconds."""

PODS: Final = "pods"
"""The name of the only set of pods."""


class JobSpecLike(Protocol):
    """The part of a Job's spec that says how many pods it runs, and which."""

    @property
    def parallelism(self) -> int:
        """Pods at once."""

    @property
    def completions(self) -> int | None:
        """Pods that must succeed."""

    @property
    def active_deadline_seconds(self) -> int | None:
        """After so long it is ended."""

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
class TemplateSet:
    """`count` equal pods at once, made from a template (or the pod itself)."""

    name: str
    count: int
    template: PodLike


@dataclass(frozen=True, slots=True)
class Group:
    """The pods of one owner.

    Attributes:
        metadata: of the owner.
        sets: its pods; one set where each starts by itself.
        together: whether they start together or not at all; else each by itself, in a slot.
        type: what kind of work it is where the pods do not say.
        deadline_s: after so many seconds its owner ends it.
        recreated: whether its owner makes pods again that are gone.
    """

    metadata: MetadataLike
    sets: tuple[TemplateSet, ...]
    together: bool
    type: WorkloadType = WorkloadType.BATCH
    deadline_s: int | None = None
    recreated: bool = True

    @property
    def count(self) -> int:
        """Pods at once."""
        return sum(each.count for each in self.sets)

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
    pods = TemplateSet(PODS, 1, pod)
    deadline_s = pod.spec.active_deadline_seconds
    return Group(pod.metadata, (pods,), together=True, deadline_s=deadline_s, recreated=False)


def group_of_job(job: JobLike) -> Group:
    """The gang of a Job: as many pods as may still run at once, at least one."""
    pods = TemplateSet(PODS, job_pods(job.spec, job.status.succeeded), job.spec.template)
    deadline_s = job.spec.active_deadline_seconds
    return Group(job.metadata, (pods,), together=True, deadline_s=deadline_s)


def job_pods(spec: JobSpecLike, succeeded: int = 0) -> int:
    """Pods of a Job that may still run at once, at least one."""
    count = spec.parallelism
    if spec.completions is not None:
        count = min(count, spec.completions - succeeded)
    return max(1, count)


def group_of_replicas(owner: ReplicasLike) -> Group:
    """The slots of a Deployment, a ReplicaSet or a StatefulSet."""
    pods = TemplateSet(PODS, owner.spec.replicas, owner.spec.template)
    return Group(owner.metadata, (pods,), together=False)


def workload_of(
    group: Group,
    catalog: Catalog,
    rules: Rules = DEFAULT_RULES,
    *,
    slot: int = 0,
    created_us: int = 0,
    user: str = "",
) -> Workload | Refusal:
    """The workload of a gang, or the one in `slot`; a refusal if a template asks for nonsense.

    Queue and type are those of the first set of pods that asks for devices. It runs as long as its
    longest set declares, at most until its owner's deadline. `user` is who asked for it, as the
    place where it came in knows. Its priority is for `rights` to say.
    """
    readings: list[tuple[TemplateSet, Reading]] = []
    for each in group.sets:
        reading = reading_of(each.template, catalog, rules, group.type)
        if isinstance(reading, Refusal):
            return reading
        wrong = _wrong_minimum(group, each, reading)
        if wrong is not None:
            return wrong
        readings.append((each, reading))
    if not readings:
        raise ValueError(f"{group.metadata.name} has no pods; write a template")
    asking = [pair for pair in readings if pair[1].request.devices.count] or readings
    main, said = asking[0][1].annotations, TYPE in asking[0][0].template.metadata.annotations
    type_ = main.type if said else group.type
    meta = group.metadata
    return Workload(
        uid=meta.uid if group.together else slot_uid(meta.uid, slot),
        pod_sets=tuple(
            PodSet(
                each.name,
                each.count if group.together else 1,
                _apart(reading.request, group, type_),
                reading.annotations.minimum if group.together else None,
            )
            for each, reading in readings
        ),
        queue=main.queue,
        type=type_,
        created_us=created_us,
        name=meta.name if group.together else f"{meta.name}/{slot}",
        namespace=meta.namespace,
        user=user,
        run_us=_run_us(group, [reading for _, reading in readings]),
        grace_us=_grace_us(group),
        recreated=group.recreated or any(reading.annotations.recreate for _, reading in readings),
        spare=is_spare(group, slot),
    )


def is_spare(group: Group, slot: int) -> bool:
    """Whether a service can do without its replica in a slot: one above the minimum that it says.

    `workload_of` has not refused the group. Of pods that start together each set has a minimum.
    """
    said = None if group.together else group.sets[0].template.metadata.annotations.get(MINIMUM)
    return said is not None and slot >= int(said)


def _apart(request: Request, group: Group, type_: WorkloadType) -> Request:
    """What a pod asks for, kept apart from the other replicas where they are inference."""
    devices = request.devices
    if type_ is not WorkloadType.INFERENCE or group.together or not devices.count:
        return request
    return replace(request, devices=replace(devices, apart=group.metadata.uid))


def _wrong_minimum(group: Group, pods: TemplateSet, reading: Reading) -> Refusal | None:
    """Why a set of pods cannot have the minimum that it says.

    A service may have fewer replicas than that for now: all of them are needed then.
    """
    minimum = reading.annotations.minimum
    if minimum is None:
        return None
    if not group.together:
        if reading.annotations.type is WorkloadType.INFERENCE:
            return None
        return refuse(RefusalCode.NOT_A_GANG, MINIMUM, str(minimum), name=group.metadata.name)
    if minimum > pods.count:
        return refuse(RefusalCode.MINIMUM_ABOVE_COUNT, MINIMUM, str(minimum), count=pods.count)
    return None


def _grace_us(group: Group) -> int:
    """How long its pods take to stop, at most."""
    graces = (each.template.spec.termination_grace_period_seconds for each in group.sets)
    return longest_us(graces)


def longest_us(seconds: Iterable[int]) -> int:
    """The longest of some times in microseconds, at least none and at most `LONGEST_S`."""
    return min(LONGEST_S, max((0, *seconds))) * SECOND_US


def _run_us(group: Group, readings: Sequence[Reading]) -> int | None:
    """How long a workload runs at most, as was declared."""
    written = [run for reading in readings if (run := reading.annotations.run_us) is not None]
    declared = [max(written)] if written else []
    if group.deadline_s is not None:
        declared.append(longest_us((1, group.deadline_s)))
    return min(declared, default=None)
