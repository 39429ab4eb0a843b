"""Which shares fit on one leaf together: the best pattern at given prices, by dynamic programming.

A share takes compute and device memory. Both are counted in cells of a grid, sizes rounded down
and capacities up, so that nothing which fits in truth is ever excluded; where a demand's sizes are
multiples of the cell, the grid is exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COMPUTE_CELLS = 1000
"""Most cells of compute: one thousandth of a device, the finest that a request can ask for."""

MEMORY_CELLS = 40
"""Cells of device memory where shares ask for it; the program adds an exact row for their sum."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes of shares in cells (shares x 2: compute, memory) and the cells of one leaf."""

    sizes: NDArray[np.int64]
    compute: int
    memory: int

    @classmethod
    def of(cls, shares: Sequence[tuple[int, int]], compute_milli: int, memory_mib: int) -> "Grid":
        """Cells for `shares` (compute in thousandths, memory in MiB) on a leaf of that size."""
        computes = np.array([compute for compute, _ in shares], dtype=np.int64)
        memories = np.array([memory for _, memory in shares], dtype=np.int64)
        cell = math.gcd(compute_milli, *(int(compute) for compute in computes))
        compute = compute_milli // cell
        memory = MEMORY_CELLS if memory_mib and memories.any() else 0
        memories = memories * memory // memory_mib if memory else memories * 0
        return cls(np.stack([computes // cell, memories], axis=1), compute, memory)


def best_pattern(grid: Grid, prices: NDArray[np.float64]) -> tuple[float, NDArray[np.int64]]:
    """The worth of the best pattern at `prices` (one per share), and how often each share is in it.

    Unbounded knapsack: best(c, m) = max over shares of price + best(c - compute, m - memory).
    Shares that take no cell at all are left out, as any number of them would fit.
    """
    usable = np.flatnonzero((prices > 0) & (grid.sizes.sum(axis=1) > 0))
    counts = np.zeros(len(grid.sizes), dtype=np.int64)
    if not len(usable):
        return 0.0, counts
    worth = np.zeros((grid.compute + 1, grid.memory + 1))
    choice = np.full(worth.shape, -1, dtype=np.int64)
    sizes, values = grid.sizes[usable], prices[usable]
    for compute in range(grid.compute + 1):
        for memory in range(grid.memory + 1):
            fits = np.flatnonzero((sizes[:, 0] <= compute) & (sizes[:, 1] <= memory))
            if not len(fits):
                continue
            total = values[fits] + worth[compute - sizes[fits, 0], memory - sizes[fits, 1]]
            best = int(total.argmax())
            worth[compute, memory] = total[best]
            choice[compute, memory] = fits[best]
    compute, memory = grid.compute, grid.memory
    while (share := choice[compute, memory]) >= 0:
        counts[usable[share]] += 1
        compute -= sizes[share, 0]
        memory -= sizes[share, 1]
    return float(worth[grid.compute, grid.memory]), counts
