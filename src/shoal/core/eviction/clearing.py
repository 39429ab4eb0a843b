"""Finding the work that has to go so that a workload can start, and that costs least.

A plan is complete: with its victims gone the workload is placed and every rule holds, and without
any one of them it is not. For a single pod the cheapest victims are looked for on every node
(branch and bound), for gangs by taking the cheapest until it fits and sparing whom it can.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.entry import Entry
from shoal.core.eviction.candidates import Candidates, Found
from shoal.core.eviction.choices import (
    Choice,
    accelerators_of,
    on_one,
    on_several,
    short_first,
    shortages,
)
from shoal.core.eviction.giving_way import GivingWay
from shoal.core.eviction.goers import Goers
from shoal.core.eviction.losses import Count, Losses
from shoal.core.eviction.one_node import OneNode, each_once
from shoal.core.eviction.room import Fit, NoRoom, Room
from shoal.core.eviction.victims import Cost, Victim, total
from shoal.core.limits.deadlines import earliest
from shoal.core.placing.board import Board
from shoal.core.placing.eligibility import fits_on
from shoal.core.placing.keeping import lift
from shoal.core.placing.placement import NoPlace
from shoal.core.placing.reservation import Reservation
from shoal.core.tenancy.quota import Broken, place_and_charge
from shoal.core.tenancy.rights import height_against, within
from shoal.core.world import World

TIMES_LOOKED_AT = 3
"""Times at which somebody's protection ends that may be worth waiting for."""

TRIES = 200
"""Plans for one gang that are tried in full."""

SOON_US = 30_000_000
"""So long anybody waits for those who go already before others go who would stop sooner."""

FIRST = 64
"""Victims that are looked at first; where so many do not do, four times as many."""


