"""Starts that are under way or came true, and the pods in their places.

A `Flight` is one start of one workload. Each of its pods has a *seat*: a number, a place, and the
pod that sits there. A seat whose pod was deleted stays empty for a while, because a controller
makes a new pod for it, which takes the seat with its place, arrival and history.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shoal.core.arrays.charges import charges_of
from shoal.core.entry import Entry
from shoal.core.placing.reservation import Reservation
from shoal.core.world import World
from shoal.kubernetes.executing.plans import (
    PODS_PER_PART,
    Eviction,
    Kept,
    PlanNote,
    PodPlan,
    parts_of,
    whole_plan,
)
from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.workload import Job
from shoal.model.request import Request
from shoal.model.workload import Placement, PodSet, Workload
from shoal.objects.workloads import longest_us


@dataclass(slots=True)
class Seat:
    """One pod's part in a start; `pod` is its uid, empty while nobody sits here."""

    placement: Placement
    pod: str
    since_us: int
    """Since when it is as it is: taken, or empty."""
    name: str = ""
    """The name of the pod that sits here, or did last."""
    saved_us: int | None = None
    """Up to when the pod says that its work is saved."""


@dataclass(slots=True)
class Flight:
    """One start of one workload."""

    workload: Workload
    attempt: int
    owner: str
    """The uid of the pods' controller, or of the pod."""
    seats: dict[int, Seat]
    together: bool
    """Whether its pods start together or not at all."""
    failure: str = ""
    """Why the start did not come true, once it is being taken back."""
    evicting: dict[int, Eviction] = field(default_factory=dict)
    """Seats whose pods are being evicted."""
    ended: bool = False
    """Whether pods of it are gone because it ran for as long as it may."""
    saved_us: int | None = None
    """Up to when the work of all its pods is saved, as the core was told."""

    @property
    def uid(self) -> str:
        """The workload's uid."""
        return self.workload.uid

    @property
    def start(self) -> tuple[str, int]:
        """Which start of which workload it is, as notes say it."""
        return self.workload.uid, self.attempt

    @property
    def pods(self) -> list[str]:
        """The uids of the pods in its seats."""
        return [seat.pod for seat in self.seats.values() if seat.pod]

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where each seat is, in order."""
        return tuple(seat.placement for _, seat in sorted(self.seats.items()))

    @property
    def bearers(self) -> list[int]:
        """Seats whose pods carry the parts of the whole plan, so must be written first."""
        count = len(self.seats)
        return sorted(self.seats)[: -(-count // PODS_PER_PART)] if count > 1 else []

    def note(self, number: int) -> PlanNote:
        """The note for the pod in a seat."""
        seat = self.seats[number]
        own = PodPlan(number, seat.placement.node, seat.placement.leaves)
        bearers = self.bearers
        whole = None
        if number in bearers:
            plans = [
                PodPlan(n, each.placement.node, each.placement.leaves, each.pod)
                for n, each in sorted(self.seats.items())
            ]
            whole = parts_of(plans)[bearers.index(number)]
        evicted = self.evicting.get(number)
        workload = self.workload
        return PlanNote(self.uid, self.attempt, workload.pods, own, whole, evicted, workload.queue)


def rank(pod: Pod) -> tuple[int, float, str]:
    """The order of equal pods in their workload: by index where they have one, else by age."""
    labels = pod.metadata.labels
    index = labels.get("batch.kubernetes.io/job-completion-index", "") or labels.get(
        "apps.kubernetes.io/pod-index", ""
    )
    created = pod.metadata.creation_timestamp
    at = created.timestamp() if created is not None else 0.0
    return int(index) if index.isascii() and index.isdecimal() else 0, at, pod.metadata.name


def in_order(pods: Iterable[tuple[Pod, Ask]]) -> list[tuple[Pod, Ask]]:
    """Pods with equal asks together, those of the first pod first."""
    ranked = sorted(pods, key=lambda pair: rank(pair[0]))
    groups: dict[Request, list[tuple[Pod, Ask]]] = {}
    for pair in ranked:
        groups.setdefault(pair[1].request, []).append(pair)
    return [pair for group in groups.values() for pair in group]


def pod_sets_of(asks: Sequence[Ask]) -> tuple[PodSet, ...]:
    """Pod sets of pods in order; equal neighbours are one set."""
    sets: list[tuple[Ask, int]] = []
    for ask in asks:
        if sets and sets[-1][0].request == ask.request:
            sets[-1] = (ask, sets[-1][1] + 1)
        else:
            sets.append((ask, 1))
    names = ["pods"] if len(sets) == 1 else [f"pods-{n}" for n in range(len(sets))]
    return tuple(
        PodSet(name, count, ask.request, ask.minimum)
        for name, (ask, count) in zip(names, sets, strict=True)
    )


def workload_of(
    uid: str, pairs: Sequence[tuple[Pod, Ask]], came_us: int, jobs: Mapping[str, Job]
) -> Workload:
    """The workload of pods in order, with what each asks for; `jobs` are those there are by uid.

    Its name is that of the pods' controller. Nobody makes the pods of a workload again that has
    none, unless they say so themselves. Pods that it lacks form a workload of their own.
    """
    first, ask = pairs[0]
    owner = first.metadata.controller
    graces_s = (pod.spec.termination_grace_period_seconds for pod, _ in pairs)
    return Workload(
        uid=uid,
        pod_sets=pod_sets_of([each for _, each in pairs]),
        queue=ask.queue,
        type=ask.type,
        created_us=came_us,
        name=owner.name if owner is not None else first.metadata.name,
        namespace=first.metadata.namespace,
        priority=ask.priority,
        priority_name=ask.priority_name,
        user=ask.user or "",
        run_us=_run_us(first, ask, jobs),
        grace_us=longest_us(graces_s),
        recreated=owner is not None or ask.recreate,
        grows=False,
    )


def _run_us(pod: Pod, ask: Ask, jobs: Mapping[str, Job]) -> int | None:
    """How long it runs at most: as declared, or until its Job, or a pod by itself, is ended."""
    owner = pod.metadata.controller
    job = jobs.get(owner.uid) if owner is not None else None
    spec = pod.spec if owner is None else job.spec if job is not None else None
    deadline_s = spec.active_deadline_seconds if spec is not None else None
    until_us = None if deadline_s is None else longest_us((1, deadline_s))
    return min((each for each in (ask.run_us, until_us) if each is not None), default=None)


def reservation_of(world: World, workload: Workload, kept: Kept | None) -> Reservation | None:
    """The places that are kept for a workload, as the core books them; None where they do not fit.

    `kept` is what was written with the evictions that make room for it.
    """
    if kept is None or sorted(plan.pod for plan in kept.plans) != list(range(workload.pods)):
        return None
    entry = Entry(workload, 0)
    placements = tuple(plan.placement() for plan in kept.plans)
    charged = bool(world.tenants.tree.queues)
    charges = tuple(
        charges_of(world.fleet, entry.request_of(p.pod), p) if charged else () for p in placements
    )
    return Reservation(placements, charges, None, kept.evicted, kept.reason)


def created_us(pods: Iterable[Pod]) -> int:
    """When the oldest of some pods was created, by the control plane's clock."""
    times = [p.metadata.creation_timestamp for p in pods if p.metadata.creation_timestamp]
    return int(min(times).timestamp() * 1_000_000) if times else 0


def since_us(pod: Pod | None) -> int | None:
    """Since when a pod is on its node, as its kubelet says; None where nobody has said it."""
    started = pod.status.start_time if pod is not None else None
    return int(started.timestamp() * 1_000_000) if started is not None else None


def plans_of(
    notes: Mapping[str, PlanNote],
) -> dict[int, PodPlan]:
    """What each seat of one start was given, from its pods' notes by pod uid.

    The whole plan, where all its parts are there, then what each pod says for itself, which is
    newer where a pod has taken another's seat.
    """
    found = {plan.pod: plan for plan in whole_plan(notes.values()) or ()}
    for uid, note in notes.items():
        own = note.own
        found[own.pod] = PodPlan(own.pod, own.node, own.leaves, uid)
    return found
