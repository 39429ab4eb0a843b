"""Seats of starts: confirmed, emptied, kept for a successor, filled, given up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from shoal.core import events as ev
from shoal.core.eviction.underway import Underway
from shoal.core.world import World
from shoal.kubernetes.watching.asks import Ask, AskReader
from shoal.kubernetes.watching.books import DEFAULT_OPTIONS, Books, SourceOptions
from shoal.kubernetes.watching.checkpoints import reported_us, saved_us
from shoal.kubernetes.watching.fleet import FleetView
from shoal.kubernetes.watching.flights import Flight, since_us
from shoal.kubernetes.watching.floors import Floors
from shoal.kubernetes.watching.history import NO_PAST, Past, past_of
from shoal.kubernetes.watching.numbers import owner_in, slot_of, uid_in
from shoal.kubernetes.watching.truth import OWNER, Stage, Truth
from shoal.kubernetes.watching.units import Units
from shoal.kubernetes.wire.pod import Pod
from shoal.model.request import Request
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Placement


class Seats(Books):
    """Who sits where."""

    def __init__(
        self,
        truth: Truth,
        world: World,
        reader: AskReader,
        fleet: FleetView,
        options: SourceOptions = DEFAULT_OPTIONS,
    ) -> None:
        super().__init__(truth, world, reader, fleet, options)
        self.units = Units(self)
        self.floors = Floors(self, self.units)

    def is_spare(self, uid: str, ask: Ask) -> bool:
        """Whether a service can do without its replica in the slot of this workload."""
        return self.floors.is_spare(uid, ask)

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
            home = self._home_of(flight.workload, pod)
            if home != flight.workload.queue:
                flight.workload = replace(flight.workload, queue=home)
                yield from self._restore(flight, now_us)
            yield from self._resettle(flight, number, pod, now_us)
            if entry is not None and number not in entry.started:
                yield ev.PodStarted(now_us, workload, number)
            yield from self._saved(flight, number, pod, now_us)

    def _saved(self, flight: Flight, number: int, pod: Pod, now_us: int) -> Iterator[ev.Event]:
        """Tell up to when the work of a start is saved, where a pod says something new of that."""
        seat, entry = flight.seats[number], self.world.entries.get(flight.uid)
        said_us = reported_us(pod, now_us)
        if entry is None or said_us == seat.saved_us:
            return
        seat.saved_us = said_us
        found_us = saved_us(flight, entry.started)
        if found_us is not None and found_us != flight.saved_us:
            flight.saved_us = found_us
            yield ev.CheckpointReported(now_us, flight.uid, found_us)

    def _resettle(self, flight: Flight, number: int, pod: Pod, now_us: int) -> Iterator[ev.Event]:
        """Book what a bound pod has: its claim's devices, or devices that its node counts."""
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
        if number in flight.evicting:
            yield from self._evicted(flight, number, uid, now_us)
        elif entry is None:
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

    def _evicted(self, flight: Flight, number: int, uid: str, now_us: int) -> Iterator[ev.Event]:
        """An evicted pod is gone. Its workload, if it was the last, waits for new pods."""
        pod = self.pods.get(uid)
        eviction, seat = flight.evicting.pop(number), flight.seats.pop(number)
        if eviction.reason == Reason.MAXIMUM_RUN and not flight.ended and not _is_done(pod):
            flight.ended = True
            if uid != flight.owner:
                self.units.timed_out.ran(flight, seat.name, eviction.at_us)
        self._vacant[flight.owner].discard((flight.uid, number))
        last = not flight.seats
        if last and (flight.ended or _is_done(pod) or uid == flight.owner):
            outcome = Outcome.COMPLETED if _is_done(pod) else Outcome.EVICTED
            yield ev.WorkloadEnded(now_us, flight.uid, outcome)
        else:
            yield ev.PodEnded(now_us, flight.uid, number)
        if not last:
            if not flight.evicting:
                self.units.stays(flight.uid, flight.owner)
            return
        self._drop(flight)
        if flight.uid in self.world.entries:
            until_us = now_us + self.options.slot_keep_us
            self.units.returns(flight.workload, flight.owner, until_us)
        else:
            self.units.stays(flight.uid, flight.owner)

    def _keeps(self, flight: Flight, number: int) -> bool:
        """Whether the place of a deleted pod is kept: it is wanted, and still good."""
        if not self.acts or not self.options.slot_keep_us:
            return False
        wanted = self._wanted(flight.owner)
        return len(self._vacant[flight.owner]) <= wanted and self._is_good(flight, number)

    def _wanted(self, owner: str) -> int:
        """How many empty seats of an owner may be taken soon; counted once for all changes."""
        known = self._wanted_by.get(owner)
        if known is None:
            known = 0
            if owner in self.jobs or owner in self.replica_sets:
                pods = self.truth.pods.by(OWNER, owner)
                known = self.units.lacking(owner) + sum(self.units.waits(pod) for pod in pods)
            self._wanted_by[owner] = known
        return known

    def _to_come(self, owner: str) -> int:
        """How many of the workloads of an owner may be made again that have no pods for now."""
        if not self.wishes_known(owner):
            return len(self.units.returning)
        if owner in self.jobs:
            return self._wanted(owner)
        pods = self.truth.pods.by(OWNER, owner)
        waits, placed = self.units.waits, self.units.unit_of
        coming = sum(waits(pod) and pod.uid not in placed for pod in pods)
        return self.units.lacking(owner) + coming

    def _is_good(self, flight: Flight, number: int) -> bool:
        """Whether a pod could be started in a seat now."""
        entry = self.world.entries.get(flight.uid)
        if entry is None:
            return False
        place = flight.seats[number].placement
        return self.fleet.may_start(entry.request_of(number), entry.workload.type, place)

    def _give_up_seat(self, flight: Flight, number: int, now_us: int) -> Iterator[ev.Event]:
        self._empty.pop((flight.uid, number), None)
        if number in flight.evicting:
            yield from self._evicted(flight, number, "", now_us)
            return
        self._vacant[flight.owner].discard((flight.uid, number))
        yield ev.PodEnded(now_us, flight.uid, number)
        flight.seats.pop(number, None)
        if flight.uid not in self.world.entries:
            self._drop(flight)

    def _expire(self, now_us: int) -> Iterator[ev.Event]:
        """Give up seats, and places of evicted pods, that nobody took in time or that are bad."""
        to_come: dict[str, int] = {}
        for owner, number in sorted(map(slot_of, self.units.returning)):
            uid = uid_in(owner, number)
            if owner not in to_come:
                to_come[owner] = self._to_come(owner)
            to_come[owner] -= 1
            if self.units.returning[uid] <= now_us or to_come[owner] < 0:
                yield from self.units.expire(uid, now_us)
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
        for uid, number in sorted(self._vacant.get(owner, ())):
            flight = self.flights[uid]
            if flight.failure or flight.evicting or not left:
                continue
            if not self._is_good(flight, number):
                continue
            wanted = self.world.entries[uid].written_of(number)
            pod = next((p for p in left if _alike(self.ask(p).request, wanted)), None)
            if pod is not None:
                left.remove(pod)
                self._empty.pop((uid, number), None)
                self._seat(flight, number, pod.uid, now_us)
                self.to_release.append((uid, number))
        return left

    def _seat(self, flight: Flight, number: int, pod: str, now_us: int) -> None:
        seat = flight.seats[number]
        found = self.pods.get(pod)
        seat.pod, seat.since_us, seat.saved_us = pod, now_us, None
        seat.name = found.metadata.name if found is not None else ""
        self._vacant[flight.owner].discard((flight.uid, number))
        self._seats[pod] = (flight.uid, number)

    def _unseat(self, pod: str) -> None:
        uid, number = self._seats.pop(pod)
        flight = self.flights.get(uid)
        if flight is not None and number in flight.seats:
            flight.seats[number].pod = ""
            self._vacant[flight.owner].add((uid, number))

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
            self.units.numbers.free(flight.uid)
        for number in flight.seats:
            self._empty.pop((flight.uid, number), None)
            self._vacant[flight.owner].discard((flight.uid, number))

    def _restore(self, flight: Flight, now_us: int) -> Iterator[ev.Event]:
        """Have the world hold a flight just as its seats say."""
        entry = self.world.entries.get(flight.uid)
        underway = entry.underway if entry is not None and self.acts else _underway(flight)
        if entry is not None:
            yield ev.WorkloadEnded(now_us, flight.uid, Outcome.CANCELLED)
        started = [
            number
            for number, seat in sorted(flight.seats.items())
            if (entry is not None and number in entry.started)
            or self.truth.stage(self.pods.get(seat.pod)) is Stage.BOUND
        ]
        known = entry.started if entry is not None else {}
        past = self.units.pasts.pop(flight.uid, None) or (past_of(entry) if entry else NO_PAST)
        evicting = tuple(sorted(flight.evicting))
        yield ev.WorkloadRestored(
            now_us,
            flight.workload,
            flight.attempt,
            flight.placements,
            tuple(started),
            None,
            (),
            since_us=tuple(
                known.get(number) or self._since_us(flight, number, now_us) for number in started
            ),
            checkpoint_us=entry.checkpoint_us if entry is not None else None,
            evicting=evicting,
            beneficiaries=tuple(flight.evicting[n].beneficiaries for n in evicting),
            was_evicted=past.was_evicted,
            evictions_us=past.evictions_us,
            served_device_us=past.served_device_us,
            underway=underway,
        )

    def pasts(self) -> dict[str, Past]:
        """What is to be remembered of workloads that were evicted, by uid."""
        found = {
            uid: past
            for uid, past in self.units.pasts.items()
            if self.truth.pods.by(OWNER, owner_in(uid))
        }
        for uid, entry in self.world.entries.items():
            if entry.was_evicted:
                found[uid] = past_of(entry)
        return found

    def recall(self, pasts: Mapping[str, Past], now_us: int) -> Iterator[ev.Event]:
        """Remember the pasts of workloads, those that are here and those that may come back."""
        for uid, past in pasts.items():
            yield from self.units.recall(uid, past, now_us)
            flight = self.flights.get(uid)
            if flight is not None:
                flight.workload = replace(flight.workload, created_us=past.came_us)
                yield from self._restore(flight, now_us)

    def _since_us(self, flight: Flight, number: int, now_us: int) -> int:
        found = since_us(self.pods.get(flight.seats[number].pod))
        return now_us if found is None else min(found, now_us)


def _underway(flight: Flight) -> tuple[Underway, ...]:
    """The evictions of a start as they were counted, by what is written on its pods."""
    found = [each.counted for each in flight.evicting.values() if each.counted is not None]
    for pod in {pod for each in found for pod, _ in each.going} - flight.evicting.keys():
        # One that is still there was not written on yet.
        stays = pod in flight.seats
        found = [each.sparing(pod) if stays else each.without(pod) for each in found]
    return tuple(sorted(found, key=lambda each: each.at_us))


def _is_done(pod: Pod | None) -> bool:
    """Whether a pod has finished its work. One that always restarts does not finish: it stopped."""
    if pod is None or pod.spec.restart_policy == "Always":
        return False
    return pod.status.phase == "Succeeded"


def _alike(one: Request, other: Request) -> bool:
    """Whether two pods of one owner hold the same; a pin that one has already does not count."""
    return (one.cpu_milli, one.memory_mib, one.devices) == (
        other.cpu_milli,
        other.memory_mib,
        other.devices,
    )
