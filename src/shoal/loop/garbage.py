"""Cyclic garbage, looked for in good time and in small parts, so that no decision waits for it.

Python looks through all that a process holds whenever enough has been made since; with a large
world that takes most of a second, every few seconds, and finds nothing: what a world and a story
drop is freed by counting references. So what has lived for a while is set aside (`gc.freeze`), and
only what is younger is looked through; all of it once an hour.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

YOUNG_S = 5.0
"""What is older is set aside."""

ALL_S = 3600.0
"""Time between two looks through all that is held."""

_NEVER = 1 << 30
"""A threshold of collections that no process reaches."""


class Garbage:
    """Made by `tended`. One thread calls `look` again and again, between other things."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._young_s = self._all_s = now_s()

    def look(self) -> None:
        """Free what is garbage, if it is time to look for it."""
        now_s = self._now_s()
        if now_s - self._young_s < YOUNG_S:
            return
        if now_s - self._all_s >= ALL_S:
            gc.unfreeze()
            self._all_s = now_s
        gc.collect()
        gc.freeze()
        self._young_s = now_s


@contextmanager
def tended(now_s: Callable[[], float] = monotonic) -> Iterator[Garbage]:
    """Leave looking through what has lived for a while to `Garbage.look`, for this process."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    gc.collect()
    gc.freeze()
    try:
        yield Garbage(now_s)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
