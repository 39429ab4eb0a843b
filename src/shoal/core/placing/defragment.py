"""Moves of running pods that would make room for one that fits nowhere: proposed, never decided.

It is a step of its own, taken only where it is asked for. Whoever asks says how many moves there
may be at most, carries out what is proposed (a pod ends where it is and runs again elsewhere), and
tells the world by `PodMoved` events; then the pod that waits finds its place in the next cycle.

Only single pods are moved that run alone in their workload, and never more of devices than the pod
that waits asks for: work is interrupted to let as much work or more begin. Of the ways found, the
one is proposed after which the policy's points are best, among those with fewest moves.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray
from shoal.core.arrays.shape import Shape
from shoal.core.placing.board import Board
from shoal.core.policies import Policy
from shoal.core.world import State, World
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.request import Request
from shoal.model.workload import Placement

TRIED = 12
"""Ways that are tried on the journal for each number of moves, those that move least first."""

PAIRED_NODES = 64
"""Nodes on which pairs of pods are looked at, those with most compute free first."""


@dataclass(frozen=True, slots=True)
class Move:
    """Pod `pod` of workload `uid` should run at `target` instead of `source`."""

    uid: str
    pod: int
    source: Placement
    target: Placement


@dataclass(frozen=True, slots=True)
class _Held:
    """A running pod that may be moved."""

    uid: str
    request: Request
    placement: Placement
    row: int
    charge: int


def propose(world: World, policy: Policy, seed: int, uid: str, most_moves: int) -> tuple[Move, ...]:
    """Return moves after which the waiting pod `uid` fits, at most `most_moves`; none if unknown.

    The world is the same before and after. A workload of several pods, or without devices, gets no
    proposal. Moves one and two pods at a time; more are not looked for.
    """
    entry = world.entries.get(uid)
    if entry is None or entry.state is not State.WAITING or most_moves < 1:
        return ()
    shapes = world.shapes_of(entry)
    shape = shapes[0]
    alone = len(shapes) == 1 and entry.workload.pod_sets[0].count == 1
    if not alone or not shape.request.devices.count:
        return ()
    board = world.board(policy, seed)
    if board.best(shape, uid, entry.refused) is not None:
        return ()
    search = _Search(world, board, shape, entry.refused)
    start = world.fleet.journal.checkpoint()
    try:
        for number in range(1, min(most_moves, 2) + 1):
            best = search.best(number)
            if best:
                return best
    finally:
        world.fleet.rollback(start)
    return ()


def charge_milli(request: Request) -> int:
    """Return the devices that a request takes, in thousandths of one, by compute."""
    devices = request.devices
    return devices.count * (WHOLE_COMPUTE_MILLI if devices.whole else devices.compute_milli)


class _Search:
    """The search for one waiting pod."""

    def __init__(self, world: World, board: Board, shape: Shape, refused: frozenset[str]) -> None:
        self._world = world
        self._fleet = world.fleet
        self._board = board
        self._shape = shape
        self._refused = refused
        held = self._movable = list(self._find_movable(world.allowed_rows(shape).tolist()))
        self._rows = np.array([each.row for each in held], dtype=np.int64)
        self._charges = np.array([each.charge for each in held], dtype=np.int64)
        self._leaves = np.array([len(each.placement.leaves) for each in held], dtype=np.int64)
        self._cpu = np.array([each.request.cpu_milli for each in held], dtype=np.int64)
        self._memory = np.array([each.request.memory_mib for each in held], dtype=np.int64)

    def best(self, number: int) -> tuple[Move, ...]:
        """Return the best way with so many moves, or nothing."""
        ways = sorted(
            self._single() if number == 1 else self._pairs(),
            key=lambda way: (
                sum(held.charge for held in way),
                sum(held.request.cpu_milli for held in way),
                [held.uid for held in way],
            ),
        )
        best: tuple[int, tuple[Move, ...]] | None = None
        for way in ways[:TRIED]:
            found = self._try(way)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        return best[1] if best else ()

    def _find_movable(self, allowed: list[bool]) -> Iterator[_Held]:
        """Yield pods whose going might help.

        It looks at all that runs, so what costs least is asked first.
        """
        most = charge_milli(self._shape.request)
        row_of, refused = self._fleet.row_of, self._refused
        for uid, entry in self._world.entries.items():
            pod_sets, held = entry.workload.pod_sets, entry.held
            if len(held) != 1 or len(pod_sets) > 1 or pod_sets[0].count > 1:
                continue
            (placement,) = held.values()
            row = row_of[placement.node]
            if not allowed[row]:
                continue
            request = entry.requests[0]
            charge = charge_milli(request)
            if charge > most or entry.state is not State.RUNNING or placement.node in refused:
                continue
            yield _Held(uid, request, placement, row, charge)

    def _single(self) -> Iterator[tuple[_Held, ...]]:
        enough = self._enough(self._rows, self._cpu, self._memory, self._charges, self._leaves)
        for index in np.flatnonzero(enough).tolist():
            if self._fits_without((self._movable[index],)):
                yield (self._movable[index],)

    def _pairs(self) -> Iterator[tuple[_Held, ...]]:
        fleet = self._fleet
        of_row: dict[int, list[int]] = {}
        for index, row in enumerate(self._rows.tolist()):
            of_row.setdefault(row, []).append(index)
        free = fleet.compute_free
        rows = sorted(of_row, key=lambda row: (-int(free[row]), fleet.names[row]))
        most = charge_milli(self._shape.request)
        for row in rows[:PAIRED_NODES]:
            members = np.array(of_row[row], dtype=np.int64)
            first, second = (members[each] for each in np.triu_indices(len(members), 1))
            charge = self._charges[first] + self._charges[second]
            enough = self._enough(
                self._rows[first],
                self._cpu[first] + self._cpu[second],
                self._memory[first] + self._memory[second],
                charge,
                self._leaves[first] + self._leaves[second],
            )
            for index in np.flatnonzero(enough & (charge <= most)).tolist():
                pair = self._movable[first[index]], self._movable[second[index]]
                if self._fits_without(pair):
                    yield pair

    def _enough(
        self, rows: IntArray, cpu: IntArray, memory: IntArray, charge: IntArray, leaves: IntArray
    ) -> BoolArray:
        """Return whether nodes might have room if so much were given back; leaves aside."""
        fleet, request = self._fleet, self._shape.request
        enough = fleet.cpu_free[rows] + cpu >= request.cpu_milli
        enough &= fleet.memory_free[rows] + memory >= request.memory_mib
        enough &= fleet.compute_free[rows] + charge >= charge_milli(request)
        if request.devices.whole:
            enough &= fleet.whole_free[rows] + leaves >= request.devices.count
        return enough

    def _fits_without(self, way: tuple[_Held, ...]) -> bool:
        """Return whether its leaves would do for the waiting pod if these pods were not there."""
        fleet, request = self._fleet, self._shape.request
        row = way[0].row
        freed: dict[str, int] = {}
        for held in way:
            asked = held.request.devices
            each = WHOLE_COMPUTE_MILLI if asked.whole else asked.compute_milli
            for leaf in held.placement.leaves:
                freed[leaf] = freed.get(leaf, 0) + each
        asked = request.devices
        need = WHOLE_COMPUTE_MILLI if asked.whole else asked.compute_milli
        free = fleet.leaf_compute_free[row].tolist()
        leaves = fleet.leaves[row]
        fitting = sum(
            free[column] + freed.get(leaf, 0) >= need for column, leaf in enumerate(leaves)
        )
        return bool(fitting >= asked.count)

    def _try(self, way: tuple[_Held, ...]) -> tuple[int, tuple[Move, ...]] | None:
        """Carry the moves out on the journal; the change in points, or None if it does not work."""
        fleet, board = self._fleet, self._board
        start = fleet.journal.checkpoint()
        try:
            points = 0
            moves = []
            for held in way:
                fleet.give_back(held.request, held.placement)
            source = frozenset({way[0].placement.node})
            for held in way:
                type_ = self._world.entries[held.uid].workload.type
                shape = self._world.shape_of(held.request, type_)
                found = board.best(shape, held.uid, source)
                if found is None:
                    return None
                row, leaves = found
                points += board.points(shape, row) - board.points(shape, held.row)
                target = Placement(held.placement.pod, fleet.names[row], leaves)
                fleet.take(held.request, target)
                moves.append(Move(held.uid, held.placement.pod, held.placement, target))
            found = board.best(self._shape, way[0].uid, self._refused)
            if found is None:
                return None
            return points + board.points(self._shape, found[0]), tuple(moves)
        finally:
            fleet.rollback(start)
