"""Finding the work that has to go so that a workload can start, and that costs least.

A plan is complete: with its victims gone the workload is placed and every rule holds, and without
any one of them it is not. For a single pod the cheapest victims are looked for on every node
(branch and bound), for gangs by taking the cheapest until it fits and sparing whom it can.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from shoal.core.board import Board
from shoal.core.budget import Budget
from shoal.core.eligibility import fits_on
from shoal.core.entry import Entry
from shoal.core.placement import NoPlace
from shoal.core.precedence import priority_of
from shoal.core.quota import Broken, place_and_charge, without
from shoal.core.rights import borrowing_queues, borrows, has_right, within
from shoal.core.ruled_out import wants
from shoal.core.shape import Shape
from shoal.core.victims import HOUR_US, Cost, Victim, protection, total, victims_of
from shoal.core.waiting import Group
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.workload import Placement

STEPS_ON_NODE = 400
"""Sets of victims looked at on one node; beyond, the best of them is taken."""

WAYS_TRIED = 8
"""Nodes tried in full, the cheapest first."""

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
    """Who may go, the cheapest first; whether others may come to; when they may by time alone."""

    victims: list[Victim]
    hungry: bool
    later_us: list[int]


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
        self._disrupted: dict[str, int] = {}
        """Pods that this cycle evicts, by the disruption budget that covers them."""

    def find(self, entry: Entry, group: Group) -> Room | NoRoom:
        """Return the cheapest plan for a workload that waits."""
        world = self._world
        if entry.workload.queue not in world.tenants.takes_work:
            return NoRoom(hungry=False)
        wanted = [
            name
            for name in world.fleet.accelerators()
            if any(wants(shape.request.devices, name) for shape in group.shapes)
        ]
        best: Room | None = None
        hungry, times_us = False, list[int]()
        patient: list[tuple[int, tuple[Shape, ...], str]] = []
        for accelerator in wanted:
            others = [name for name in wanted if name != accelerator]
            shapes = tuple(without(world, shape, others) for shape in group.shapes)
            whole = tuple(shape for shape in shapes if shape is not None)
            if len(whole) < len(shapes):
                continue
            found = self._candidates(entry, accelerator, self._now_us)
            hungry |= found.hungry
            times_us += found.later_us
            patient += [(at_us, whole, accelerator) for at_us in found.later_us]
            room = self._search(entry, whole, found.victims) if found.victims else None
            if room is not None and (best is None or room.cost < best.cost):
                best = room
        if best is not None and self._is_cheaper_later(entry, best, patient):
            best = None
        return best or NoRoom(hungry, min(times_us, default=None))

    def _is_cheaper_later(
        self, asker: Entry, room: Room, times: list[tuple[int, tuple[Shape, ...], str]]
    ) -> bool:
        """Return whether waiting for somebody's protection to end would lose less work.

        Whoever wants a guarantee back waits for that, as long as it has it within its
        `reclaimWithin` all the same.
        """
        reclaims = any(v.entry.workload.queue != asker.workload.queue for v in room.victims)
        queue = self._world.tenants.tree.get(asker.workload.queue)
        if not reclaims or queue is None:
            return False
        latest_us = asker.waits_since_us + queue.reclaim_within_us
        for at_us, shapes, accelerator in sorted(times, key=lambda time: (time[0], time[2])):
            if at_us > latest_us:
                return False
            found = self._candidates(asker, accelerator, at_us)
            later = self._search(asker, shapes, found.victims) if found.victims else None
            if later is not None and later.cost < room.cost:
                return True
        return False

    def take(self, room: Room) -> None:
        """Note that a plan is carried out."""
        for victim in room.victims:
            self._going.update((victim.uid, pod) for pod in victim.pods)
            for name in self._world.evictions.budgets_of(victim.uid):
                self._disrupted[name] = self._disrupted.get(name, 0) + len(victim.pods)

    # Who may go -------------------------------------------------------------------------------

    def _candidates(self, asker: Entry, accelerator: str, at_us: int) -> "_Candidates":
        """Return who may go at a time, if nothing else changes."""
        world, workload = self._world, asker.workload
        found: list[Victim] = []
        later_us: set[int] = set()

        def consider(entry: Entry, lender: str | None) -> None:
            from_us = protection(world, entry, lender, at_us).from_us
            if from_us is None or world.evictions.allowed(entry.workload.uid) == 0:
                return
            victims = [v for v in self._of(entry, at_us) if accelerator in v.accelerators]
            if from_us <= at_us:
                found.extend(victims)
            elif victims:
                later_us.add(from_us)

        tree = world.tenants.tree
        priority = priority_of(tree, workload)
        may_preempt = not asker.was_evicted
        tree = world.tenants.tree
        priority = priority_of(tree, workload)
        if may_preempt:
            for entry in self._holding(workload.queue):
                if priority_of(tree, entry.workload) < priority:
                    consider(entry, None)
        right = has_right(world.tenants, workload.queue, accelerator)
        if right:
            for queue in borrowing_queues(world.tenants, workload.queue, accelerator):
                for entry in self._holding(queue):
                    consider(entry, workload.queue)
        found.sort(key=lambda victim: victim.key)
        ranks = may_preempt and priority > self._least_priority(workload.queue)
        return _Candidates(found, right or ranks, sorted(later_us))

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
            return self._permitted(asker, victims)

        ways = [
            _Node(
                self._world, shape, row, self._together(asker, on_row), on_row, permitted
            ).cheapest()
            for row, on_row in by_row.items()
        ]
        found = [way for way in ways if way is not None]
        found.sort(key=lambda way: (total(way[0]), [victim.key for victim in way[0]]))
        exact = all(complete for _, complete in found)
        for number, (victims, _) in enumerate(found[:WAYS_TRIED]):
            placements = self._attempt(asker, (shape,), victims)
            if placements is not None:
                return Room(placements, victims, exact and number == 0)
        return None

    def _anywhere(
        self, asker: Entry, shapes: tuple[Shape, ...], candidates: list[Victim]
    ) -> Room | None:
        """Return the best plan found in which any work is taken, the cheapest first."""
        tries = TRIES

        def fits(victims: Sequence[Victim]) -> tuple[Placement, ...] | None:
            nonlocal tries
            tries -= 1
            return self._attempt(asker, shapes, _each_once(victims))

        candidates = self._together(asker, candidates)
        placements = fits(candidates)
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
        chosen = list(_each_once(candidates[:high]))
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
        queue = asker.workload.queue
        try:
            for victim in sorted(victims, key=lambda victim: victim.units):
                entry = victim.entry
                from_queue = entry.workload.queue
                if from_queue != queue and not borrows(
                    tenants, from_queue, queue, victim.accelerators
                ):
                    return False
                for pod in victim.pods:
                    world.charge(entry, pod, entry.charges[pod], -1)
        finally:
            tenants.undo(charged)
        return True

    def _together(self, asker: Entry, candidates: Sequence[Victim]) -> list[Victim]:
        """Return as many as may go together, the first ones first."""
        world, tenants = self._world, self._world.tenants
        charged = tenants.speculated
        queue = asker.workload.queue
        together: list[Victim] = []
        gone: set[tuple[str, int]] = set()
        try:
            for victim in candidates:
                entry = victim.entry
                from_queue = entry.workload.queue
                if from_queue == queue or borrows(tenants, from_queue, queue, victim.accelerators):
                    together.append(victim)
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
        if not self._within_bounds(victims) or not self._permitted(asker, victims):
            return None
        checkpoint, charged = fleet.journal.checkpoint(), tenants.speculated
        try:
            for victim in victims:
                for pod in victim.pods:
                    held = victim.entry.held[pod]
                    fleet.give_back(victim.entry.request_of(pod), held)
                    world.charge(victim.entry, pod, victim.entry.charges[pod], -1)
            found = place_and_charge(world, self._board, asker, shapes, self._budget)
            if isinstance(found, NoPlace | Broken):
                return None
            names = _accelerators(world, found)
            queues = dict.fromkeys(victim.entry.workload.queue for victim in victims)
            right = all(
                queue == asker.workload.queue or within(tenants, asker.workload.queue, queue, names)
                for queue in queues
            )
            return found if right else None
        finally:
            tenants.undo(charged)
            fleet.rollback(checkpoint)

    def _within_bounds(self, victims: Sequence[Victim]) -> bool:
        """Return whether disruption budgets, and what a queue may lose in a day, allow so many."""
        evictions, tenants = self._world.evictions, self._world.tenants
        disrupted = dict(self._disrupted)
        for victim in victims:
            for name in evictions.budgets_of(victim.uid):
                disrupted[name] = disrupted.get(name, 0) + len(victim.pods)
        if any(count > evictions.budgets[name][0] for name, count in disrupted.items()):
            return False
        by_queue = groupby(
            sorted(victims, key=lambda v: v.entry.workload.queue),
            key=lambda v: v.entry.workload.queue,
        )
        for name, group in by_queue:
            queue = tenants.tree.get(name)
            hours = tenants.inherited(queue, "device_hours_lost_per_day") if queue else None
            if hours is not None:
                lost_us = total(group).lost // UNIT + evictions.lost_today(name, self._now_us)
                if lost_us > hours * HOUR_US:
                    return False
        return True


class _Node:
    """The search for the cheapest victims on one node after whose going a pod would fit there."""

    def __init__(
        self,
        world: World,
        shape: Shape,
        row: int,
        together: list[Victim],
        victims: list[Victim],
        permitted: Callable[[Sequence[Victim]], bool],
    ) -> None:
        """`victims` are there, `together` some that may go at once; `permitted` says who may."""
        self._fleet = world.fleet
        self._together = together
        self._permitted = permitted
        self._shape = shape
        self._row = row
        self._victims = victims
        self._best: tuple[Cost, tuple[Victim, ...]] | None = None
        self._steps = STEPS_ON_NODE

    def cheapest(self) -> tuple[tuple[Victim, ...], bool] | None:
        """Return the victims, and whether they are sure to be the cheapest; None if none do."""
        chosen = _each_once(self._together)
        if not self._fits_without(chosen):
            return None
        for victim in reversed(chosen):
            rest = tuple(each for each in chosen if each is not victim)
            if self._fits_without(rest):
                chosen = rest
        self._best = total(chosen), chosen
        self._go_on(0, (), total(()))
        return self._best[1], self._steps > 0

    def _fits(self) -> bool:
        return fits_on(self._fleet, self._shape, self._row)

    def _fits_without(self, victims: Sequence[Victim]) -> bool:
        checkpoint = self._fleet.journal.checkpoint()
        for victim in victims:
            self._remove(victim)
        fits = self._fits()
        self._fleet.rollback(checkpoint)
        return fits

    def _remove(self, victim: Victim) -> None:
        for pod in victim.pods:
            held = victim.entry.held[pod]
            self._fleet.give_back(victim.entry.request_of(pod), held)

    def _go_on(self, index: int, chosen: tuple[Victim, ...], cost: Cost) -> None:
        """Look at sets that have `chosen` and any of the victims from `index` on."""
        self._steps -= 1
        if self._fits():
            if self._best is None or cost < self._best[0]:
                self._best = cost, chosen
            return
        if index == len(self._victims) or self._steps <= 0:
            return
        victim = self._victims[index]
        with_it = cost.plus(victim.cost)
        if self._best is not None and with_it >= self._best[0]:
            return
        new = all(each.uid != victim.uid or (each.spared and victim.spared) for each in chosen)
        if new and self._permitted((*chosen, victim)):
            checkpoint = self._fleet.journal.checkpoint()
            self._remove(victim)
            self._go_on(index + 1, (*chosen, victim), with_it)
            self._fleet.rollback(checkpoint)
        self._go_on(index + 1, chosen, cost)


def _each_once(victims: Sequence[Victim]) -> tuple[Victim, ...]:
    """Leave out pods of workloads that go whole."""
    whole = {victim.uid for victim in victims if not victim.spared}
    return tuple(v for v in victims if not v.spared or v.uid not in whole)


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
