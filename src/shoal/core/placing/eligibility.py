"""Which nodes a pod may run on at all, and what keeps it from the others.

Two kinds of tests: static ones, which depend on what nodes are (label, taint, accelerator, ...),
and dynamic ones, which depend on what is free. Each is one array expression over rows; whether a
node will do and why it will not are read from the same tests.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.neighbours import reaching, welcome
from shoal.core.arrays.pool_rules import SEVERAL, type_bit
from shoal.core.arrays.shape import Shape, StaticDemand
from shoal.model.isolation import NO_FLOOR
from shoal.model.node import UNSCHEDULABLE, Taint, TaintEffect
from shoal.model.request import AffinityTerm, Operator, Toleration, TolerationOperator
from shoal.model.verdict import Obstacle, Reason

CACHED_ANSWERS = 1 << 28
"""Answers kept over all masks (a byte each); with more, they are all forgotten."""


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether a pod with these tolerations may run beside the taint (Kubernetes rules)."""
    if taint.effect is TaintEffect.PREFER_NO_SCHEDULE:
        return True
    for toleration in tolerations:
        if toleration.effect not in (None, taint.effect):
            continue
        if toleration.key not in ("", taint.key):
            continue
        if toleration.operator is TolerationOperator.EXISTS:
            return True
        if toleration.key and toleration.value == taint.value:
            return True
    return False


def static_tests(fleet: Fleet, shape: Shape, rows: Rows) -> Iterator[tuple[Reason, BoolArray]]:
    """Yield the static tests in order, each with the rows (True) that pass it."""
    request = shape.request
    yield Reason.GONE, fleet.present[rows] > 0
    if request.mask:
        yield Reason.MASK, _in_mask(fleet, request.mask, rows)
    if request.selector:
        passed = np.ones(_length(fleet, rows), dtype=np.bool_)
        for key, value in request.selector:
            passed &= fleet.labels.equal(key, value, rows)
        yield Reason.SELECTOR, passed
    if request.affinity:
        passed = np.zeros(_length(fleet, rows), dtype=np.bool_)
        for term in request.affinity:
            passed |= _meets_term(fleet, term, rows)
        yield Reason.AFFINITY, passed
    yield Reason.TAINT, _tolerated(fleet, request.tolerations, rows)
    if not tolerates(request.tolerations, UNSCHEDULABLE):
        yield Reason.CORDONED, fleet.cordoned[rows] == 0
    if request.devices.count:
        wanted, floor = shape.accelerator_ids(fleet), shape.static.floor
        # Leaves that a node lists come before those that are only held: the first tells of any.
        leaves = 1 if wanted is None and floor == NO_FLOOR else fleet.width
        ids = fleet.leaf_accelerator[rows, :leaves]
        has_leaf = (ids > 0) if wanted is None else np.isin(ids, wanted)
        yield Reason.ACCELERATOR, np.logical_or.reduce(has_leaf, axis=1)
        if floor != NO_FLOOR:
            has_leaf &= reaching(fleet, floor, rows)
            yield Reason.ISOLATION, np.logical_or.reduce(has_leaf, axis=1)
    if shape.type is not None:  # last, so that these are nodes that would do in another pool
        yield Reason.SEVERAL_POOLS, fleet.rules[rows] & SEVERAL == 0
        yield Reason.POOL, fleet.rules[rows] & type_bit(shape.type) == 0


