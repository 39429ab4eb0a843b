"""Places that are kept and free, and that more urgent work of the queue may take first.

Whoever is about to start there would be evicted at once by such work, if that has nothing else. So
it starts only when that work had its turn and did not want the places; see `cycle`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from shoal.core.budget import Budget
from shoal.core.entry import Entry
from shoal.core.eviction.making_room import MakingRoom
from shoal.core.eviction.room import NoRoom
from shoal.core.eviction.victims import preemptible_at_once
from shoal.core.placing.board import Board
from shoal.core.placing.keeping import lift
from shoal.core.placing.reservation import Reservation
from shoal.core.queueing.precedence import priority_of
from shoal.core.tenancy.quota import Refusal, start_within_quota
from shoal.core.world import World
from shoal.model.workload import Placement


class Overtaking:
    """Who is ready to start in one cycle. The world must be speculating."""

    def __init__(
        self, world: World, now_us: int, room: MakingRoom, kept: Mapping[str, Reservation]
    ) -> None:
        """`kept` are the reservations that wait for ends, by uid; the cycle drops some of them."""
        self._world = world
        self._now_us = now_us
        self._room = room
        self._kept = kept
        self.ready: dict[str, tuple[Placement, ...]] = {}
        """By uid: the places of work that others may overtake. They are booked and charged."""

    def may_happen_to(self, entry: Entry) -> bool:
        """Return whether work waits that would evict this as soon as it starts, if it could."""
        workload, world = entry.workload, self._world
        worth = self._worth(entry)
        waiting = world.waiting.most_urgent(workload.queue)
        more = waiting is not None and waiting > worth
        more = more or any(
            other.workload.queue == workload.queue and self._worth(other) > worth
            for other in self._kept_for()
        )
        return more and preemptible_at_once(world, entry, self._now_us)

    def ways(self, entry: Entry) -> Iterator[Sequence[str]]:
        """Yield whose places a workload may take: those of one, then those of all."""
        worth, queue = self._worth(entry), entry.workload.queue
        others = [self._world.entries[uid] for uid in self.ready]
        mine = [
            other.workload.uid
            for other in others
            if other.workload.queue == queue and self._worth(other) < worth
        ]
        if entry.was_evicted or not mine:
            return iter(())
        return chain(([uid] for uid in mine), [mine] if len(mine) > 1 else [])

    def lift(self, uids: Sequence[str]) -> None:
        """Take the places of these off the books and accounts, in speculation."""
        world = self._world
        for uid in uids:
            entry, placements = world.entries[uid], self.ready[uid]
            charges = world.charges_in(entry, placements)
            for placement in placements:
                world.fleet.give_back(entry.request_of(placement.pod), placement)
                world.charge(entry, placement.pod, charges[placement.pod], -1)

    def kept_in_vain(self, board: Board, budget: Budget) -> list[Entry]:
        """Return for whom places are kept until others end, and who would rather overtake."""
        return [
            entry
            for entry in (self._kept_for() if self.ready else ())
            if any(self._would_start(entry, uids, board, budget) for uids in self.ways(entry))
        ]

    def _kept_for(self) -> Iterator[Entry]:
        """Yield for whom places are kept until others end, but for those who may not preempt."""
        entries = (self._world.entries[uid] for uid in self._kept)
        return (entry for entry in entries if not entry.was_evicted)

    def _would_start(self, entry: Entry, uids: Sequence[str], board: Board, budget: Budget) -> bool:
        """Return whether a workload could start, or others go for it, in place of these."""
        world = self._world
        checkpoint, charged = world.fleet.journal.checkpoint(), world.tenants.speculated
        lift(world, [entry.workload.uid])
        self.lift(uids)
        shapes = world.shapes_of(entry)
        found = start_within_quota(world, board, entry, shapes, budget)
        starts = not isinstance(found, Refusal)
        if isinstance(found, Refusal):
            starts = not isinstance(self._room.plan(entry, shapes, found), NoRoom)
        world.tenants.undo(charged)
        world.fleet.rollback(checkpoint)
        return starts

    def _worth(self, entry: Entry) -> int:
        return priority_of(self._world.tenants.tree, entry.workload)
