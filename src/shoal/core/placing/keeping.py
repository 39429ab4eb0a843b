"""Places that are kept for workloads: whether they are still there, and whether they are free."""

from collections.abc import Iterable, Iterator, Mapping

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.neighbours import quarrels, suffices
from shoal.core.arrays.shape import Shape
from shoal.core.entry import Entry
from shoal.core.placing.eligibility import may_hold
from shoal.core.placing.reservation import Reservation
from shoal.core.world import World


def backfills(reservation: Reservation, end_us: int | None) -> bool:
    """Return whether work that ends then may use places that are kept for somebody else."""
    at_us = reservation.at_us
    return at_us is not None and end_us is not None and end_us <= at_us


def behind(kept: Mapping[str, Reservation], end_us: int | None) -> list[str]:
    """Return the uids of those behind whose kept places work may fill in that ends then."""
    if end_us is None:
        return []
    return [uid for uid, each in kept.items() if backfills(each, end_us)]


def lift(world: World, uids: Iterable[str]) -> None:
    """Take off the books, in speculation, the places that are kept for these workloads."""
    _book(world, uids, -1)


def lay(world: World, uids: Iterable[str]) -> None:
    """Undo `lift`."""
    _book(world, uids, 1)


def _book(world: World, uids: Iterable[str], sign: int) -> None:
    fleet = world.fleet
    for uid in uids:
        entry = world.entries[uid]
        for placement in entry.reserved.placements if entry.reserved is not None else ():
            if sign > 0:
                fleet.take(entry.request_of(placement.pod), placement)
            else:
                fleet.give_back(entry.request_of(placement.pod), placement)


def times_us(
    world: World, entry: Entry, at_us: int | None, look_us: int | None = None
) -> Iterator[int]:
    """Yield when time alone may change something for who is kept places until others have ended.

    That is when these are late, when others may be evicted, and when it has waited too long.
    """
    if at_us is not None:
        yield at_us + 1
    if look_us is not None:
        yield look_us
    queue = world.tenants.tree.get(entry.workload.queue)
    if queue is not None:
        yield entry.waits_since_us + queue.starvation_after_us


def may_fit(world: World, entry: Entry, shapes: tuple[Shape, ...]) -> bool:
    """Return whether there may be room for a workload; where it is False there is none."""
    return all(
        may_hold(world.fleet, shape, world.allowed_rows(shape), pod_set.needed)
        for shape, pod_set in zip(shapes, entry.workload.pod_sets, strict=True)
    )


def lost(world: World, entry: Entry, reservation: Reservation) -> bool:
    """Return whether a place is gone: a device is, or the node is no longer for such a pod.

    A device that isolates its tenants less than is asked for is gone as well.
    """
    fleet = world.fleet
    for placement in reservation.placements:
        row = fleet.row_of.get(placement.node)
        shape = world.shape_of(entry.request_of(placement.pod), entry.workload.type)
        if row is None or not world.allowed_rows(shape)[row]:
            return True
        for leaf in placement.leaves:
            if leaf not in fleet.leaves[row]:
                return True
            column = fleet.leaves[row].index(leaf)
            if not fleet.leaf_tenants[row, column]:
                return True
            devices = entry.request_of(placement.pod).devices
            if not suffices(fleet, devices, row, column):
                return True
    return False


def free(world: World, entry: Entry, reservation: Reservation) -> bool:
    """Return whether nobody is left in the places of a workload; it is booked there itself.

    What is only kept for others does not count. Whoever was evicted for it has to be gone, also
    from elsewhere: then it was the quota that was wanted, and not the place.
    """
    if not nobody_goes(world, entry, reservation):
        return False
    fleet = world.fleet
    nodes = {placement.node for placement in reservation.placements}
    checkpoint = fleet.journal.checkpoint()
    try:
        for uid in world.reserving:
            other = world.entries[uid]
            if other is entry or other.reserved is None:
                continue
            for placement in other.reserved.placements:
                if placement.node in nodes:
                    fleet.give_back(other.request_of(placement.pod), placement)
        return all(nothing_owed(fleet, p.node, p.leaves) for p in reservation.placements)
    finally:
        fleet.rollback(checkpoint)


def owes(fleet: Fleet, node: str) -> bool:
    """Return whether a node has less CPU, memory or places for pods than are booked there."""
    row = fleet.row_of[node]
    return bool(min(fleet.cpu_free[row], fleet.memory_free[row], fleet.pods_free[row]) < 0)


def nothing_owed(fleet: Fleet, node: str, leaves: Iterable[str]) -> bool:
    """Return whether a node, and these leaves of it, have all that is booked there."""
    if owes(fleet, node):
        return False
    row = fleet.row_of[node]
    for leaf in leaves:
        at = row, fleet.leaves[row].index(leaf)
        free_there = (
            fleet.leaf_compute_free[at],
            fleet.leaf_memory_free[at],
            fleet.leaf_tenants_free[at],
        )
        if min(free_there) < 0 or fleet.leaf_whole_holders[at] > 1 or quarrels(fleet, *at):
            return False
    return True


def nobody_goes(world: World, entry: Entry, reservation: Reservation) -> bool:
    """Return whether no pod is left that goes for a workload.

    Its places are free then, or never will be.
    """
    evicted = (world.entries[uid] for uid in reservation.evicted if uid in world.entries)
    return not any(
        entry.workload.uid in uids for each in evicted for uids in each.evicting.values()
    )
