"""From the watch cache to the core's events.

Level-triggered: a change in a store only marks what it concerns. `changes` then compares what the
API server says now with what the world has, and yields the events that make them agree; whoever
calls it applies each before taking the next. So late, repeated and reordered changes are harmless,
a change that means nothing yields nothing, and a restart finds the same world by the same code.

Four layers of one object, each in a module: `books` (what is taken as it is), `seats`, `starts`,
and here what the stores tell and the order in which it is looked at.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from shoal.core import events as ev
from shoal.core.world import World
from shoal.kubernetes.executing.plans import read_note
from shoal.kubernetes.watching.asks import AskReader
from shoal.kubernetes.watching.books import DEFAULT_OPTIONS, SourceOptions
from shoal.kubernetes.watching.budgets import Budgets
from shoal.kubernetes.watching.fleet import FleetView
from shoal.kubernetes.watching.flights import Flight
from shoal.kubernetes.watching.starts import Starts
from shoal.kubernetes.watching.truth import CLAIM, NODE, OWNER, Stage, Truth, owner_uid
from shoal.kubernetes.wire.node import Namespace
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import ResourceClaim
from shoal.kubernetes.wire.workload import Job, ReplicaSet, StatefulSet
from shoal.model.hold import Hold

_Owner = TypeVar("_Owner", Job, ReplicaSet, StatefulSet)


class Source(Starts):
    """Turns what the stores hold into events, and keeps who sits where."""

    def __init__(
        self,
        truth: Truth,
        world: World,
        reader: AskReader,
        fleet: FleetView,
        options: SourceOptions = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(truth, world, reader, fleet, options)
        self.budgets = Budgets(truth, self._started_with)
        self._subscribe()

    def _started_with(self, pod: str) -> str:
        """The workload that a pod was started with; empty if it was not, or by somebody else."""
        return self._seats[pod][0] if pod in self._seats else ""

    def stays(self, flight: Flight, number: int, now_us: int) -> None:
        """Note that a pod cannot be evicted, so that its whole workload stays."""
        super().stays(flight, number, now_us)
        if self.world.evictions.allowed(flight.uid) != 0:
            self.budgets.refused(flight.uid, now_us)

    def _subscribe(self) -> None:
        truth = self.truth
        truth.pods.subscribe(self._pod_changed)
        truth.claims.subscribe(self._claim_changed)
        truth.jobs.subscribe(self._job_changed)
        truth.replica_sets.subscribe(self._replica_set_changed)
        truth.stateful_sets.subscribe(self._stateful_set_changed)
        truth.namespaces.subscribe(self._namespace_changed)
        truth.quotas.subscribe(lambda old, new: self._quota_changed(old or new))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if (changed := new or old) is not None:
            self.budgets.pod_changed(changed)
            self.floors.touch(owner_uid(changed))
        if new is not None:
            self.pods[new.uid] = new
            self._pods_dirty[new.uid] = None
        elif old is not None:
            self.pods.pop(old.uid, None)
            self.units.timed_out.forget_pod(old.uid)
            self._pods_dirty[old.uid] = None
            self._owners_dirty[owner_uid(old)] = None

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        if claim is None:
            return
        if new is not None:
            self._claims[claim.uid] = new
        else:
            self._claims.pop(claim.uid, None)
        self._claims_dirty[claim.uid] = None
        for pod in self.truth.pods.by(CLAIM, "/".join(claim.key)):
            self._pods_dirty[pod.uid] = None

    def _job_changed(self, old: Job | None, new: Job | None) -> None:
        self._owner_changed(self.jobs, old, new)

    def _replica_set_changed(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        self._owner_changed(self.replica_sets, old, new)

    def _stateful_set_changed(self, old: StatefulSet | None, new: StatefulSet | None) -> None:
        self._owner_changed(self.stateful_sets, old, new)

    def _owner_changed(
        self, known: dict[str, _Owner], old: _Owner | None, new: _Owner | None
    ) -> None:
        owner = new or old
        if owner is None:
            return
        if new is not None:
            known[new.uid] = new
        else:
            known.pop(owner.uid, None)
        self._owners_dirty[owner.uid] = None
        self.floors.touch(owner.uid)

    def _namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        name = (new or old).metadata.name  # type: ignore[union-attr]
        for pod in self.truth.pods.by("namespace", name):
            self._pods_dirty[pod.uid] = None

    def _quota_changed(self, quota: object) -> None:
        namespace = quota.metadata.namespace  # type: ignore[attr-defined]
        for key in self.units.held_by_quota(namespace):
            self._pods_dirty[key] = None
            self._owners_dirty[key] = None

    @property
    def is_dirty(self) -> bool:
        """Whether `changes` has anything to look at, times aside."""
        return bool(
            self._pods_dirty
            or self._owners_dirty
            or self._claims_dirty
            or self._queued
            or self.fleet.is_dirty
            or self.budgets.is_dirty
        )

    @property
    def holds(self) -> dict[str, Hold]:
        """Why pods are not planned, by pod or owner."""
        return self.units.holds | self._stuck

    def changes(self, now_us: int) -> Iterator[ev.Event]:
        """The events that make the world agree with the stores; each is to be applied at once."""
        self._wanted_by.clear()
        yield from self._take_queued()
        for event in self.fleet.changes(now_us):
            if isinstance(event, ev.NodeSeen):
                self._node_changed(event.node.name)
            elif isinstance(event, ev.NodeLost):
                self._node_changed(event.name)
            yield event
        for uid in self._in_order(self._take(self._pods_dirty)):
            yield from self._pod(uid, now_us)
        for uid in self._take(self._claims_dirty):
            yield from self._claim(uid, now_us)
        yield from self._expire(now_us)
        for owner in sorted(self._due_owners(now_us)):
            yield from self._owner(owner, now_us)
        yield from self._tell_spare(now_us)
        yield from self.fleet.changes(now_us)  # masks that were asked for just now
        yield from self.budgets.changes(now_us)
        yield from self._take_queued()

    def next_due_us(self) -> int | None:
        """When something has to be looked at although nothing changes; None: never."""
        next_us = self.units.due.next_us()
        times = [
            *(*self.units.returning.values(), *self._empty.values(), *self.budgets.due_us),
            *((next_us,) if next_us is not None else ()),
        ]
        return min(times, default=None)

    def _take_queued(self) -> Iterator[ev.Event]:
        queued, self._queued = self._queued, []
        yield from queued

    def _take(self, marks: dict[str, None]) -> list[str]:
        taken = list(marks)
        marks.clear()
        return taken

    def _in_order(self, uids: list[str]) -> list[str]:
        """Pods that carry a plan before others, then by age: the order after a restart."""

        def key(uid: str) -> tuple[int, float, str]:
            pod = self.pods.get(uid)
            if pod is None:
                return -1, 0.0, uid
            created = pod.metadata.creation_timestamp
            stage = self.truth.stage(pod)
            planned = stage in (Stage.BOUND, Stage.RELEASED) and read_note(pod) is not None
            rank = 0 if planned else 1 if stage is Stage.BOUND else 2
            return rank, created.timestamp() if created is not None else 0.0, uid

        return sorted(uids, key=key) if len(uids) > 1 else uids

    def _node_changed(self, node: str) -> None:
        """Look again at what depends on a node: who was refused there, and whose leaves it has."""
        for owner in self.units.forgive(node):
            self._owners_dirty[owner] = None
            for pod in self.truth.pods.by(OWNER, owner):
                self._pods_dirty[pod.uid] = None
        for pod in self.truth.pods.by(NODE, node):
            self._pods_dirty[pod.uid] = None

    def _due_owners(self, now_us: int) -> set[str]:
        return self.units.due.take(now_us) | set(self._take(self._owners_dirty))

    def _owner(self, owner: str, now_us: int) -> Iterator[ev.Event]:
        if owner in self.jobs or owner in self.units.gangs:
            yield from self.units.together(owner, now_us)
        else:
            for pod in sorted(self.truth.pods.by(OWNER, owner), key=lambda p: p.metadata.name):
                if self.units.waits(pod):
                    yield from self.units.one(pod.uid, pod, now_us)
        yield from self._drop_unwanted_seats(owner, now_us)
        again_us = self.units.timed_out.expire(owner, now_us, self.options.slot_keep_us)
        if again_us is not None:
            self.units.due.add(owner, again_us)
        if not self.truth.pods.by(OWNER, owner) and not self.flights_of.get(owner):
            self.units.numbers.forget(owner)
            self.floors.forget(owner)
            self.units.refusals.pop(owner, None)
            self.flights_of.pop(owner, None)
            self._vacant.pop(owner, None)

    def _tell_spare(self, now_us: int) -> Iterator[ev.Event]:
        """Tell which replicas their services can do without, where that has changed."""
        for uid, spare in self.floors.changes():
            flight = self.flights.get(uid)
            if flight is not None:
                flight.workload = replace(flight.workload, spare=spare)
                yield from self._restore(flight, now_us)
            else:
                unit = self.units.waiting[uid]
                unit.workload = replace(unit.workload, spare=spare)
                yield from self.units.submit_again(uid, now_us)

    def _pod(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        pod = self.pods.get(uid)
        stage = self.truth.stage(pod)
        if uid in self._seats and pod is not None and stage in (Stage.RELEASED, Stage.BOUND):
            note = read_note(pod)
            flight, number = self.flights[self._seats[uid][0]], self._seats[uid][1]
            if note is not None and (note.start != flight.start or note.own.pod != number):
                yield from self._leave(uid, now_us)  # somebody else planned it otherwise
            elif note is not None:
                yield from self.noted(pod, note, now_us)
        if uid in self._seats:
            yield from self._seated(uid, pod, stage, now_us)
            return
        if pod is not None and stage in (Stage.RELEASED, Stage.BOUND):
            note = read_note(pod)
            if note is not None and self.is_ours(pod, note):
                yield from self._join(pod, note, now_us)
                return
        yield from self._as_it_is(uid, pod, stage, now_us)
        yield from self._waiting(uid, pod, now_us)

    def _waiting(self, uid: str, pod: Pod | None, now_us: int) -> Iterator[ev.Event]:
        owner = owner_uid(pod) if pod is not None else ""
        if owner in self.jobs or owner in self.units.gangs:
            self._owners_dirty[owner] = None
        elif pod is not None and pod.metadata.controller is not None and self._is_job(pod):
            self._owners_dirty[owner] = None  # its Job was not seen yet
        else:
            yield from self.units.one(uid, pod, now_us)

    @staticmethod
    def _is_job(pod: Pod) -> bool:
        owner = pod.metadata.controller
        return owner is not None and owner.kind == "Job" and owner.api_version == "batch/v1"
