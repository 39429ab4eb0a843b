"""Finding the work that has to go so that a workload can start, and that costs least.

A plan is complete: with its victims gone the workload is placed and every rule holds, and without
any one of them it is not. For a single pod the cheapest victims are looked for on every node
(branch and bound), for gangs by taking the cheapest until it fits and sparing whom it can.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shoal.core.board import Board
from shoal.core.budget import Budget
from shoal.core.eligibility import fits_on
from shoal.core.entry import Entry
from shoal.core.losses import Count, Losses
from shoal.core.one_node import OneNode, each_once
from shoal.core.placement import NoPlace
from shoal.core.precedence import priority_of
from shoal.core.quota import Broken, place_and_charge, without
from shoal.core.rights import borrowing_queues, borrows, has_right, lent_together, within
from shoal.core.ruled_out import wants
from shoal.core.shape import Shape
from shoal.core.victims import Cost, Victim, evictable_from_us, total, victims_of
from shoal.core.world import World
from shoal.model.workload import Placement

TIMES_LOOKED_AT = 3
"""Times at which somebody's protection ends that may be worth waiting for."""

TRIES = 200
"""Plans for one gang that are tried in full."""


@dataclass(frozen=True, slots=True)
class Room:
    """A complete plan. `exact`: no other victims would cost less."""

    placements: tuple[Placement, ...]
    victims: tuple[Victim, ...]
    exact: bool

    @property
    def cost(self) -> Cost:
        """What it costs."""
        return total(self.victims)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Nobody has to go, as things are.

    `hungry`: that may change without anything becoming free. `again_us`: when it may by time alone.
    """

    hungry: bool
    again_us: int | None = None


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Who may go, the cheapest first, and whether others may come to."""

    victims: list[Victim]
    hungry: bool
    later: dict[int, Cost]
    """When somebody's protection ends, and the least that evicting such a one costs then."""


