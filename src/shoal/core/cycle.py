"""One cycle: from the state of the world to decisions.

It reads as a narrative of numbered phases. It speculates on the fleet's journal and rolls back to
its start, so the world is the same before and after; the decisions become state as events.
"""

from dataclasses import dataclass

from shoal.core.budget import Budget
from shoal.core.decisions import Decision, GiveUp, Reserve, Retract, Start, Wait
from shoal.core.entry import Entry
from shoal.core.events import Examined
from shoal.core.eviction.making_room import MakingRoom, give_up
from shoal.core.eviction.overtaking import Overtaking
from shoal.core.eviction.room import NoRoom
from shoal.core.keeping_ahead import KeepingAhead
from shoal.core.limits import timelimits
from shoal.core.limits.deadlines import earliest
from shoal.core.placing.board import Board
from shoal.core.placing.growing import Growing
from shoal.core.placing.keeping import free, lay, lift, lost, may_fit, nobody_goes
from shoal.core.placing.reservation import Reservation
from shoal.core.policies import Policy
from shoal.core.queueing.looks import Looks
from shoal.core.queueing.order import Heads
from shoal.core.queueing.waiting import Group
from shoal.core.tenancy.quota import Refusal, promise, start_within_quota, units_of
from shoal.core.world import World
from shoal.model.verdict import Reason, Stage, Verdict
from shoal.model.workload import Placement


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a cycle came to.

    `complete` is False where there is more to decide now: the budget ended the cycle early, a start
    was taken back, so that its workload waits anew, work is evicted, which gives back quota, work
    is refused, whose kept places are free then and behind which others come first, or elastic work
    starts without all of its pods, of which the next cycle may find it some.
    """

    decisions: tuple[Decision, ...]
    examined: tuple[Examined, ...]
    complete: bool
    look_again_us: int | None = None
    """When time alone may change something, if nothing happens before."""


def cycle(world: World, policy: Policy, now_us: int, seed: int, budget: Budget) -> Cycle:
    """Decide what is to be done now.

    `seed` keys every random choice. What the budget does not reach is left for the next cycle.
    """
    run = _Run(world, world.board(policy, seed), now_us, budget)
    start = world.fleet.journal.checkpoint()
    world.tenants.clock(now_us)
    world.spending.decides(now_us)
    if world.tenants.speculate():
        run.look_at_the_blocked()
    try:
        run.look_at_the_fleet()  # 1
        run.retract_failed_starts()  # 2
        run.end_what_ran_too_long()  # 3
        run.start_where_places_are_kept()  # 4
        run.start_what_fits()  # 5
        run.start_what_nobody_overtook()  # 6
        run.resize_elastic_work()  # 7
        run.answer_newcomers()  # 8
        run.refuse_what_waited_too_long()  # 9
        run.warn_of_spent_budgets()  # 10
    finally:
        world.fleet.rollback(start)
        world.tenants.end_speculation()
        world.spending.decided()
    return Cycle(run.decided(), run.examined(), run.complete, run.look_again_us())


class _Run:
    """The phases of one cycle, and what they have decided so far."""

    def __init__(self, world: World, board: Board, now_us: int, budget: Budget) -> None:
        self._world = world
        self._board = board
        self._now_us = now_us
        self._budget = budget
        self._due = dict.fromkeys(world.waiting.due(now_us))
        """Sleeping groups whose time has come."""
        self._fresh = dict(world.waiting.fresh)
        """Rows that have gained room since the last complete cycle, or gain it in this one."""
        self._looked_at: dict[Group, None] = {}
        """Groups whose first member waits on."""
        self._gave_up = False
        self._freed = world.waiting.freed
        """Whether there may be something for running work that lacks pods."""
        self._ahead = KeepingAhead(world, board, now_us, budget)
        self._room = MakingRoom(world, board, now_us, budget, self._ahead.places)
        self._overtaking = Overtaking(world, now_us, self._room, self._ahead.places)
        self._put_off: dict[str, None] = {}
        """For whom places are kept that fit them now, by uid, once others have had their turn."""
        self._looked_at_all = False
        """Whether everybody was looked at whose turn it was."""
        self._settled: set[str] = set()
        """Who waited and was started, or told why not, in this cycle."""
        self.decisions: list[Decision] = []
        self._examined: list[Examined] = []
        self.complete = True

    def look_at_the_fleet(self) -> None:
        """1. Evict nobody from here on where too much of the fleet has gone."""
        self._room.look_at_the_fleet()

    def look_at_the_blocked(self) -> None:
        """Look at those for whom a quota stands in the way: it is worth something else now."""
        self._due |= self._world.waiting.blocked()
        self._freed = True

    def retract_failed_starts(self) -> None:
        """2. Take back starts that did not come true; what they held is free for this cycle."""
        world = self._world
        for uid in sorted(world.failed):
            entry = world.entries[uid]
            if entry.failed_on is None:
                continue
            for pod, placement in entry.held.items():
                row = world.fleet.give_back(entry.request_of(pod), placement)
                self._fresh[row] = None
                if not entry.rests(pod):
                    world.charge(entry, pod, entry.charges[pod], -1)
                world.pin(entry, entry.charges[pod], -1)
            self.decisions.append(Retract(f"retract/{uid}/{entry.attempt}", uid, entry.failed_on))
            self.complete = False

    def end_what_ran_too_long(self) -> None:
        """3. End running work that has had the longest time that its queue grants."""
        for evict in timelimits.ended(self._world, self._now_us):
            self._room.end(evict)
            self.complete = False

    def start_where_places_are_kept(self) -> None:
        """4. Start workloads whose places are free now; give up places that are kept in vain."""
        world = self._world
        for uid in sorted(world.reserving):
            entry = world.entries[uid]
            reservation = entry.reserved
            if reservation is None:
                continue
            if lost(world, entry, reservation):
                self._give_up(entry, Reason.PLACE_LOST)
            elif reservation.waits_for_ends:
                self._start_if_ready(entry, reservation)
            elif free(world, entry, reservation):
                placements = reservation.placements
                units = units_of(world, entry, placements)
                if world.spending.refusal(entry.workload, units) is not None:
                    self._give_up(entry, Reason.BUDGET)
                    continue
                self._start_kept(entry, placements)
            elif nobody_goes(world, entry, reservation):
                self._give_up(entry, Reason.NOT_FREED)
        for entry in self._overtaking.kept_in_vain(self._board, self._budget):
            self._give_up(entry, Reason.NOT_FREED)

    def _start(
        self, entry: Entry, placements: tuple[Placement, ...], borrowed: int | None = None
    ) -> None:
        """Decide a start, which is charged already."""
        uid = entry.workload.uid
        if borrowed is None:
            borrowed = self._world.borrowed(entry, placements)
        key = f"start/{uid}/{entry.attempt + 1}"
        self.decisions.append(Start(key, uid, placements, borrowed=borrowed))
        if entry.grows and len(placements) < entry.workload.pods:
            self.complete = False

    def _give_up(self, entry: Entry, reason: Reason) -> None:
        for charges in entry.reserved.charges if entry.reserved is not None else ():
            self._world.pin(entry, charges, -1)
        self.decisions.append(give_up(entry, reason, self._now_us))
        self._ahead.places.pop(entry.workload.uid, None)
        self._gave_up = True
        self.complete = False

    def _start_if_ready(self, entry: Entry, reservation: Reservation) -> None:
        """Start a workload that waits for others to end, where it fits: there or elsewhere.

        Where others may be evicted for it by now, it waits for their ends no longer. Whoever could
        take back what it would hold has his turn before it.
        """
        declared = reservation.reason is Reason.RESERVED
        if declared and self._ahead.is_too_far(entry, reservation.at_us):
            self._give_up(entry, Reason.NOT_FREED)
            return
        times_us = (reservation.at_us, reservation.look_us)
        due = any(at_us is not None and at_us <= self._now_us for at_us in times_us)
        due = due or self._world.waiting.stirred
        if not self._fresh and not due:
            return
        world, uid = self._world, entry.workload.uid
        lift(world, [uid])
        shapes = world.shapes_of(entry)
        if not (due or world.spending.binds(entry.workload.queue) or may_fit(world, entry, shapes)):
            lay(world, [uid])
            return  # a search would find the same, and there may be many whose places are kept
        checkpoint, charged = world.fleet.journal.checkpoint(), world.tenants.speculated
        found = start_within_quota(world, self._board, entry, shapes, self._budget)
        if isinstance(found, Refusal):
            room = self._room.plan(entry, shapes, found) if due else None
            lay(world, [uid])
            if room is not None and not isinstance(room, NoRoom):
                self._give_up(entry, Reason.NOT_FREED)
            elif found.verdict.stage is Stage.BUDGET:
                self._give_up(entry, Reason.BUDGET)
            elif room is not None:
                self._ahead.look_again(uid, room.again_us)
            return
        if uid not in self._put_off and self._ahead.is_wanted(entry, found):
            world.tenants.undo(charged)
            world.fleet.rollback(checkpoint)
            lay(world, [uid])
            self._put_off[uid] = None
            return
        self._ahead.places.pop(uid, None)
        self._start_kept(entry, found)

    def _start_kept(self, entry: Entry, placements: tuple[Placement, ...]) -> None:
        """Start a workload in its places, unless others of its queue may have to go first.

        Where these are not the ones that were kept for it, those are for others now.
        """
        if entry.reserved is not None and placements != entry.reserved.placements:
            self.complete = False
        promise(self._world, entry, placements)
        if self._overtaking.may_happen_to(entry):
            self._overtaking.ready[entry.workload.uid] = placements
        else:
            self._start(entry, placements, entry.borrowed)

    def start_what_fits(self) -> None:
        """5. Look at groups in the order of their first members, and start what fits.

        These are the groups that are awake, and the sleepers for whom nodes have gained enough
        room, or whose time has come. A group that starts one member is looked at again in the place
        of the next; where one member finds no place the others would not find it either. What does
        not fit may make others go, whose places are then kept for it. Whoever gives a place up for
        somebody waits from the next cycle on.
        """
        if self._gave_up:
            return  # whoever still goes is charged again; the next cycle sees that
        looks = Looks(self._world, self._fresh, self._due, self._ahead.places)
        heads = Heads(self._world, looks)
        while head := heads.pop():
            group, member = head
            if self._budget.spent:
                self.complete = False
                return
            before = len(self.decisions)
            goes_on = self._try_to_start(group, member)
            if any(isinstance(each, GiveUp) for each in self.decisions[before:]):
                return
            if goes_on:
                for queue in self._charged_anew(group):
                    heads.changed(queue)
                heads.push(group, member + 1)
        self._looked_at_all = True

    def _charged_anew(self, group: Group) -> dict[str, None]:
        """Return the queues whose accounts the last decision, which is for a group, has changed."""
        decision, entries = self.decisions[-1], self._world.entries
        evicted = decision.evicted if isinstance(decision, Reserve) else ()
        return dict.fromkeys((group.queue, *(entries[uid].workload.queue for uid in evicted)))

    def _try_to_start(self, group: Group, index: int) -> bool:
        uid = group.members[index][2]
        entry = self._world.entries[uid]
        if uid in self._settled:
            return True  # places have been kept for it since
        refused = self._start_or_make_room(entry, group)
        if refused is None or self._overtakes(entry, group):
            return True
        found, room = refused
        kept = self._ahead.keep(entry, found, room, self._room, self._settled)
        self.decisions += kept
        self.complete = self.complete and not kept
        if uid in self._settled:
            return True
        if self._ahead.keeps_more:
            self.complete = False  # it may fill in behind that, or that may give way to it
        else:
            self._let_wait(group, index, found, room)
        return False

    def _start_or_make_room(self, entry: Entry, group: Group) -> tuple[Refusal, NoRoom] | None:
        """Start a workload, or make others go for it; return why neither, or None."""
        found = self._ahead.find_place(entry, group)
        if isinstance(found, Refusal):
            room = self._room.make_room(entry, group, found)
            if isinstance(room, NoRoom):
                return found, room
            self.decisions += room
            self.complete = False
        else:
            promise(self._world, entry, found)
            self._start(entry, found)
        self._settled.add(entry.workload.uid)
        return None

    def _overtakes(self, entry: Entry, group: Group) -> bool:
        """Start a workload in places of work of its queue that it would evict at once there.

        Whoever these were kept for waits like others.
        """
        world, overtaking = self._world, self._overtaking
        for uids in overtaking.ways(entry):
            checkpoint, charged = world.fleet.journal.checkpoint(), world.tenants.speculated
            overtaking.lift(uids)
            decided = len(self.decisions)
            if self._start_or_make_room(entry, group) is None:
                for uid in uids:
                    del overtaking.ready[uid]
                    self._give_up(world.entries[uid], Reason.PREEMPTION)
                    self.decisions.insert(decided, self.decisions.pop())
                return True
            world.tenants.undo(charged)
            world.fleet.rollback(checkpoint)
        return False

    def _let_wait(self, group: Group, index: int, found: Refusal, room: NoRoom) -> None:
        """Tell those of a group whom that is news, from its member `index` on, why they wait."""
        left = (uid for _, _, uid in group.members[index:])
        uids = tuple(uid for uid in left if uid not in self._settled)
        if not uids:
            return
        starves, again_us = self._starves(group, uids)
        self._looked_at[group] = None
        self._examined.append(
            Examined(
                uids[0],
                found.missing_pods,
                self._blocked_at(group, found, hungry=room.hungry),
                room.hungry or starves,
                earliest(room.again_us, again_us, found.again_us),
            )
        )
        before, now = group.verdict, found.verdict
        if before is None or (before.cause, before.never) != (now.cause, now.never):
            self._tell(uids, found.verdict)
        else:
            self._answer(group, found.verdict)

    def _starves(self, group: Group, uids: tuple[str, ...]) -> tuple[bool, int | None]:
        """Return whether one of these has waited too long, and else when the first of them has."""
        queue = self._world.tenants.tree.get(group.queue)
        if queue is None:
            return False, None
        entries = self._world.entries
        since_us = min(entries[uid].waits_since_us for uid in uids)
        at_us = since_us + queue.starvation_after_us
        return (True, None) if at_us <= self._now_us else (False, at_us)

    def _blocked_at(self, group: Group, found: Refusal, *, hungry: bool) -> str:
        """Return the queue that has to hold less for another look; see `events.Examined`.

        Whatever ends below a guarantee may give back a right to it. Whoever is hungry may use any
        room that comes, although it is too little, with that of others who go for it.
        """
        tenants = self._world.tenants
        path = tenants.path(group.queue)
        if path and hungry:
            return path[-1]
        names = self._world.fleet.accelerators()
        guaranteed = [at for at in path if any(tenants.guarantee(at, name).units for name in names)]
        known = [at for at in (found.blocked_at, *guaranteed) if at in path]
        return max(known, key=path.index, default=found.blocked_at)

    def decided(self) -> tuple[Decision, ...]:
        """Return the decisions. Those who go come before those who start, as the quota is one."""
        return (*self._room.freezes, *self._room.evicts.values(), *self.decisions)

    def examined(self) -> tuple[Examined, ...]:
        """Return who was looked at and waits on, as far as it is still kept the places it was."""
        return *self._examined, *self._ahead.examined()

    def look_again_us(self) -> int | None:
        """Return when time alone may change the answer to somebody."""
        world = self._world
        times_us: list[int | None] = [examined.again_us for examined in self.examined()]
        times_us.append(world.waiting.next_us(but=self._looked_at))
        times_us.append(world.tenants.shrink_next_us())
        times_us += self._ahead.late_us()
        times_us += [world.limits.after(self._now_us), world.spending.after(self._now_us)]
        return earliest(*times_us)

    def start_what_nobody_overtook(self) -> None:
        """6. Start workloads in free places that are kept for them, and that nobody has taken."""
        if self._looked_at_all:
            for uid in self._put_off:
                if uid in self._ahead.places:
                    self._start_if_ready(self._world.entries[uid], self._ahead.places[uid])
            for uid, placements in self._overtaking.ready.items():
                entry = self._world.entries[uid]
                self._start(entry, placements, entry.borrowed)

    def resize_elastic_work(self) -> None:
        """7. Let running work have pods that it lacks, where nobody who waits can use the room.

        That is known where nothing is left to decide; otherwise it is left for the next cycle.
        """
        world = self._world
        if not world.lacking or not self._freed or not self.complete:
            return
        growing = Growing(world, self._board, self._now_us, self._budget, self._room.evicts)
        self.decisions += growing.grow()
        self.complete = growing.complete

    def answer_newcomers(self) -> None:
        """8. Tell those who joined a sleeping group that was not looked at what it was told."""
        for group in sorted(self._world.waiting.joined, key=lambda group: group.members[0]):
            if group.verdict is not None:
                self._answer(group, group.verdict)

    def refuse_what_waited_too_long(self) -> None:
        """9. End work that has waited for the longest time that its queue grants, and waits on."""
        served = {each.workload for each in self.decisions if isinstance(each, Reserve | Start)}
        for refuse in timelimits.refused(self._world, self._now_us):
            if refuse.workload not in served:
                self.decisions.append(refuse)
                self.complete = False

    def warn_of_spent_budgets(self) -> None:
        """10. Tell who is responsible whose budget is spent; from then on it counts as that."""
        self.decisions += self._world.spending.warnings(self._now_us)

    def _answer(self, group: Group, verdict: Verdict) -> None:
        """Tell the members of a group that were never told, and were not started just now."""
        news = tuple(uid for uid in sorted(group.unanswered) if uid not in self._settled)
        if news:
            self._tell(news, verdict)

    def _tell(self, uids: tuple[str, ...], verdict: Verdict) -> None:
        self._settled.update(uids)
        self.decisions.append(Wait(f"wait/{uids[0]}/{self._now_us}", uids, verdict))
