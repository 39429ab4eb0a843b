"""A log of changed rows with a reading position per reader.

Caches that are derived from the fleet keep a position. What lies behind it is what they have to
recompute; a reader that has fallen further behind than the log remembers recomputes everything.
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]


class ChangeLog:
    """Rows in the order in which they changed, remembered up to `capacity` changes back."""

    __slots__ = ("_head", "_newest", "_read_up_to", "_ring")

    def __init__(self, capacity: int = 1 << 14) -> None:
        self._ring: Rows = np.zeros(capacity, dtype=np.intp)
        self._head = 0
        self._newest = -1
        self._read_up_to = 0

    @property
    def head(self) -> int:
        """The position behind the newest change, to compare with; readers keep that of `read`."""
        return self._head

    def add(self, row: int) -> None:
        """Note that `row` changed; a repetition that nobody has read in between is one change."""
        if row == self._newest and self._head > self._read_up_to:
            return
        self._ring[self._head % len(self._ring)] = row
        self._head += 1
        self._newest = row

    def since(self, position: int) -> Rows | None:
        """Return the rows changed since `position`, or None when that is further back than known.

        A row may occur more than once.
        """
        ring = self._ring
        size = len(ring)
        head = self._head
        if head - position > size:
            return None
        start, end = position % size, head % size
        if head - position < size and start <= end:
            return ring[start:end].copy()
        return np.concatenate((ring[start:], ring[:end]))

    def read(self) -> int:
        """Return the position of a reader that knows everything up to now."""
        self._read_up_to = self._head
        return self._head