class Clearing:
    """The searches of one cycle. The world must be speculating."""

    def __init__(
        self,
        world: World,
        board: Board,
        now_us: int,
        budget: Budget,
        kept: Mapping[str, Reservation],
    ) -> None:
        """`kept` are the reservations that wait for ends, by uid; the cycle drops some of them."""
        self._world = world
        self._board = board
        self._now_us = now_us
        self._budget = budget
        self._candidates = Candidates(world, now_us)
        self.carried_out: Collection[tuple[str, int]] = self._candidates.going
        """Pods that go by plans that are carried out, by workload and number."""
        self._goers = Goers(world, self.carried_out, self._candidates.ended)
        self._giving_way = GivingWay(world, now_us, kept)
        self._ahead: tuple[str, ...] = ()
        """Whose places, kept ahead, are lifted in the search that goes on, by uid."""
        self._losses = Losses(world, now_us)

    def find(self, entry: Entry, shapes: tuple[Shape, ...]) -> Room | NoRoom:
        """Return the cheapest plan for a workload that waits."""
        if entry.workload.queue not in self._world.tenants.takes_work:
            return NoRoom(hungry=False)
        room = self._find(entry, shapes)
        late_us = max(entry.waits_since_us + self._within_us(entry), self._now_us + SOON_US)
        gone_us = 0 if isinstance(room, NoRoom) else self._goers.gone_us(self._needed(entry, room))
        if gone_us <= late_us:
            return room
        sooner = self._find(entry, shapes, late_us)
        return sooner if self._is_back_by(gone_us, entry, sooner) else room

    def _find(
        self, entry: Entry, shapes: tuple[Shape, ...], by_us: int | None = None
    ) -> Room | NoRoom:
        """Return the cheapest plan; of those who go already it waits for who is gone by then."""
        checkpoint = self._world.fleet.journal.checkpoint()
        self._goers.wait_for(by_us)
        try:
            self._goers.let_go()
            room = self._cheapest(entry, shapes)
            return room if isinstance(room, NoRoom) else replace(room, by_us=by_us)
        finally:
            self._goers.wait_for(None)
            self._world.fleet.rollback(checkpoint)

    def _is_back_by(self, at_us: int, asker: Entry, room: Room | NoRoom) -> bool:
        """Return whether nobody goes by a plan, or others give back before a time."""
        if isinstance(room, NoRoom):
            return False
        victims = [victim.entry.workload for victim in room.victims]
        if not victims:
            return True
        stops_us = [self._now_us + self._world.tenants.grace_us(each) for each in victims]
        mine = asker.workload.queue
        return any(each.queue != mine for each in victims) and max(stops_us) < at_us

    def _within_us(self, asker: Entry) -> int:
        return self._world.tenants.reclaim_within_us(asker.workload.queue)

    def later(self, entry: Entry, wanted: tuple[Shape, ...]) -> tuple[Room, int] | None:
        """Return a plan for when the protection of others has ended, and when that is.

        It is complete if nothing else changes. None where there will be none.
        """
        world, found = self._world, list[tuple[Room, int]]()
        by_us = self._now_us + self._within_us(entry)
        self._candidates.lent_together = False
        checkpoint = world.fleet.journal.checkpoint()
        try:
            self._goers.let_go()
            for choice in chain(on_one(world, wanted), on_several(world, wanted)):
                last_us = max((by_us, *self._who(entry, choice).own_later_us()))
                room = self._search(entry, choice, self._who(entry, choice, last_us))
                if room is not None:
                    found.append((room, self._candidates.open_us(entry, room.victims)))
        finally:
            world.fleet.rollback(checkpoint)
        return min(found, key=lambda each: each[1], default=None)

    def _cheapest(self, entry: Entry, wanted: tuple[Shape, ...]) -> Room | NoRoom:
        """Return the cheapest plan on one accelerator; on several only where one will not do."""
        rooms: list[Room] = []
        now: list[tuple[Choice, Found]] = []
        for choices in on_one(self._world, wanted), on_several(self._world, wanted):
            for choice in () if rooms else choices:
                self._candidates.lent_together = False
                found = self._who(entry, choice)
                now.append((choice, found))
                room = self._search(entry, choice, found)
                if room is None and self._world.tenants.slots.promises:
                    self._candidates.lent_together = True
                    found = self._who(entry, choice)
                    room = self._search(entry, choice, found)
                rooms += [room] if room is not None else []
        best = min(rooms, key=lambda room: room.cost, default=None)
        if best is None or self._is_cheaper_later(entry, best, now):
            again_us = earliest(*(found.again_us() for _, found in now))
            return NoRoom(any(found.hungry for _, found in now), again_us)
        single = _is_single(entry, wanted)
        return replace(best, exact=best.exact and (not single or all(r.exact for r in rooms)))

    def _who(self, asker: Entry, choice: Choice, at_us: int | None = None) -> Found:
        """Return who may go, now or at a time."""
        least = choice.least_units(asker)
        return self._candidates.find(asker, choice.accelerators, choice.reclaimed, at_us, least)

    def going(self, asker: Entry, room: Room) -> dict[str, tuple[int, ...]]:
        """Return the pods that go for a plan, by the uid of their workload, its victims first.

        After them come those that go for others from places that it needs.
        """
        pods: dict[str, set[int]] = {}
        for victim in room.victims:
            pods.setdefault(victim.uid, set()).update(victim.pods)
        for entry, pod in self._needed(asker, room):
            pods.setdefault(entry.workload.uid, set()).add(pod)
        return {uid: tuple(sorted(numbers)) for uid, numbers in pods.items()}

    def _needed(self, asker: Entry, room: Room) -> list[tuple[Entry, int]]:
        """Return the pods that go already and without whose going a plan would have no room."""
        self._goers.wait_for(room.by_us)
        found = self._goers.needed(asker, room.placements, room.victims, room.fit.given_way)
        self._goers.wait_for(None)
        return found

    def _is_cheaper_later(
        self, asker: Entry, room: Room, now: Sequence[tuple[Choice, Found]]
    ) -> bool:
        """Return whether waiting for somebody's protection to end would lose less work.

        Whoever wants a guarantee back waits for that, as long as it has it within its
        `reclaimWithin` all the same. Only the next of such times are looked at.
        """
        reclaims = any(v.entry.workload.queue != asker.workload.queue for v in room.victims)
        if not reclaims:
            return False
        latest_us = asker.waits_since_us + self._within_us(asker)
        worth = [
            (at_us, choice)
            for choice, found in now
            for at_us, cost in found.later().items()
            if at_us <= latest_us and cost < room.cost
        ]
        worth.sort(key=lambda time: (time[0], time[1].accelerators, time[1].reclaimed))
        for at_us, choice in worth[:TIMES_LOOKED_AT]:
            later = self._search(asker, choice, self._who(asker, choice, at_us))
            if later is not None and later.cost < room.cost:
                return True
        return False

    def ends(self, uid: str, pods: Collection[int]) -> None:
        """Note that pods go for nobody."""
        self._candidates.ended.update((uid, pod) for pod in pods)

    def take(self, asker: Entry, room: Room) -> None:
        """Note that a plan is carried out."""
        self._losses.take(asker, room.victims)
        for victim in room.victims:
            self._candidates.going.update((victim.uid, pod) for pod in victim.pods)

    # Searching --------------------------------------------------------------------------------

    def _search(self, asker: Entry, choice: Choice, found: Found) -> Room | None:
        checkpoint = self._world.fleet.journal.checkpoint()
        giving_way = self._giving_way
        self._ahead = giving_way.to(asker, choice.reclaimed, choice.least_units(asker))
        lift(self._world, dict.fromkeys((*self._ahead, *giving_way.behind(asker))))
        try:
            return self._search_in(asker, choice, found)
        finally:
            self._world.fleet.rollback(checkpoint)

    def _search_in(self, asker: Entry, choice: Choice, found: Found) -> Room | None:
        anybody = found.anybody()
        if self._ahead or (anybody and self._goers.any()):
            fit = self._attempt(asker, choice, ())
            if fit is not None:  # where others go already, or give way
                return Room(fit, (), exact=True)
        if not anybody:
            return None
        if not choice.could_fit(self._world, asker, found.freed(self._world.fleet.size)):
            return None
        single, candidates = _is_single(asker, choice.shapes), found.victims
        for among in self._by_right(asker, candidates):
            room, quota = self._on_one_node(asker, choice, among) if single else (None, True)
            if room is not None and len(among) < len(candidates):
                room = replace(room, exact=False)
            if room is not None and not quota:
                return room
            other = self._anywhere(asker, choice, among, candidates)
            both = [each for each in (room, other) if each is not None]
            if both:
                return min(both, key=lambda each: each.cost)
        return None

    def _by_right(self, asker: Entry, candidates: list[Victim]) -> Iterator[list[Victim]]:
        """Yield who may go: first all; then ever fewer, without those nearest in the tree.

        What is guaranteed to the queue above two sisters is no right of one against the other.
        """
        tenants, queue = self._world.tenants, asker.workload.queue
        holders = dict.fromkeys(victim.entry.workload.queue for victim in candidates)
        heights = {each: height_against(tenants, queue, each) for each in holders if each != queue}
        heights[queue] = len(tenants.path(queue))
        for least in sorted({heights[each] for each in holders}):
            yield [v for v in candidates if heights[v.entry.workload.queue] >= least]

    def _on_one_node(
        self, asker: Entry, choice: Choice, candidates: list[Victim]
    ) -> tuple[Room | None, bool]:
        """Return the cheapest plan in which a node is cleared for a single pod.

        And whether a quota stood in the way of others, or of all.
        """
        fleet, (shape,) = self._world.fleet, choice.shapes
        allowed = self._world.allowed_rows(shape)
        by_row: dict[int, list[Victim]] = {}
        for victim in candidates:
            for row in {fleet.row_of[victim.entry.held[pod].node]: None for pod in victim.pods}:
                if allowed[row] and fleet.names[row] not in asker.refused:
                    by_row.setdefault(row, []).append(victim)

        def permitted(victims: Sequence[Victim]) -> bool:
            return self._losses.allow(asker, victims) and self._permitted(asker, choice, victims)

        best: Room | None = None
        exact = choice.shapes == choice.wanted or not fleet.mixed_rows
        quota = self._board.best(shape, asker.workload.uid, asker.refused) is not None
        rows = sorted(by_row, key=lambda row: (by_row[row][0].key, fleet.names[row]))
        for row in rows:
            if best is not None and by_row[row][0].cost >= best.cost:
                break
            if best is not None and self._least(shape, row, by_row[row]) >= best.cost:
                continue
            self._budget.spend()
            if fits_on(fleet, shape, row):
                quota = True  # what stands in the way is not the room on this node
                continue
            together = self._together(asker, choice, by_row[row])
            most = None if best is None else best.cost
            node = OneNode(self._world, shape, row, by_row[row], permitted)
            victims = node.cheapest(together, most)
            exact = exact and node.complete
            fit = None if victims is None else self._attempt(asker, choice, victims)
            if victims is not None and fit is not None:
                best = Room(fit, victims, exact)
            elif victims is not None:
                quota = True
        exact = exact and not quota
        return (None if best is None else replace(best, exact=exact)), quota or best is None

    def _least(self, shape: Shape, row: int, victims: list[Victim]) -> Cost:
        """Return what clearing a node costs at least, as `victims` are there, the cheapest first.

        It takes as many of them as free the devices that are short, where each frees the most.
        """
        fleet, devices = self._world.fleet, shape.request.devices
        short = devices.count - max(0, int(fleet.whole_free[row])) if devices.whole else 0
        name = fleet.names[row]
        most = max(
            sum(len(p.leaves) for pod in v.pods if (p := v.entry.held[pod]).node == name)
            for v in victims
        )
        return total(victims[: max(1, -(-short // max(1, most)))])

    def _anywhere(
        self, asker: Entry, choice: Choice, among: list[Victim], candidates: list[Victim]
    ) -> Room | None:
        """Return the best plan found in which any `among` all `candidates` go, cheapest first."""
        tries = TRIES

        def fits(victims: Sequence[Victim]) -> Fit | None:
            nonlocal tries
            tries -= 1
            return self._attempt(asker, choice, each_once(victims))

        in_turn = among
        if len(choice.accelerators) > 1:
            in_turn = short_first(among, shortages(self._world, asker, choice.shapes))
        together: list[Victim] = []
        fit: Fit | None = None
        low, most = 1, FIRST
        while fit is None:
            together = self._together(asker, choice, in_turn, most)
            fit = fits(together) if together else None
            if fit is None:
                if len(together) < most:
                    return None
                low, most = most + 1, 4 * most
        high = len(together)
        while low < high and tries > 0:
            middle = (low + high) // 2
            found = fits(together[:middle])
            if found is None:
                low = middle + 1
            else:
                high, fit = middle, found
        chosen = list(each_once(together[:high]))
        if len(chosen) > FIRST:
            nodes = {placement.node for placement in fit.placements}
            there = [v for v in chosen if any(v.entry.held[p].node in nodes for p in v.pods)]
            found = fits(there)
            if found is not None:
                chosen, fit = there, found
        for victim in reversed(tuple(chosen)):
            rest = [each for each in chosen if each is not victim]
            found = fits(rest) if rest and tries > 0 else None
            if found is not None:
                chosen, fit = rest, found
        return Room(fit, tuple(chosen), self._is_exact(asker, choice, candidates, chosen))

    def _is_exact(
        self, asker: Entry, choice: Choice, candidates: list[Victim], chosen: list[Victim]
    ) -> bool:
        """Return whether it is certain that no other victims would cost less.

        It is where each could free one device at most, and of those who hold what the asker is
        short of these are the cheapest and no more than what it is short of.
        """
        if not all(shape.request.devices.whole for shape in choice.wanted):
            return False
        short = shortages(self._world, asker, choice.wanted)
        for group, devices in short:
            victims = [victim for victim in chosen if victim.lies_on(group)]
            others, names = candidates, tuple(sorted(group))
            if names != choice.reclaimed:
                others = self._candidates.find(asker, names, names).victims
            if max((victim.leaves for victim in others), default=0) > 1:
                return False
            if len(victims) != devices or victims != others[:devices]:
                return False
        return len(chosen) == sum(devices for _, devices in short)

    def _permitted(self, asker: Entry, choice: Choice, victims: Sequence[Victim]) -> bool:
        """Return whether all of these may go: each from a queue that borrows when its turn comes.

        Those with least of what is given back go first; where that does not do on one accelerator,
        no other order does.
        """
        world, tenants = self._world, self._world.tenants
        charged = tenants.speculated
        try:
            for victim in sorted(victims, key=lambda v: v.units_of(choice.reclaimed)):
                if not self._candidates.may_take(asker, victim, choice.reclaimed):
                    return False
                entry = victim.entry
                for pod in victim.pods:
                    world.charge(entry, pod, entry.charges[pod], -1)
        finally:
            tenants.undo(charged)
        return True

    def _together(
        self, asker: Entry, choice: Choice, candidates: Sequence[Victim], most: int | None = None
    ) -> list[Victim]:
        """Return as many as may go together, the first ones first, and no more than `most`."""
        world, tenants = self._world, self._world.tenants
        charged = tenants.speculated
        together: list[Victim] = []
        count = Count(self._losses, asker)
        gone: set[tuple[str, int]] = set()
        try:
            for victim in candidates:
                if len(together) == most:
                    break
                may = self._candidates.may_take(asker, victim, choice.reclaimed)
                if may and count.add(victim):
                    together.append(victim)
                    entry = victim.entry
                    for pod in victim.pods:
                        if (victim.uid, pod) not in gone:
                            gone.add((victim.uid, pod))
                            world.charge(entry, pod, entry.charges[pod], -1)
        finally:
            tenants.undo(charged)
        return together

    def _attempt(self, asker: Entry, choice: Choice, victims: Sequence[Victim]) -> Fit | None:
        """Return where a workload would start if these were gone, None if it would not."""
        world = self._world
        fleet, tenants = world.fleet, world.tenants
        if not self._losses.allow(asker, victims) or not self._permitted(asker, choice, victims):
            return None
        checkpoint, charged = fleet.journal.checkpoint(), tenants.speculated
        taken: dict[str, set[str]] = {}
        for victim in victims:
            taken.setdefault(victim.entry.workload.queue, set()).update(
                name for name in victim.accelerators if name in choice.reclaimed
            )
        try:
            for victim in victims:
                for pod in victim.pods:
                    if choice.frees(asker, victim, pod):
                        held = victim.entry.held[pod]
                        fleet.give_back(victim.entry.request_of(pod), held)
                    world.charge(victim.entry, pod, victim.entry.charges[pod], -1)
            found = self._place(asker, choice, taken, needed_only=False)
            if found is None and asker.workload.elastic:
                found = self._place(asker, choice, taken, needed_only=True)
            return found
        finally:
            tenants.undo(charged)
            fleet.rollback(checkpoint)

    def _place(
        self,
        asker: Entry,
        choice: Choice,
        taken: Mapping[str, Collection[str]],
        *,
        needed_only: bool,
    ) -> Fit | None:
        """Place and charge a workload, if it may have what it takes of whose accelerators.

        Of those accelerators of which it takes nothing from a queue it needs no right.
        """
        world, tenants = self._world, self._world.tenants
        checkpoint, charged = world.fleet.journal.checkpoint(), tenants.speculated
        found = place_and_charge(
            world, self._board, asker, choice.shapes, self._budget, needed_only=needed_only
        )
        if not isinstance(found, NoPlace | Broken):
            mine, names = asker.workload.queue, accelerators_of(world, found)
            touched = self._giving_way.touched(self._ahead, found)
            gives_way = self._giving_way.gives_way
            if all(
                each == mine or within(tenants, mine, each, names.intersection(of) or of)
                for each, of in taken.items()
            ) and all(
                gives_way(uid, asker, names.intersection(of) or of, {})
                for uid, of in touched.items()
            ):
                world.fleet.journal.keep()
                return Fit(found, tuple(touched))
        tenants.undo(charged)
        world.fleet.rollback(checkpoint)
        return None


def _is_single(asker: Entry, shapes: Sequence[Shape]) -> bool:
    """Return whether a workload is one pod."""
    return len(shapes) == 1 and asker.workload.pod_sets[0].count == 1
