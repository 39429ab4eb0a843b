"""Starting a workload within the quota of its queue and all queues above it, on the journal.

Accelerators of which the quota has nothing left are left out of the search. What was found is
charged and held against every rule; where it breaks one, the search goes on without them.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from shoal.core.board import Board
from shoal.core.budget import Budget
from shoal.core.charges import charges_of, least_units
from shoal.core.placement import NoPlace, place
from shoal.core.ruled_out import ruled_out, wants
from shoal.core.shape import Shape
from shoal.core.tenants import Tenants
from shoal.core.world import Entry, World
from shoal.model.verdict import OverQuota, Reason, Stage, Verdict, Wake
from shoal.model.workload import Placement

TREE_WIDE = frozenset({Reason.GUARANTEE, Reason.LEND_LIMIT})
"""Rules that may hold again when anything ends anywhere in the tree."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a workload was not started, and what could end that; see `events.Examined`."""

    verdict: Verdict
    missing_pods: int | None
    blocked_at: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """The rule that a placement breaks, and the accelerators to do without to keep it."""

    over: OverQuota
    accelerators: tuple[str, ...]


def start_within_quota(
    world: World, board: Board, entry: Entry, wanted: tuple[Shape, ...], budget: Budget
) -> tuple[Placement, ...] | Refusal:
    """Place and charge every pod of a workload, or none; world and tenants must be speculating."""
    tenants = world.tenants
    queue = entry.workload.queue
    barred: dict[str, OverQuota] = {}
    if tenants.tree.queues:
        over = ruled_out(world, entry, wanted)
        if over is not None:
            return _ruled_out(entry, over)
        barred = _barred(world, queue, wanted)
    while True:
        shapes = tuple(without(world, shape, barred) for shape in wanted)
        left = tuple(shape for shape in shapes if shape is not None)
        if len(left) < len(shapes):
            return _over(tenants, entry, barred[min(barred)])
        found = place_and_charge(world, board, entry, left, budget)
        if isinstance(found, Broken):
            barred |= dict.fromkeys(found.accelerators, found.over)
            continue
        if isinstance(found, NoPlace):
            blocked_at = _blocked_at(tenants, queue, barred.values())
            return Refusal(found.verdict, found.missing_pods, blocked_at)
        return found


def _barred(world: World, queue: str, shapes: tuple[Shape, ...]) -> dict[str, OverQuota]:
    """Return the accelerators of which not even the smallest pod could have its part."""
    barred = {}
    for accelerator in world.fleet.accelerators():
        largest_mib = world.fleet.largest_mib(accelerator)
        least = [
            least_units(shape.request.devices, largest_mib)
            for shape in shapes
            if wants(shape.request.devices, accelerator)
        ]
        over = world.tenants.over_limit(queue, accelerator, min(least)) if least else None
        if over is not None:
            barred[accelerator] = over
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
    return world.shape_of(replace(shape.request, devices=replace(devices, accelerators=left)))


def place_and_charge(
    world: World, board: Board, entry: Entry, shapes: tuple[Shape, ...], budget: Budget
) -> tuple[Placement, ...] | NoPlace | Broken:
    """Place and charge every pod of a workload, or none where that breaks a rule of its queues.

    `shapes` are those of its pod sets; world and tenants must be speculating. Where a rule leaves
    no room for all of an elastic gang, it starts with the pods that it needs.
    """
    found = _place_and_charge(world, board, entry, shapes, budget, needed_only=False)
    elastic = any(pod_set.needed < pod_set.count for pod_set in entry.workload.pod_sets)
    if isinstance(found, Broken) and elastic:
        return _place_and_charge(world, board, entry, shapes, budget, needed_only=True)
    return found


def _place_and_charge(
    world: World,
    board: Board,
    entry: Entry,
    shapes: tuple[Shape, ...],
    budget: Budget,
    *,
    needed_only: bool,
) -> tuple[Placement, ...] | NoPlace | Broken:
    fleet, tenants, workload = world.fleet, world.tenants, entry.workload
    checkpoint, charged = fleet.journal.checkpoint(), tenants.speculated
    found = place(fleet, board, workload, shapes, entry.refused, budget, needed_only=needed_only)
    broken: Broken | None = None
    if not isinstance(found, NoPlace) and tenants.tree.queues:
        asked: Counter[str] = Counter()
        for placement in found:
            charges = charges_of(fleet, entry.request_of(placement.pod), placement)
            for charge in charges:
                asked[charge.accelerator] += charge.units
            world.charge(entry, placement.pod, charges, 1)
        over = tenants.over_quota(workload.queue, asked, returnable=world.returnable(workload))
        broken = None if over is None else Broken(over, tenants.dearest(over, asked))
    if broken is None:
        fleet.journal.keep()
        return found
    tenants.undo(charged)
    fleet.rollback(checkpoint)
    return broken


def _blocked_at(tenants: Tenants, queue: str, broken: Iterable[OverQuota]) -> str:
    """Return the lowest queue whose account falls whenever one of these rules may hold again.

    What is not covered by guarantees may come to be by whatever ends anywhere in the tree.
    """
    path = tenants.path(queue)
    heights = [
        len(path) - 1 if over.reason in TREE_WIDE else path.index(over.queue) for over in broken
    ]
    return path[max(heights)] if heights else ""


def _ruled_out(entry: Entry, over: OverQuota) -> Refusal:
    """Refuse a workload that no room would help, only other queues."""
    pods = sum(pod_set.needed for pod_set in entry.workload.pod_sets)
    never = over.reason not in (Reason.NO_QUEUE, Reason.CLOSING)
    return Refusal(Verdict(Stage.QUOTA, (), 0, pods, (Wake.QUEUES,), over, never), None)


def _over(tenants: Tenants, entry: Entry, over: OverQuota) -> Refusal:
    pods = sum(pod_set.needed for pod_set in entry.workload.pod_sets)
    verdict = Verdict(Stage.QUOTA, (), 0, pods, (Wake.QUOTA,), over)
    return Refusal(verdict, None, _blocked_at(tenants, entry.workload.queue, (over,)))
