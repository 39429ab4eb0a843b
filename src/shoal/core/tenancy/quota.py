"""Starting a workload within the quota of its queue and all queues above it, on the journal.

Accelerators of which the quota has nothing left are left out of the search. What was found is
charged and held against every rule; where it breaks one, the search goes on without them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from shoal.core.arrays.charges import Charge, least_units
from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.limits.deadlines import earliest
from shoal.core.placing.board import Board
from shoal.core.placing.placement import NoPlace, place, place_one
from shoal.core.tenancy.kept_quota import over_kept_quota
from shoal.core.tenancy.ruled_out import ruled_out, wants
from shoal.core.tenancy.tenants import Tenants
from shoal.core.world import Entry, World
from shoal.model.verdict import OverBudget, OverQuota, Reason, Stage, Verdict, Wake
from shoal.model.workload import Placement

Find = Callable[[frozenset[str]], tuple[Placement, ...] | NoPlace]
"""Finds places on the journal, on none of these nodes."""

TREE_WIDE = frozenset({Reason.GUARANTEE, Reason.LEND_LIMIT, Reason.PLACEABLE})
"""Rules that may hold again when anything ends anywhere in the tree."""

MAY_BE_MADE = frozenset({Reason.LIMIT, Reason.BORROW_LIMIT, Reason.LEND_LIMIT, Reason.PLACEABLE})
"""Rules that may hold again when others go."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a workload was not started, and what could end that; see `events.Examined`.

    Where it found no place, `left_out` are accelerators that would do and that a rule forbids, and
    `rule` is the one of these rules that may come to hold most easily.
    """

    verdict: Verdict
    missing_pods: int | None
    blocked_at: str = ""
    again_us: int | None = None
    left_out: tuple[str, ...] = ()
    rule: OverQuota | OverBudget | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The rule that a placement breaks, and the accelerators to do without to keep it.

    `again_us` is when time alone may let the rule hold.
    """

    over: OverQuota | OverBudget
    accelerators: tuple[str, ...]
    again_us: int | None = None


def start_within_quota(
    world: World, board: Board, entry: Entry, wanted: tuple[Shape, ...], budget: Budget
) -> tuple[Placement, ...] | Refusal:
    """Place and charge every pod of a workload, or none.

    World and tenants must be speculating, and what is spent must be judged (`Spending.decides`).
    """
    tenants = world.tenants
    queue = entry.workload.queue
    barred: dict[str, Broken] = {}
    if tenants.tree.queues:
        over = ruled_out(world, entry, wanted)
        if over is not None:
            return _ruled_out(entry, over)
        barred = _barred(world, entry, wanted)
    while True:
        shapes = tuple(without(world, shape, barred) for shape in wanted)
        left = tuple(shape for shape in shapes if shape is not None)
        if len(left) < len(shapes):
            return _over(tenants, entry, barred)
        found = place_and_charge(world, board, entry, left, budget)
        if isinstance(found, Broken):
            barred |= dict.fromkeys(found.accelerators, found)
            continue
        if isinstance(found, NoPlace):
            blocked_at = _blocked_at(tenants, queue, barred.values())
            again_us = _again_us(barred.values())
            rule = _easiest(barred) if barred else None
            return Refusal(
                found.verdict, found.missing_pods, blocked_at, again_us, tuple(sorted(barred)), rule
            )
        return found


def _barred(world: World, entry: Entry, shapes: tuple[Shape, ...]) -> dict[str, Broken]:
    """Return the accelerators of which not even the least could be had, or that have no price.

    The least is the smallest pod, or all that are needed of those that no other accelerator would
    do.
    """
    barred = {}
    accelerators = world.fleet.accelerators()
    pod_sets = [
        (shape.request.devices, pod_set.needed)
        for shape, pod_set in zip(shapes, entry.workload.pod_sets, strict=True)
    ]
    for accelerator in accelerators:
        largest_mib = world.fleet.largest_mib(accelerator)
        least, together = [], 0
        for devices, pods in pod_sets:
            if wants(devices, accelerator):
                least.append(least_units(devices, largest_mib))
                if len(accelerators) == 1 or devices.accelerators == (accelerator,):
                    together += pods * least[-1]
        if least:
            units = max(min(least), together)
            over = world.spending.uncounted(
                entry.workload, accelerator
            ) or world.tenants.over_limit(entry.workload.queue, accelerator, units)
            if over is not None:
                barred[accelerator] = Broken(over, (accelerator,))
    return barred


