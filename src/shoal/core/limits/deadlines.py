"""Times at which something is due, by key: looked at without being changed, and never by a scan."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from shoal.core.tenancy.tenants import FOR_EVER_US

SLACK = 64
"""So many entries that no longer count are kept before the heap is made anew, at least."""


def earliest(*times_us: int | None) -> int | None:
    """Return the first of some times, None where there is none."""
    return min((at_us for at_us in times_us if at_us is not None), default=None)


class Deadlines:
    """One time for each key.

    Changing one costs the logarithm of their number; to look costs as much as is found. The order
    in which keys were set has no effect.
    """

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """Times and keys, also some that have been changed or dropped since."""

    def get(self, key: str) -> int | None:
        """Return when a key is due, None if it is not among them."""
        return self._at.get(key)

    def set(self, key: str, at_us: int) -> None:
        """Let a key be due at a time, and at no other."""
        if self._at.get(key) == at_us:
            return
        self._at[key] = at_us
        if len(self._heap) >= 2 * len(self._at) + SLACK:
            self._heap = [(at, each) for each, at in self._at.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (at_us, key))

    def drop(self, key: str) -> None:
        """Let a key be due no more."""
        self._at.pop(key, None)

    def clear(self) -> None:
        """Drop them all."""
        self._at.clear()
        self._heap.clear()

    def due(self, now_us: int) -> list[tuple[int, str]]:
        """Return times and keys of what is due at `now_us` or before, in order."""
        if not self._at:
            return []
        return sorted({each for each in self._walk(now_us, now_us) if each[0] <= now_us})

    def after(self, now_us: int) -> int | None:
        """Return the first time behind `now_us` at which something is due, if there is any."""
        if not self._at:
            return None
        self._forget_first()
        return min((at for at, _ in self._walk(now_us, FOR_EVER_US) if at > now_us), default=None)

    def _forget_first(self) -> None:
        while self._heap and not self._counts(self._heap[0]):
            heappop(self._heap)

    def _counts(self, each: tuple[int, str]) -> bool:
        return self._at.get(each[1]) == each[0]

    def _walk(self, now_us: int, most_us: int) -> Iterator[tuple[int, str]]:
        """Yield what counts, down every way through the heap to the first that is not yet due.

        Ways that lead to nothing up to `most_us` are left.
        """
        pending = [0] if self._heap else []
        while pending:
            place = pending.pop()
            each = self._heap[place]
            if each[0] > most_us:
                continue
            counts = self._counts(each)
            if counts:
                yield each
            if each[0] <= now_us or not counts:
                below = (2 * place + 1, 2 * place + 2)
                pending += [child for child in below if child < len(self._heap)]
