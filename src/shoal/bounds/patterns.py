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

Floats = NDArray[np.float64]

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
        asked = np.array(shares, dtype=np.int64).reshape(-1, 2)
        cell = math.gcd(compute_milli, *asked[:, 0].tolist()) or 1
        memory = MEMORY_CELLS if memory_mib and asked[:, 1].any() else 0
        sizes = np.stack([asked[:, 0] // cell, asked[:, 1] * memory // max(1, memory_mib)], axis=1)
        return cls(sizes, compute_milli // cell, memory)


def best_patterns(grid: Grid, prices: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The best pattern at each of several lists of prices (lists x shares).

    Returns what the patterns are worth, and how often each share is in them (lists x shares).
    Shares with a price of 0 or less are left out, and those that take no cell at all, as any number
    of them would fit.

    Unbounded knapsack: best(c, m) = max over shares of price + best(c - compute, m - memory).
    """
    lists = np.arange(len(prices))
    counts = np.zeros(prices.shape, dtype=np.int64)
    usable = np.flatnonzero((prices > 0).any(axis=0) & (grid.sizes.sum(axis=1) > 0))
    if not len(usable):
        return np.zeros(len(prices)), counts
    order = usable[np.lexsort((grid.sizes[usable, 1], grid.sizes[usable, 0]))]
    sizes, values = grid.sizes[order], np.where(prices[:, order] > 0, prices[:, order], -np.inf)
    shape = (len(prices), grid.compute + 1, grid.memory + 1)
    worth = np.zeros(shape)
    choice = np.full(shape, -1, dtype=np.int64)
    reach = np.searchsorted(sizes[:, 0], np.arange(grid.compute + 1), side="right")
    for compute in range(grid.compute + 1):
        near = np.arange(reach[compute])
        for memory in range(grid.memory + 1):
            fits = near[sizes[near, 1] <= memory] if grid.memory else near
            if not len(fits):
                continue
            total = values[:, fits] + worth[:, compute - sizes[fits, 0], memory - sizes[fits, 1]]
            best = total.argmax(axis=1)
            gain = total[lists, best]
            worth[:, compute, memory] = np.maximum(gain, 0.0)
            choice[:, compute, memory] = np.where(gain > 0, fits[best], -1)
    for row in lists.tolist():
        compute, memory = grid.compute, grid.memory
        while (share := int(choice[row, compute, memory])) >= 0:
            counts[row, order[share]] += 1
            compute -= int(sizes[share, 0])
            memory -= int(sizes[share, 1])
    return worth[:, grid.compute, grid.memory], counts