def without(world: World, shape: Shape, barred: Collection[str]) -> Shape | None:
    """Return a shape that asks for none of these accelerators, None where none is left to ask."""
    if not barred:
        return shape
    devices = shape.request.devices
    wanted = [name for name in world.fleet.accelerators() if wants(devices, name)]
    left = tuple(name for name in wanted if name not in barred)
    if len(left) == len(wanted):
        return shape
    if not left:
        return None
    return world.shape_of(
        replace(shape.request, devices=replace(devices, accelerators=left)), shape.type
    )


def place_and_charge(
    world: World,
    board: Board,
    entry: Entry,
    shapes: tuple[Shape, ...],
    budget: Budget,
    *,
    needed_only: bool = False,
) -> tuple[Placement, ...] | NoPlace | Broken:
    """Place and charge every pod of a workload, or none where that breaks a rule of its queues.

    `shapes` are those of its pod sets; world and tenants must be speculating. Where a rule leaves
    no room for all of an elastic gang, it starts with the pods that it needs; `needed_only` leaves
    the others out at once.
    """
    workload = entry.workload
    find = partial(place, world.fleet, board, workload, shapes, budget=budget)
    if needed_only:
        return _within_rules(world, entry, shapes, partial(find, needed_only=True))
    found = _within_rules(world, entry, shapes, find)
    if isinstance(found, Broken) and workload.elastic:
        return _within_rules(world, entry, shapes, partial(find, needed_only=True))
    return found


def add_within_quota(
    world: World, board: Board, entry: Entry, pod: int, budget: Budget
) -> Placement | None:
    """Place and charge one more pod of a running workload; None where that cannot be now.

    World and tenants must be speculating, and what is spent must be judged.
    """
    asked = world.shape_of(entry.request_of(pod), entry.workload.type)
    barred: dict[str, Broken] = {}
    while (shape := without(world, asked, barred)) is not None:
        find = partial(place_one, world.fleet, board, entry.workload.uid, pod, shape, budget=budget)
        found = _within_rules(world, entry, (shape,), find)
        if not isinstance(found, Broken):
            return None if isinstance(found, NoPlace) or not found else found[0]
        barred |= dict.fromkeys(found.accelerators, found)
    return None


def _within_rules(
    world: World, entry: Entry, shapes: tuple[Shape, ...], find: Find
) -> tuple[Placement, ...] | NoPlace | Broken:
    """Find places and charge them.

    What would be in the way of devices that are promised on one node is placed elsewhere.
    """
    refused = entry.refused
    found = _charged(world, entry, find, refused)
    over = found.over if isinstance(found, Broken) else None
    if not isinstance(over, OverQuota) or over.reason is not Reason.PLACEABLE:
        return found
    for shape in shapes:
        devices = shape.request.devices.count
        if devices:
            allowed = world.allowed_rows(shape)
            refused |= world.tenants.closed(entry.workload.queue, devices, allowed)
    elsewhere = _charged(world, entry, find, refused)
    return found if isinstance(elsewhere, NoPlace) else elsewhere


def _charged(
    world: World, entry: Entry, find: Find, refused: frozenset[str]
) -> tuple[Placement, ...] | NoPlace | Broken:
    fleet, tenants, workload = world.fleet, world.tenants, entry.workload
    checkpoint, charged = fleet.journal.checkpoint(), tenants.speculated
    found = find(refused)
    broken: Broken | None = None
    if not isinstance(found, NoPlace) and tenants.tree.queues:
        charged_for = world.charges_in(entry, found)
        asked = _units(charged_for.values())
        returnable = world.returnable(workload)
        judged = tenants.counts_several and not returnable
        uncovered = tenants.uncovered() if judged else {}
        for pod, charges in charged_for.items():
            world.charge(entry, pod, charges, 1)
        over = tenants.over_quota(workload.queue, asked, returnable=returnable)
        if over is None and judged:
            over = tenants.over_others(workload.queue, asked, uncovered)
        if over is None and world.reserving:
            over = over_kept_quota(world, entry, asked)
        if over is not None:
            broken = Broken(over, tenants.dearest(over, asked))
        elif (spent := world.spending.refusal(workload, asked)) is not None:
            broken = Broken(spent.over, (spent.accelerator,), spent.again_us)
        elif tenants.slots.promises:
            missing = tenants.missing_slots()
            borrowed = entry.borrowed if entry.held else tenants.borrowed(workload, asked)
            for charges in charged_for.values():
                if borrowed is not None:
                    tenants.pin(workload.queue, charges, borrowed, 1)
            over = tenants.over_slots(missing, asked)
            broken = None if over is None else Broken(over, tuple(sorted(asked)))
    if broken is None:
        fleet.journal.keep()
        return found
    tenants.undo(charged)
    fleet.rollback(checkpoint)
    return broken


