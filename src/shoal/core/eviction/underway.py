"""Evictions that are under way, as they were counted."""

from dataclasses import dataclass, replace

from shoal.model.verdict import Reason


@dataclass(frozen=True, slots=True)
class Underway:
    """An eviction of which some pods have not gone.

    `going` are these, and what counts as lost with each, in units times microseconds;
    `gone_unit_us` the same of those that have gone, None while none has. `lost_device_us` is what
    was counted as lost, in device microseconds. `again`: the workload had been evicted before.
    """

    at_us: int
    reason: Reason
    going: tuple[tuple[int, int], ...]
    lost_device_us: int
    again: bool
    gone_unit_us: int | None = None

    def without(self, pod: int) -> "Underway":
        """Return the same after a pod has gone."""
        lost = dict(self.going).get(pod)
        if lost is None:
            return self
        return replace(self.sparing(pod), gone_unit_us=(self.gone_unit_us or 0) + lost)

    def sparing(self, pod: int) -> "Underway":
        """Return the same if a pod does not go, and has not gone."""
        return replace(self, going=tuple(each for each in self.going if each[0] != pod))
