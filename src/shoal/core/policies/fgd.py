"""Fragmentation gradient descent, exactly as published (Weng, Yang et al., USENIX ATC 2023).

Node n: free CPU c, free compute r_g of each device g (milli), U = sum of r_g. Task class m: cpu,
k devices, q milli on each, accelerators allowed, weight w_m. The fragment of the node for it is

    F_n(m) = U                    if k = 0, or the accelerator is not allowed, or c < cpu,
                                  or fewer than k devices have r_g >= q
    F_n(m) = sum of r_g < q       otherwise

and F_n is its mean over the classes. A pod goes where F grows least: with D = F_n(before) -
F_n(after) the score is floor(100 / (1 + exp(-D/1000))), an integer; ties between nodes go to the
first in a fixed order, ties between devices to the first device. Both details decide the result.

Everything here is in integers. F is kept as sum of w_m F_n(m) = W U - A with W = sum of w_m and
A = sum over classes that fit of w_m S(q), S(q) = sum of r_g >= q; the sigmoid becomes thresholds.
The published F knows nothing of device memory or partitions, so neither has a part in it; a node
that mixes accelerators counts as having each of them.
"""

from decimal import ROUND_CEILING, Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.shape import Shape
from shoal.core.demand import TaskClass
from shoal.core.policies.pieces import IMPOSSIBLE, LeafRule, TieRule
from shoal.model.node import WHOLE_COMPUTE_MILLI

FloatArray = NDArray[np.float64]


def sigmoid_thresholds(total_weight: int) -> IntArray:
    """Return for s = 1..99 the least W D with floor(100 / (1 + exp(-D/1000))) >= s.

    `total_weight` is W. 100/(1+exp(-x)) >= s just where x >= ln(s/(100-s)).
    """
    with localcontext() as context:
        context.prec = 50
        bounds = [
            (1000 * total_weight * (Decimal(s) / Decimal(100 - s)).ln()).to_integral_value(
                rounding=ROUND_CEILING
            )
            for s in range(1, 100)
        ]
    return np.array([int(bound) for bound in bounds], dtype=np.int64)


class Fragmentation:
    """F of every node, brought up to date where the fleet changed.

    Integers are kept in float64 for the sake of one matrix product; all stay far below 2^53, so
    every sum is exact.
    """

    def __init__(self, fleet: Fleet, demand: tuple[TaskClass, ...]) -> None:
        self._fleet = fleet
        asks = [c.request.devices for c in demand]
        sizes = [WHOLE_COMPUTE_MILLI if a.whole else a.compute_milli for a in asks]
        self.total_weight = sum(c.weight for c in demand)
        """W."""
        users = [i for i, ask in enumerate(asks) if ask.count]
        quanta = sorted({sizes[i] for i in users}) or [WHOLE_COMPUTE_MILLI]
        self._quantum = np.array([quanta.index(sizes[i]) for i in users], dtype=np.intp)
        self._cpu = np.array([demand[i].request.cpu_milli for i in users], dtype=np.int64)
        self._count = np.array([asks[i].count for i in users], dtype=np.int64)
        self._weight = np.array([demand[i].weight for i in users], dtype=np.float64)
        self._accelerators = [asks[i].accelerators for i in users]
        free = np.arange(WHOLE_COMPUTE_MILLI + 1)[:, None]
        self.reaches = (free >= np.array(quanta)).astype(np.int64)
        """[free, quantum]: whether a device with so much free reaches the quantum."""
        self.share = (free * self.reaches).astype(np.float64)
        """[free, quantum]: what a device with so much free adds to S."""
        self._allocate()

    def _allocate(self) -> None:
        rows = self._fleet.capacity
        self.reaching: IntArray = np.zeros((rows, self.reaches.shape[1]), dtype=np.int64)
        """[row, quantum]: devices with r_g >= q."""
        self.sums: FloatArray = np.zeros(self.reaching.shape)
        """[row, quantum]: S."""
        self.fitting: FloatArray = np.zeros(rows)
        """[row]: A."""
        self._allowed: FloatArray = np.zeros((rows, len(self._weight)))
        self._fragments = np.zeros(rows, dtype=np.int64)
        self._amount = 0
        self._read = -1
        self._static_read = -1

    def refresh(self) -> None:
        """Bring everything up to date with the fleet."""
        fleet = self._fleet
        if len(self.fitting) != fleet.capacity:
            self._allocate()
        if self._static_read != fleet.static_changes.head:
            self._read_accelerators()
        if self._read == fleet.changes.head:
            return
        rows = fleet.changes.since(self._read) if self._read >= 0 else None
        if rows is None:
            rows = np.arange(fleet.size)
        elif len(rows) > 1:
            rows = np.unique(rows)
        free = np.clip(fleet.leaf_compute_free[rows], 0, WHOLE_COMPUTE_MILLI)
        self.reaching[rows] = self.reaches[free].sum(axis=1)
        self.sums[rows] = self.share[free].sum(axis=1)
        fitting = self.fits(rows, fleet.cpu_free[rows], self.reaching[rows], self.sums[rows])
        self.fitting[rows] = fitting
        fragments = self.total_weight * fleet.compute_free[rows] - fitting.astype(np.int64)
        self._amount += int((fragments - self._fragments[rows]).sum())
        self._fragments[rows] = fragments
        self._read = fleet.changes.read()

    def amount(self) -> tuple[int, int]:
        """Return the sum of F_n over the fleet in milli, as numerator and denominator."""
        self.refresh()
        return self._amount, self.total_weight

    def fits(
        self, rows: NDArray[np.intp], cpu: IntArray, reaching: IntArray, sums: FloatArray
    ) -> FloatArray:
        """Return A for nodes like `rows` in a state of which the other arguments tell."""
        quantum = self._quantum
        fit = (cpu[:, None] >= self._cpu) & (reaching[:, quantum] >= self._count)
        parts = self._allowed[rows] * sums[:, quantum] * fit
        product: FloatArray = parts @ self._weight
        return product

    def _read_accelerators(self) -> None:
        fleet = self._fleet
        log = fleet.static_changes
        rows = log.since(self._static_read) if self._static_read >= 0 else None
        if rows is None:
            rows = np.arange(fleet.size)
        present = fleet.leaf_accelerator[rows]
        for m, names in enumerate(self._accelerators):
            ids = [fleet.accelerator_id(name) for name in names]
            has = np.isin(present, ids) if ids else present > 0
            self._allowed[rows, m] = has.any(axis=1)
        self._static_read = log.read()


