"""What the core decides. A decision is a value; it becomes state as a `Decided` event.

Each has a `key` that makes carrying it out twice harmless, and a machine-readable reason.
"""

from dataclasses import dataclass

from shoal.model.verdict import Reason, Verdict
from shoal.model.workload import Placement


@dataclass(frozen=True, slots=True)
class Start:
    """Start a whole workload: every pod of it, each on its node and leaves."""

    key: str
    workload: str
    placements: tuple[Placement, ...]
    reason: Reason = Reason.PLACED


@dataclass(frozen=True, slots=True)
class Retract:
    """Take back a start that did not come true, because `node` did not do what was planned."""

    key: str
    workload: str
    node: str
    reason: Reason = Reason.START_FAILED


@dataclass(frozen=True, slots=True)
class Wait:
    """Tell workloads of one group why they do not start; given when that changes, not before."""

    key: str
    workloads: tuple[str, ...]
    verdict: Verdict

    @property
    def reason(self) -> Reason:
        """The first thing that would have to change."""
        return self.verdict.cause[1]


Decision = Start | Retract | Wait
