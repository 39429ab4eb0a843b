"""Finding places for all pods of a workload, or for none, by trying it on the journal."""

from dataclasses import dataclass
from functools import partial

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.labels import BoolArray
from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.placing.board import Board
from shoal.core.placing.domains import domains
from shoal.core.placing.eligibility import count_obstacles
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.verdict import Reason, Stage, Verdict, Wake
from shoal.model.workload import Placement, Workload


@dataclass(frozen=True, slots=True)
class NoPlace:
    """No placement was found; `missing_pods` of the gang found no place, at least 1."""

    verdict: Verdict
    missing_pods: int


def place(
    fleet: Fleet,
    board: Board,
    workload: Workload,
    shapes: tuple[Shape, ...],
    refused: frozenset[str],
    budget: Budget,
    *,
    needed_only: bool = False,
) -> tuple[Placement, ...] | NoPlace:
    """Place every pod of a workload on the journal, or none; the fleet must be speculating.

    Pod sets that are hardest to place go first. Pods that the workload can do without come after
    all others, as many as there is room for; `needed_only` leaves them out. Where a pool says so, a
    gang goes to the smallest domain of its topology that has room for all that are needed.
    """
    put = partial(_place, fleet, board, workload, shapes, refused, budget, needed_only=needed_only)
    for rows in domains(fleet, board, workload, shapes) if fleet.pools else ():
        found = put(rows)
        if not isinstance(found, NoPlace):
            return found
    return put(None)


def _place(
    fleet: Fleet,
    board: Board,
    workload: Workload,
    shapes: tuple[Shape, ...],
    refused: frozenset[str],
    budget: Budget,
    rows: BoolArray | None,
    *,
    needed_only: bool,
) -> tuple[Placement, ...] | NoPlace:
    """Do so where the pods that are needed are all on these rows, and others if that can be."""
    checkpoint = fleet.journal.checkpoint()
    placements: list[Placement] = []

    def put(index: int, numbers: range, among: BoolArray | None) -> range:
        """Place pods of one pod set, by their numbers there, until one finds no place."""
        shape, first = shapes[index], sum(s.count for s in workload.pod_sets[:index])
        for number in numbers:
            pod = first + number
            found = place_one(fleet, board, workload.uid, pod, shape, refused, budget, among)
            if not found:
                return range(number, numbers.stop)
            placements.extend(found)
        return range(0)

    order = hardest_first(shapes)
    for index in order:
        if put(index, range(workload.pod_sets[index].needed), rows):
            no_place = _no_place(fleet, workload, shapes[index], refused, len(placements))
            fleet.rollback(checkpoint)
            return no_place
    for index in () if needed_only else order:
        pod_set = workload.pod_sets[index]
        left = put(index, range(pod_set.needed, pod_set.count), rows)
        if left and rows is not None:
            put(index, left, None)
    fleet.journal.keep()
    placements.sort(key=lambda placement: placement.pod)
    return tuple(placements)


def place_one(
    fleet: Fleet,
    board: Board,
    uid: str,
    pod: int,
    shape: Shape,
    refused: frozenset[str],
    budget: Budget,
    among: BoolArray | None = None,
) -> tuple[Placement, ...]:
    """Place one pod of a workload on the journal; nothing is returned where it finds no place.

    `among` says for each row whether it may be there.
    """
    budget.spend()
    found = board.best(shape, uid, refused, among)
    if found is None:
        return ()
    row, leaves = found
    placement = Placement(pod, fleet.names[row], leaves)
    fleet.take(shape.request, placement)
    return (placement,)


def _no_place(
    fleet: Fleet, workload: Workload, shape: Shape, refused: frozenset[str], placed: int
) -> NoPlace:
    pods = sum(pod_set.needed for pod_set in workload.pod_sets)
    obstacles = count_obstacles(fleet, shape, refused)
    wakes = [Wake.CAPACITY, Wake.NODES]
    if any(each.reason in (Reason.POOL, Reason.SEVERAL_POOLS) for each in obstacles):
        wakes.append(Wake.POOLS)
    if any(pod_set.request.mask for pod_set in workload.pod_sets):
        wakes.append(Wake.MASK)
    verdict = Verdict(
        stage=Stage.PLACE,
        obstacles=obstacles,
        placed_pods=placed,
        pods=pods,
        wakes=tuple(wakes),
    )
    return NoPlace(verdict, pods - placed if len(workload.pod_sets) == 1 else 1)


def hardest_first(shapes: tuple[Shape, ...]) -> list[int]:
    """Return the numbers of pod sets, given by their shapes, in the order of placing."""
    if len(shapes) == 1:
        return [0]

    def size(index: int) -> tuple[int, int, int]:
        request = shapes[index].request
        devices = request.devices
        each = WHOLE_COMPUTE_MILLI if devices.whole else devices.compute_milli
        return -devices.count * each, -request.cpu_milli, -request.memory_mib

    return sorted(range(len(shapes)), key=size)
