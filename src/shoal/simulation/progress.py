"""How work comes on: how long it runs, whether it fails on its way, and what it saves.

Training saves a checkpoint every half hour and, where it is given the time, once more when it is
evicted; some of it never saves any. Other work saves nothing.
"""

from shoal.model.workload import Workload, WorkloadType
from shoal.simulation.chance import Chance
from shoal.simulation.organisation import HOUR_US, hours_long

FAILED_RUNS = 0.04
"""The part of training and batch that fails by itself, somewhere on its way."""

SAVES = 0.85
"""The part of training that saves checkpoints."""

SAVE_EVERY_US = 1_800_000_000
SAVING_US = 45_000_000
"""From the beginning of a checkpoint to its being safe."""


def fails(chance: Chance, workload: Workload) -> bool:
    """Return whether work fails by itself."""
    may_fail = workload.type in (WorkloadType.TRAINING, WorkloadType.BATCH)
    return may_fail and chance.unit("fails", workload.uid) < FAILED_RUNS


def length_us(chance: Chance, workload: Workload) -> int:
    """Return how long work runs if nothing stops it, to its success or to its failure."""
    hours = hours_long(chance, workload)
    if fails(chance, workload):
        hours *= chance.unit("fails after", workload.uid)
    return int(hours * HOUR_US)


def saves(chance: Chance, workload: Workload) -> bool:
    """Return whether work saves checkpoints."""
    return (
        workload.type is WorkloadType.TRAINING
        and chance.unit("saves checkpoints", workload.uid) < SAVES
    )


def next_save_us(running_us: int, after_us: int) -> int:
    """Return when the first checkpoint later than `after_us` is safe, of work that runs since."""
    number = max(1, (after_us - SAVING_US - running_us) // SAVE_EVERY_US + 1)
    return running_us + number * SAVE_EVERY_US + SAVING_US


def leaves_us(chance: Chance, workload: Workload, name: str, grace_us: int) -> int:
    """Return how long a pod that runs takes to stop when it is evicted, at most its grace.

    What saves does so first, if it has the time. `name` is that of the pod.
    """
    least_us = SAVING_US if saves_at_end(chance, workload, grace_us) else 0
    return least_us + int((grace_us - least_us) * chance.unit("leaves", name))


def saves_at_end(chance: Chance, workload: Workload, grace_us: int) -> bool:
    """Return whether work that is evicted saves a checkpoint before it stops."""
    return grace_us >= SAVING_US and saves(chance, workload)
