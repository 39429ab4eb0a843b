"""The one way in which work takes from the arrays of the fleet, so that speculation can be undone.

Outside speculation a write just writes. Between `checkpoint` and its `rollback` or `keep` the
journal remembers (array, index, old value), and rolling back puts the old values back in reverse
order. Nothing ever copies the world.
"""

from collections import Counter
from typing import NewType

import numpy as np
from numpy.typing import NDArray

Checkpoint = NewType("Checkpoint", int)

IntArray = NDArray[np.int64]
Index = int | tuple[int, int]
Counts = Counter[tuple[int, str]]
"""What is counted by row and a name."""


class Journal:
    """Writes to int64 arrays whose first axis is a row of the fleet, undone on demand."""

    __slots__ = ("_begins", "_counted", "_log")

    def __init__(self) -> None:
        self._log: list[tuple[IntArray, Index, int]] = []
        """The array that was written to, where, and what was there before."""
        self._counted: list[tuple[Counts, tuple[int, str], int]] = []
        """The same of counts."""
        self._begins: list[tuple[int, int]] = []
        """Where in both each speculation that is going on began, the outermost first."""

    @property
    def speculating(self) -> bool:
        """Whether writes are being remembered."""
        return bool(self._begins)

    def add(self, array: IntArray, index: Index, change: int) -> None:
        """Add `change` to `array[index]`."""
        before = array.item(index)
        if self._begins:
            self._log.append((array, index, before))
        array[index] = before + change

    def count(self, counts: Counts, where: tuple[int, str], value: int) -> None:
        """Set a count to `value` that is kept by row and leaf."""
        if self._begins:
            self._counted.append((counts, where, counts[where]))
        counts[where] = value

    def checkpoint(self) -> Checkpoint:
        """Begin to speculate, inside the speculation that may be going on already."""
        self._begins.append((len(self._log), len(self._counted)))
        return Checkpoint(len(self._begins) - 1)

    def rollback(self, checkpoint: Checkpoint) -> list[int]:
        """Undo every write since `checkpoint`; return the rows that were written, each once.

        Speculations within it that nobody ended, because something failed, end with it.
        """
        log, counted = self._log, self._counted
        begin, counted_begin = self._begins[checkpoint]
        del self._begins[checkpoint:]
        rows: dict[int, None] = {}
        while len(log) > begin:
            array, index, old = log.pop()
            array[index] = old
            rows[index if isinstance(index, int) else index[0]] = None
        while len(counted) > counted_begin:
            counts, where, old = counted.pop()
            counts[where] = old
            rows[where[0]] = None
        return list(rows)

    def keep(self) -> None:
        """Leave the writes since the last checkpoint to the speculation around it."""
        self._begins.pop()
        if not self._begins:
            self._log.clear()
            self._counted.clear()
