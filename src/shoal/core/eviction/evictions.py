"""What is remembered of evictions: what may stand in their way, and when they are too many.

Never act on a wrong world: where many are evicted within minutes, or many devices are gone, nobody
else is evicted until a person has looked.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sized

MINUTE_US = 60_000_000
DAY_US = 24 * 60 * MINUTE_US

WINDOW_US = 5 * MINUTE_US
"""Evictions within so long are counted together."""

MOST_EVICTIONS = 10
MOST_EVICTIONS_PART = 50
"""Of the workloads that run, one in so many may be evicted within the window, or ten."""

MOST_GONE_PART = 5
"""Where one device in so many is gone, the world is not to be trusted."""


class Evictions:
    """Disruption budgets, the evictions of late, and whether others may follow."""

    def __init__(self) -> None:
        self.frozen = False
        self.approved = 0
        """How many evictions within the window a person was last asked to let happen."""
        self.approved_until_us = 0
        """Until when so many may; before a person resumes, that has passed."""
        self.recent_us: deque[int] = deque()
        """When workloads were evicted, within the window, since a person resumed."""
        self.working: deque[tuple[int, int]] = deque()
        """How many devices worked, from when on, within the window or since a person resumed.

        Each has fewer than the one before it.
        """
        self.lost: dict[str, deque[tuple[int, int]]] = {}
        """By queue: when, and how many device microseconds its work lost by preemption."""
        self.budgets: dict[str, tuple[int, frozenset[str]]] = {}
        """By disruption budget: pods that may be evicted now, and the workloads it covers."""
        self._covering: dict[str, dict[str, None]] = {}

    # Disruption budgets -----------------------------------------------------------------------

    def set_budget(self, name: str, allowed: int | None, workloads: tuple[str, ...]) -> None:
        """Take in a disruption budget; None for `allowed` where it is gone."""
        _, before = self.budgets.pop(name, (0, frozenset[str]()))
        for uid in sorted(before):
            covering = self._covering[uid]
            del covering[name]
            if not covering:
                del self._covering[uid]
        if allowed is not None:
            self.budgets[name] = (allowed, frozenset(workloads))
            for uid in sorted(workloads):
                self._covering.setdefault(uid, {})[name] = None

    def budgets_of(self, uid: str) -> tuple[str, ...]:
        """Return the names of the disruption budgets that cover a workload."""
        return tuple(sorted(self._covering.get(uid, ())))

    def allowed(self, uid: str) -> int | None:
        """Return how many pods of a workload its disruption budgets let go; None: any number.

        Kubernetes cannot evict a pod that two budgets cover.
        """
        names = self.budgets_of(uid)
        if not names:
            return None
        return self.budgets[names[0]][0] if len(names) == 1 else 0

    # Counting ---------------------------------------------------------------------------------

    def happened(self, at_us: int) -> None:
        """Note that a workload was evicted."""
        self.recent_us.append(at_us)
        while self.recent_us and self.recent_us[0] <= at_us - WINDOW_US:
            self.recent_us.popleft()

    def lately(self, now_us: int) -> int:
        """Return how many workloads were evicted within the window."""
        return sum(1 for at_us in self.recent_us if at_us > now_us - WINDOW_US)

    def works(self, at_us: int, devices: int) -> None:
        """Note how many devices work from now on.

        Where more work than before, it does not matter any more how many fewer that were.
        """
        since_us = at_us
        while self.working and self.working[-1][1] < devices:
            since_us, _ = self.working.pop()
        if not self.working or self.working[-1][1] != devices:
            self.working.append((since_us, devices))
        while len(self.working) > 1 and self.working[1][0] <= at_us - WINDOW_US:
            self.working.popleft()

    def gone(self, now_us: int) -> tuple[int, int]:
        """Return how many devices are gone that worked within the window, and how many worked."""
        if not self.working:
            return 0, 0
        until_us = [at_us for at_us, _ in self.working][1:]
        past = sum(1 for at_us in until_us if at_us <= now_us - WINDOW_US)
        most = self.working[past][1]
        return most - self.working[-1][1], most

    def preempted(self, queue: str, at_us: int, lost_device_us: int) -> None:
        """Note what the work of a queue has lost by a preemption."""
        lost = self.lost.setdefault(queue, deque())
        lost.append((at_us, lost_device_us))
        while lost and lost[0][0] <= at_us - DAY_US:
            lost.popleft()

    def did_not_happen(self, at_us: int) -> None:
        """Note that a workload was not evicted that was counted at a time."""
        if at_us in self.recent_us:
            self.recent_us.remove(at_us)

    def lost_less(
        self, queue: str, at_us: int, counted_device_us: int, lost_device_us: int | None
    ) -> None:
        """Count something else as lost by a preemption at a time than was counted; None: none."""
        lost, counted = self.lost.get(queue, deque()), (at_us, counted_device_us)
        if counted not in lost:
            return
        if lost_device_us is None:
            lost.remove(counted)
        else:
            lost[lost.index(counted)] = (at_us, lost_device_us)
        if not lost:
            del self.lost[queue]

    def lost_today(self, queue: str, now_us: int) -> int:
        """Return the device microseconds that the work of a queue lost within the last day."""
        return sum(lost for at_us, lost in self.lost.get(queue, ()) if at_us > now_us - DAY_US)

    def first_lost_us(self, queue: str, now_us: int) -> int | None:
        """Return when the work of a queue lost something first within the last day, if it did."""
        lost = self.lost.get(queue, ())
        return next((at_us for at_us, _ in lost if at_us > now_us - DAY_US), None)

    def most(self, holders: Mapping[str, Sized], now_us: int) -> int:
        """Return how many workloads may be evicted within the window where these run, by queue."""
        running = sum(len(workloads) for workloads in holders.values())
        most = max(MOST_EVICTIONS, running // MOST_EVICTIONS_PART)
        return max(most, self.approved) if now_us < self.approved_until_us else most

    def freeze(self, wanted: int) -> None:
        """Evict nobody until a person has looked; `wanted` is how many would have been evicted."""
        self.frozen = True
        self.approved, self.approved_until_us = wanted, 0

    def resume(self, at_us: int) -> None:
        """Let evictions go on, and count them, and the devices that are gone, anew.

        As many as the person was asked about may happen within the window: a large gang might
        need them all at once, and would freeze evictions again for ever.
        """
        self.frozen = False
        self.approved_until_us = at_us + WINDOW_US
        self.recent_us.clear()
        while len(self.working) > 1:
            self.working.popleft()

    def all_lost(self) -> Iterator[tuple[str, int, int]]:
        """Yield queue, time and device microseconds of every loss that is remembered."""
        for queue, losses in sorted(self.lost.items()):
            for at_us, lost in losses:
                yield queue, at_us, lost


def too_many_gone(gone: int, worked: int) -> bool:
    """Return whether so many devices are gone that the world is not to be trusted."""
    return gone > 0 and gone * MOST_GONE_PART >= worked
