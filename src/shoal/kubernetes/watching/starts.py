"""Starts: decided here, taken back, or found on pods that another process let go."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from shoal.core import events as ev
from shoal.core.decisions import Evict, Refuse, Retract, Start
from shoal.core.eviction.underway import Underway
from shoal.core.world import State
from shoal.kubernetes.executing.plans import (
    Eviction,
    Kept,
    PlanNote,
    PodPlan,
    attempt_of,
    read_note,
)
from shoal.kubernetes.watching.flights import (
    Flight,
    Seat,
    created_us,
    plans_of,
    workload_of,
)
from shoal.kubernetes.watching.history import Mark
from shoal.kubernetes.watching.seats import Seats
from shoal.kubernetes.watching.truth import OWNER, Stage, owner_uid
from shoal.kubernetes.watching.units import Unit
from shoal.kubernetes.wire.pod import Pod
from shoal.model.hold import Hold, HoldReason
from shoal.model.workload import Outcome, Workload

SECOND_US: Final = 1_000_000


class Starts(Seats):
    """What was started, by whom ever."""

    def started(self, decision: Start, now_us: int) -> Flight | None:
        """Seat the pods of a workload that was decided to start; None if it is no unit of ours."""
        unit = self.units.take_out(decision.workload)
        if unit is None:
            return None
        flight = self._flight(unit, decision, now_us)
        for number, uid in enumerate(unit.pods):
            if number in flight.seats and self.units.waits(self.pods.get(uid)):
                self._seat(flight, number, uid, now_us)
                self.replans.discard(uid)
        empty = [number for number, seat in flight.seats.items() if not seat.pod]
        if len(empty) == len(flight.seats):
            # Its pods were evicted, and those that are made instead may not come at all.
            until_us = now_us + self.options.slot_keep_us
            self._empty.update(((flight.uid, number), until_us) for number in empty)
        self._vacant[unit.owner].update((flight.uid, number) for number in empty)
        self._owners_dirty[unit.owner] = None
        return flight

    def _flight(self, unit: Unit, decision: Start, now_us: int) -> Flight:
        seats = {p.pod: Seat(p, "", now_us) for p in decision.placements}
        flight = Flight(
            unit.workload,
            attempt_of(decision),
            unit.owner,
            seats,
            together=unit.workload.pods > 1,
        )
        self._add(flight)
        return flight

    def _add(self, flight: Flight) -> None:
        self.flights[flight.uid] = flight
        self.flights_of[flight.owner].add(flight.uid)
        self.units.numbers.take(flight.uid)

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
        pod = self.pods.get(flight.owner)
        bare = self.truth.stage(pod) is Stage.RELEASED and flight.owner in flight.pods
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

    def refused(self, decision: Refuse) -> None:
        """Plan pods no more that have waited for as long as they may."""
        unit = self.units.waiting.get(decision.workload)
        queue = unit.workload.queue if unit is not None else ""
        mark = Mark(HoldReason.TOO_LATE, queue, decision.waited_us, decision.maximum_us)
        owner = self.units.refuse(decision.workload, mark)
        if owner:
            self._owners_dirty[owner] = None

    def evicted(self, decision: Evict, now_us: int) -> Flight | None:
        """Note that pods are to be evicted; None if they belong to no start of ours."""
        flight = self.flights.get(decision.workload)
        if flight is None:
            return None
        kept = tuple(
            Kept(
                uid,
                tuple(PodPlan(p.pod, p.node, p.leaves) for p in entry.reserved.placements),
                entry.reserved.evicted,
                entry.reserved.reason,
            )
            for uid in decision.for_
            if (entry := self.world.entries.get(uid)) is not None and entry.reserved is not None
        )
        numbers = tuple(number for number in decision.pods if number in flight.seats)
        grace_s = -(-decision.grace_us // SECOND_US)
        counted, reason = self._counted(decision), decision.reason
        at_us = counted.at_us if counted is not None else now_us
        eviction = Eviction(decision.for_, reason, grace_s, numbers, kept, at_us, counted)
        goes = self.world.entries.get(decision.workload)
        for number in numbers:
            uids = goes.evicting.get(number, ()) if goes is not None else decision.for_
            flight.evicting[number] = msgspec.structs.replace(eviction, beneficiaries=uids)
            if not flight.seats[number].pod:
                self._empty[flight.uid, number] = now_us  # nobody sits there who has to go first
            eviction = msgspec.structs.replace(eviction, pods=(), kept=(), counted=None)
        self._leaves(flight)
        return flight

    def _counted(self, decision: Evict) -> Underway | None:
        """How the core counted an eviction; None where its workload has gone since."""
        entry = self.world.entries.get(decision.workload)
        of_these = (
            each
            for each in (entry.underway if entry is not None else ())
            if each.reason is decision.reason and set(decision.pods) & dict(each.going).keys()
        )
        return next(of_these, None)

    def begun(self) -> Iterator[tuple[Flight, bool]]:
        """Evictions that an earlier leader decided, and whether they were written down whole.

        Where they were not, nobody has been asked to go yet.
        """
        for flight in list(self.flights.values()):
            if flight.evicting:
                yield flight, self._goes(flight) or self._is_whole(flight)

    def _goes(self, flight: Flight) -> bool:
        pods = (self.pods.get(uid) for uid in flight.pods)
        return any(pod is not None and pod.is_terminating for pod in pods)

    def _is_whole(self, flight: Flight) -> bool:
        head = next((each for each in flight.evicting.values() if each.pods), None)
        if head is None or any(n in flight.seats and n not in flight.evicting for n in head.pods):
            return False
        others = [self.flights.get(uid) for kept in head.kept for uid in kept.evicted]
        return any(other is not None and self._goes(other) for other in others) or all(
            other is None or bool(other.evicting) for other in others
        )

    def stays(self, flight: Flight, number: int, now_us: int) -> None:
        """Note that the eviction of a pod was refused, so that of its whole workload."""
        flight.evicting.clear()
        self.units.stays(flight.uid, flight.owner)
        self._owners_dirty[flight.owner] = None
        self.queue(ev.EvictionBlocked(now_us, flight.uid, flight.attempt, number))

    def _leaves(self, flight: Flight) -> None:
        self.units.leaves(flight.workload, flight.owner)
        self._owners_dirty[flight.owner] = None

    def noted(self, pod: Pod, note: PlanNote, now_us: int) -> Iterator[ev.Event]:
        """Follow what the leader noted on a seated pod about its eviction."""
        flight, number = self.flights[note.workload], note.own.pod
        known = flight.evicting.get(number)
        if self.acts or note.eviction == known:
            return
        if note.eviction is None:
            if not pod.is_terminating:
                flight.evicting.clear()
                self.units.stays(flight.uid, flight.owner)
                yield ev.EvictionBlocked(now_us, flight.uid, flight.attempt, number)
            return
        flight.evicting[number] = note.eviction
        self._leaves(flight)
        yield from self._restore(flight, now_us)
        yield from self._keep(note.eviction, now_us)

    def follow_evictions(self) -> None:
        """Believe from now on only what is written of evictions, as somebody else leads."""
        for flight in self.flights.values():
            if flight.evicting:
                self._pods_dirty.update(dict.fromkeys(flight.pods))

    def _keep(self, eviction: Eviction, now_us: int) -> Iterator[ev.Event]:
        """Keep the places that an eviction makes room for, as whoever decided it did."""
        for kept in eviction.kept:
            self.kept[kept.workload] = kept
            yield from self.units.submit_again(kept.workload, now_us)

    def cancel(self, flight: Flight, now_us: int) -> None:
        """Take back a start of which nothing was let go, without blaming a node."""
        self.queue(ev.WorkloadEnded(now_us, flight.uid, Outcome.CANCELLED))
        for uid in flight.pods:
            self._pods_dirty[uid] = None
        self._drop(flight)
        self._owners_dirty[flight.owner] = None

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
            if number < note.pods and self.truth.stage(self.pods.get(plan.uid)) is not Stage.GONE
        }
        flight = Flight(
            self._rebuilt_workload(note, plans),
            note.attempt,
            owner,
            {n: Seat(plan.placement(), "", now_us) for n, plan in live.items()},
            together=note.pods > 1,
        )
        waiting = self.world.entries.get(note.workload)
        self.units.take_out(note.workload)
        self._add(flight)
        for number, plan in live.items():
            self._seat(flight, number, plan.uid, now_us)
            eviction = notes[plan.uid].eviction if plan.uid in notes else None
            if eviction is not None:
                flight.evicting[number] = eviction
                self._leaves(flight)
        if (
            waiting is not None
            and not flight.evicting
            and waiting.state is State.WAITING
            and waiting.attempt + 1 == note.attempt
            and len(live) == note.pods == waiting.workload.pods
        ):
            flight.workload = waiting.workload
            key = f"start/{note.workload}/{note.attempt}"
            yield ev.Decided(now_us, Start(key, note.workload, flight.placements))
        else:
            yield from self._restore(flight, now_us)
            for _, eviction in sorted(flight.evicting.items()):
                yield from self._keep(eviction, now_us)
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

    def _rebuilt_workload(self, note: PlanNote, plans: dict[int, PodPlan]) -> Workload:
        pods = {n: self.pods[plan.uid] for n, plan in plans.items() if plan.uid in self.pods}
        first = pods[min(pods)]
        pairs, last = [], (first, self.ask(first))
        for number in range(note.pods):
            last = (pods[number], self.ask(pods[number])) if number in pods else last
            pairs.append(last)
        workload = workload_of(note.workload, pairs, created_us(pods.values()), self.jobs)
        spare = self.is_spare(note.workload, pairs[0][1])
        return replace(workload, queue=note.queue or workload.queue, spare=spare)
