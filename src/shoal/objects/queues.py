"""`AcceleratorQueue` as people write it, and the value that it becomes.

What only the whole tree shows (a cycle, a guarantee beyond the parent's) is judged in `tree`.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shoal.catalog.catalog import Catalog
from shoal.model.queue import (
    Budget,
    EvictionBounds,
    Period,
    Priority,
    Queue,
    Quota,
    WhenSpent,
)
from shoal.model.workload import WorkloadType
from shoal.objects.forms import (
    Duration,
    MetadataModel,
    ObjectName,
    SelectorModel,
    Source,
    Strict,
)
from shoal.objects.pools import TypeWord

KIND = "AcceleratorQueue"

Devices = Annotated[int, Field(ge=0, le=1_000_000)]
AcceleratorWord = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(\|[A-Za-z0-9][A-Za-z0-9._+-]*)*$")
]
"""A name or a group, or several that count together: `H100|H200`."""
QuotaModel = Annotated[dict[AcceleratorWord, Devices], Field(max_length=64)]
Subject = Annotated[
    str, StringConstraints(pattern=r"^(user|group|serviceaccount):[^\s]{1,250}$", max_length=270)
]


class PriorityModel(Strict):
    """A priority, and who may ask for it."""

    value: Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
    subjects: Annotated[list[Subject], Field(max_length=64)] = Field(default_factory=list)


class EvictionModel(Strict):
    """Bounds of what evictions may cost."""

    minimum_run: Duration | None = None
    per_workload_per_day: Annotated[int, Field(ge=0, le=1000)] | None = None
    device_hours_lost_per_day: Devices | None = None
    checkpoint_interval: Duration | None = None


class BudgetModel(Strict):
    """What may be used in a period."""

    period: Literal["day", "week", "month", "quarter", "year"]
    device_hours: Annotated[int, Field(ge=0, le=10**9)]
    when_spent: Literal["warn", "lower-weight", "no-borrowing", "no-new-starts"] = "no-borrowing"


class QueueSpec(Strict):
    """What a queue is granted."""

    parent: ObjectName | None = None
    namespaces: SelectorModel | None = None
    guarantee: QuotaModel | None = None
    limit: QuotaModel = Field(default_factory=dict)
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    reclaim_within: Duration = "10m"
    types: Annotated[list[TypeWord], Field(min_length=1, max_length=4)] | None = None
    priorities: Annotated[dict[ObjectName, PriorityModel], Field(max_length=32)] = Field(
        default_factory=dict
    )
    eviction: EvictionModel = EvictionModel()
    budget: BudgetModel | None = None
    maximum_run: Annotated[dict[TypeWord, Duration], Field(max_length=4)] = Field(
        default_factory=dict
    )


class QueueModel(Strict):
    """The object."""

    api_version: Literal["shoal.dev/v1alpha1"]
    kind: Literal["AcceleratorQueue"]
    metadata: MetadataModel
    spec: QueueSpec = QueueSpec()


Names = Mapping[str, frozenset[str]]
"""The accelerators behind each word of the catalogue, a name or a group."""


def behind(word: str, names: Names) -> frozenset[str]:
    """Return the accelerators behind a word, or several joined by `|`; itself where unknown."""
    return frozenset(
        name for part in word.split("|") for name in names.get(part, frozenset({part}))
    )


def names_of(catalog: Catalog) -> Names:
    """Return which accelerators each name and each group stands for."""
    names: dict[str, set[str]] = {}
    for model in catalog.models:
        for word in (model.name, *model.groups):
            names.setdefault(word, set()).add(model.name)
    return {word: frozenset(models) for word, models in names.items()}


def read_queue(source: Source, catalog: Catalog) -> Queue | None:
    """The queue in a document; None where something is wrong, which `source` then has noted.

    Its types are empty where they are not written; `tree` fills in those of its parent.
    """
    before = len(source.problems)
    model = source.parsed(QueueModel)
    if model is None:
        return None
    spec = model.spec
    if spec.parent == model.metadata.name:
        source.complain(("spec", "parent"), "is the queue itself; write the queue above it")
    if spec.types is not None and len(set(spec.types)) < len(spec.types):
        source.complain(("spec", "types"), "names a type twice; keep one")
    queue = Queue(
        name=model.metadata.name,
        parent=spec.parent or "",
        namespaces=(
            source.selector(("spec", "namespaces"), spec.namespaces) if spec.namespaces else None
        ),
        guarantee=(
            None if spec.guarantee is None else _quota(source, "guarantee", spec.guarantee, catalog)
        ),
        limit=_quota(source, "limit", spec.limit, catalog),
        weight=spec.weight,
        reclaim_within_us=source.duration_us(("spec", "reclaimWithin"), spec.reclaim_within),
        types=tuple(WorkloadType(word) for word in spec.types or ()),
        priorities=tuple(
            Priority(name, each.value, tuple(each.subjects))
            for name, each in sorted(spec.priorities.items())
        ),
        eviction=_eviction(source, spec.eviction),
        budget=_budget(spec.budget),
        maximum_run_us=tuple(
            (WorkloadType(word), source.duration_us(("spec", "maximumRun", word), text))
            for word, text in sorted(spec.maximum_run.items())
        ),
    )
    return queue if len(source.problems) == before else None


def _quota(source: Source, field: str, written: Mapping[str, int], catalog: Catalog) -> Quota:
    names = names_of(catalog)
    known = {}
    for word in written:
        try:
            catalog.select(word)
        except KeyError as error:
            source.complain(("spec", field, word), f"{error.args[0]}")
        else:
            known[word] = behind(word, names)
    for one, other in combinations(known, 2):
        if known[one] & known[other]:
            source.complain(
                ("spec", field, other),
                f"is also part of {one}; write one of the two, or disjoint ones",
            )
    return tuple(sorted(written.items()))


def _eviction(source: Source, model: EvictionModel) -> EvictionBounds:
    def microseconds(field: str, text: str | None) -> int | None:
        return None if text is None else source.duration_us(("spec", "eviction", field), text)

    return EvictionBounds(
        minimum_run_us=microseconds("minimumRun", model.minimum_run),
        per_workload_per_day=model.per_workload_per_day,
        device_hours_lost_per_day=model.device_hours_lost_per_day,
        checkpoint_interval_us=microseconds("checkpointInterval", model.checkpoint_interval),
    )


def _budget(model: BudgetModel | None) -> Budget | None:
    if model is None:
        return None
    return Budget(Period(model.period), model.device_hours, WhenSpent(model.when_spent))