def units_of(world: World, entry: Entry, placements: Iterable[Placement]) -> Counter[str]:
    """Return what a workload is charged in these places, by accelerator."""
    return _units(world.charges_in(entry, placements).values())


def _units(charged: Iterable[tuple[Charge, ...]]) -> Counter[str]:
    """Return charges together, by accelerator."""
    units: Counter[str] = Counter()
    for charges in charged:
        for charge in charges:
            units[charge.accelerator] += charge.units
    return units


def promise(
    world: World, entry: Entry, placements: Iterable[Placement], at_us: int | None = None
) -> None:
    """Count against budgets what a workload will use in these places, from now or `at_us` on.

    What was kept for it before counts no more until the speculation ends.
    """
    world.tenants.promised.add(entry.workload.uid)
    if world.spending.binds(entry.workload.queue):
        world.spending.promise(entry.workload, units_of(world, entry, placements), at_us)


def _again_us(broken: Iterable[Broken]) -> int | None:
    """Return when time alone may let one of these rules hold."""
    return earliest(*(each.again_us for each in broken))


def _blocked_at(tenants: Tenants, queue: str, broken: Iterable[Broken]) -> str:
    """Return the lowest queue whose account falls whenever one of these rules may hold again.

    What is not covered by guarantees may come to be by whatever ends anywhere in the tree.
    """
    path = tenants.path(queue)
    heights = []
    for over in (each.over for each in broken):
        anywhere = isinstance(over, OverQuota) and over.reason in TREE_WIDE
        heights.append(len(path) - 1 if anywhere else path.index(over.queue))
    return path[max(heights)] if heights else ""


def _ruled_out(entry: Entry, over: OverQuota) -> Refusal:
    """Refuse a workload that no room would help, only other queues."""
    pods = sum(pod_set.needed for pod_set in entry.workload.pod_sets)
    never = over.reason not in (Reason.NO_QUEUE, Reason.CLOSING)
    return Refusal(Verdict(Stage.QUOTA, (), 0, pods, (Wake.QUEUES,), over, never), None)


def _over(tenants: Tenants, entry: Entry, barred: Mapping[str, Broken]) -> Refusal:
    """Refuse a workload of which a pod may have none of the accelerators that would do.

    It is told the rule that may come to hold most easily.
    """
    pods = sum(pod_set.needed for pod_set in entry.workload.pod_sets)
    over = _easiest(barred)
    if isinstance(over, OverBudget):
        wakes = (Wake.QUEUES,) if _is_unpriced(over) else (Wake.QUOTA, Wake.PERIOD)
        verdict = Verdict(Stage.BUDGET, (), 0, pods, wakes, over_budget=over)
    else:
        verdict = Verdict(Stage.QUOTA, (), 0, pods, (Wake.QUOTA,), over)
    blocked_at = _blocked_at(tenants, entry.workload.queue, barred.values())
    return Refusal(verdict, None, blocked_at, _again_us(barred.values()))


def _easiest(barred: Mapping[str, Broken]) -> OverQuota | OverBudget:
    """Return the rule that may come to hold most easily."""
    return min(barred.items(), key=lambda each: (_hopeless(each[1].over), each[0]))[1].over


def _hopeless(over: OverQuota | OverBudget) -> int:
    """Return how hopeless it is to wait for a rule to hold again.

    Others may make room by going for some, first of all; what has no price is waited for in vain.
    """
    return 0 if over.reason in MAY_BE_MADE else 2 if _is_unpriced(over) else 1


def _is_unpriced(over: OverQuota | OverBudget) -> bool:
    return over.reason is Reason.NO_PRICE
