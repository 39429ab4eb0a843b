"""From the watch cache to the core's events.

Level-triggered: a change in a store only marks what it concerns. `changes` then compares what the
API server says now with what the world has, and yields the events that make them agree; whoever
calls it applies each before taking the next. So late, repeated and reordered changes are harmless,
a change that means nothing yields nothing, and a restart finds the same world by the same code.

Uids in the world: `pod/UID` is a pod that is taken as it is (somebody else's, or one on its way
out); `claim/UID` a claim that holds devices without such a pod; everything else is ours (`units`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shoal.core import events as ev
from shoal.core.decisions import Retract, Start
from shoal.core.world import Entry, State, World
from shoal.kubernetes.asks import Ask, AskReader
from shoal.kubernetes.fleet import FleetView
from shoal.kubernetes.flights import (
    Flight,
    Seat,
    created_us,
    plans_of,
    pod_count,
    pod_sets_of,
)
from shoal.kubernetes.inventory import synthetic_leaf
from shoal.kubernetes.plans import PlanNote, PodPlan, attempt_of, read_note
from shoal.kubernetes.truth import CLAIM, NODE, OWNER, Stage, Truth, owner_uid
from shoal.kubernetes.units import Unit, Units
from shoal.kubernetes.wire.node import Namespace
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import ResourceClaim
from shoal.kubernetes.wire.workload import Job, ReplicaSet
from shoal.model.hold import Hold, HoldReason
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Outcome, Placement, PodSet, Workload


@dataclass(frozen=True)
class SourceOptions:
    """Times of a source."""

    slot_keep_us: int = 60_000_000
    """How long the place of a deleted pod is kept for the pod that replaces it."""


DEFAULT_OPTIONS = SourceOptions()


class Source:
    """Turns what the stores hold into events, and keeps who sits where."""

    def __init__(
        self,
        truth: Truth,
        world: World,
        reader: AskReader,
        fleet: FleetView,
        options: SourceOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.truth = truth
        self.world = world
        self.fleet = fleet
        self.options = options
        self.flights: dict[str, Flight] = {}
        """By workload uid."""
        self.flights_of: dict[str, set[str]] = defaultdict(set)
        """Uids of an owner's flights."""
        self.replans: set[str] = set()
        """Bare pods that were let go and wait for another device of their node."""
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, Job] = {}
        self.replica_sets: dict[str, ReplicaSet] = {}
        self.units = Units(self)
        self.to_release: list[tuple[str, int]] = []
        """Seats (workload, number) whose pods are to be let go: what the executor takes over."""
        self.acts = False
        """Whether this process leads: only then are empty seats filled."""
        self._reader = reader
        self._seats: dict[str, tuple[str, int]] = {}
        self._retracted: set[tuple[str, int]] = set()
        self._pods_dirty: dict[str, None] = {}
        self._owners_dirty: dict[str, None] = {}
        self._claims_dirty: dict[str, None] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._empty: dict[tuple[str, int], int] = {}
        """Seats that are empty while their workload runs, and until when they are kept (us)."""
        self._stuck: dict[str, Hold] = {}
        """Bare pods that are pinned to a node where they do not start."""
        self._queued: list[ev.Event] = []
        self._subscribe()

    # What the stores tell ---------------------------------------------------------------------

    def _subscribe(self) -> None:
        truth = self.truth
        truth.pods.subscribe(self._pod_changed)
        truth.claims.subscribe(self._claim_changed)
        truth.jobs.subscribe(self._job_changed)
        truth.replica_sets.subscribe(self._replica_set_changed)
        truth.namespaces.subscribe(self._namespace_changed)
        truth.quotas.subscribe(lambda old, new: self._quota_changed(old or new))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self.pods[new.uid] = new
            self._pods_dirty[new.uid] = None
        elif old is not None:
            self.pods.pop(old.uid, None)
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

    def _owner_changed(
        self,
        known: dict[str, Job] | dict[str, ReplicaSet],
        old: Job | ReplicaSet | None,
        new: Job | ReplicaSet | None,
    ) -> None:
        owner = new or old
        if owner is None:
            return
        if new is not None:
            known[new.uid] = new  # type: ignore[assignment]
        else:
            known.pop(owner.uid, None)
        self._owners_dirty[owner.uid] = None

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
        )

    # What the executor tells ------------------------------------------------------------------

    def queue(self, event: ev.Event) -> None:
        """Have an event yielded by the next `changes`."""
        self._queued.append(event)

    def mark_owner(self, owner: str) -> None:
        """Have the pods of an owner looked at again."""
        self._owners_dirty[owner] = None

    @property
    def holds(self) -> dict[str, Hold]:
        """Why pods are not planned, by pod or owner."""
        return self.units.holds | self._stuck

    def look_at(self, pod: str) -> None:
        """Have a pod looked at again."""
        self._pods_dirty[pod] = None

    # Events -----------------------------------------------------------------------------------

    def changes(self, now_us: int) -> Iterator[ev.Event]:
        """The events that make the world agree with the stores; each is to be applied at once."""
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
        yield from self.fleet.changes(now_us)  # masks that were asked for just now
        yield from self._take_queued()

    def next_due_us(self) -> int | None:
        """When something has to be looked at although nothing changes; None: never."""
        times = [*self.units.due.values(), *self._empty.values()]
        return min(times) if times else None

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
        due = {owner for owner, at_us in self.units.due.items() if at_us <= now_us}
        for owner in due:
            del self.units.due[owner]
        return due | set(self._take(self._owners_dirty))

    def _owner(self, owner: str, now_us: int) -> Iterator[ev.Event]:
        if owner in self.jobs or owner in self.units._gang_unit:
            yield from self.units.together(owner, now_us)
        else:
            for pod in sorted(self.truth.pods.by(OWNER, owner), key=lambda p: p.metadata.name):
                if self.units.waits(pod):
                    yield from self.units.one(pod.uid, pod, now_us)
        yield from self._drop_unwanted_seats(owner, now_us)
        if not self.truth.pods.by(OWNER, owner) and not self.flights_of.get(owner):
            self.units.numbers.forget(owner)
            self.units.refusals.pop(owner, None)
            self.flights_of.pop(owner, None)

    # Pods -------------------------------------------------------------------------------------

    def ask(self, pod: Pod) -> Ask:
        """What a pod asks for."""
        ask = self._reader.read(pod, self.truth.namespace(pod.metadata.namespace).channel)
        self.fleet.want_mask(ask.request.mask)
        return ask

    def is_seated(self, pod: str) -> bool:
        """Whether a pod has its place in a start."""
        return pod in self._seats

    def seat_of(self, pod: str) -> tuple[Flight, int] | None:
        """The start that a pod belongs to, and its number in it."""
        seat = self._seats.get(pod)
        return (self.flights[seat[0]], seat[1]) if seat is not None else None

    def _pod(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        pod = self.pods.get(uid)
        stage = self.truth.stage(pod)
        if uid in self._seats and pod is not None and stage in (Stage.RELEASED, Stage.BOUND):
            note = read_note(pod)
            flight, number = self.flights[self._seats[uid][0]], self._seats[uid][1]
            if note is not None and (note.start != flight.start or note.own.pod != number):
                yield from self._leave(uid, now_us)  # somebody else planned it otherwise
        if uid in self._seats:
            yield from self._seated(uid, pod, stage, now_us)
            return
        if pod is not None and stage in (Stage.RELEASED, Stage.BOUND):
            note = read_note(pod)
            if note is not None and self._is_ours(pod, note):
                yield from self._join(pod, note, now_us)
                return
        yield from self._as_it_is(uid, pod, stage, now_us)
        yield from self._waiting(uid, pod, now_us)

    def _waiting(self, uid: str, pod: Pod | None, now_us: int) -> Iterator[ev.Event]:
        owner = owner_uid(pod) if pod is not None else ""
        if owner in self.jobs or owner in self.units._gang_unit:
            self._owners_dirty[owner] = None
        elif pod is not None and pod.metadata.controller is not None and self._is_job(pod):
            self._owners_dirty[owner] = None  # its Job was not seen yet
        else:
            yield from self.units.one(uid, pod, now_us)

    @staticmethod
    def _is_job(pod: Pod) -> bool:
        owner = pod.metadata.controller
        return owner is not None and owner.kind == "Job" and owner.api_version == "batch/v1"

    def _is_ours(self, pod: Pod, note: PlanNote) -> bool:
        """Whether a note is one that Shoal made for this pod, and still holds."""
        mine = note.workload.startswith(f"{owner_uid(pod)}/")
        return mine and note.start not in self._retracted and pod.uid not in self.replans

    def _as_it_is(self, uid: str, pod: Pod | None, stage: Stage, now_us: int) -> Iterator[ev.Event]:
        """Take a pod that is no part of a start as it is."""
        name = f"pod/{uid}"
        entry = self.world.entries.get(name)
        if pod is None or stage not in (Stage.BOUND, Stage.RELEASED) or uid in self.replans:
            self._stuck.pop(uid, None)
            if entry is not None:
                yield ev.WorkloadEnded(now_us, name, _outcome(pod))
            return
        if stage is Stage.RELEASED:
            note = read_note(pod)
            if note is None:
                return
            node, leaves = note.own.node, note.own.leaves
        else:
            self._stuck.pop(uid, None)
            node = pod.spec.node_name
            leaves = self._leaves_of(pod, entry)
        yield from self._adopt(name, pod, node, leaves, now_us)

    def _adopt(
        self, name: str, pod: Pod, node: str, leaves: tuple[str, ...], now_us: int
    ) -> Iterator[ev.Event]:
        entry = self.world.entries.get(name)
        placement = Placement(0, node, leaves)
        if entry is not None:
            if entry.held.get(0) == placement:
                return
            yield ev.WorkloadEnded(now_us, name, Outcome.CANCELLED)
        known = self.ask(pod).request
        held = Request(known.cpu_milli, known.memory_mib, _whole(len(leaves)))
        yield ev.WorkloadAdopted(
            now_us,
            Workload(
                uid=name,
                pod_sets=(PodSet("pod", 1, held),),
                created_us=created_us([pod]),
                name=pod.metadata.name,
                namespace=pod.metadata.namespace,
            ),
            (placement,),
        )

    def _leaves_of(self, pod: Pod, entry: Entry | None) -> tuple[str, ...]:
        """The devices of a bound pod: of its claims, else some of the node's, as counted."""
        claims = self.truth.claims_of(pod)
        if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
            mine = [claim for claim in claims if self._books(claim) == pod.uid]
            return tuple(leaf for claim in mine for leaf in self.fleet.leaves_of(claim))
        ask = self.ask(pod)
        known = entry.held[0].leaves if entry is not None and 0 in entry.held else ()
        note = read_note(pod)
        if not known and note is not None and note.own.node == pod.spec.node_name:
            known = note.own.leaves
        return self.settled_leaves(pod.spec.node_name, ask, known, entry)

    def settled_leaves(
        self, node: str, ask: Ask, known: Sequence[str], entry: Entry | None
    ) -> tuple[str, ...]:
        """`known` leaves as far as the node has them, and others in the place of those it lacks.

        Device plugins do not say which device is which, so one that is no longer counted is not the
        one that the pod has. While a node counts none at all, its plugin restarts: nothing changes.
        """
        count = ask.devices
        listed = self.fleet.leaves_on(node)
        if len(known) == count and (not listed or all(leaf in listed for leaf in known)):
            return tuple(known)
        mine = set(entry.held[0].leaves) if entry is not None and 0 in entry.held else set()
        free = [leaf for leaf in listed if leaf in mine or self.fleet.is_free(node, leaf)]
        kept = [leaf for leaf in known if leaf in listed][:count]
        chosen = kept + [leaf for leaf in free if leaf not in kept]
        if len(chosen) < count:
            spare = [leaf for leaf in (*known, *listed) if leaf not in chosen]
            resource = ask.request.mask.partition("+")[0] or "device"
            number = 0
            while len(chosen) + len(spare) < count:
                made_up = synthetic_leaf(node, resource, number)
                number += 1
                if made_up not in chosen and made_up not in spare:
                    spare.append(made_up)
            chosen += spare
        return tuple(chosen[:count])

    # Claims -----------------------------------------------------------------------------------

    def _books(self, claim: ResourceClaim) -> str:
        """The uid of the pod that a claim's devices are booked for; empty: for the claim itself."""
        for consumer in claim.status.reserved_for:
            if consumer.resource == "pods" and self._uses(consumer.uid):
                return consumer.uid
        for pod in self.truth.pods.by(CLAIM, "/".join(claim.key)):
            if self._uses(pod.uid):
                return pod.uid
        return ""

    def _uses(self, uid: str) -> bool:
        return self.truth.stage(self.pods.get(uid)) is Stage.BOUND or uid in self._seats

    def _claim(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        """Book an allocated claim by itself where no pod stands for it."""
        name = f"claim/{uid}"
        claim = self._claims.get(uid)
        leaves = self.fleet.leaves_of(claim) if claim is not None else ()
        node = self.fleet.node_of(leaves[0]) if leaves else ""
        entry = self.world.entries.get(name)
        if claim is None or not node or self._books(claim):
            if entry is not None:
                yield ev.WorkloadEnded(now_us, name, Outcome.COMPLETED)
            return
        placement = Placement(0, node, leaves)
        if entry is not None:
            if entry.held.get(0) == placement:
                return
            yield ev.WorkloadEnded(now_us, name, Outcome.CANCELLED)
        held = PodSet("claim", 1, Request(devices=_whole(len(leaves))))
        meta = claim.metadata
        workload = Workload(name, (held,), name=meta.name, namespace=meta.namespace)
        yield ev.WorkloadAdopted(now_us, workload, (placement,))

    # Seats ------------------------------------------------------------------------------------

    def _seated(self, uid: str, pod: Pod | None, stage: Stage, now_us: int) -> Iterator[ev.Event]:
        """Bring the seat of a pod up to date with what became of the pod."""
        workload, number = self._seats[uid]
        flight = self.flights[workload]
        seat = flight.seats[number]
        entry = self.world.entries.get(workload)
        if flight.failure:
            yield from self._as_it_is(uid, pod, stage, now_us)
            if stage is Stage.GONE:
                self._unseat(uid)
        elif stage is Stage.GONE:
            yield from self._vacate(flight, number, pod, now_us)
        elif stage is Stage.BOUND and pod is not None:
            if pod.spec.node_name != seat.placement.node:
                yield from self._leave(uid, now_us)
                yield from self._as_it_is(uid, pod, stage, now_us)
                return
            yield from self._resettle(flight, number, pod, now_us)
            if entry is not None and number not in entry.started:
                yield ev.PodStarted(now_us, workload, number)

    def _resettle(self, flight: Flight, number: int, pod: Pod, now_us: int) -> Iterator[ev.Event]:
        """Book what a bound pod really has: its claim's devices, or devices that its node counts."""
        place = flight.seats[number].placement
        if pod.spec.resource_claims:
            mine = [c for c in self.truth.claims_of(pod) if self._books(c) == pod.uid]
            leaves = tuple(leaf for claim in mine for leaf in self.fleet.leaves_of(claim))
            if not leaves or set(leaves) == set(place.leaves):
                return
        else:
            listed = self.fleet.leaves_on(place.node)
            if not listed or all(leaf in listed for leaf in place.leaves):
                return
            leaves = self.settled_leaves(place.node, self.ask(pod), place.leaves, None)
        if leaves != place.leaves:
            flight.seats[number].placement = Placement(number, place.node, leaves)
            yield from self._restore(flight, now_us)

    def _vacate(
        self, flight: Flight, number: int, pod: Pod | None, now_us: int
    ) -> Iterator[ev.Event]:
        """A seated pod is gone: keep its seat for a successor, or give its place back."""
        uid = flight.seats[number].pod
        entry = self.world.entries.get(flight.uid)
        started = entry is not None and number in entry.started
        deleted = pod is None or not pod.is_ended
        self._unseat(uid)
        self._owners_dirty[flight.owner] = None
        if entry is None:
            self._drop(flight)
        elif not started and not flight.together:
            yield ev.WorkloadEnded(now_us, flight.uid, Outcome.CANCELLED)
            self._drop(flight)
        elif not started:
            flight.seats[number].since_us = now_us
            if not self.acts and not flight.pods:
                yield ev.WorkloadEnded(now_us, flight.uid, Outcome.CANCELLED)
                self._drop(flight)
        elif deleted and self._keeps(flight, number):
            flight.seats[number].since_us = now_us
            self._empty[flight.uid, number] = now_us + self.options.slot_keep_us
        else:
            yield from self._give_up_seat(flight, number, now_us)

    def _keeps(self, flight: Flight, number: int) -> bool:
        """Whether the place of a deleted pod is kept: it is wanted, and still good."""
        if not self.acts or not self.options.slot_keep_us:
            return False
        owner = flight.owner
        known = owner in self.jobs or owner in self.replica_sets
        waits = any(self.units.waits(pod) for pod in self.truth.pods.by(OWNER, owner))
        wanted = known and (waits or self.units.lacking(owner) > 0)
        return wanted and self._is_good(flight, number)

    def _is_good(self, flight: Flight, number: int) -> bool:
        """Whether a pod could be started in a seat now."""
        entry = self.world.entries.get(flight.uid)
        if entry is None:
            return False
        place = flight.seats[number].placement
        return self.fleet.may_start(entry.request_of(number), place)

    def _give_up_seat(self, flight: Flight, number: int, now_us: int) -> Iterator[ev.Event]:
        self._empty.pop((flight.uid, number), None)
        yield ev.PodEnded(now_us, flight.uid, number)
        flight.seats.pop(number, None)
        if flight.uid not in self.world.entries:
            self._drop(flight)

    def _expire(self, now_us: int) -> Iterator[ev.Event]:
        """Give up seats that nobody took in time, or that are good no longer."""
        for (uid, number), until_us in list(self._empty.items()):
            flight = self.flights.get(uid)
            if flight is None or number not in flight.seats:
                del self._empty[uid, number]
            elif until_us <= now_us or not self._is_good(flight, number):
                yield from self._give_up_seat(flight, number, now_us)

    def _drop_unwanted_seats(self, owner: str, now_us: int) -> Iterator[ev.Event]:
        """Give up empty seats of an owner that makes no more pods."""
        empty = [key for key in self._empty if key[0].startswith(f"{owner}/")]
        if not empty or self.units.lacking(owner) > 0:
            return
        for uid, number in empty:
            if uid in self.flights:
                yield from self._give_up_seat(self.flights[uid], number, now_us)

    def fill(self, owner: str, pods: Sequence[Pod], now_us: int) -> list[Pod]:
        """Seat pods in the empty seats of their owner's starts; returns those left over."""
        left = list(pods)
        if not self.acts or not left:
            return left
        for uid in sorted(self.flights_of.get(owner, ())):
            flight = self.flights[uid]
            if flight.failure:
                continue
            for number, seat in sorted(flight.seats.items()):
                if seat.pod or not left or not self._is_good(flight, number):
                    continue
                wanted = self.world.entries[uid].request_of(number)
                pod = next((p for p in left if _alike(self.ask(p).request, wanted)), None)
                if pod is not None:
                    left.remove(pod)
                    self._empty.pop((uid, number), None)
                    self._seat(flight, number, pod.uid, now_us)
                    self.to_release.append((uid, number))
        return left

    def _seat(self, flight: Flight, number: int, pod: str, now_us: int) -> None:
        seat = flight.seats[number]
        seat.pod, seat.since_us = pod, now_us
        self._seats[pod] = (flight.uid, number)

    def _unseat(self, pod: str) -> None:
        uid, number = self._seats.pop(pod)
        flight = self.flights.get(uid)
        if flight is not None and number in flight.seats:
            flight.seats[number].pod = ""

    def _leave(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        """Take a pod that is elsewhere than planned out of its seat."""
        workload, number = self._seats[uid]
        flight = self.flights[workload]
        self._unseat(uid)
        if len(flight.seats) == 1:
            yield ev.WorkloadEnded(now_us, workload, Outcome.CANCELLED)
            self._drop(flight)
        else:
            yield from self._give_up_seat(flight, number, now_us)

    def _drop(self, flight: Flight) -> None:
        self.flights.pop(flight.uid, None)
        self.flights_of[flight.owner].discard(flight.uid)
        for uid in flight.pods:
            if self._seats.get(uid, ("", 0))[0] == flight.uid:
                del self._seats[uid]
                self._pods_dirty[uid] = None
        if not flight.together:
            self.units.numbers.free(flight.owner, int(flight.uid.rpartition("/")[2]))
        for number in flight.seats:
            self._empty.pop((flight.uid, number), None)

    # Starts -----------------------------------------------------------------------------------

    def started(self, decision: Start, now_us: int) -> Flight | None:
        """Seat the pods of a workload that was decided to start; None if it is no unit of ours."""
        unit = self.units.started(decision.workload)
        if unit is None:
            return None
        flight = self._flight(unit, decision, now_us)
        for number, uid in enumerate(unit.pods):
            if number in flight.seats and self.units.waits(self.pods.get(uid)):
                self._seat(flight, number, uid, now_us)
                self.replans.discard(uid)
        self._owners_dirty[unit.owner] = None
        return flight

    def _flight(self, unit: Unit, decision: Start, now_us: int) -> Flight:
        seats = {p.pod: Seat(p, "", now_us) for p in decision.placements}
        flight = Flight(
            unit.workload,
            attempt_of(decision),
            unit.owner,
            seats,
            together=pod_count(unit.workload) > 1,
        )
        self._add(flight)
        return flight

    def _add(self, flight: Flight) -> None:
        self.flights[flight.uid] = flight
        self.flights_of[flight.owner].add(flight.uid)
        self.units.numbers.take(flight.owner, int(flight.uid.rpartition("/")[2]))

    def fail(self, flight: Flight, number: int, reason: str, now_us: int) -> None:
        """A start did not come true: take what was let go as it is, and tell the core."""
        flight.failure = reason
        for uid in flight.pods:
            pod = self.pods.get(uid)
            stage = self.truth.stage(pod)
            if stage in (Stage.RELEASED, Stage.BOUND):
                self._queued += self._as_it_is(uid, pod, stage, now_us)
        self.queue(ev.StartFailed(now_us, flight.uid, flight.attempt, number))

    def retracted(self, decision: Retract, now_us: int) -> Flight | None:
        """Let go of a start that the core took back; its workload is submitted anew by its pods."""
        flight = self.flights.get(decision.workload)
        self.queue(ev.WorkloadEnded(now_us, decision.workload, Outcome.CANCELLED))
        if flight is None:
            return None
        bare = any(flight.owner == pod for pod in flight.pods)
        self._retracted.add(flight.start)
        if bare:
            details = (("node", decision.node), ("message", flight.failure))
            self._stuck[flight.owner] = Hold(HoldReason.STUCK, (flight.owner,), details)
        else:
            self.units.refused(flight.owner, decision.node, now_us)
        for uid in flight.pods:
            self._pods_dirty[uid] = None
        self._drop(flight)
        self._owners_dirty[flight.owner] = None
        return flight

    def cancel(self, flight: Flight, now_us: int) -> None:
        """Take back a start of which nothing was let go, without blaming a node."""
        self.queue(ev.WorkloadEnded(now_us, flight.uid, Outcome.CANCELLED))
        for uid in flight.pods:
            self._pods_dirty[uid] = None
        self._drop(flight)
        self._owners_dirty[flight.owner] = None

    # Starts of other processes ----------------------------------------------------------------

    def _join(self, pod: Pod, note: PlanNote, now_us: int) -> Iterator[ev.Event]:
        """Seat a pod by the plan that it carries, made by an earlier or another leader."""
        flight = self.flights.get(note.workload)
        if flight is not None and flight.attempt == note.attempt:
            seat = flight.seats.get(note.own.pod)
            if seat is not None and not seat.pod:
                self._empty.pop((flight.uid, note.own.pod), None)
                self._seat(flight, note.own.pod, pod.uid, now_us)
                yield from self._as_seated(pod, now_us)
                return
            if seat is not None:
                yield from self._as_it_is(pod.uid, pod, self.truth.stage(pod), now_us)
                return
        if flight is not None:
            self._drop(flight)
        yield from self._rebuild(pod, note, now_us)

    def _rebuild(self, pod: Pod, note: PlanNote, now_us: int) -> Iterator[ev.Event]:
        """Make the start that a pod belongs to from what all of its pods carry."""
        owner = owner_uid(pod)
        notes = {
            each.uid: found
            for each in self.truth.pods.by(OWNER, owner)
            if (found := read_note(each)) is not None and found.start == note.start
        }
        plans = plans_of(notes)
        live = {
            number: plan
            for number, plan in plans.items()
            if self.truth.stage(self.pods.get(plan.uid)) is not Stage.GONE
        }
        flight = Flight(
            self._rebuilt_workload(note, owner, plans),
            note.attempt,
            owner,
            {n: Seat(plan.placement(), "", now_us) for n, plan in live.items()},
            together=note.pods > 1,
        )
        waiting = self.world.entries.get(note.workload)
        self.units.started(note.workload)
        self._add(flight)
        for number, plan in live.items():
            self._seat(flight, number, plan.uid, now_us)
        if (
            waiting is not None
            and waiting.state is State.WAITING
            and waiting.attempt + 1 == note.attempt
            and len(live) == note.pods == pod_count(waiting.workload)
        ):
            flight.workload = waiting.workload
            key = f"start/{note.workload}/{note.attempt}"
            yield ev.Decided(now_us, Start(key, note.workload, flight.placements))
        else:
            yield from self._restore(flight, now_us)
        for plan in live.values():
            seated = self.pods.get(plan.uid)
            if seated is not None:
                yield from self._as_seated(seated, now_us)

    def _as_seated(self, pod: Pod, now_us: int) -> Iterator[ev.Event]:
        """End what a pod was in the world before it had a seat, and bring the seat up to date."""
        if f"pod/{pod.uid}" in self.world.entries:
            yield ev.WorkloadEnded(now_us, f"pod/{pod.uid}", Outcome.CANCELLED)
        yield from self.units.one(pod.uid, None, now_us)
        if pod.uid in self._seats:
            yield from self._seated(pod.uid, pod, self.truth.stage(pod), now_us)

    def _rebuilt_workload(self, note: PlanNote, owner: str, plans: dict[int, PodPlan]) -> Workload:
        pods = {n: self.pods[plan.uid] for n, plan in plans.items() if plan.uid in self.pods}
        first = pods[min(pods)]
        asks, last = [], self.ask(first)
        for number in range(note.pods):
            last = self.ask(pods[number]) if number in pods else last
            asks.append(last)
        controller = first.metadata.controller
        return Workload(
            uid=note.workload,
            pod_sets=pod_sets_of(asks),
            queue=last.queue,
            type=last.type,
            created_us=created_us(pods.values()),
            name=controller.name if controller is not None else first.metadata.name,
            namespace=first.metadata.namespace,
        )

    def _restore(self, flight: Flight, now_us: int) -> Iterator[ev.Event]:
        """Have the world hold a flight just as its seats say."""
        entry = self.world.entries.get(flight.uid)
        if entry is not None:
            yield ev.WorkloadEnded(now_us, flight.uid, Outcome.CANCELLED)
        started = [
            number
            for number, seat in sorted(flight.seats.items())
            if (entry is not None and number in entry.started)
            or self.truth.stage(self.pods.get(seat.pod)) is Stage.BOUND
        ]
        yield ev.WorkloadRestored(
            now_us,
            flight.workload,
            flight.attempt,
            flight.placements,
            tuple(started),
            None,
            (),
        )


def _whole(count: int) -> DeviceRequest:
    return DeviceRequest(count)


def _outcome(pod: Pod | None) -> Outcome:
    if pod is None:
        return Outcome.CANCELLED
    phases = {"Succeeded": Outcome.COMPLETED, "Failed": Outcome.FAILED}
    return phases.get(pod.status.phase, Outcome.CANCELLED)


def _alike(one: Request, other: Request) -> bool:
    """Whether two pods of one owner hold the same; a pin that one has already does not count."""
    return (one.cpu_milli, one.memory_mib, one.devices) == (
        other.cpu_milli,
        other.memory_mib,
        other.devices,
    )
