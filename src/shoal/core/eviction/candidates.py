"""Who may go so that a workload can start, at a time and if nothing else changes."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from shoal.core.arrays.journal import IntArray
from shoal.core.entry import Entry
from shoal.core.eviction.evictions import DAY_US
from shoal.core.eviction.protection import Line
from shoal.core.eviction.victims import (
    Cost,
    Victim,
    preemptible_from_us,
    reclaimable_from_us,
    victims_of,
)
from shoal.core.limits.deadlines import earliest
from shoal.core.queueing.precedence import granted_in, priority_of
from shoal.core.tenancy.rights import (
    borrowing_queues,
    borrows,
    has_right,
    height_against,
    lent_together,
)
from shoal.core.world import World


class Found:
    """Who may go for a workload at a time, and who may later.

    Of other queues there are many. They are looked at one by one only where somebody has to know.
    """

    def __init__(self, candidates: "Candidates", at_us: int) -> None:
        self._candidates = candidates
        self._at_us = at_us
        self._some: dict[tuple[str, tuple[int, ...]], Victim] = {}
        """Those who were looked at one by one, by workload and pods."""
        self._some_later: dict[int, Cost] = {}
        self._lines: list[tuple[str, Line]] = []
        """The lines of other queues that may go, and of which accelerator each is."""
        self._all_lines: list[tuple[str, Line]] = []
        """The same, with those that may not go as long as the asker's queue holds what it does."""
        self._victims: list[Victim] | None = None
        self._more_us: int | None = None
        """When more of its own queue may be lost than today, where somebody of that may go."""
        self.hungry = False
        """Whether others may come to have to go."""

    def add(self, entry: Entry, from_us: int | None, names: Collection[str]) -> None:
        """Let work go from a time on, if it frees something of these accelerators."""
        world = self._candidates.world
        if from_us is None or world.evictions.allowed(entry.workload.uid) == 0:
            return
        victims = self._candidates.of(entry, self._at_us, names)
        if from_us <= self._at_us:
            self._some |= {(victim.uid, victim.pods): victim for victim in victims}
        elif victims:
            _cheaper(self._some_later, from_us, self._candidates.least(entry, from_us))

    def add_line(self, accelerator: str, line: Line, *, in_vain: bool) -> None:
        """Let the work in a line go that holds devices of an accelerator, unless it is in vain."""
        self._all_lines.append((accelerator, line))
        if not in_vain:
            self._lines.append((accelerator, line))

    def bound(self, queue: str) -> None:
        """Note until when what its own queue has lost bounds how many of it may go together."""
        world, now_us = self._candidates.world, self._candidates.now_us
        if self._some and world.tenants.most_hours_lost(queue) is not None:
            first_us = world.evictions.first_lost_us(queue, now_us)
            self._more_us = None if first_us is None else first_us + DAY_US

    @property
    def units(self) -> int:
        """What those hold who may go now and are in no line."""
        return sum(victim.units for victim in self._some.values())

    def own_later_us(self) -> list[int]:
        """Return when the minimum run of others in its own queue ends."""
        return list(self._some_later)

    def anybody(self) -> bool:
        """Return whether anybody may go."""
        return bool(self._some) or any(
            self._candidates.of(self._entry(uid), self._at_us, (name,))
            for name, line in self._lines
            for uid in line.until(self._at_us)
        )

    @property
    def victims(self) -> list[Victim]:
        """Who may go, the cheapest first."""
        if self._victims is None:
            names: dict[str, list[str]] = {}
            for name, line in self._lines:
                for uid in line.until(self._at_us):
                    names.setdefault(uid, []).append(name)
            found = dict(self._some)
            for uid, each in names.items():
                for victim in self._candidates.of(self._entry(uid), self._at_us, each):
                    found[uid, victim.pods] = victim
            self._victims = sorted(found.values(), key=lambda victim: victim.key)
        return self._victims

    def freed(self, size: int) -> IntArray:
        """Return how many devices would be free by row, at most, if all went."""
        devices: IntArray = np.zeros(size, dtype=np.int64)
        now_us = self._candidates.now_us
        for _, line in self._lines:
            is_now = self._at_us == now_us
            devices += line.open_devices(size, now_us) if is_now else line.devices(size)
        row_of = self._candidates.world.fleet.row_of
        for victim in self._some.values():
            for pod in victim.pods:
                held = victim.entry.held[pod]
                devices[row_of[held.node]] += len(held.leaves)
        return devices

    def later(self) -> dict[int, Cost]:
        """Return when somebody's protection ends, and what evicting him costs at least then."""
        later = dict(self._some_later)
        for name, line in self._all_lines:
            for from_us, uid in line.after(self._at_us):
                entry = self._entry(uid)
                if self._candidates.of(entry, self._at_us, (name,)):
                    _cheaper(later, from_us, self._candidates.least(entry, from_us))
        return later

    def again_us(self) -> int | None:
        """Return when somebody's protection ends next, or more of them may go."""
        firsts = (self._first_after(name, line) for name, line in self._all_lines)
        return earliest(min(self._some_later, default=None), self._more_us, *firsts)

    def _first_after(self, name: str, line: Line) -> int | None:
        entries = ((from_us, self._entry(uid)) for from_us, uid in line.after(self._at_us))
        of = self._candidates.of
        return next((at_us for at_us, e in entries if of(e, self._at_us, (name,))), None)

    def _entry(self, uid: str) -> Entry:
        return self._candidates.world.entries[uid]