class StaticMasks:
    """Which rows pass the static tests of each shape, renewed where nodes changed.

    Shapes with equal static demands share one mask, so there are far fewer masks than shapes.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._number_of: dict[StaticDemand, int] = {}
        self._read: list[int] = []
        self.generation = 0
        """How often all numbers were forgotten, or all answers because the fleet has grown."""
        self.table: BoolArray = np.zeros((8, fleet.capacity), dtype=np.bool_)
        """[number, row]: whether the node passes; a line is right once `number_of` was asked."""

    def of(self, shape: Shape) -> BoolArray:
        """Return for every row whether pods of this shape may run there; not to be written."""
        number = self.number_of(shape)
        mask: BoolArray = self.table[number]
        return mask

    def number_of(self, shape: Shape) -> int:
        """Return the number of the shape's mask in `table`, having brought it up to date.

        It is the same until `generation` changes.
        """
        fleet = self._fleet
        log = fleet.static_changes
        if self.table.shape[1] != fleet.capacity:
            self.table = np.zeros((len(self.table), fleet.capacity), dtype=np.bool_)
            self._read = [-1] * len(self._read)
            self.generation += 1
        number = self._number_of.get(shape.static)
        if number is None:
            number = self._new_number(shape.static)
        read = self._read[number]
        if read != log.head:
            found = log.since(read) if read >= 0 else None
            rows: Rows = slice(0, fleet.size) if found is None else found
            passed_all = np.ones(_length(fleet, rows), dtype=np.bool_)
            for _, passed in static_tests(fleet, shape, rows):
                passed_all &= passed
            self.table[number, rows] = passed_all
            self._read[number] = log.read()
        return number

    def _new_number(self, static: StaticDemand) -> int:
        if len(self._read) >= max(8, CACHED_ANSWERS // self._fleet.capacity):
            self._number_of.clear()
            self._read.clear()
            self.generation += 1
        number = self._number_of[static] = len(self._read)
        self._read.append(-1)
        if number >= len(self.table):
            self.table = np.concatenate((self.table, np.zeros_like(self.table)))
        return number


def dynamic_tests(
    fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
) -> Iterator[tuple[Reason, BoolArray]]:
    """Yield the dynamic tests in order; `fits` is what `fitting_leaves` returned for the rows."""
    request = shape.request
    if request.cpu_milli:
        yield Reason.CPU, fleet.cpu_free[rows] >= request.cpu_milli
    if request.memory_mib:
        yield Reason.MEMORY, fleet.memory_free[rows] >= request.memory_mib
    yield Reason.PODS, fleet.pods_free[rows] >= 1
    if request.devices.count:
        reason = Reason.WHOLE_DEVICES if request.devices.whole else Reason.LEAF_ROOM
        if fits is None:
            yield reason, fleet.whole_free[rows] >= request.devices.count
        else:
            yield reason, _devices_with(fleet, rows, fits) >= request.devices.count


def fits_on(fleet: Fleet, shape: Shape, row: int) -> bool:
    """Return whether a row has room for a pod; whether it may run there at all is not asked."""
    rows = np.array([row], dtype=np.intp)
    fits = fitting_leaves(fleet, shape, rows)
    return all(bool(passed[0]) for _, passed in dynamic_tests(fleet, shape, rows, fits))


def fitting_leaves(
    fleet: Fleet, shape: Shape, rows: Rows, *, any_neighbours: bool = False
) -> BoolArray | None:
    """Return for rows x columns which leaves could serve the pod.

    With `any_neighbours` it is not asked who has shares of them already.

    None where the node's count of free whole devices says it all: whole devices of any accelerator,
    or on a fleet where no node mixes accelerators.
    """
    devices = shape.request.devices
    wanted = shape.accelerator_ids(fleet) if fleet.mixed_rows else None
    if not devices.count or (devices.whole and wanted is None):
        return None
    if devices.whole:
        tenants = fleet.leaf_tenants[rows]
        fits = (fleet.leaf_undivided[rows] > 0) & (tenants > 0)
        fits &= fleet.leaf_tenants_free[rows] == tenants
    else:
        fits = fleet.leaf_tenants_free[rows] > 0
        if devices.compute_milli:
            fits &= fleet.leaf_compute_free[rows] >= devices.compute_milli
        if devices.memory_mib:
            fits &= fleet.leaf_memory_free[rows] >= devices.memory_mib
        if shape.static.floor != NO_FLOOR:
            fits &= reaching(fleet, shape.static.floor, rows)
        if not any_neighbours:
            fits &= welcome(fleet, devices, rows)
    if wanted is not None:
        fits &= np.isin(fleet.leaf_accelerator[rows], wanted)
    return fits


def may_hold(fleet: Fleet, shape: Shape, allowed: BoolArray, pods: int) -> bool:
    """Return whether all nodes together may have room for so many pods, as whole devices go.

    `allowed` says on which rows they may run at all. Where it is False they fit in no way.
    """
    request = shape.request
    if not (request.devices.whole and request.devices.count):
        return True
    rows = np.flatnonzero(allowed)
    room = fleet.whole_free[rows] // request.devices.count
    if request.cpu_milli:
        room = np.minimum(room, fleet.cpu_free[rows] // request.cpu_milli)
    if request.memory_mib:
        room = np.minimum(room, fleet.memory_free[rows] // request.memory_mib)
    return int(room.clip(min=0).sum()) >= pods


def count_obstacles(
    fleet: Fleet, shape: Shape, refused: frozenset[str] = frozenset()
) -> tuple[Obstacle, ...]:
    """Count the nodes by the first test that keeps a pod of this shape away from them."""
    rows = slice(0, fleet.size)
    left = fleet.known[rows] > 0
    obstacles = []
    tests = [*static_tests(fleet, shape, rows)]
    if refused:
        passed = np.array([name not in refused for name in fleet.names], dtype=np.bool_)
        tests.append((Reason.REFUSED_BEFORE, passed))
    anywhere = fitting_leaves(fleet, shape, rows, any_neighbours=True)
    tests += dynamic_tests(fleet, shape, rows, anywhere)
    if not shape.request.devices.whole:
        *_, (_, passed) = dynamic_tests(fleet, shape, rows, fitting_leaves(fleet, shape, rows))
        tests.append((Reason.NEIGHBOURS, passed))
    for reason, passed in tests:
        failed = int(np.count_nonzero(left & ~passed))
        if failed:
            obstacles.append(Obstacle(reason, failed))
        left &= passed
    return tuple(obstacles) or (Obstacle(Reason.NO_NODES, 0),)


def _length(fleet: Fleet, rows: Rows) -> int:
    return len(fleet.present[rows])


def _in_mask(fleet: Fleet, mask: str, rows: Rows) -> BoolArray:
    allowed = np.zeros(fleet.capacity, dtype=np.bool_)
    for name in fleet.masks.get(mask, frozenset()):
        row = fleet.row_of.get(name)
        if row is not None:
            allowed[row] = True
    return allowed[rows]


def _meets_term(fleet: Fleet, term: AffinityTerm, rows: Rows) -> BoolArray:
    if not term.expressions and not term.fields:
        return np.zeros(_length(fleet, rows), dtype=np.bool_)
    passed = np.ones(_length(fleet, rows), dtype=np.bool_)
    for requirement in term.expressions:
        passed &= fleet.labels.test(requirement, rows)
    for requirement in term.fields:
        named = np.zeros(fleet.capacity, dtype=np.bool_)
        for name in requirement.values:
            row = fleet.row_of.get(name)
            if row is not None:
                named[row] = True
        passed &= named[rows] if requirement.operator is Operator.IN else ~named[rows]
    return passed


def _tolerated(fleet: Fleet, tolerations: tuple[Toleration, ...], rows: Rows) -> BoolArray:
    allowed = [all(tolerates(tolerations, t) for t in taints) for taints in fleet.taint_sets]
    tolerated: BoolArray = np.array(allowed)[fleet.taint_set[rows]]
    return tolerated


def _devices_with(fleet: Fleet, rows: Rows, fits: BoolArray) -> NDArray[np.intp]:
    """Count per row the different devices that have a leaf which fits."""
    if not fleet.divided_rows:
        counts: NDArray[np.intp] = fits.sum(axis=1)
        return counts
    device = fleet.leaf_device[rows]
    counts = np.zeros(len(fits), dtype=np.intp)
    for number in range(1, int(device.max(initial=0)) + 1):
        counts += (fits & (device == number)).any(axis=1)
    return counts
