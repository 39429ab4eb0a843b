"""What is remembered of a workload across restarts that its pods do not say."""

import msgspec


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
