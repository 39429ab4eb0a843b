"""Reserving ahead: where a workload that fits nowhere now will fit, and when.

The grounds are the ends that running work has declared; what is past its own end is good for none.
For a workload that has waited too long a place is reserved even without grounds: on the nodes that
are nearest to being free.
"""

from collections.abc import Collection, Sequence

import numpy as np

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.entry import Entry
from shoal.core.limits.declared import overdue
from shoal.core.placing.board import Board
from shoal.core.placing.placement import NoPlace
from shoal.core.queueing.waiting import Group
from shoal.core.tenancy.quota import Broken, place_and_charge
from shoal.core.world import World
from shoal.model.workload import Placement

ENDS_LOOKED_AT = 512
"""Ends of running work, the next ones first, that may be the grounds of a reservation."""

TRIES = 32
"""Times that it is tried to let some of those run on who end before a workload fits."""


def expected_end_us(world: World, entry: Entry, now_us: int) -> int | None:
    """Return when a workload that holds something ends; None where nobody knows."""
    run_us = world.declared.expected_us(entry.workload)
    if run_us is None or overdue(entry, now_us) or entry.failed_on is not None:
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
    going: Collection[tuple[str, int]],
    budget: Budget,
) -> tuple[tuple[Placement, ...], int] | None:
    """Return the first places that running work will free for a workload, and when it has.

    `going` are the pods that this cycle evicts, by workload and number.
    """
    if not ends:
        return None
    others = [other for _, other in ends]
    found = _without(world, board, entry, shapes, others, going, budget)
    if found is None:
        return None
    low, high = 1, len(ends)
    while low < high:
        middle = (low + high) // 2
        earlier = _without(world, board, entry, shapes, others[:middle], going, budget)
        if earlier is None:
            low = middle + 1
        else:
            high, found = middle, earlier
    return found, ends[high - 1][0]


def sizes_of(fleet: Fleet) -> IntArray:
    """Return by row the CPU, the memory and the places for pods of an empty node."""
    sizes = [
        (node.cpu_milli, node.memory_mib, node.pods) if node is not None else (0, 0, 0)
        for node in fleet.nodes[: fleet.size]
    ]
    return np.array(sizes, dtype=np.int64).reshape(-1, 3)


def could_hold(world: World, group: Group, sizes: IntArray) -> bool:
    """Return whether the fleet could hold a workload of a group if it were empty.

    Each pod set is looked at alone, and of parts of devices only on how many nodes they could be;
    so where it says no, that is certain.
    """
    fleet = world.fleet
    for shape, _, needed in group.key[1]:
        request = shape.request
        rows = world.allowed_rows(shape)[: fleet.size]
        devices = fleet.device_count[: fleet.size][rows]
        asked = (request.cpu_milli, request.memory_mib, 1)
        pods = [sizes[rows, what] // each for what, each in enumerate(asked) if each > 0]
        if request.devices.count:
            whole = devices // request.devices.count
            pods.append(whole if request.devices.whole else np.where(whole > 0, pods[-1], 0))
        if int(np.minimum.reduce(pods).sum()) < needed:
            return False
    return True


def nearest_to_free(
    world: World,
    board: Board,
    entry: Entry,
    shapes: tuple[Shape, ...],
    now_us: int,
    going: Collection[tuple[str, int]],
    budget: Budget,
) -> tuple[Placement, ...] | None:
    """Return places on the nodes with most free devices on which a workload would fit alone.

    Of what runs there as little as possible has to end, what began first before the others, so that
    what is free already is kept as well. Whoever has declared to run for longer than the workload
    may wait is counted on last.
    """
    fleet = world.fleet
    free = {
        name: (-int(fleet.whole_free[row]), -int(fleet.compute_free[row]), name)
        for name, row in fleet.row_of.items()
    }
    holders = [world.entries[uid] for uids in world.holders.values() for uid in uids]
    queue = world.tenants.tree.get(entry.workload.queue)
    patience_us = 0 if queue is None else queue.starvation_after_us
    nearest = [
        (
            (expected_end_us(world, holder, now_us) or 0) > now_us + patience_us,
            min(free[placement.node] for placement in holder.held.values()),
            min(holder.started.values(), default=0),
            holder.workload.uid,
        )
        for holder in holders
        if holder.held and holder.failed_on is None
    ]
    gone = [world.entries[uid] for *_, uid in sorted(nearest)]
    low, high = 0, 1
    found = _without(world, board, entry, shapes, gone[:high], going, budget)
    while found is None and high < len(gone):
        low, high = high, 4 * high
        found = _without(world, board, entry, shapes, gone[:high], going, budget)
    while found is not None and low + 1 < high:
        middle = (low + high) // 2
        earlier = _without(world, board, entry, shapes, gone[:middle], going, budget)
        if earlier is None:
            low = middle
        else:
            high, found = middle, earlier
    if found is None:
        return None
    return _sparing(world, board, entry, shapes, gone[:high], going, budget) or found


def _sparing(
    world: World,
    board: Board,
    entry: Entry,
    shapes: tuple[Shape, ...],
    gone: list[Entry],
    going: Collection[tuple[str, int]],
    budget: Budget,
) -> tuple[Placement, ...] | None:
    """Return where a workload fits if not even all of these end, None where all of them have to.

    Half of them, then a quarter and so on, are tried to be let run on, the last ones first.
    """
    found: tuple[Placement, ...] | None = None
    parts = [(0, len(gone))]
    for _ in range(TRIES):
        if not parts:
            break
        begin, end = parts.pop()
        left = gone[:begin] + gone[end:]
        earlier = _without(world, board, entry, shapes, left, going, budget)
        if earlier is not None:
            gone, found = left, earlier
        elif end - begin > 1:
            middle = (begin + end) // 2
            parts += [(begin, middle), (middle, end)]
    return found


def _without(
    world: World,
    board: Board,
    entry: Entry,
    shapes: tuple[Shape, ...],
    gone: Sequence[Entry],
    going: Collection[tuple[str, int]],
    budget: Budget,
) -> tuple[Placement, ...] | None:
    """Return where a workload would be placed if others were gone, None if it would not be.

    Starts that this cycle takes back are no `gone`: what they held is free already.
    """
    fleet, tenants = world.fleet, world.tenants
    checkpoint, charged = fleet.journal.checkpoint(), tenants.speculated
    try:
        for other in gone:
            for pod, placement in other.held.items():
                fleet.give_back(other.request_of(pod), placement)
                if not other.rests(pod) and (other.workload.uid, pod) not in going:
                    world.charge(other, pod, other.charges[pod], -1)
        found = place_and_charge(world, board, entry, shapes, budget)
        return None if isinstance(found, NoPlace | Broken) else found
    finally:
        tenants.undo(charged)
        fleet.rollback(checkpoint)
