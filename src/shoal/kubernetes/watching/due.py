"""Times at which owners are to be looked at again although nothing changes."""

from heapq import heappop, heappush


class Due:
    """By owner, every time that was asked for: each may be for something else."""

    def __init__(self) -> None:
        self._times: list[tuple[int, str]] = []
        self._asked: set[tuple[int, str]] = set()

    def add(self, owner: str, at_us: int) -> None:
        """Have an owner looked at again at this time (us)."""
        if (at_us, owner) not in self._asked:
            self._asked.add((at_us, owner))
            heappush(self._times, (at_us, owner))

    def take(self, now_us: int) -> set[str]:
        """Whose time has come; each time counts once."""
        found = set()
        while self._times and self._times[0][0] <= now_us:
            each = heappop(self._times)
            self._asked.discard(each)
            found.add(each[1])
        return found

    def next_us(self) -> int | None:
        """The earliest time; None where there is none."""
        return self._times[0][0] if self._times else None