class Clearing:
    """The searches of one cycle. The world must be speculating."""

    def __init__(self, world: World, board: Board, now_us: int, budget: Budget) -> None:
        self._world = world
        self._board = board
        self._now_us = now_us
        self._budget = budget
        self._victims: dict[tuple[str, int], tuple[Victim, ...]] = {}
        """What each workload could be taken apart into at a time."""
        self._going: set[tuple[str, int]] = set()
        """Pods that this cycle evicts."""
        self._resting: list[tuple[Entry, int]] | None = None
        """Pods that were evicted before to make room, once they were asked for."""
        self._lent_together = False
        """Whether those may go as well who merely began on borrowed devices; see `rights`."""
        self._losses = Losses(world, now_us)

    def find(self, entry: Entry, shapes: tuple[Shape, ...]) -> Room | NoRoom:
        """Return the cheapest plan for a workload that waits."""
        if entry.workload.queue not in self._world.tenants.takes_work:
            return NoRoom(hungry=False)
        checkpoint = self._world.fleet.journal.checkpoint()
        try:
            self._let_go()
            return self._cheapest(entry, shapes)
        finally:
            self._world.fleet.rollback(checkpoint)

    def opens_before(self, entry: Entry, wanted: tuple[Shape, ...], end_us: int) -> bool:
        """Return whether a workload will start before by evictions, if nothing else changes."""
        self._lent_together = False
        for accelerator, shapes in self._choices(wanted):
            later = self._candidates(entry, accelerator, self._now_us).later
            at_us = max((each for each in later if each < end_us), default=None)
            if at_us is None:
                continue
            found = self._candidates(entry, accelerator, at_us)
            if self._search(entry, shapes, found.victims) is not None:
                return True
        return False

    def _cheapest(self, entry: Entry, wanted: tuple[Shape, ...]) -> Room | NoRoom:
        world = self._world
        best: Room | None = None
        hungry = False
        patient: list[tuple[int, str, tuple[Shape, ...], Cost]] = []
        for accelerator, shapes in self._choices(wanted):
            self._lent_together = False
            found = self._candidates(entry, accelerator, self._now_us)
            hungry |= found.hungry
            patient += [(at_us, accelerator, shapes, cost) for at_us, cost in found.later.items()]
            room = self._search(entry, shapes, found.victims)
            if room is None and world.tenants.slots.promises:
                self._lent_together = True
                found = self._candidates(entry, accelerator, self._now_us)
                room = self._search(entry, shapes, found.victims)
            if room is not None and (best is None or room.cost < best.cost):
                best = room
        if best is not None and self._is_cheaper_later(entry, best, patient):
            best = None
        return best or NoRoom(hungry, min((at_us for at_us, *_ in patient), default=None))

    def _choices(self, wanted: tuple[Shape, ...]) -> Iterator[tuple[str, tuple[Shape, ...]]]:
        """Yield each accelerator that would do, and the shapes of a workload that has no other."""
        world = self._world
        names = [
            name
            for name in world.fleet.accelerators()
            if any(wants(shape.request.devices, name) for shape in wanted)
        ]
        for accelerator in names:
            others = [name for name in names if name != accelerator]
            shapes = tuple(without(world, shape, others) for shape in wanted)
            whole = tuple(shape for shape in shapes if shape is not None)
            if len(whole) == len(shapes):
                yield accelerator, whole

    def _let_go(self) -> None:
        """Let the places of all be free that go to make room for somebody, whoever it is for."""
        for entry, pod in self._goers():
            self._world.fleet.give_back(entry.request_of(pod), entry.held[pod])

    def _goers(self) -> Iterator[tuple[Entry, int]]:
        """Yield the pods that go to make room for somebody."""
        world = self._world
        if self._resting is None:
            holding = (world.entries[uid] for uids in world.holders.values() for uid in uids)
            evicted = [e for e in holding if e.evicting and e.failed_on is None]
            self._resting = [(e, pod) for e in evicted for pod in e.evicting if e.rests(pod)]
        yield from self._resting
        for uid, pod in sorted(self._going):
            yield world.entries[uid], pod

    def on_their_way(self, placements: Sequence[Placement]) -> tuple[str, ...]:
        """Return who goes, for somebody else, from nodes where a workload is to start."""
        nodes = {placement.node for placement in placements}
        return tuple(
            sorted({e.workload.uid for e, pod in self._goers() if e.held[pod].node in nodes})
        )

    def _is_cheaper_later(
        self, asker: Entry, room: Room, times: list[tuple[int, str, tuple[Shape, ...], Cost]]
    ) -> bool:
        """Return whether waiting for somebody's protection to end would lose less work.

        Whoever wants a guarantee back waits for that, as long as it has it within its
        `reclaimWithin` all the same. Only the next of such times are looked at.
        """
        reclaims = any(v.entry.workload.queue != asker.workload.queue for v in room.victims)
        queue = self._world.tenants.tree.get(asker.workload.queue)
        if not reclaims or queue is None:
            return False
        latest_us = asker.waits_since_us + queue.reclaim_within_us
        worth = [time for time in times if time[0] <= latest_us and time[3] < room.cost]
        worth.sort(key=lambda time: time[:2])
        for at_us, accelerator, shapes, _ in worth[:TIMES_LOOKED_AT]:
            found = self._candidates(asker, accelerator, at_us)
            later = self._search(asker, shapes, found.victims)
            if later is not None and later.cost < room.cost:
                return True
        return False

    def take(self, asker: Entry, room: Room) -> None:
        """Note that a plan is carried out."""
        self._losses.take(asker, room.victims)
        for victim in room.victims:
            self._going.update((victim.uid, pod) for pod in victim.pods)

    # Who may go -------------------------------------------------------------------------------

    def _candidates(self, asker: Entry, accelerator: str, at_us: int) -> _Candidates:
        """Return who may go at a time, if nothing else changes."""
        world, workload = self._world, asker.workload
        found: list[Victim] = []
        later: dict[int, Cost] = {}

        def consider(entry: Entry, lender: str | None) -> None:
            from_us = evictable_from_us(world, entry, lender, at_us)
            if from_us is None or world.evictions.allowed(entry.workload.uid) == 0:
                return
            victims = [v for v in self._of(entry, at_us) if accelerator in v.accelerators]
            if from_us <= at_us:
                found.extend(victims)
            elif victims:
                then = min(victim.cost for victim in victims_of(world, entry, from_us))
                later[from_us] = min(then, later.get(from_us, then))

        may_preempt = not asker.was_evicted
        tree = world.tenants.tree
        priority = priority_of(tree, workload)
        if may_preempt:
            for entry in self._holding(workload.queue):
                if priority_of(tree, entry.workload) < priority:
                    consider(entry, None)
        right = has_right(world.tenants, workload.queue, accelerator)
        for entry in self._borrowing(workload.queue, accelerator) if right else ():
            consider(entry, workload.queue)
        found.sort(key=lambda victim: victim.key)
        ranks = may_preempt and priority > self._least_priority(workload.queue)
        return _Candidates(found, right or ranks, later)

    def _borrowing(self, asker: str, accelerator: str) -> Iterator[Entry]:
        """Yield the work that holds borrowed devices, as seen from the asker's queue."""
        world = self._world
        borrowing = borrowing_queues(world.tenants, asker, accelerator)
        for queue in borrowing:
            yield from self._holding(queue)
        for queue in sorted(world.holders) if self._lent_together else ():
            if queue != asker and queue not in borrowing:
                for entry in self._holding(queue):
                    if self._lent(entry, asker, (accelerator,)):
                        yield entry

    def _lent(self, entry: Entry, asker: str, accelerators: tuple[str, ...]) -> bool:
        """Return whether work may go that merely began on borrowed devices, and this is such."""
        tenants = self._world.tenants
        return self._lent_together and lent_together(
            tenants, entry.workload.queue, entry.borrowed, asker, accelerators
        )

    def _holding(self, queue: str) -> list[Entry]:
        entries = (self._world.entries[uid] for uid in self._world.holders.get(queue, ()))
        return [entry for entry in entries if entry.failed_on is None]

    def _of(self, entry: Entry, at_us: int) -> list[Victim]:
        uid = entry.workload.uid
        known = self._victims.get((uid, at_us))
        if known is None:
            known = self._victims[uid, at_us] = victims_of(self._world, entry, at_us)
        going = self._going
        return [v for v in known if not any((uid, pod) in going for pod in v.pods)]

    def _least_priority(self, queue: str) -> int:
        known = self._world.tenants.tree.get(queue)
        return min((each.value for each in known.priorities), default=0) if known else 0

    # Searching --------------------------------------------------------------------------------

    def _search(
        self, asker: Entry, shapes: tuple[Shape, ...], candidates: list[Victim]
    ) -> Room | None:
        if not candidates:
            return None
        if next(self._goers(), None) is not None:
            placements = self._attempt(asker, shapes, ())
            if placements is not None:  # where others go already
                return Room(placements, (), exact=True)
        single = len(shapes) == 1 and asker.workload.pod_sets[0].count == 1
        room = self._on_one_node(asker, shapes[0], candidates) if single else None
        if room is not None and room.exact:
            return room
        other = self._anywhere(asker, shapes, candidates)
        both = [each for each in (room, other) if each is not None]
        return min(both, key=lambda each: each.cost, default=None)

    def _on_one_node(self, asker: Entry, shape: Shape, candidates: list[Victim]) -> Room | None:
        """Return the cheapest plan in which a node is cleared for a single pod."""
        fleet = self._world.fleet
        allowed = self._world.allowed_rows(shape)
        by_row: dict[int, list[Victim]] = {}
        for victim in candidates:
            for row in {fleet.row_of[victim.entry.held[pod].node]: None for pod in victim.pods}:
                if allowed[row] and fleet.names[row] not in asker.refused:
                    by_row.setdefault(row, []).append(victim)

        def permitted(victims: Sequence[Victim]) -> bool:
            return self._losses.allow(asker, victims) and self._permitted(asker, victims)

        best: Room | None = None
        exact = True
        rows = sorted(by_row, key=lambda row: (by_row[row][0].key, fleet.names[row]))
        for row in rows:
            if best is not None and by_row[row][0].cost >= best.cost:
                break
            if best is not None and self._least(shape, row, by_row[row]) >= best.cost:
                continue
            if fits_on(fleet, shape, row):
                exact = False  # what stands in the way is not the room on this node
                continue
            together = self._together(asker, by_row[row])
            most = None if best is None else best.cost
            node = OneNode(self._world, shape, row, by_row[row], permitted)
            victims = node.cheapest(together, most)
            exact = exact and node.complete
            placements = None if victims is None else self._attempt(asker, (shape,), victims)
            if victims is not None and placements is not None:
                best = Room(placements, victims, exact)
            elif victims is not None:
                exact = False
        return best if best is None or best.exact == exact else replace(best, exact=exact)

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
        self, asker: Entry, shapes: tuple[Shape, ...], candidates: list[Victim]
    ) -> Room | None:
        """Return the best plan found in which any work is taken, the cheapest first."""
        tries = TRIES

        def fits(victims: Sequence[Victim]) -> tuple[Placement, ...] | None:
            nonlocal tries
            tries -= 1
            return self._attempt(asker, shapes, each_once(victims))

        candidates = self._together(asker, candidates)
        placements = fits(candidates) if candidates else None
        if placements is None:
            return None
        low, high = 1, len(candidates)
        while low < high and tries > 0:
            middle = (low + high) // 2
            found = fits(candidates[:middle])
            if found is None:
                low = middle + 1
            else:
                high, placements = middle, found
        chosen = list(each_once(candidates[:high]))
        for victim in reversed(tuple(chosen)):
            rest = [each for each in chosen if each is not victim]
            found = fits(rest) if rest and tries > 0 else None
            if found is not None:
                chosen, placements = rest, found
        return Room(placements, tuple(chosen), self._is_exact(asker, candidates, chosen))

    def _is_exact(self, asker: Entry, candidates: list[Victim], chosen: list[Victim]) -> bool:
        """Return whether it is certain that no other victims would cost less.

        It is where each could free one device at most, the asker takes as many as are free and
        those that go, and these are the cheapest.
        """
        fleet = self._world.fleet
        devices = sum(
            pod_set.count * pod_set.request.devices.count for pod_set in asker.workload.pod_sets
        )
        whole = all(pod_set.request.devices.whole for pod_set in asker.workload.pod_sets)
        freed = [sum(len(v.entry.held[pod].leaves) for pod in v.pods) for v in candidates]
        free = int(fleet.whole_free[: fleet.size][fleet.whole_free[: fleet.size] > 0].sum())
        return (
            whole
            and max(freed) <= 1
            and len(chosen) == devices - free
            and chosen == candidates[: len(chosen)]
        )

    def _permitted(self, asker: Entry, victims: Sequence[Victim]) -> bool:
        """Return whether all of these may go: each from a queue that borrows when its turn comes.

        Those with fewest devices go first; where that does not do, no other order does.
        """
        world, tenants = self._world, self._world.tenants
        charged = tenants.speculated
        try:
            for victim in sorted(victims, key=lambda victim: victim.units):
                if not self._may_take(asker, victim):
                    return False
                entry = victim.entry
                for pod in victim.pods:
                    world.charge(entry, pod, entry.charges[pod], -1)
        finally:
            tenants.undo(charged)
        return True

    def _may_take(self, asker: Entry, victim: Victim) -> bool:
        """Return whether a workload may take from a victim's queue, as the accounts are now."""
        entry, queue, names = victim.entry, asker.workload.queue, victim.accelerators
        holder = entry.workload.queue
        return (
            holder == queue
            or borrows(self._world.tenants, holder, queue, names)
            or self._lent(entry, queue, names)
        )

    def _together(self, asker: Entry, candidates: Sequence[Victim]) -> list[Victim]:
        """Return as many as may go together, the first ones first."""
        world, tenants = self._world, self._world.tenants
        charged = tenants.speculated
        together: list[Victim] = []
        count = Count(self._losses, asker)
        gone: set[tuple[str, int]] = set()
        try:
            for victim in candidates:
                if self._may_take(asker, victim) and count.add(victim):
                    together.append(victim)
                    entry = victim.entry
                    for pod in victim.pods:
                        if (victim.uid, pod) not in gone:
                            gone.add((victim.uid, pod))
                            world.charge(entry, pod, entry.charges[pod], -1)
        finally:
            tenants.undo(charged)
        return together

    def _attempt(
        self, asker: Entry, shapes: tuple[Shape, ...], victims: Sequence[Victim]
    ) -> tuple[Placement, ...] | None:
        """Return where a workload would start if these were gone, None if it would not."""
        world = self._world
        fleet, tenants = world.fleet, world.tenants
        if not self._losses.allow(asker, victims) or not self._permitted(asker, victims):
            return None
        checkpoint, charged = fleet.journal.checkpoint(), tenants.speculated
        queues = dict.fromkeys(victim.entry.workload.queue for victim in victims)
        try:
            for victim in victims:
                for pod in victim.pods:
                    held = victim.entry.held[pod]
                    fleet.give_back(victim.entry.request_of(pod), held)
                    world.charge(victim.entry, pod, victim.entry.charges[pod], -1)
            found = self._place(asker, shapes, queues, needed_only=False)
            if found is None and any(p.needed < p.count for p in asker.workload.pod_sets):
                found = self._place(asker, shapes, queues, needed_only=True)
            return found
        finally:
            tenants.undo(charged)
            fleet.rollback(checkpoint)

    def _place(
        self,
        asker: Entry,
        shapes: tuple[Shape, ...],
        queues: Iterable[str],
        *,
        needed_only: bool,
    ) -> tuple[Placement, ...] | None:
        """Place and charge a workload that takes devices from these queues, if it may have them."""
        world, tenants = self._world, self._world.tenants
        checkpoint, charged = world.fleet.journal.checkpoint(), tenants.speculated
        found = place_and_charge(
            world, self._board, asker, shapes, self._budget, needed_only=needed_only
        )
        if not isinstance(found, NoPlace | Broken):
            names = _accelerators(world, found)
            mine = asker.workload.queue
            if all(each == mine or within(tenants, mine, each, names) for each in queues):
                world.fleet.journal.keep()
                return found
        tenants.undo(charged)
        world.fleet.rollback(checkpoint)
        return None


def _accelerators(world: World, placements: Sequence[Placement]) -> tuple[str, ...]:
    """Return the accelerators that these places have devices of."""
    fleet = world.fleet
    by_id = {number: name for name, number in fleet.accelerator_ids.items()}
    names = set()
    for placement in placements:
        row = fleet.row_of[placement.node]
        for leaf in placement.leaves:
            names.add(by_id[int(fleet.leaf_accelerator[row, fleet.leaves[row].index(leaf)])])
    return tuple(sorted(names))
