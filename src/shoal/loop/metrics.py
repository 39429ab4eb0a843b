"""What a loop counts of itself, as plain values; servers turn them into Prometheus' text."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from shoal.core.decisions import Decision, Evict

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of a histogram."""


class Histogram:
    """How often a time fell into each bucket; `counts` has one more for what is above all."""

    __slots__ = ("count", "counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.count = 0
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.count += 1
        self.sum_s += seconds


@dataclass(slots=True)
class LoopMetrics:
    """Written by the writer's thread alone; whoever reads may see one number before another."""

    events: Counter[str] = field(default_factory=Counter)
    """What was taken in, by kind."""
    decisions: Counter[str] = field(default_factory=Counter)
    """What was decided, by kind."""
    evictions: Counter[str] = field(default_factory=Counter)
    """Workloads of which pods were evicted, by reason."""
    lost_device_us: Counter[str] = field(default_factory=Counter)
    """The work that evictions cost at most, by reason."""
    cycles: Histogram = field(default_factory=Histogram)
    """How long a cycle took, with making its decisions state."""
    steps: Histogram = field(default_factory=Histogram)
    """From taking in what happened to having begun to carry out what was decided about it."""
    answers: Histogram = field(default_factory=Histogram)
    """From somebody's asking to his answer."""
    lag_s: float = 0.0
    """How far the oldest event of the last step was behind the clock when it was decided upon."""
    offset: int = 0
    """Items recorded."""
    asking: int = 0
    """Questions that were waiting at the last step."""

    def decided(self, decision: Decision) -> None:
        """Count a decision."""
        self.decisions[type(decision).__name__] += 1
        if isinstance(decision, Evict):
            self.evictions[decision.reason.value] += 1
            self.lost_device_us[decision.reason.value] += decision.lost_device_us
