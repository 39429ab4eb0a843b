"""Making room in one cycle: who goes for whom, how many may, and what is kept for the others."""

from collections.abc import Collection
from dataclasses import replace

from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.decisions import Evict, Freeze, GiveUp, Reserve, Start
from shoal.core.entry import Entry
from shoal.core.eviction.clearing import Clearing
from shoal.core.eviction.evictions import too_many_gone
from shoal.core.eviction.room import NoRoom, Room
from shoal.core.eviction.victims import Victim, lost_device_us
from shoal.core.placing.board import Board
from shoal.core.placing.keeping import lift
from shoal.core.placing.reservation import Reservation
from shoal.core.queueing.waiting import Group
from shoal.core.tenancy.quota import MAY_BE_MADE, Refusal, promise
from shoal.core.world import World
from shoal.model.verdict import Reason, Stage
from shoal.model.workload import Placement


class MakingRoom:
    """The evictions of one cycle. The world must be speculating."""

    def __init__(
        self,
        world: World,
        board: Board,
        now_us: int,
        budget: Budget,
        kept: dict[str, Reservation],
    ) -> None:
        """`kept` are the reservations that wait for ends, by uid; what is given up leaves it."""
        self._world = world
        self._now_us = now_us
        self._kept = kept
        self._clearing = Clearing(world, board, now_us, budget, kept)
        self.evicts: dict[str, Evict] = {}
        """Evictions by workload: what goes of it in one cycle goes together."""
        self.freezes: list[Freeze] = []
        """That no more may follow, if that is so."""
        self._evicted = 0
        """Workloads that this cycle evicts whole."""

    @property
    def going(self) -> Collection[tuple[str, int]]:
        """The pods that go to make room, by workload and number."""
        return self._clearing.carried_out

    def look_at_the_fleet(self) -> None:
        """Evict nobody from here on where too much of the fleet has gone."""
        evictions = self._world.evictions
        if evictions.frozen or not self._world.tenants.tree.queues:
            return
        gone, worked = evictions.gone(self._now_us)
        if too_many_gone(gone, worked):
            self._freeze(Reason.DEVICES_GONE, gone, worked)

    def end(self, evict: Evict) -> None:
        """End work for nobody's sake; whoever comes to ask may wait for its place."""
        self.evicts[evict.workload] = evict
        self._clearing.ends(evict.workload, evict.pods)

    def plan(
        self, entry: Entry, shapes: tuple[Shape, ...], found: Refusal
    ) -> tuple[Room, dict[str, tuple[int, ...]]] | NoRoom:
        """Return how others would go for a workload, and which pods, those that go already too.

        `found` is why it does not start. Nothing is decided yet.
        """
        over = found.verdict.over_quota
        if found.verdict.never or found.verdict.stage is Stage.BUDGET:
            return NoRoom(hungry=False)
        if over is not None and over.reason not in MAY_BE_MADE:
            return NoRoom(hungry=False)
        room = self._clearing.find(entry, shapes)
        if isinstance(room, NoRoom):
            return room
        evicted = self._clearing.going(entry, room)
        if evicted and (self._world.evictions.frozen or self.freezes):
            return NoRoom(hungry=True)
        return room, evicted

    def make_room(
        self, entry: Entry, group: Group, found: Refusal
    ) -> tuple[GiveUp | Reserve | Start, ...] | NoRoom:
        """Make others go for a workload, if it has a right to that.

        Where they are evicted their places are kept for it; where nobody has to be, but places kept
        ahead give way to it, it starts.
        """
        world = self._world
        plan = self.plan(entry, group.shapes, found)
        if isinstance(plan, NoRoom):
            return plan
        room, evicted = plan
        if not self._may_evict(sum(1 for victim in room.victims if not victim.spared)):
            return NoRoom(hungry=True)
        uid = entry.workload.uid
        given_up = tuple(self._give_up(each) for each in room.fit.given_way)
        self._clearing.take(entry, room)
        queues = {world.entries[each].workload.queue for each in evicted}
        reason = Reason.PREEMPTION if queues == {entry.workload.queue} else Reason.RECLAIM
        for victim in room.victims:
            self._evict(victim, entry, exact=room.exact)
        charged_for = world.charges_in(entry, room.placements)
        for placement in room.placements:
            world.fleet.take(entry.request_of(placement.pod), placement)
            world.charge(entry, placement.pod, charged_for[placement.pod], 1)
        promise(world, entry, room.placements)
        borrowed = world.borrowed(entry, room.placements)
        for charges in charged_for.values():
            world.tenants.pin(entry.workload.queue, charges, borrowed, 1)
        if not evicted:
            key = f"start/{uid}/{entry.attempt + 1}"
            return *given_up, Start(key, uid, room.placements, borrowed=borrowed)
        key = f"reserve/{uid}/{entry.kept + 1}/{self._now_us}"
        placements, pods = room.placements, tuple(evicted.values())
        reserve = Reserve(key, uid, placements, None, tuple(evicted), reason, borrowed, pods)
        return *given_up, reserve

    def _give_up(self, uid: str) -> GiveUp:
        """Keep the places of a workload no longer that waits for ends."""
        lift(self._world, (uid,))
        del self._kept[uid]
        return give_up(self._world.entries[uid], Reason.RECLAIM, self._now_us)

    def keep_until_open(
        self, entry: Entry, group: Group, again_us: int, *, only_reclaim: bool
    ) -> tuple[GiveUp | Reserve, ...]:
        """Keep for a workload what will be freed for it once others are protected no longer.

        Otherwise what became free meanwhile would be lent again, and be protected anew. Nothing is
        kept for who needs a single device, which it takes wherever one becomes free first, nor, by
        `only_reclaim`, where nothing is taken from other queues. Where those could go by now, but
        others would lose less, it is kept until protection ends next, which is at `again_us`.
        """
        sets = zip(group.shapes, entry.workload.pod_sets, strict=True)
        if sum(shape.request.devices.count * pod_set.needed for shape, pod_set in sets) < 2:
            return ()
        found = self._clearing.later(entry, group.shapes)
        if found is None:
            return ()
        (room, open_us), world = found, self._world
        at_us = open_us if open_us > self._now_us else again_us
        reclaims = any(v.entry.workload.queue != entry.workload.queue for v in room.victims)
        if only_reclaim and not reclaims:
            return ()
        given_up = tuple(self._give_up(each) for each in room.fit.given_way)
        reason = Reason.RECLAIM if reclaims else Reason.PREEMPTION
        return *given_up, keep(world, entry, room.placements, at_us, reason, self._now_us)

    def _may_evict(self, workloads: int) -> bool:
        """Return whether so many more may be evicted; where they may not, freeze evictions."""
        world = self._world
        before = world.evictions.lately(self._now_us) + self._evicted
        most = world.evictions.most(world.holders, self._now_us)
        if before + workloads <= most:
            self._evicted += workloads
            return True
        self._freeze(Reason.TOO_MANY_EVICTIONS, before + workloads, most)
        return False

    def _freeze(self, reason: Reason, count: int, most: int) -> None:
        self.freezes.append(Freeze(f"freeze/{self._now_us}", count, most, reason))

    def _evict(self, victim: Victim, asker: Entry, *, exact: bool) -> None:
        """End pods to make room."""
        world, entry, uid = self._world, victim.entry, victim.uid
        for pod in victim.pods:
            world.charge(entry, pod, entry.charges[pod], -1)
        reclaimed = entry.workload.queue != asker.workload.queue
        evict = Evict(
            f"evict/{uid}/{entry.attempt}/{victim.pods[0]}/{self._now_us}",
            uid,
            victim.pods,
            (asker.workload.uid,),
            lost_device_us(victim.cost),
            exact,
            world.tenants.grace_us(entry.workload),
            Reason.RECLAIM if reclaimed else Reason.PREEMPTION,
        )
        before = self.evicts.get(uid)
        if before is not None:
            evict = replace(
                before,
                pods=tuple(sorted({*before.pods, *evict.pods})),
                for_=tuple(dict.fromkeys((*before.for_, *evict.for_))),
                lost_device_us=before.lost_device_us + evict.lost_device_us,
                exact=before.exact and exact,
            )
        self.evicts[uid] = evict


def keep(
    world: World,
    entry: Entry,
    placements: tuple[Placement, ...],
    at_us: int | None,
    reason: Reason,
    now_us: int,
) -> Reserve:
    """Keep places for a workload for which nobody goes yet, and behind which others may fill in."""
    promise(world, entry, placements, at_us)
    for placement in placements:
        world.fleet.take(entry.request_of(placement.pod), placement)
    uid = entry.workload.uid
    key = f"reserve/{uid}/{entry.kept + 1}/{now_us}"
    return Reserve(key, uid, placements, at_us, (), reason)


def give_up(entry: Entry, reason: Reason, now_us: int) -> GiveUp:
    """Keep no places for a workload any longer."""
    uid = entry.workload.uid
    return GiveUp(f"give-up/{uid}/{entry.kept}/{now_us}", uid, reason)
