"""What is remembered of a workload across restarts that its pods do not say."""

from typing import Final

import msgspec

from shoal.core.entry import Entry


class Past(msgspec.Struct, frozen=True, array_like=True):
    """The past of a workload that was evicted.

    Attributes:
        came_us: when it came at first; its pods are younger.
        was_evicted: whether it ever made room for others.
        evictions_us: when it did, within the last day.
        served_device_us: device microseconds that it has had.
    """

    came_us: int
    was_evicted: bool
    evictions_us: tuple[int, ...] = ()
    served_device_us: int = 0


NO_PAST: Final = Past(0, was_evicted=False)
"""That of a workload of which nothing is remembered."""


def past_of(entry: Entry) -> Past:
    """The past of a workload as the world has it."""
    return Past(
        entry.workload.created_us, entry.was_evicted, entry.evictions_us, entry.served_device_us
    )
