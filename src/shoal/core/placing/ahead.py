"""Reserving ahead: where a workload that fits nowhere now will fit, and when.

The grounds are the ends that running work has declared; what is past its own end is good for none.
For a workload that has waited too long a place is reserved even without grounds: on the nodes that
are nearest to being free.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Self

import numpy as np

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import Checkpoint, IntArray
from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.entry import Entry
from shoal.core.limits.declared import overdue
from shoal.core.placing.board import Board
from shoal.core.placing.keeping import may_fit
from shoal.core.placing.placement import NoPlace
from shoal.core.queueing.waiting import Group
from shoal.core.tenancy.quota import Broken, place_and_charge
from shoal.core.world import World
from shoal.model.workload import Placement

ENDS_LOOKED_AT = 512
"""Ends of running work, the next ones first, that may be the grounds of a reservation."""

TRIES = 32
"""Times that it is tried to let some of those run on who end before a workload fits."""


SORTED_IN_A_SEARCH = 64
"""Workloads that are put in order in the time of a search for a place."""

BOOKED_IN_A_SEARCH = 4
"""Workloads that are let go, or come back, in that time."""


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
    with _Without(world, board, entry, shapes, others, going, budget) as without:
        found = without.first(len(others))
        if found is None:
            return None
        low, high = 1, len(ends)
        while low < high:
            middle = (low + high) // 2
            earlier = without.first(middle)
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
    whole, compute = fleet.whole_free.tolist(), fleet.compute_free.tolist()
    free = {name: (-whole[row], -compute[row], name) for name, row in fleet.row_of.items()}
    holders = [world.entries[uid] for uids in world.holders.values() for uid in uids]
    budget.spend(len(holders) // SORTED_IN_A_SEARCH)
    queue = world.tenants.tree.get(entry.workload.queue)
    latest_us = now_us + (0 if queue is None else queue.starvation_after_us)
    nearest = [
        (
            (expected_end_us(world, holder, now_us) or 0) > latest_us,
            min(free[placement.node] for placement in holder.held.values()),
            min(holder.started.values(), default=0),
            holder.workload.uid,
        )
        for holder in holders
        if holder.held and holder.failed_on is None
    ]
    gone = [world.entries[uid] for *_, uid in sorted(nearest)]
    with _Without(world, board, entry, shapes, gone, going, budget) as without:
        low, high = 0, 1
        found = without.first(high)
        while found is None and high < len(gone):
            low, high = high, 4 * high
            found = without.first(high)
        while found is not None and low + 1 < high:
            middle = (low + high) // 2
            earlier = without.first(middle)
            if earlier is None:
                low = middle
            else:
                high, found = middle, earlier
        return None if found is None else without.sparing(high) or found


class _Without:
    """Where a workload would be placed if some of those who run were gone, in speculation.

    `others` are those who may be, in order. A try begins where one before it has got to, so that it
    costs those who come back or go besides. Starts that this cycle takes back are none of them:
    what they held is free already.
    """

    def __init__(
        self,
        world: World,
        board: Board,
        entry: Entry,
        shapes: tuple[Shape, ...],
        others: Sequence[Entry],
        going: Collection[tuple[str, int]],
        budget: Budget,
    ) -> None:
        self._world = world
        self._others = others
        self._going = going
        self._gone = 0
        """How many of them are gone, the first ones."""
        self._steps: list[tuple[int, Checkpoint, int]] = []
        """How many were gone before each of the steps to that, and what undoes it."""
        self._entry = entry
        self._shapes = shapes
        self._budget = budget
        self._place = partial(place_and_charge, world, board, entry, shapes, budget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on_to(0)

    def first(self, count: int) -> tuple[Placement, ...] | None:
        """Return where it would be without the first so many, None if nowhere."""
        self._go_on_to(count)
        return self._fits()

    def sparing(self, count: int) -> tuple[Placement, ...] | None:
        """Return where it fits if not even all of the first so many end, None if all have to.

        Half of them, then a quarter and so on, are tried to be let run on, the last ones first.
        """
        self._go_on_to(count)
        found: tuple[Placement, ...] | None = None
        parts = [(0, self._gone)]
        for _ in range(TRIES):
            if not parts:
                break
            begin, end = parts.pop()
            checkpoint, charged = self._begin()
            self._book(self._others[begin:end], 1)
            earlier = self._fits()
            if earlier is not None:
                self._world.fleet.journal.keep()
                found = earlier
                continue
            self._undo(checkpoint, charged)
            if end - begin > 1:
                middle = (begin + end) // 2
                parts += [(begin, middle), (middle, end)]
        return found

    def _go_on_to(self, count: int) -> None:
        """Let the first so many be gone, and no others."""
        count = min(count, len(self._others))
        while self._gone > count:
            self._gone, checkpoint, charged = self._steps.pop()
            self._undo(checkpoint, charged)
        if self._gone < count:
            self._steps.append((self._gone, *self._begin()))
            self._book(self._others[self._gone : count], -1)
            self._gone = count

    def _book(self, others: Sequence[Entry], sign: int) -> None:
        """Let some of them come back (`sign` 1), or go (-1)."""
        world = self._world
        self._budget.spend(len(others) // BOOKED_IN_A_SEARCH)
        book = world.fleet.take if sign > 0 else world.fleet.give_back
        for other in others:
            for pod, placement in other.held.items():
                book(other.request_of(pod), placement)
                if not other.rests(pod) and (other.workload.uid, pod) not in self._going:
                    world.charge(other, pod, other.charges[pod], sign)

    def _fits(self) -> tuple[Placement, ...] | None:
        if not may_fit(self._world, self._entry, self._shapes):
            return None
        checkpoint, charged = self._begin()
        found = self._place()
        self._undo(checkpoint, charged)
        return None if isinstance(found, NoPlace | Broken) else found

    def _begin(self) -> tuple[Checkpoint, int]:
        return self._world.fleet.journal.checkpoint(), self._world.tenants.speculated

    def _undo(self, checkpoint: Checkpoint, charged: int) -> None:
        self._world.tenants.undo(charged)
        self._world.fleet.rollback(checkpoint)
