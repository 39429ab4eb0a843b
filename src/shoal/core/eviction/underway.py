"""Evictions that are under way, as they were counted."""

from dataclasses import dataclass, replace

from shoal.model.fractions import UNIT
from shoal.model.verdict import Reason

Lost = tuple[int, int]
"""Lost work as whole device microseconds and a rest, in units times microseconds, below `UNIT`.

In units alone it has more than the 64 bits that are recorded: half a day of 512 devices is enough.
"""


@dataclass(frozen=True, slots=True)
class Underway:
    """An eviction of which some pods have not gone.

    `going` are these, and what counts as lost with each; `gone` the same of those that have gone,
    None while none has. `lost_device_us` is what was counted as lost, in device microseconds.
    `again`: the workload had been evicted before.
    """

    at_us: int
    reason: Reason
    going: tuple[tuple[int, Lost], ...]
    lost_device_us: int
    again: bool
    gone: Lost | None = None

    def without(self, pod: int) -> "Underway":
        """Return the same after a pod has gone."""
        lost = dict(self.going).get(pod)
        if lost is None:
            return self
        whole, rest = self.gone or (0, 0)
        more, rest = divmod(rest + lost[1], UNIT)
        return replace(self.sparing(pod), gone=(whole + lost[0] + more, rest))

    def sparing(self, pod: int) -> "Underway":
        """Return the same if a pod does not go, and has not gone."""
        return replace(self, going=tuple(each for each in self.going if each[0] != pod))