def _cheaper(later: dict[int, Cost], from_us: int, cost: Cost) -> None:
    later[from_us] = min(cost, later.get(from_us, cost))


class Candidates:
    """Who may go in one cycle."""

    def __init__(self, world: World, now_us: int) -> None:
        self.world = world
        self.now_us = now_us
        self._victims: dict[tuple[str, int], tuple[Victim, ...]] = {}
        """What each workload could be taken apart into at a time."""
        self.going: set[tuple[str, int]] = set()
        """Pods that this cycle evicts."""
        self.ended: set[tuple[str, int]] = set()
        """Pods that it ends for nobody's sake, which are charged until they go for somebody."""
        self.lent_together = False
        """Whether those may go as well who merely began on borrowed devices; see `rights`."""

    def find(
        self,
        asker: Entry,
        accelerators: tuple[str, ...],
        reclaimed: tuple[str, ...],
        at_us: int | None = None,
        least: Mapping[str, int] | None = None,
    ) -> Found:
        """Return who may go, now or at a time.

        From its own queue those of lower priority may go that hold any of these accelerators; from
        others those that hold borrowed devices of one that is to be `reclaimed`, to which the
        asker's queue has a right. `least` is what the asker will hold at least, by accelerator.
        """
        world, queue = self.world, asker.workload.queue
        at_us = self.now_us if at_us is None else at_us
        found = Found(self, at_us)
        tree = world.tenants.tree
        priority = priority_of(tree, asker.workload)
        if not asker.was_evicted:
            for entry in self._holding(queue):
                if priority_of(tree, entry.workload) < priority:
                    found.add(entry, preemptible_from_us(world, entry, at_us), accelerators)
            found.bound(queue)
        heights = [(name, has_right(world.tenants, queue, name)) for name in reclaimed]
        rights = {name: height for name, height in heights if height is not None}
        for name, right in rights.items():
            borrowing = borrowing_queues(world.tenants, queue, name, right)
            covered = self._covered(queue, name, borrowing, least or {}, found.units)
            for holder in borrowing:
                line = world.protection.lines(world, holder, queue).get(name)
                if line is not None:
                    in_vain = height_against(world.tenants, queue, holder) <= covered
                    found.add_line(name, line, in_vain=in_vain)
            if self.lent_together:
                self._add_lent(found, queue, name, right, borrowing)
        ranks = not asker.was_evicted and priority > self._least_priority(queue)
        found.hungry = bool(rights) or ranks
        return found

    def _covered(
        self,
        queue: str,
        accelerator: str,
        borrowing: Collection[str],
        least: Mapping[str, int],
        freed: int,
    ) -> int:
        """Return how far up the first guarantee is that may cover an asker, once others go.

        `freed` is what goes of its own queue at most; of those beside it below that guarantee as
        much may go as needed. Farther up than any, where none will.
        """
        tenants = self.world.tenants
        path = tenants.path(queue)
        for height, at in enumerate(path):
            bound = tenants.guarantee(at, accelerator)
            mine = sum(units for name, units in least.items() if name in bound.accelerators)
            below = any(at in tenants.path(holder) for holder in borrowing)
            if below or 0 < bound.units >= tenants.held(at, bound) - freed + mine:
                return height
        return len(path)

    def _add_lent(
        self, found: Found, queue: str, name: str, right: int, borrowing: Collection[str]
    ) -> None:
        """Let those go as well who merely began on borrowed devices."""
        world = self.world
        within_us = world.tenants.reclaim_within_us(queue)
        for holder in sorted(world.holders):
            if holder == queue or holder in borrowing:
                continue
            if height_against(world.tenants, queue, holder) > right:
                for entry in self._holding(holder):
                    if self._lent(entry, queue, (name,)):
                        found.add(entry, reclaimable_from_us(world, entry, within_us), (name,))

    def of(self, entry: Entry, at_us: int, names: Collection[str]) -> list[Victim]:
        """Return what a workload could be taken apart into that is on any of these accelerators."""
        uid = entry.workload.uid
        known = self._victims.get((uid, at_us))
        if known is None:
            known = self._victims[uid, at_us] = victims_of(self.world, entry, at_us)
        going, ended = self.going, self.ended
        return [
            v
            for v in known
            if v.lies_on(names)
            and not any((uid, pod) in going or (uid, pod) in ended for pod in v.pods)
        ]

    def least(self, entry: Entry, at_us: int) -> Cost:
        """Return the least that evicting something of a workload costs at a time."""
        return min(victim.cost for victim in victims_of(self.world, entry, at_us))

    def open_us(self, asker: Entry, victims: Iterable[Victim]) -> int:
        """Return when all of these may go for a workload."""
        world, queue = self.world, asker.workload.queue
        within_us = world.tenants.reclaim_within_us(queue)
        times_us = [
            preemptible_from_us(world, victim.entry, self.now_us)
            if victim.entry.workload.queue == queue
            else reclaimable_from_us(world, victim.entry, within_us)
            for victim in victims
        ]
        return max((each for each in times_us if each is not None), default=self.now_us)

    def may_take(self, asker: Entry, victim: Victim, accelerators: Collection[str]) -> bool:
        """Return whether a workload may take these from a victim's queue, as accounts are now."""
        entry, queue = victim.entry, asker.workload.queue
        holder = entry.workload.queue
        names = [name for name in victim.accelerators if name in accelerators]
        return (
            holder == queue
            or borrows(self.world.tenants, holder, queue, names)
            or self._lent(entry, queue, victim.accelerators)
        )

    def _lent(self, entry: Entry, asker: str, accelerators: tuple[str, ...]) -> bool:
        """Return whether work may go that merely began on borrowed devices, and this is such."""
        tenants = self.world.tenants
        return self.lent_together and lent_together(
            tenants, entry.workload.queue, entry.borrowed, asker, accelerators
        )

    def _holding(self, queue: str) -> list[Entry]:
        entries = (self.world.entries[uid] for uid in self.world.holders.get(queue, ()))
        return [entry for entry in entries if entry.failed_on is None]

    def _least_priority(self, queue: str) -> int:
        """Return the least that a name may be worth there; what has none is worth nothing."""
        return min((0, *(each.value for each in granted_in(self.world.tenants.tree, queue))))
