"""Places kept ahead that give way to others, as the work there would have to if it ran.

What is kept for work that waits until others have ended takes devices from whoever else could use
them. Somebody within a guarantee takes such a place where he could take the devices back from whom
it is kept for, who then waits like others. Of those who share a guarantee, within one queue or
below one, whoever is within it takes the place of whoever would be beyond it, and in one queue who
comes first takes the place of who comes later; but not of who has waited too long. In one queue
more urgent work takes the place of whoever it could evict there at once, and never the other way.
"""

from collections.abc import Collection, Iterable, Mapping

from shoal.core.arrays.charges import Charge
from shoal.core.entry import Entry
from shoal.core.eviction.victims import evicts_at_once, preemptible_at_once
from shoal.core.placing.keeping import behind, lay, lift, nothing_owed
from shoal.core.placing.reservation import Reservation
from shoal.core.queueing.grouping import comes_before, starves
from shoal.core.queueing.precedence import priority_of
from shoal.core.tenancy.rights import covers, height_against, within
from shoal.core.world import World
from shoal.model.workload import Placement


class GivingWay:
    """The places that are kept ahead in one cycle. The world must be speculating."""

    def __init__(self, world: World, now_us: int, kept: Mapping[str, Reservation]) -> None:
        """`kept` are the reservations that wait for ends, by uid; the cycle drops some of them."""
        self._world = world
        self._now_us = now_us
        self._kept = kept
        self._in_queue: dict[str, list[str]] = {}
        """For whom they are kept, by queue; some are dropped later."""
        for uid in kept:
            self._in_queue.setdefault(world.entries[uid].workload.queue, []).append(uid)
        self._charges: dict[str, dict[int, tuple[Charge, ...]]] = {}
        """What work would be charged, by its pods, in the places that are kept for it."""

    def to(
        self, asker: Entry, accelerators: Iterable[str], least: Mapping[str, int]
    ) -> tuple[str, ...]:
        """Return the uids of those whose places give way to a workload.

        `accelerators` are those that others may have to give back, `least` what the workload will
        hold at least, in units by accelerator.
        """
        reclaimed = frozenset(accelerators)
        return tuple(
            uid
            for uid in self._for_whom(asker, reclaimed, least)
            if uid != asker.workload.uid
            and (names := reclaimed & self._accelerators(uid))
            and self.gives_way(uid, asker, names, least)
        )

    def may_use(self, asker: Entry) -> bool:
        """Return whether there may be a place that a workload could use, as accounts are now.

        It gives way to it on one accelerator at least, or it fills in behind it.
        """
        if behind(self._kept, self._world.declared.end_us(asker.workload, self._now_us)):
            return True
        return any(
            self.gives_way(uid, asker, (name,), {})
            for uid in self._for_whom(asker, self._world.fleet.accelerators(), {})
            for name in self._accelerators(uid)
        )

    def _for_whom(
        self, asker: Entry, accelerators: Iterable[str], more: Mapping[str, int]
    ) -> Iterable[str]:
        """Return for whom places are kept that may give way to a workload that holds so much more.

        Others than those of its own queue give way to nobody whose queues are all beyond what they
        are guaranteed.
        """
        tenants, queue = self._world.tenants, asker.workload.queue
        names = tuple(accelerators)
        if any(covers(tenants, at, (name,), more) for at in tenants.path(queue) for name in names):
            return self._kept
        return [uid for uid in self._in_queue.get(queue, ()) if uid in self._kept]

    def gives_way(
        self, uid: str, asker: Entry, accelerators: Iterable[str], more: Mapping[str, int]
    ) -> bool:
        """Return whether the places of one give way to a workload that holds so much more."""
        world, tenants = self._world, self._world.tenants
        other, names = self._world.entries[uid], tuple(accelerators)
        mine, theirs = asker.workload.queue, other.workload.queue
        apart = height_against(tenants, theirs, mine)
        if within(tenants, mine, theirs, names, more):
            return self._beyond(other, names) >= apart
        if mine == theirs and evicts_at_once(world, asker, other, self._now_us):
            return True
        if starves(world, other, self._now_us):
            return False
        if mine == theirs and self._is_evicted_at_once(asker, other):
            return False
        if mine == theirs and comes_before(world, asker, other):
            return True
        shared = tenants.path(theirs)[apart:-1]
        covered = [covers(tenants, at, names, more) for at in shared]
        return any(covered) and self._beyond(other, names) > apart + covered.index(True)

    def _is_evicted_at_once(self, asker: Entry, other: Entry) -> bool:
        """Return whether a workload would be for whom a place is kept, or for others who wait."""
        world, queue = self._world, asker.workload.queue
        worth = priority_of(world.tenants.tree, asker.workload)
        waiting = world.waiting.most_urgent(queue)
        if waiting is not None and waiting > worth:
            return preemptible_at_once(world, asker, self._now_us)
        return evicts_at_once(world, other, asker, self._now_us)

    def _beyond(self, other: Entry, names: Collection[str]) -> int:
        """Return how many queues, from its own up, would borrow what work would hold there."""
        world, tenants = self._world, self._world.tenants
        charged = tenants.speculated
        for pod, charges in self._charges[other.workload.uid].items():
            world.charge(other, pod, charges, 1)
        found = tenants.borrowed(other.workload, names)
        tenants.undo(charged)
        return found

    def touched(
        self, uids: Iterable[str], placements: Iterable[Placement]
    ) -> dict[str, frozenset[str]]:
        """Return the uids of those whose places others cannot have as well, with accelerators.

        `placements` are booked, and the places of these `uids` are lifted. Those of whoever is not
        among the found are laid again.
        """
        world, fleet = self._world, self._world.fleet
        taken: dict[str, set[str]] = {}
        for placement in placements:
            taken.setdefault(placement.node, set()).update(placement.leaves)
        found = {}
        for uid in uids:
            lay(world, (uid,))
            if any(
                not nothing_owed(fleet, kept.node, taken[kept.node].intersection(kept.leaves))
                for kept in self._kept[uid].placements
                if kept.node in taken
            ):
                found[uid] = self._accelerators(uid)
                lift(world, (uid,))
        return found

    def behind(self, asker: Entry) -> tuple[str, ...]:
        """Return the uids of those behind whose places a workload may fill in.

        It ends before they are due even if it starts as late as whoever goes for it may stop.
        """
        world = self._world
        starts_us = self._now_us + world.tenants.reclaim_within_us(asker.workload.queue)
        end_us = world.declared.end_us(asker.workload, starts_us)
        own = asker.workload.uid  # its own place is lifted where it asks for others
        return tuple(uid for uid in behind(self._kept, end_us) if uid != own)

    def _accelerators(self, uid: str) -> frozenset[str]:
        if uid not in self._charges:
            entry, placements = self._world.entries[uid], self._kept[uid].placements
            self._charges[uid] = self._world.charges_in(entry, placements)
        charges = self._charges[uid].values()
        return frozenset(charge.accelerator for each in charges for charge in each)
