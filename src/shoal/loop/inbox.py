"""What people ask of the one writer, in a queue with an end."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from threading import Condition
from time import monotonic

from shoal.model.pool import Pool
from shoal.model.queue import QueueTree
from shoal.model.workload import Workload

CAPACITY = 1_000
"""Questions that wait at most; whoever comes then is told to come again."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Take in these workloads, all or none; when they were created is for the writer to say."""

    workloads: tuple[Workload, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a workload, whether it waits or runs."""

    uid: str


@dataclass(frozen=True, slots=True)
class Act:
    """Decide, or decide nothing any more; `by` is who wants it.

    To decide again lets frozen evictions go on too.
    """

    acts: bool
    by: str = ""


@dataclass(frozen=True, slots=True)
class KeepTo:
    """The pools and queues are these from now on, both at once; queues as the core counts them."""

    pools: tuple[Pool, ...]
    queues: QueueTree


Ask = Submit | Cancel | Act | KeepTo


class Refused(StrEnum):
    """Why something asked for was not done."""

    KNOWN = "known"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it, told when it is safe; a replica shows it from `offset` on."""

    offset: int
    at_us: int
    refused: Refused | None = None


class InboxFullError(Exception):
    """So many ask at once that the writer is behind; ask again in a second."""


class InboxClosedError(Exception):
    """The writer is stopping."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Something asked for, when (of `time.monotonic`), and where the answer goes."""

    ask: Ask
    put_s: float
    answer: Future[Answer]


class Inbox:
    """A bounded queue from many threads to the writer's."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._tickets: deque[Ticket] = deque()
        self._changed = Condition()
        self._closed = False
        self._rung = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._tickets)

    def put(self, ask: Ask) -> Future[Answer]:
        """Ask the writer; the future tells what came of it.

        Raises `InboxFullError` or `InboxClosedError` where it cannot be asked now.
        """
        with self._changed:
            if self._closed:
                raise InboxClosedError
            if len(self._tickets) >= self._capacity:
                raise InboxFullError
            answer: Future[Answer] = Future()
            self._tickets.append(Ticket(ask, monotonic(), answer))
            self._changed.notify()
            return answer

    def take(self, most: int) -> list[Ticket]:
        """Return what was asked first, at most so many; whoever gave up asking is left out."""
        with self._changed:
            taken = [self._tickets.popleft() for _ in range(min(most, len(self._tickets)))]
            self._rung = False
        return [each for each in taken if each.answer.set_running_or_notify_cancel()]

    def wait(self, timeout_s: float) -> bool:
        """Return True as soon as somebody asks or rings, False when the time is over."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._tickets) or self._closed or self._rung, timeout_s
            )

    def ring(self) -> None:
        """Have `wait` return now."""
        with self._changed:
            self._rung = True
            self._changed.notify()

    def close(self) -> None:
        """Take nothing more, and tell those who wait for an answer that none will come."""
        with self._changed:
            self._closed = True
            left = list(self._tickets)
            self._tickets.clear()
            self._changed.notify()
        for each in left:
            if each.answer.set_running_or_notify_cancel():
                each.answer.set_exception(InboxClosedError())
