"""Reserving ahead: where a workload that fits nowhere now will fit, and when.

The grounds are the ends that running work has declared; what is past its own end is good for none.
For a workload that has waited too long a place is reserved even without grounds: on the nodes that
are nearest to being free.
"""

from collections.abc import Sequence

from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.entry import Entry
from shoal.core.limits.declared import overdue
from shoal.core.placing.board import Board
from shoal.core.placing.placement import NoPlace
from shoal.core.tenancy.quota import Broken, place_and_charge
from shoal.core.world import World
from shoal.model.workload import Placement

ENDS_LOOKED_AT = 512
"""Ends of running work, the next ones first, that may be the grounds of a reservation."""


def expected_end_us(world: World, entry: Entry, now_us: int) -> int | None:
    """Return when a workload that holds something ends; None where nobody knows."""
    run_us = world.declared.expected_us(entry.workload)
    if run_us is None or overdue(entry, now_us):
        return None
    end_us = min(entry.started.values(), default=now_us) + run_us
    return end_us if end_us > now_us else None


def next_ends(world: World, now_us: int) -> list[tuple[int, Entry]]:
    """Return which running work ends next, and when, as far as it is known."""
    known = dict(world.declaring)
    for queue in world.limits.limit_runs:
        known |= world.holders.get(queue, {})
    ends = []
    for uid in known:
        end_us = expected_end_us(world, world.entries[uid], now_us)
        if end_us is not None:
            ends.append((end_us, uid, world.entries[uid]))
    ends.sort(key=lambda end: end[:2])
    return [(end_us, other) for end_us, _, other in ends[:ENDS_LOOKED_AT]]


def when_it_fits(
    world: World,
    board: Board,
    entry: Entry,
    shapes: tuple[Shape, ...],
    ends: list[tuple[int, Entry]],
    budget: Budget,
) -> tuple[tuple[Placement, ...], int] | None:
    """Return the first places that running work will free for a workload, and when it has."""
    if not ends:
        return None
    others = [other for _, other in ends]
    found = _without(world, board, entry, shapes, others, budget)
    if found is None:
        return None
    low, high = 1, len(ends)
    while low < high:
        middle = (low + high) // 2
        earlier = _without(world, board, entry, shapes, others[:middle], budget)
        if earlier is None:
            low = middle + 1
        else:
            high, found = middle, earlier
    return found, ends[high - 1][0]


def nearest_to_free(
    world: World, board: Board, entry: Entry, shapes: tuple[Shape, ...], budget: Budget
) -> tuple[Placement, ...] | None:
    """Return places on the nodes with most free devices on which a workload would fit alone."""
    fleet = world.fleet
    by_node: dict[str, list[Entry]] = {}
    for uids in world.holders.values():
        for uid in uids:
            holder = world.entries[uid]
            for node in {placement.node: None for placement in holder.held.values()}:
                by_node.setdefault(node, []).append(holder)
    nodes = sorted(
        by_node,
        key=lambda name: (
            -int(fleet.whole_free[fleet.row_of[name]]),
            -int(fleet.compute_free[fleet.row_of[name]]),
            name,
        ),
    )
    low, high = 1, len(nodes)
    found: tuple[Placement, ...] | None = None
    while low <= high:
        middle = (low + high) // 2
        gone = {holder.workload.uid: holder for n in nodes[:middle] for holder in by_node[n]}
        earlier = _without(world, board, entry, shapes, list(gone.values()), budget)
        if earlier is None:
            low = middle + 1
        else:
            high, found = middle - 1, earlier
    return found


def _without(
    world: World,
    board: Board,
    entry: Entry,
    shapes: tuple[Shape, ...],
    gone: Sequence[Entry],
    budget: Budget,
) -> tuple[Placement, ...] | None:
    """Return where a workload would be placed if others were gone, None if it would not be."""
    fleet, tenants = world.fleet, world.tenants
    checkpoint, charged = fleet.journal.checkpoint(), tenants.speculated
    try:
        for other in gone:
            for pod, placement in other.held.items():
                fleet.give_back(other.request_of(pod), placement)
                if not other.rests(pod):
                    world.charge(other, pod, other.charges[pod], -1)
        found = place_and_charge(world, board, entry, shapes, budget)
        return None if isinstance(found, NoPlace | Broken) else found
    finally:
        tenants.undo(charged)
        fleet.rollback(checkpoint)
