"""What else changes at a queue, from what to what, where that can be read in a line."""

from collections.abc import Iterator, Mapping
from typing import Final

from shoal.model.meaning import Duration, FieldChanged, FieldValue, Spending
from shoal.model.queue import Queue

_SPANS: Final = {
    "reclaimWithin": "reclaim_within_us",
    "aging": "aging_us",
    "starvationAfter": "starvation_after_us",
    "eviction.graceMax": "grace_max_us",
    "shrinkAfter": "shrink_after_us",
    "usageHalfLife": "usage_half_life_us",
}
"""Fields with a time span, as people write them."""


def fields_changed(
    before: Queue, after: Queue, currencies: tuple[str, str]
) -> Iterator[FieldChanged]:
    """The fields that change and are neither quotas, types, weight nor parent; in their order.

    `currencies` are those of the budgets that are money, before and after.
    """
    if before.namespaces != after.namespaces:
        yield FieldChanged(after.name, "namespaces")
    was, will = _values(before, currencies[0]), _values(after, currencies[1])
    for field in dict.fromkeys((*was, *will)):
        old, new = was.get(field), will.get(field)
        if old != new:
            yield FieldChanged(after.name, field, old, new)


def _values(queue: Queue, currency: str) -> Mapping[str, FieldValue]:
    """What is written in a queue, by field as people write it."""
    bounds = queue.eviction
    spans: dict[str, int | None] = {field: getattr(queue, name) for field, name in _SPANS.items()}
    spans["eviction.minimumRun"] = bounds.minimum_run_us
    spans["eviction.checkpointInterval"] = bounds.checkpoint_interval_us
    for field, times in (
        ("maximumRun", queue.maximum_run_us),
        ("maximumWait", queue.maximum_wait_us),
    ):
        spans |= {f"{field}.{type_}": time_us for type_, time_us in times}
    numbers = {
        "eviction.perWorkloadPerDay": bounds.per_workload_per_day,
        "eviction.deviceHoursLostPerDay": bounds.device_hours_lost_per_day,
    }
    found: dict[str, FieldValue] = {"order": str(queue.order)}
    found |= {field: Duration(us) for field, us in spans.items() if us is not None}
    found |= {field: number for field, number in numbers.items() if number is not None}
    found |= {f"priorities.{each.name}": each for each in queue.priorities}
    if queue.budget is not None:
        money = queue.budget.money_micro is not None
        found["budget"] = Spending(queue.budget, currency if money else "")
    return found
