"""Shoal's own two plain policies: `pack` fills nodes up, `spread` keeps them level."""

import numpy as np

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.shape import Shape
from shoal.core.policies.pieces import LeafRule, TieRule

CPU_STEPS = 1024
"""Free cores that are told apart between nodes of equal free compute."""


def _left(fleet: Fleet, rows: Rows) -> IntArray:
    """Return how much is free: compute of devices first, then whole cores.

    What a pod of one shape takes is the same on every node, so it need not be subtracted.
    """
    cores = np.clip(fleet.cpu_free[rows] // 1000, 0, CPU_STEPS - 1)
    return fleet.compute_free[rows] * CPU_STEPS + cores


class Pack:
    """Take the node with least free compute, then least free CPU.

    Pods without devices go to nodes whose devices are taken, or that have none.
    """

    vectorised = True
    leaf_rule = LeafRule.LEAST_FREE
    tie_rule = TieRule.FIRST
    handicap = 0

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, None]:
        """Score as described above; see `pieces.Scorer`."""
        del shape, fits
        return -_left(fleet, rows), None


class Spread:
    """Take the node with most free compute, then most free CPU; the emptiest leaf on it."""

    vectorised = True
    leaf_rule = LeafRule.MOST_FREE
    tie_rule = TieRule.FIRST
    handicap = 0

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, None]:
        """Score as described above; see `pieces.Scorer`."""
        del shape, fits
        return _left(fleet, rows), None
