"""Where a gang may be whole: in one domain of a pool's topology, the smallest that has room.

Pods of a gang talk to each other, the faster the nearer they are. In a pool with the policy
`topology` a gang therefore goes to one node if that can hold all of it, else to nodes that share
the first of the pool's levels (a rack, say), else the second, and so on. Of several such domains
it is the one with least room, so that large ones stay whole for large gangs. It is a preference: a
gang that fits in no domain starts across several.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray
from shoal.core.arrays.pool_rules import is_in
from shoal.core.arrays.shape import Shape
from shoal.core.placing.board import Board
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.pool import PlacementPolicy
from shoal.model.workload import Workload, WorkloadType

TRIED = 16
"""Domains of one level in which a gang is tried to be placed, those with least room first."""


def domains(
    fleet: Fleet, board: Board, workload: Workload, shapes: Sequence[Shape]
) -> Iterator[BoolArray]:
    """Yield for each domain in which a gang might be whole which rows are in it.

    Nothing where a single pod has devices, nor for replicas of a service, which are better apart.
    """
    sets = zip(shapes, workload.pod_sets, strict=True)
    pods = sum(pod_set.needed for shape, pod_set in sets if shape.request.devices.count)
    if pods < 2 or workload.type is WorkloadType.INFERENCE:
        return
    for number, pool in enumerate(fleet.pools, 1):
        if pool.placement is not PlacementPolicy.TOPOLOGY:
            continue
        inside = is_in(fleet, number)
        room, needed = _room(fleet, board, workload, shapes)
        for level in (None, *pool.levels):
            of_row = np.where(inside, _domain_of_row(fleet, level), 0)
            yield from _with_room(of_row, room, needed)


def _domain_of_row(fleet: Fleet, level: str | None) -> NDArray[np.intp]:
    """Return by row the number of its domain, from 1 on, 0 where it is in none; None: the node."""
    if level is None:
        return np.arange(1, fleet.size + 1)
    return fleet.labels.values(level, slice(0, fleet.size)).astype(np.intp)


def _with_room(of_row: NDArray[np.intp], room: IntArray, needed: int) -> Iterator[BoolArray]:
    """Yield the rows of each domain that may have room, those with least of it first."""
    total: IntArray = np.zeros(int(of_row.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(total, of_row, room)
    total[0] = 0
    enough = np.flatnonzero(total >= needed)
    for domain in enough[np.argsort(total[enough], kind="stable")][:TRIED].tolist():
        yield of_row == domain


def _room(
    fleet: Fleet, board: Board, workload: Workload, shapes: Sequence[Shape]
) -> tuple[IntArray, int]:
    """Return how much of a gang each row could hold at most, and how much there is of it.

    In pods where they are all alike and ask for whole devices, else in compute.
    """
    sets = [
        (shape.request.devices, pod_set.needed, board.allowed(shape))
        for shape, pod_set in zip(shapes, workload.pod_sets, strict=True)
        if shape.request.devices.count
    ]
    if len(sets) == 1 and sets[0][0].whole:
        devices, needed, allowed = sets[0]
        free = fleet.whole_free[: fleet.size].clip(min=0) // devices.count
        return np.where(allowed, free, 0), needed
    allowed = np.zeros(fleet.size, dtype=np.bool_)
    needed = 0
    for devices, pods, mine in sets:
        allowed |= mine
        each = WHOLE_COMPUTE_MILLI if devices.whole else devices.compute_milli
        needed += pods * devices.count * each
    return np.where(allowed, fleet.compute_free[: fleet.size].clip(min=0), 0), max(1, needed)
