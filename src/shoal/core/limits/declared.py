"""What work says about itself, held against what happens.

Work past its declared run time is `overdue`: from then on nothing is granted for it. What the owner
of work that ran longer declares next is multiplied by how much too short it was before: a high
quantile of the last runs of this user in this queue, in thousandths. Nobody's declaration is made
shorter than it is, because work that is planned too short is in the way of others.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.core.limits.timelimits import TimeLimits
from shoal.model.workload import Workload

if TYPE_CHECKING:
    from shoal.core.entry import Entry

LAST_RUNS = 16
"""Runs of one owner that are remembered."""

QUANTILE_TENTHS = 9
"""At least so many tenths of the remembered runs were done within what the correction says."""

AS_DECLARED = 1_000
MOST = 10_000_000_000
"""A ratio of actual to declared run time, in thousandths: one, and the largest that counts, which
is a second that became four months."""

LONGEST_US = 1 << 55
"""Nobody is expected to run for longer than this, which is a thousand years."""

MOST_OWNERS = 10_000
"""Owners that are remembered, those whose runs ended last."""

Owner = tuple[str, str]
"""Queue and user."""


CHECKPOINT_APART_US = 60_000_000
"""Work is not believed to be saved more often than this."""


def checkpoint(entry: "Entry | None", taken_us: int, at_us: int) -> None:
    """Note up to when a workload says that its work is safe.

    It is not believed beyond now, nor before it began to run, nor more often than counts; what it
    said before is not taken back.
    """
    if entry is None or not entry.started:
        return
    taken_us = min(taken_us, at_us)
    before_us = entry.checkpoint_us
    least_us = min(entry.started.values()) if before_us is None else before_us + CHECKPOINT_APART_US
    if taken_us >= least_us:
        entry.checkpoint_us = taken_us


def declared_end_us(entry: "Entry") -> int | None:
    """Return when a running workload has to be done if its declaration is true; None: unknown."""
    if entry.workload.run_us is None or not entry.started:
        return None
    return min(entry.started.values()) + entry.workload.run_us


def overdue(entry: "Entry", now_us: int) -> bool:
    """Return whether a workload has run for longer than its owner declared."""
    end_us = declared_end_us(entry)
    return end_us is not None and now_us > end_us


class Declared:
    """What is known of declarations, by owner."""

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._ratios: dict[Owner, deque[int]] = {}
        """Actual by declared run times of the last runs; owners in the order of their last end."""

    def expected_us(self, workload: Workload) -> int | None:
        """Return for how long to expect a workload to run, from its start; None: nobody knows.

        It is what its owner declared, corrected, and not more than the maximum run of its queue.
        """
        most_us = self._limits.maximum_run_us(workload.queue, workload.type)
        if workload.run_us is None:
            return most_us
        ratio = self.correction(workload.queue, workload.user)
        corrected_us = min(LONGEST_US, -(-workload.run_us * ratio // AS_DECLARED))
        return corrected_us if most_us is None else min(corrected_us, most_us)

    def end_us(self, workload: Workload, starts_us: int) -> int | None:
        """Return when to expect a workload to end that starts then; None: nobody knows."""
        run_us = self.expected_us(workload)
        return None if run_us is None else starts_us + run_us

    def correction(self, queue: str, user: str) -> int:
        """Return what declarations of an owner are multiplied by, in thousandths."""
        ratios = sorted(self._ratios.get((queue, user), ()))
        if not ratios:
            return AS_DECLARED
        return ratios[-(-len(ratios) * QUANTILE_TENTHS // 10) - 1]

    def ended(self, entry: "Entry", at_us: int, *, completed: bool) -> None:
        """Learn from a workload that ends, while it still says since when its pods run.

        One that was ended early by something else says nothing about its declaration.
        """
        end_us = declared_end_us(entry)
        if end_us is None or not (completed or at_us > end_us):
            return
        workload = entry.workload
        owner = (workload.queue, workload.user)
        declared_us = max(1, workload.run_us or 0)
        actual_us = at_us - min(entry.started.values())
        ratios = self._ratios.pop(owner, deque(maxlen=LAST_RUNS))
        ratios.append(min(MOST, max(AS_DECLARED, -(-actual_us * AS_DECLARED // declared_us))))
        self._ratios[owner] = ratios
        if len(self._ratios) > MOST_OWNERS:
            del self._ratios[next(iter(self._ratios))]

    def kept(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Return queue, user and ratios of everybody, in order."""
        return tuple((*owner, tuple(ratios)) for owner, ratios in self._ratios.items())

    def restore(self, kept: Iterable[tuple[str, str, tuple[int, ...]]]) -> None:
        """Know what was `kept`."""
        self._ratios = {
            (queue, user): deque(ratios, maxlen=LAST_RUNS) for queue, user, ratios in kept
        }
