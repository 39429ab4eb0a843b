"""What is remembered across restarts."""

from collections.abc import Iterable
from typing import Final

import msgspec

from shoal.core.entry import Entry
from shoal.model.hold import HoldReason
from shoal.model.workload import Workload


class Past(msgspec.Struct, frozen=True, array_like=True):
    """The past of a workload that was evicted, which its pods do not say.

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


def past_of_rest(rest: Iterable[Entry | None], wave: Workload) -> Past:
    """The past of work that may hold pods made in place of evicted ones, by what is left of those.

    What was evicted evicts nobody when it comes back, whatever it is called then.
    """
    evicted = any(entry is not None and entry.was_evicted for entry in rest)
    return Past(wave.created_us, was_evicted=True) if evicted else NO_PAST


class Mark(msgspec.Struct, frozen=True):
    """Why a pod is held back whose time is up; written on it.

    Attributes:
        reason: whether it waited (`TOO_LATE`) or ran (`TOO_LONG`) for as long as it may.
        queue: whose limit that is.
        took_us: for how long it did.
        maximum_us: the limit.
    """

    reason: HoldReason
    queue: str
    took_us: int
    maximum_us: int


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """Work that was ended, for which its controller has made no pods since.

    Attributes:
        name: of its pod.
        at_us: when it was told to end.
        mark: that of the pods which are made in its place.
    """

    name: str
    at_us: int
    mark: Mark
