"""What running pods say of their checkpoints, and what that says of their workload.

A pod says for itself up to when its work is saved (`shoal.dev/checkpoint`). The work of pods that
start together is lost together, so it is saved up to the oldest of these times, and not before each
of them has said one; only a pod that began later than that has nothing to say of it. So whoever
saves for all writes it on all of them, and lost work never looks smaller than it is.
"""

from collections.abc import Mapping
from typing import Final

from shoal.kubernetes.watching.flights import Flight
from shoal.kubernetes.wire.pod import Pod
from shoal.objects.annotations import CHECKPOINT
from shoal.objects.moments import moment_us

AHEAD_US: Final = 60_000_000
"""Clocks of pods may be ahead by so much. What is said to be saved later than that is not believed:
it would count anew with every restart of Shoal, up to the moment of that restart."""


def reported_us(pod: Pod, now_us: int) -> int | None:
    """Up to when a pod says that its work is saved; None: it says nothing that can be true."""
    text = pod.metadata.annotations.get(CHECKPOINT)
    said_us = moment_us(text) if text is not None else None
    return said_us if said_us is not None and said_us <= now_us + AHEAD_US else None


def saved_us(flight: Flight, started: Mapping[int, int]) -> int | None:
    """Up to when the work of a start is saved, by all of its pods; None where not all say it.

    `started` says since when each of its pods runs, by number (us).
    """
    reports = [seat.saved_us for seat in flight.seats.values() if seat.saved_us is not None]
    if not reports:
        return None
    oldest_us = min(reports)
    for number, seat in flight.seats.items():
        silent = bool(seat.pod) and seat.saved_us is None
        if silent and started.get(number, oldest_us) < oldest_us:
            return None
    return oldest_us
