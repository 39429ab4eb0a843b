"""What a platform in one process opens to those who read it and ask of it."""

from collections.abc import Callable
from dataclasses import dataclass

from shoal.loop.inbox import Inbox
from shoal.loop.metrics import LoopMetrics
from shoal.loop.replica import Replica


@dataclass(frozen=True, slots=True)
class Use:
    """How much a running pod uses now: each leaf's compute in percent, and its memory."""

    uid: str
    pod: int
    node: str
    leaves: tuple[str, ...]
    compute_pct: float
    memory_mib: int
    """On all of its leaves together."""


@dataclass(frozen=True, slots=True)
class Doors:
    """A replica to read, an inbox to ask, the platform's own clock, and its metrics.

    `uses` takes the replica's lock and tells what running pods use now.
    """

    replica: Replica
    inbox: Inbox
    now_us: Callable[[], int]
    metrics: LoopMetrics
    uses: Callable[[], list[Use]]