class Fgd:
    """Scores of fragmentation gradient descent; see the module."""

    vectorised = False
    leaf_rule = LeafRule.SCORED
    tie_rule = TieRule.FIRST
    handicap = 0

    def __init__(self, demand: tuple[TaskClass, ...]) -> None:
        if not demand:
            raise ValueError("The policy fgd needs to be told which demand to expect.")
        self._demand = demand
        self._thresholds = sigmoid_thresholds(sum(c.weight for c in demand))
        self._fragmentation: Fragmentation | None = None

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, IntArray | None]:
        """Score by the published formula; see `pieces.Scorer`."""
        if self._fragmentation is None:
            self._fragmentation = Fragmentation(fleet, self._demand)
        fragmentation = self._fragmentation
        fragmentation.refresh()
        at = np.arange(fleet.size)[rows] if isinstance(rows, slice) else rows
        devices = shape.request.devices
        if fits is None or devices.whole or devices.count != 1:
            return self._score_whole(fragmentation, fleet, shape, at), np.zeros_like(at)
        return self._score_shares(fragmentation, fleet, shape, at, fits)

    def _score_whole(
        self, known: Fragmentation, fleet: Fleet, shape: Shape, rows: NDArray[np.intp]
    ) -> IntArray:
        """Score pods with whole devices, none, or (beyond the paper) equal parts of several."""
        devices = shape.request.devices
        count = devices.count
        asked = WHOLE_COMPUTE_MILLI if devices.whole else devices.compute_milli
        cpu = fleet.cpu_free[rows] - shape.request.cpu_milli
        left = WHOLE_COMPUTE_MILLI - asked
        reaching = known.reaching[rows] - count * (
            known.reaches[WHOLE_COMPUTE_MILLI] - known.reaches[left]
        )
        sums = known.sums[rows] - count * (known.share[WHOLE_COMPUTE_MILLI] - known.share[left])
        after = known.fits(rows, cpu, reaching, sums)
        return self._sigmoid(known, count * asked, known.fitting[rows], after)

    def _score_shares(
        self,
        known: Fragmentation,
        fleet: Fleet,
        shape: Shape,
        rows: NDArray[np.intp],
        fits: BoolArray,
    ) -> tuple[IntArray, IntArray]:
        """Score pods that share one device: every leaf that fits is tried, equal ones once."""
        free = np.clip(fleet.leaf_compute_free[rows], 0, WHOLE_COMPUTE_MILLI)
        asked = shape.request.devices.compute_milli
        equal = free[:, :, None] == free[:, None, :]
        earlier = np.tri(free.shape[1], k=-1, dtype=np.bool_)
        repeated = (equal & earlier & fits[:, None, :]).any(axis=2)
        which, leaf = np.nonzero(fits & ~repeated)
        tried = rows[which]
        before = free[which, leaf]
        left = before - asked
        reaching = known.reaching[tried] + known.reaches[left] - known.reaches[before]
        sums = known.sums[tried] + known.share[left] - known.share[before]
        cpu = fleet.cpu_free[tried] - shape.request.cpu_milli
        after = known.fits(tried, cpu, reaching, sums)
        score = np.full(free.shape, IMPOSSIBLE, dtype=np.int64)
        score[which, leaf] = self._sigmoid(known, asked, known.fitting[tried], after)
        best = score.argmax(axis=1)
        return score[np.arange(len(rows)), best], best

    def _sigmoid(
        self, known: Fragmentation, asked: int, before: FloatArray, after: FloatArray
    ) -> IntArray:
        """Return the score for W D = W (U - U') - A + A', where U - U' is what is asked for."""
        gradient = known.total_weight * asked + (after - before).astype(np.int64)
        return np.searchsorted(self._thresholds, gradient, side="right").astype(np.int64)
