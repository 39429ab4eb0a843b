"""Finding places for all pods of a workload, or for none, by trying it on the journal."""

from dataclasses import dataclass

from shoal.core.board import Board
from shoal.core.budget import Budget
from shoal.core.eligibility import count_obstacles
from shoal.core.fleet import Fleet
from shoal.core.shape import Shape
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.verdict import Stage, Verdict, Wake
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
) -> tuple[Placement, ...] | NoPlace:
    """Place every pod of a workload on the journal, or none; the fleet must be speculating.

    Pod sets that are hardest to place go first.
    """
    checkpoint = fleet.journal.checkpoint()
    placements: list[Placement] = []
    for index in hardest_first(shapes):
        pod_set, shape = workload.pod_sets[index], shapes[index]
        number = sum(s.count for s in workload.pod_sets[:index])
        for pod in range(number, number + pod_set.count):
            budget.spend()
            found = board.best(shape, workload.uid, refused)
            if found is None:
                no_place = _no_place(fleet, workload, shape, refused, len(placements))
                fleet.rollback(checkpoint)
                return no_place
            row, leaves = found
            placement = Placement(pod, fleet.names[row], leaves)
            fleet.take(shape.request, placement)
            placements.append(placement)
    fleet.journal.keep()
    placements.sort(key=lambda placement: placement.pod)
    return tuple(placements)


def _no_place(
    fleet: Fleet, workload: Workload, shape: Shape, refused: frozenset[str], placed: int
) -> NoPlace:
    pods = sum(pod_set.count for pod_set in workload.pod_sets)
    wakes = [Wake.CAPACITY, Wake.NODES]
    if any(pod_set.request.mask for pod_set in workload.pod_sets):
        wakes.append(Wake.MASK)
    verdict = Verdict(
        stage=Stage.PLACE,
        obstacles=count_obstacles(fleet, shape, refused),
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
