"""Places that are kept for a workload that waits."""

from dataclasses import dataclass

from shoal.core.arrays.charges import Charge
from shoal.model.verdict import Reason
from shoal.model.workload import Placement


@dataclass(frozen=True, slots=True)
class Reservation:
    """Places kept for a workload that waits; see `decisions.Reserve`.

    They are booked as if it held them, so that nobody else is put there. Where others go for it, it
    is charged for them as well; where it only waits for them, `charges` are empty.
    """

    placements: tuple[Placement, ...]
    charges: tuple[tuple[Charge, ...], ...]
    at_us: int | None
    evicted: tuple[str, ...]
    reason: Reason
    look_us: int | None = None
    """When time alone may let others be evicted for it, as it was when that was looked at last."""

    @property
    def waits_for_ends(self) -> bool:
        """Whether nobody goes for it: it waits until running work has ended."""
        return not self.evicted
