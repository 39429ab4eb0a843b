"""What can happen to a workload, as its story tells it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shoal.core.decisions import Decision, Evict, GiveUp, Reserve, Resize, Retract, Start
from shoal.model.verdict import Reason


class Step(StrEnum):
    """What can happen to a workload."""

    SUBMITTED = "submitted"
    ADOPTED = "adopted"
    TOLD = "told"
    STARTED = "started"
    RUNNING = "running"
    GROWN = "grown"
    FAILED_START = "failed-start"
    RETRACTED = "retracted"
    RESERVED = "reserved"
    GAVE_UP = "gave-up"
    EVICTED = "evicted"
    SPARED = "spared"
    WAITS_AGAIN = "waits-again"
    STOPPING = "stopping"
    ENDED = "ended"


STEPS: Final[dict[type[Decision], Step]] = {
    Start: Step.STARTED,
    Resize: Step.GROWN,
    Retract: Step.RETRACTED,
    Reserve: Step.RESERVED,
    GiveUp: Step.GAVE_UP,
    Evict: Step.EVICTED,
}


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a workload.

    `reason` says why, of what was decided. `detail` is the node of a retracted start, the uid of
    the first whom it was evicted for, or the outcome of an end.
    """

    at_us: int
    step: Step
    reason: Reason | None = None
    detail: str = ""
