"""Dominant shares: what queues are ordered by among their siblings, and users in their queue.

The share of a holder is what it holds of an accelerator, over all devices of it; its dominant share
is the largest over accelerators (Ghodsi et al., NSDI 2011).
"""

from collections import Counter
from collections.abc import Iterable

from shoal.core.arrays.fleet import Fleet
from shoal.model.fractions import UNIT

SHARE_SCALE = 1_000_000_000
"""Shares are compared in billionths of the fleet per unit of weight, rounded down."""

LOWERED_PART = 10
"""A weight that is lowered counts one part in so many."""


def dominant_share(fleet: Fleet, held: Iterable[tuple[int, int]], weight: int = 1) -> int:
    """Return the dominant share of who holds these units, by accelerator id, for a weight."""
    devices = fleet.devices_by_id
    share = 0
    for accelerator, units in held:
        if units:
            all_units = max(1, devices.get(accelerator, 0)) * UNIT
            share = max(share, units * SHARE_SCALE // (all_units * weight))
    return share


class UserAccounts:
    """What users hold in the queues in which users have their turns.

    Units are added up as they are charged, also where a user has several parts of one device.
    """

    def __init__(self, queues: Iterable[str] = ()) -> None:
        self._of: dict[str, dict[str, Counter[int]]] = {queue: {} for queue in queues}

    def __contains__(self, queue: str) -> bool:
        """Whether users have their turns in a queue."""
        return queue in self._of

    def book(self, queue: str, user: str, accelerator: int, units: int) -> None:
        """Add units to what a user holds in a queue, where that counts."""
        users = self._of.get(queue)
        if users is not None:
            users.setdefault(user, Counter())[accelerator] += units

    def held(self, queue: str, user: str) -> Iterable[tuple[int, int]]:
        """Return what a user holds in a queue, by accelerator id."""
        return self._of[queue].get(user, Counter[int]()).items()
