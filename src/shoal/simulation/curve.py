"""What a run measures: allocation, fragmentation and failures against the load that arrived."""

from collections.abc import Mapping
from dataclasses import dataclass

from shoal.simulation.inflation import LOAD_PCT


@dataclass(frozen=True, slots=True)
class Curves:
    """Measures by arrived load in whole percent of the fleet's compute.

    `allocated_pct` and `fragmented_pct` are percent of the fleet's compute, averaged over the
    arrivals at which the load rounds to that percent; loads that no arrival rounds to are missing.
    `failed` and `arrived` count pods up to the last arrival at which the load is at most that
    percent, for every percent from 0 to the protocol's end.
    """

    allocated_pct: Mapping[int, float]
    fragmented_pct: Mapping[int, float]
    failed: Mapping[int, int]
    arrived: Mapping[int, int]


class Meter:
    """Collects the state of the fleet after every arrival."""

    __slots__ = (
        "_allocated",
        "_capacity_milli",
        "_counts",
        "_fragmented",
        "_last",
        "arrived_milli",
        "arrived_pods",
        "failed_pods",
    )

    def __init__(self, capacity_milli: int) -> None:
        self._capacity_milli = capacity_milli
        self._counts: dict[int, int] = {}
        self._allocated: dict[int, int] = {}
        self._fragmented: dict[int, float] = {}
        self._last: dict[int, tuple[int, int]] = {}
        self.arrived_milli = 0
        self.arrived_pods = 0
        self.failed_pods = 0

    def arrival(
        self, demand_milli: int, allocated_milli: int, fragmented_milli: float, *, failed: bool
    ) -> None:
        """Take in one arrival and the state of the fleet after it."""
        self.arrived_milli += demand_milli
        self.arrived_pods += 1
        self.failed_pods += failed
        capacity_milli = self._capacity_milli
        nearest = (200 * self.arrived_milli + capacity_milli) // (2 * capacity_milli)
        self._counts[nearest] = self._counts.get(nearest, 0) + 1
        self._allocated[nearest] = self._allocated.get(nearest, 0) + allocated_milli
        self._fragmented[nearest] = self._fragmented.get(nearest, 0.0) + fragmented_milli
        reached = -(-100 * self.arrived_milli // capacity_milli)
        self._last[reached] = (self.failed_pods, self.arrived_pods)

    def curves(self) -> Curves:
        """Return what was measured so far."""
        scale = {load: 100 / (n * self._capacity_milli) for load, n in self._counts.items()}
        failed: dict[int, int] = {}
        arrived: dict[int, int] = {}
        latest = (0, 0)
        for load in range(max([LOAD_PCT, *self._last]) + 1):
            latest = self._last.get(load, latest)
            failed[load], arrived[load] = latest
        return Curves(
            {load: milli * scale[load] for load, milli in self._allocated.items()},
            {load: milli * scale[load] for load, milli in self._fragmented.items()},
            failed,
            arrived,
        )
