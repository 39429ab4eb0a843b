"""Places kept ahead that give way to guarantees, as the work there would have to if it ran.

What is kept for work that waits until others have ended takes devices from whoever else could use
them. Somebody within a guarantee takes such a place where he could take the devices back from whom
it is kept for, who then waits like others. Of its own queue nobody takes a place.
"""

from collections.abc import Iterable, Mapping

from shoal.core.arrays.charges import Charge
from shoal.core.entry import Entry
from shoal.core.placing.keeping import lay, lift, nothing_owed
from shoal.core.placing.reservation import Reservation
from shoal.core.tenancy.rights import borrows, within
from shoal.core.world import World
from shoal.model.workload import Placement


class GivingWay:
    """The places that are kept ahead in one cycle. The world must be speculating."""

    def __init__(self, world: World, kept: Mapping[str, Reservation]) -> None:
        """`kept` are the reservations that wait for ends, by uid; the cycle drops some of them."""
        self._world = world
        self._kept = kept
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
            for uid in self._kept
            if (names := reclaimed & self._accelerators(uid))
            and self._gives_way(asker, self._world.entries[uid], names, least)
        )

    def _gives_way(
        self, asker: Entry, other: Entry, names: Iterable[str], least: Mapping[str, int]
    ) -> bool:
        world, tenants = self._world, self._world.tenants
        mine, holder = asker.workload.queue, other.workload.queue
        if not world.returnable(other.workload):
            return False
        if not within(tenants, mine, holder, names, least):
            return False
        charged = tenants.speculated
        for pod, charges in self._charges[other.workload.uid].items():
            world.charge(other, pod, charges, 1)
        found = borrows(tenants, holder, mine, names)
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

    def _accelerators(self, uid: str) -> frozenset[str]:
        if uid not in self._charges:
            entry, placements = self._world.entries[uid], self._kept[uid].placements
            self._charges[uid] = self._world.charges_in(entry, placements)
        charges = self._charges[uid].values()
        return frozenset(charge.accelerator for each in charges for charge in each)
