"""The one way in which arrays of the world are written, so that speculation can be undone.

Outside speculation a write just writes. Between `checkpoint` and its `rollback` or `keep` the
journal remembers (array, index, old value), and rolling back puts the old values back in reverse
order. Nothing ever copies the world.
"""

from typing import NewType

import numpy as np
from numpy.typing import NDArray

Checkpoint = NewType("Checkpoint", int)

IntArray = NDArray[np.int64]
Index = int | tuple[int, int]


class Journal:
    """Writes to int64 arrays whose first axis is a row of the fleet, undone on demand."""

    __slots__ = ("_depth", "_log")

    def __init__(self) -> None:
        self._log: list[tuple[IntArray, Index, int]] = []
        self._depth = 0

    @property
    def speculating(self) -> bool:
        """Whether writes are being remembered."""
        return self._depth > 0

    def write(self, array: IntArray, index: Index, value: int) -> None:
        """Set `array[index]` to `value`."""
        if self._depth:
            self._log.append((array, index, int(array[index])))
        array[index] = value

    def checkpoint(self) -> Checkpoint:
        """Begin to speculate, inside the speculation that may be going on already."""
        self._depth += 1
        return Checkpoint(len(self._log))

    def rollback(self, checkpoint: Checkpoint) -> list[int]:
        """Undo every write since `checkpoint`; return the rows that were written, each once."""
        log = self._log
        rows: dict[int, None] = {}
        while len(log) > checkpoint:
            array, index, old = log.pop()
            array[index] = old
            rows[index if isinstance(index, int) else index[0]] = None
        self._depth -= 1
        return list(rows)

    def keep(self) -> None:
        """Leave the writes since the last checkpoint to the speculation around it."""
        self._depth -= 1
        if not self._depth:
            self._log.clear()
