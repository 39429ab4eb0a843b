"""What one cycle keeps for workloads that cannot start yet, and for whom nobody goes yet.

Kept are, for each queue: for whoever is within a guarantee what will be freed for it as soon as
others are protected no longer; for who has waited longest, if that is too long, the next places;
and for the first in its order those that running work frees at a time that it has declared. Others
may fill in behind what is kept, as long as they end before.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from shoal.core.arrays.journal import IntArray
from shoal.core.budget import Budget
from shoal.core.decisions import GiveUp, Reserve
from shoal.core.entry import Entry
from shoal.core.events import Examined
from shoal.core.eviction.choices import accelerators_of
from shoal.core.eviction.making_room import MakingRoom, keep
from shoal.core.eviction.room import NoRoom
from shoal.core.placing.ahead import (
    could_hold,
    nearest_to_free,
    next_ends,
    sizes_of,
    when_it_fits,
)
from shoal.core.placing.board import Board
from shoal.core.placing.keeping import behind, lay, lift, times_us
from shoal.core.queueing.grouping import starves
from shoal.core.queueing.waiting import Group
from shoal.core.tenancy.quota import Refusal, start_within_quota
from shoal.core.tenancy.rights import has_right, height_against
from shoal.core.world import World
from shoal.model.queue import Queue
from shoal.model.verdict import Reason, Stage
from shoal.model.workload import Placement

STARVING_LOOKED_AT = 4
"""Workloads of a queue, of those that have waited for longest and ask for different things, for one
of which places are looked for. What the fleet could not even hold if it were empty is none."""


class KeepingAhead:
    """The places kept in one cycle. The world must be speculating, and what is spent be judged."""

    def __init__(self, world: World, board: Board, now_us: int, budget: Budget) -> None:
        self._world = world
        self._board = board
        self._now_us = now_us
        self._budget = budget
        self._ends: list[tuple[int, Entry]] | None = None
        """Which running work ends next, and when, once it was asked for."""
        reserving = (world.entries[uid] for uid in world.reserving)
        kept = [(e, e.reserved) for e in reserving if e.reserved is not None]
        self.places = {e.workload.uid: each for e, each in kept if each.waits_for_ends}
        """By uid what is kept for workloads that wait for others to end there."""
        self._reserved: dict[str, None] = {}
        """Queues for one of which places are kept until running work has ended."""
        self._starving: dict[str, None] = {}
        """Queues for one of which places are kept as it has waited too long, or will not be."""
        for entry, each in kept:
            if each.waits_for_ends and each.reason is not Reason.RECLAIM:
                late = starves(world, entry, now_us)
                (self._starving if late else self._reserved)[entry.workload.queue] = None
        self._sizes: IntArray | None = None
        """What nodes have when they are empty, once it was asked for."""
        self._holds: dict[Group, bool] = {}
        """Whether the fleet could hold work of a group if it were empty."""
        self._examined: dict[str, Examined] = {}
        """By uid those of whom is known by now when time alone may let others be evicted."""
        self._going: Collection[tuple[str, int]] = ()
        """Pods that this cycle evicts, by workload and number."""
        self._made: dict[str, int | None] = {}
        """For whom places are kept by decisions of this cycle, and until when."""

    @property
    def keeps_more(self) -> bool:
        """Return whether this cycle has decided to keep places; the next one goes by them."""
        return bool(self._made)

    def find_place(self, entry: Entry, group: Group) -> tuple[Placement, ...] | Refusal:
        """Place a workload, also where places are kept for others if it ends before."""
        world = self._world
        end_us = world.declared.end_us(entry.workload, self._now_us)
        ahead = behind(self.places, end_us)
        lift(world, ahead)
        found = start_within_quota(world, self._board, entry, group.shapes, self._budget)
        lay(world, ahead)
        return found

    def is_too_far(self, entry: Entry, at_us: int | None) -> bool:
        """Return whether a workload that has waited too long would wait as long again."""
        queue = self._world.tenants.tree.get(entry.workload.queue)
        if queue is None or at_us is None or not starves(self._world, entry, self._now_us):
            return False
        return at_us > self._now_us + queue.starvation_after_us

    def is_wanted(self, entry: Entry, placements: Sequence[Placement]) -> bool:
        """Return whether others wait who could take back what a workload would hold there.

        It is charged for that. They wait in a queue that is below a guarantee which this one has no
        part in, and what this one would hold is beyond its own.
        """
        world, tenants, mine = self._world, self._world.tenants, entry.workload.queue
        names = accelerators_of(world, placements)
        beyond = tenants.borrowed(entry.workload, names) if names else 0
        kept = (world.entries[uid].workload.queue for uid in self.places)
        for queue in dict.fromkeys((*world.waiting.by_priority, *kept)) if beyond > 0 else ():
            if beyond >= height_against(tenants, mine, queue):
                apart = height_against(tenants, queue, mine)
                rights = (has_right(tenants, queue, name) for name in names)
                if any(height is not None and height < apart for height in rights):
                    return True
        return False

    def look_again(self, uid: str, at_us: int | None) -> None:
        """Note when time alone may let others be evicted for whom places are kept."""
        entry = self._world.entries[uid]
        if uid in self._made or entry.reserved is None or entry.reserved.look_us != at_us:
            self._examined[uid] = Examined(uid, None, again_us=at_us)

    def examined(self) -> Iterator[Examined]:
        """Yield when they are to be looked at again, of those that are kept their places."""
        for uid, examined in self._examined.items():
            if uid in self.places or uid in self._made:
                yield examined

    def late_us(self) -> list[int]:
        """Return when something is to be done for those who are kept places by time alone.

        That is where others are late, or their protection ends, or where they come to starve.
        """
        kept = {uid: (each.at_us, each.look_us) for uid, each in self.places.items()}
        kept |= {uid: (at_us, None) for uid, at_us in self._made.items()}
        times = (times_us(self._world, self._world.entries[uid], *at) for uid, at in kept.items())
        return [at_us for each in times for at_us in each if at_us > self._now_us]

    def keep(
        self,
        entry: Entry,
        found: Refusal,
        room: NoRoom,
        making_room: MakingRoom,
        settled: set[str],
    ) -> tuple[GiveUp | Reserve, ...]:
        """Keep places for a workload that cannot start now, or for others of its queue.

        `found` and `room` are why it does not. Those for whom places are kept are `settled` then.
        """
        queue = self._world.tenants.tree.get(entry.workload.queue)
        if queue is None:
            return ()
        self._going = making_room.going
        kept = self._for_who_starves(queue, settled, making_room)
        if not any(isinstance(e, Reserve) and e.workload == entry.workload.uid for e in kept):
            kept += self._for_it(entry, queue, found, room, making_room)
        made = {each.workload: each.at_us for each in kept if isinstance(each, Reserve)}
        self._made |= made
        if entry.workload.uid in made:
            self.look_again(entry.workload.uid, room.again_us)
        settled.update(made)
        return kept

    def _for_it(
        self, entry: Entry, queue: Queue, found: Refusal, room: NoRoom, making_room: MakingRoom
    ) -> tuple[GiveUp | Reserve, ...]:
        group = entry.group
        if group is None or found.verdict.stage is not Stage.PLACE or self._is_refused(entry):
            return ()
        if room.again_us is not None:
            others = queue.name in self._reserved
            again_us = room.again_us
            kept = making_room.keep_until_open(entry, group, again_us, only_reclaim=others)
            if kept:
                return kept
        if queue.name in self._reserved:
            return ()
        known = self._when_it_fits(entry, group)
        if known is None or self.is_too_far(entry, known[1]):
            return ()
        self._reserved[queue.name] = None
        return (self._keep(entry, *known),)

    def _for_who_starves(
        self, queue: Queue, settled: Collection[str], making_room: MakingRoom
    ) -> tuple[GiveUp | Reserve, ...]:
        """Keep places for whoever of a queue has waited for longest, if that is too long.

        Where running work frees them within as long once more, as was declared, or else where they
        are nearest to being free.
        """
        if queue.name in self._starving:
            return ()
        self._starving[queue.name] = None
        world, now_us = self._world, self._now_us
        latest_us = now_us - queue.starvation_after_us
        looked_at: dict[Group, None] = {}
        with closing(world.waiting.oldest(queue.name, latest_us)) as oldest:
            for uid in oldest:
                entry = world.entries[uid]
                group = entry.group
                if uid in settled or group is None or group in looked_at or _never(group):
                    continue
                if self._is_refused(entry) or not self._could_hold(group):
                    continue
                if len(looked_at) == STARVING_LOOKED_AT:
                    break
                looked_at[group] = None
                found = self._why_not(entry, group)
                if found is not None and found.verdict.stage is Stage.BUDGET:
                    continue  # it would be given up again
                room = found and making_room.plan(entry, group.shapes, found)
                if not isinstance(room, NoRoom):
                    return ()  # its turn will come
                kept = self._next_places(entry, group)
                if kept is not None:
                    self.look_again(uid, room.again_us)
                    return (self._keep(entry, *kept),)
        return ()

    def _is_refused(self, entry: Entry) -> bool:
        """Return whether a workload has waited for the longest time that its queue grants."""
        return self._world.limits.waited_too_long(entry.workload.uid, self._now_us)

    def _could_hold(self, group: Group) -> bool:
        """Return whether the fleet could hold a workload of a group if it were empty."""
        if group not in self._holds:
            if self._sizes is None:
                self._sizes = sizes_of(self._world.fleet)
            self._holds[group] = could_hold(self._world, group, self._sizes)
        return self._holds[group]

    def _why_not(self, entry: Entry, group: Group) -> Refusal | None:
        """Return why a workload does not start now, None where it could."""
        world = self._world
        checkpoint, charged = world.fleet.journal.checkpoint(), world.tenants.speculated
        found = self.find_place(entry, group)
        world.tenants.undo(charged)
        world.fleet.rollback(checkpoint)
        return found if isinstance(found, Refusal) else None

    def _next_places(
        self, entry: Entry, group: Group
    ) -> tuple[tuple[Placement, ...], int | None] | None:
        """Return the next places for who has waited too long, and when these are free, if known."""
        known = self._when_it_fits(entry, group)
        if known is not None and not self.is_too_far(entry, known[1]):
            return known
        near = nearest_to_free(
            self._world,
            self._board,
            entry,
            group.shapes,
            self._now_us,
            self._going,
            self._budget,
        )
        return None if near is None else (near, None)

    def _when_it_fits(self, entry: Entry, group: Group) -> tuple[tuple[Placement, ...], int] | None:
        if self._ends is None:
            self._ends = next_ends(self._world, self._now_us)
        return when_it_fits(
            self._world, self._board, entry, group.shapes, self._ends, self._going, self._budget
        )

    def _keep(self, entry: Entry, placements: tuple[Placement, ...], at_us: int | None) -> Reserve:
        return keep(self._world, entry, placements, at_us, Reason.RESERVED, self._now_us)


def _never(group: Group) -> bool:
    """Return whether the work of a group was told that it never starts."""
    return group.verdict is not None and group.verdict.never
