"""Places that are kept for a workload that waits."""

from dataclasses import dataclass

from shoal.core.tenants import Charge
from shoal.model.verdict import Reason
from shoal.model.workload import Placement


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places kept for a workload that waits; see `decisions.Reserve`.

    They are booked and charged as if it held them, so that nobody else is put there.
    """

    placements: tuple[Placement, ...]
    charges: tuple[tuple[Charge, ...], ...]
    at_us: int | None
    evicted: tuple[str, ...]
    reason: Reason
