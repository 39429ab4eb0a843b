"""Which replicas of a service are its *floor*, and which of them it can do without.

A service whose pods start one by one says how many replicas it needs (`shoal.dev/minimum`). Those
in its lowest slots are its floor; the others are *spare*, so that they may borrow and be evicted.
The slots that count are those in use, also where the pod is being replaced, and the lowest free
ones, which its next pods will take while its controller lacks some. So nobody else joins the floor
while a replica of it is made again, and those left over do when low slots are given up for good.

A Deployment is one service, and the slots of its older ReplicaSets come first: while a new one
takes over, the replicas that were there are the floor until they go.

All of that is read from what the API server has, so it is the same after a restart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shoal.kubernetes.executing.plans import read_note
from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.watching.book import Book
from shoal.kubernetes.watching.flights import Flight
from shoal.kubernetes.watching.numbers import owner_in, slot_of, uid_in
from shoal.kubernetes.watching.truth import OWNER, Stage
from shoal.kubernetes.watching.units import Unit, Units
from shoal.kubernetes.wire.pod import Pod

ALL = 1 << 62
"""The highest slot of a floor of which no slot is above."""


@dataclass(slots=True)
class Slots:
    """The slots of one controller.

    Attributes:
        used: those that have or had pods, in order.
        given_up: those of them whose pods are deleted, and into which no other comes.
        coming: how many of the lowest free ones its next pods will take.
        others: pods that stay and hold no slot, as they were there before Shoal.
        needs: how many replicas its pods say that the service needs.
        highest: the highest slot of the floor, -1 where it has none.
    """

    used: list[int]
    given_up: frozenset[int]
    coming: int
    others: int
    needs: int
    highest: int = ALL

    def are_above(self, number: int) -> bool:
        """Whether the slot of this number is above the floor."""
        return number > self.highest or number in self.given_up

    def take(self, most: int) -> int:
        """Have the floor be the lowest slots, at most so many; returns how many that are.

        Free ones are counted and not gone through: a controller may want two billion pods.
        """
        self.highest, taken, coming, begin = -1, 0, self.coming, 0
        for number in (*self.used, ALL):
            free = min(number - begin, coming, most - taken)
            if free > 0:
                self.highest, taken, coming = begin + free - 1, taken + free, coming - free
            if taken >= most or number == ALL:
                break
            if number not in self.given_up:
                self.highest, taken = number, taken + 1
            begin = number + 1
        return taken


class Floors:
    """Floors of services, by the uid of the pods' controller."""

    def __init__(self, book: Book, units: Units) -> None:
        self._book = book
        self._units = units
        self._slots: dict[str, Slots] = {}
        """Of every controller whose pods say how many replicas are needed."""
        self._service_of: dict[str, str] = {}
        self._owners_of: dict[str, set[str]] = {}
        """The controllers of each service."""
        self._touched: dict[str, None] = {}
        """Controllers whose slots may be others than when they were looked at last."""

    def touch(self, owner: str) -> None:
        """Have the floor of an owner looked at again, of whose pods or wishes something changed."""
        self._touched[owner] = None

    def forget(self, owner: str) -> None:
        """Forget an owner that has no pods any more."""
        if self._slots.pop(owner, None) is not None:
            self._leave(owner)

    def is_spare(self, uid: str, ask: Ask) -> bool:
        """Whether a service can do without its replica in the slot of this workload.

        That may rest on pods which were not looked at yet; it is looked at again as soon as the
        number is taken.
        """
        if ask.floor is None:
            return False
        owner, number = slot_of(uid)
        if owner in self._touched or owner not in self._slots:
            self._touched.pop(owner, None)
            self._look(self._join(owner))
        return self._slots[owner].are_above(number)

    def changes(self) -> Iterator[tuple[str, bool]]:
        """Workloads that are spare and were not, and the other way round, with what they are now.

        Whoever asks says so to the world.
        """
        changed = self._units.numbers.changed
        for owner in ({*self._touched, *changed}) & self._slots.keys():
            self._join(owner)
        owners = {*self._touched, *changed} & self._slots.keys()
        self._touched.clear()
        changed.clear()
        for service in sorted({self._service_of[owner] for owner in owners}):
            self._look(service)
            for owner in sorted(self._owners_of[service]):
                for number in self._units.numbers.of(owner):
                    found = self._change(owner, number)
                    if found is not None:
                        yield uid_in(owner, number), found

    def _change(self, owner: str, number: int) -> bool | None:
        """Whether a slot's workload is spare now, where that is new."""
        taker = self._taker(uid_in(owner, number))
        if taker is None:
            return None
        asks = [self._book.ask(pod) for each in taker.pods if (pod := self._book.truth_of(each))]
        # A pod that says nothing of a minimum is needed, whatever its neighbours say.
        able = all(ask.floor is not None or ask.refusal is not None for ask in asks)
        spare = able and self._slots[owner].are_above(number)
        return spare if spare != taker.workload.spare else None

    # Services

    def _join(self, owner: str) -> str:
        """The service of a controller now: whatever controls it, if it is a ReplicaSet."""
        found = self._book.replica_sets.get(owner)
        controller = found.metadata.controller if found is not None else None
        service = controller.uid if controller is not None else owner
        if self._service_of.get(owner) != service:
            self._leave(owner)
            self._service_of[owner] = service
            self._owners_of.setdefault(service, set()).add(owner)
        return service

    def _leave(self, owner: str) -> None:
        service = self._service_of.pop(owner, None)
        if service is None:
            return
        others = self._owners_of[service]
        others.discard(owner)
        self._touched.update(dict.fromkeys(others))
        if not others:
            del self._owners_of[service]

    def _look(self, service: str) -> None:
        """Find the floor of a service."""
        owners = sorted(self._owners_of[service], key=self._age)
        slots = [self._read(owner) for owner in owners]
        self._slots.update(zip(owners, slots, strict=True))
        least = max(each.needs for each in slots) - sum(each.others for each in slots)
        for each in slots:
            least -= each.take(max(0, least))
        if least > 0:
            for each in slots:
                each.highest = ALL

    def _age(self, owner: str) -> tuple[float, str]:
        found = self._book.replica_sets.get(owner)
        created = found.metadata.creation_timestamp if found is not None else None
        return created.timestamp() if created is not None else 0.0, owner

    # Slots

    def _read(self, owner: str) -> Slots:
        """The slots of a controller, from its pods and what it wants."""
        units, numbers = self._units, self._units.numbers.of(owner)
        known = self._slots.get(owner)
        used, going, others, said = set(numbers), self._going(owner), 0, []
        coming = units.lacking(owner)
        kept = sum(1 for number in numbers if self._is_kept(uid_in(owner, number)))
        for pod in self._book.truth.pods.by(OWNER, owner):
            stage = self._book.truth.stage(pod)
            if stage is Stage.GONE:
                continue
            floor = self._book.ask(pod).floor
            said += [floor] if floor is not None else []
            if self._book.is_seated(pod.uid) or pod.uid in units.unit_of:
                continue
            number = self._noted(pod, stage)
            if number is not None:
                used.add(number)
                going += [number] if self._is_deleted(pod) else []
                kept += self._is_evicted(pod)
            elif stage is Stage.BOUND:
                others += not pod.is_terminating
            else:
                coming += self._takes_a_slot(pod, stage)
        waiting = sum(1 for number in numbers if self._waits(uid_in(owner, number)))
        # Pods that wait may still take the places of those that are deleted.
        given_up = frozenset(sorted(going)[max(0, coming + waiting - kept) :])
        needs = max(said, default=known.needs if known is not None else ALL)
        return Slots(sorted(used), given_up, max(0, coming - kept), others, needs)

    def _noted(self, pod: Pod, stage: Stage) -> int | None:
        """The slot of a pod that was let go and has no seat yet, as after a restart."""
        note = read_note(pod) if stage in (Stage.BOUND, Stage.RELEASED) else None
        if note is None or not self._book.is_ours(pod, note):
            return None
        return slot_of(note.workload)[1]

    def _takes_a_slot(self, pod: Pod, stage: Stage) -> bool:
        """Whether a pod without a slot gets one soon, or the pod that is made in its place."""
        if stage is Stage.RELEASED:
            return True  # its start is taken back
        return self._units.waits(pod) and pod.uid not in self._units.holds

    def _going(self, owner: str) -> list[int]:
        """Slots whose pods are deleted, other than by an eviction."""
        found = []
        for number in self._units.numbers.of(owner):
            taker = self._taker(uid_in(owner, number))
            pods = map(self._book.truth_of, taker.pods if isinstance(taker, Flight) else ())
            if any(pod is not None and self._is_deleted(pod) for pod in pods):
                found.append(number)
        return found

    def _is_deleted(self, pod: Pod) -> bool:
        return pod.is_terminating and not self._is_evicted(pod)

    def _is_evicted(self, pod: Pod) -> bool:
        note = read_note(pod)
        return pod.is_terminating and note is not None and note.eviction is not None

    def _is_kept(self, uid: str) -> bool:
        """Whether a slot waits for its controller's next pod: it has none, or it was evicted."""
        taker = self._taker(uid)
        heir = self._units.leaving.get(owner_in(uid), {}).get(uid, "")
        if taker is None or self._units.waits(self._book.truth_of(heir)):
            return False
        pods = [pod for each in taker.pods if (pod := self._book.truth_of(each)) is not None]
        return all(map(self._is_evicted, pods))

    def _waits(self, uid: str) -> bool:
        unit = self._units.waiting.get(uid)
        return unit is not None and bool(unit.pods)

    def _taker(self, uid: str) -> Flight | Unit | None:
        """What holds a slot: a start, or what waits."""
        return self._book.flights.get(uid) or self._units.waiting.get(uid)
