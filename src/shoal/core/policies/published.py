"""The five policies that FGD was compared with, as published (Weng, Yang et al., USENIX ATC 2023).

Formulas in the notation of that comparison: free CPU c (milli), free compute U of a node's devices
(milli), requested cpu and k q (milli). CPU is measured against 128 cores and compute against 8
devices, the largest node there. Real-valued scores are rounded down, exactly, in integers.
"""

import numpy as np

from shoal.core.arrays.fleet import Fleet, holder_class
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.shape import Shape
from shoal.core.policies.pieces import LeafRule, TieRule
from shoal.model.node import WHOLE_COMPUTE_MILLI

CPU_SCALE = 128_000
COMPUTE_SCALE = 8 * WHOLE_COMPUTE_MILLI

_FAR = int(np.iinfo(np.int64).max)


def compute_asked(shape: Shape) -> int:
    """Return k q, the compute that a pod asks for over all its devices, in milli."""
    devices = shape.request.devices
    return devices.count * (WHOLE_COMPUTE_MILLI if devices.whole else devices.compute_milli)


class _Published:
    vectorised = True
    leaf_rule = LeafRule.LEAST_FREE
    tie_rule = TieRule.FIRST
    handicap = 0


class Random:
    """Any node that will do, any leaf on it."""

    vectorised = True
    leaf_rule = LeafRule.RANDOM
    tie_rule = TieRule.RANDOM
    handicap = 0

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, None]:
        """Score every node 0; see `pieces.Scorer`."""
        del shape, fits
        return np.zeros_like(fleet.cpu_free[rows]), None


class DotProduct(_Published):
    """floor(100 (1 - (c/128000 cpu/128000 + U/8000 kq/8000) / 2))."""

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, None]:
        """Score by the published formula; see `pieces.Scorer`."""
        del fits
        ratio = (CPU_SCALE // COMPUTE_SCALE) ** 2
        product = fleet.cpu_free[rows] * shape.request.cpu_milli
        product += fleet.compute_free[rows] * (ratio * compute_asked(shape))
        return 100 + (-50 * product) // CPU_SCALE**2, None


class BestFit(_Published):
    """floor(100 (1 - 0.5 (c-cpu)/128000 - 0.5 (U-kq)/8000))."""

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, None]:
        """Score by the published formula; see `pieces.Scorer`."""
        del fits
        ratio = CPU_SCALE // COMPUTE_SCALE
        asked = shape.request.cpu_milli + ratio * compute_asked(shape)
        left = fleet.cpu_free[rows] + ratio * fleet.compute_free[rows] - asked
        return 100 + (-50 * left) // CPU_SCALE, None


class Clustering(_Published):
    """Nodes that hold pods of the same class first, fuller ones before emptier ones.

    Classes are shares and k whole devices. With b = floor(25 (8000-U)/8000): 75 + b on a node that
    holds only this class, 50 + b among others, 25 + b where no pod holds a device, else b; a pod
    without devices scores 0.
    """

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, None]:
        """Score by the published formula; see `pieces.Scorer`."""
        del fits
        free = fleet.compute_free[rows]
        if not shape.request.devices.count:
            return np.zeros_like(free), None
        fullness = 25 * (COMPUTE_SCALE - free) // COMPUTE_SCALE
        holders = fleet.holders[rows]
        same = holders[:, holder_class(shape.request)]
        everyone = holders.sum(axis=1)
        bonus = np.where(same > 0, np.where(same == everyone, 75, 50), 25 * (everyone == 0))
        return fullness + bonus, None


class Packing(_Published):
    """Used devices first, then free devices of used nodes, then empty nodes.

    An empty node of n devices scores max(33-n, n); where u free devices would be used (devices with
    least free are used first) max(50-u, 33); else max(100 - floor(sum of floor(r/10) over the
    devices used / 10), 50) with r their free compute in milli; a pod without devices scores 0.
    """

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, None]:
        """Score by the published formula; see `pieces.Scorer`."""
        whole_free = fleet.whole_free[rows]
        devices = shape.request.devices
        if not devices.count:
            return np.zeros_like(whole_free), None
        count = fleet.device_count[rows]
        empty = np.maximum(33 - count, count)
        if devices.whole or fits is None:
            used = np.full_like(whole_free, max(50 - devices.count, 33))
        else:
            used = self._on_used_devices(fleet, rows, fits, devices.count)
        return np.where(whole_free == count, empty, used), None

    @staticmethod
    def _on_used_devices(fleet: Fleet, rows: Rows, fits: BoolArray, count: int) -> IntArray:
        tenants_free, tenants = fleet.leaf_tenants_free[rows], fleet.leaf_tenants[rows]
        used = fits & (tenants_free < tenants)
        free = np.where(used, fleet.leaf_compute_free[rows] // 10, _FAR)
        free.sort(axis=1)
        fresh = count - np.minimum(used.sum(axis=1), count)
        total = np.where(free[:, :count] == _FAR, 0, free[:, :count]).sum(axis=1)
        score: IntArray = np.where(
            fresh > 0, np.maximum(50 - fresh, 33), np.maximum(100 - total // 10, 50)
        )
        return score
