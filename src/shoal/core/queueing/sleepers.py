"""Sleeping groups by what they ask for, and on which nodes one of their pods may fit.

Groups of different queues that ask for the same are one kind. What has to be compared with nodes
that gained room is then as many kinds as there are, however many groups and queues wait.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray
from shoal.core.arrays.shape import Shape
from shoal.core.placing.eligibility import StaticMasks

Kind = tuple[Shape, ...]
"""The shapes of the pod sets of a workload."""

SEVERAL = -1
"""In place of a mask's number where pod sets have different ones: every row may do."""

ANYTHING = int(np.iinfo(np.int64).min)
NOTHING = int(np.iinfo(np.int64).max)
_NEEDS = 5  # CPU, host memory, whole devices, compute on a leaf, memory on a leaf
_ROWS = 512
"""Rows that are compared with all kinds at once."""


class Kinds:
    """What sleeping groups ask for, each with how many of them do."""

    def __init__(self) -> None:
        self._needs: IntArray = np.full((_NEEDS, 16), NOTHING, dtype=np.int64)
        """[what, slot]: the least that any pod of a kind needs."""
        self._mask_of: NDArray[np.intp] = np.full(16, SEVERAL, dtype=np.intp)
        """[slot]: the number of the static mask of a kind's pods, or `SEVERAL`."""
        self._masks_version = (0, 0)
        self._slot_of: dict[Kind, int] = {}
        self._kinds: list[Kind] = [()] * 16
        """[slot]: the kind in it, if one is."""
        self._groups = [0] * 16
        """[slot]: how many groups sleep."""
        self._empty = list(range(15, -1, -1))

    def add(self, kind: Kind, masks: StaticMasks) -> None:
        """Note that a group sleeps."""
        slot = self._slot_of.get(kind)
        if slot is None:
            slot = self._slot_of[kind] = self._new_slot()
            self._needs[:, slot] = np.array([_least_needs(shape) for shape in kind]).min(axis=0)
            self._mask_of[slot] = _mask_number(masks, kind)
            self._kinds[slot] = kind
        self._groups[slot] += 1

    def drop(self, kind: Kind) -> None:
        """Note that a group sleeps no longer."""
        slot = self._slot_of[kind]
        self._groups[slot] -= 1
        if not self._groups[slot]:
            del self._slot_of[kind]
            self._kinds[slot] = ()
            self._needs[:, slot] = NOTHING
            self._empty.append(slot)

    def room(self, fleet: Fleet, masks: StaticMasks, rows: Sequence[int]) -> "Room":
        """Return which of them have room on some rows."""
        if not self._slot_of or not rows:
            return Room((), self._needs[:, :0], np.zeros((0, 0), dtype=np.bool_), ())
        mask_of = self._up_to_date(fleet, masks)
        anywhere = mask_of == SEVERAL
        parts = []
        for begin in range(0, len(rows), _ROWS):
            part = np.array(rows[begin : begin + _ROWS], dtype=np.intp)
            allowed = anywhere | masks.table[:, part].T[:, mask_of]
            parts.append(allowed & _enough(fleet, self._needs, part))
        fits = np.concatenate(parts)
        return Room(self._kinds, self._needs, fits, rows)

    def _up_to_date(self, fleet: Fleet, masks: StaticMasks) -> NDArray[np.intp]:
        """Return the number of each slot's mask, having brought the masks up to date."""
        for _ in range(2):  # the masks may be made anew the first time, where the fleet has grown
            if self._masks_version == (fleet.static_changes.head, masks.generation):
                return self._mask_of
            self._masks_version = (fleet.static_changes.head, masks.generation)
            for kind, slot in self._slot_of.items():
                self._mask_of[slot] = _mask_number(masks, kind)
        if self._masks_version[1] != masks.generation:
            self._mask_of[:] = SEVERAL  # these are more masks than are kept at once
        return self._mask_of

    def _new_slot(self) -> int:
        if not self._empty:
            size = len(self._groups)
            none = np.full((_NEEDS, size), NOTHING, dtype=np.int64)
            self._needs = np.concatenate((self._needs, none), axis=1)
            several = np.full(size, SEVERAL, dtype=np.intp)
            self._mask_of = np.concatenate((self._mask_of, several))
            self._groups += [0] * size
            self._kinds += [()] * size
            self._empty = list(range(2 * size - 1, size - 1, -1))
        return self._empty.pop()


class Room:
    """For which kinds a pod may fit on some rows, while room there only gets less."""

    def __init__(
        self, kinds: Sequence[Kind], needs: IntArray, fits: BoolArray, rows: Sequence[int]
    ) -> None:
        """`needs` are [what, kind], `fits` [row, kind]; kinds that fit nowhere are forgotten."""
        self._line_of = {row: line for line, row in enumerate(rows)}
        self._needs, self._fits = needs, fits
        self._forget(kinds)

    def lessen(self, fleet: Fleet, rows: Iterable[int] | None) -> None:
        """See what there still is room for, where less may be free on these rows (None: on any)."""
        if rows is None:
            rows = self._line_of
        changed = [row for row in dict.fromkeys(rows) if row in self._line_of]
        if changed and self.kinds:
            lines = [self._line_of[row] for row in changed]
            self._fits[lines] &= _enough(fleet, self._needs, np.array(changed, dtype=np.intp))
            self._forget(tuple(self.kinds))

    def _forget(self, kinds: Sequence[Kind]) -> None:
        """Forget those of these kinds, which are all, that have no room."""
        left = np.flatnonzero(np.logical_or.reduce(self._fits, axis=0))
        self._needs, self._fits = self._needs[:, left], self._fits[:, left]
        self.kinds = {kinds[column]: None for column in left.tolist()}
        """Those that there is room for."""


def _mask_number(masks: StaticMasks, kind: Kind) -> int:
    return masks.number_of(kind[0]) if len(kind) == 1 else SEVERAL


def _enough(fleet: Fleet, needs: IntArray, rows: NDArray[np.intp]) -> BoolArray:
    """Return for rows x needs, [what, kind], whether all that is needed is free."""
    free = (
        fleet.cpu_free[rows],
        fleet.memory_free[rows],
        fleet.whole_free[rows],
        fleet.leaf_compute_free[rows].max(axis=1),
        fleet.leaf_memory_free[rows].max(axis=1),
    )
    found: BoolArray = needs[0] <= free[0][:, np.newaxis]
    for need, there in zip(needs[1:], free[1:], strict=True):
        found &= need <= there[:, np.newaxis]
    return found


def _least_needs(shape: Shape) -> tuple[int, ...]:
    """Return what a node must have free at least, in the order of `_enough`."""
    request = shape.request
    devices = request.devices
    shares = devices.count > 0 and not devices.whole
    return (
        request.cpu_milli or ANYTHING,
        request.memory_mib or ANYTHING,
        devices.count if devices.count and devices.whole else ANYTHING,
        devices.compute_milli if shares and devices.compute_milli else ANYTHING,
        devices.memory_mib if shares and devices.memory_mib else ANYTHING,
    )
