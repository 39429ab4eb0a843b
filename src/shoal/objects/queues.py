"""`AcceleratorQueue` as people write it, and the value that it becomes.

What only the whole tree shows (a cycle, a guarantee beyond the parent's) is judged in `tree`.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from shoal.catalog.catalog import Catalog
from shoal.model.queue import UNITS, EvictionBounds, Order, Priority, Queue, Quota
from shoal.model.workload import WorkloadType
from shoal.objects.budgets import BudgetModel, Prices, read_budget
from shoal.objects.forms import (
    Duration,
    MetadataModel,
    ObjectName,
    SelectorModel,
    Source,
    Strict,
)
from shoal.objects.pools import TypeWord
from shoal.objects.quotas import behind, names_of

KIND = "AcceleratorQueue"

OF_THE_ROOT: Final = ("shrinkAfter", "usageHalfLife")
"""Fields that say how the whole tree counts, and stand at its root."""

Devices = Annotated[int, Field(ge=0, le=1_000_000)]
AcceleratorWord = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*(\|[A-Za-z0-9][A-Za-z0-9._+-]*)*$")
]
"""A name or a group, or several that count together: `H100|H200`; or `units`."""
QuotaModel = Annotated[dict[AcceleratorWord, Devices], Field(max_length=64)]
Durations = Annotated[dict[TypeWord, Duration], Field(max_length=4)]
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
    grace_max: Duration | None = None


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
    maximum_run: Durations = Field(default_factory=dict)
    maximum_wait: Durations = Field(default_factory=dict)
    borrow: QuotaModel = Field(default_factory=dict)
    lend: QuotaModel = Field(default_factory=dict)
    placeable: QuotaModel = Field(default_factory=dict)
    order: Literal["fifo", "priority", "fair", "shortest", "least-attained-service"] = "priority"
    aging: Duration | None = None
    starvation_after: Duration = "24h"
    shrink_after: Duration | None = None
    usage_half_life: Duration | None = None


class QueueModel(Strict):
    """The object."""

    api_version: Literal["shoal.dev/v1alpha1"]
    kind: Literal["AcceleratorQueue"]
    metadata: MetadataModel
    spec: QueueSpec = QueueSpec()


def read_queue(source: Source, catalog: Catalog, prices: Prices) -> Queue | None:
    """The queue in a document; None where something is wrong, which `source` then has noted.

    Its types and priorities are empty where they are not written; `tree` fills in those of its
    parent, and what the root says.
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
    _check_root(source, spec)
    quotas = _Quotas(source, catalog)
    defaults = Queue("")
    queue = Queue(
        name=model.metadata.name,
        parent=spec.parent or "",
        namespaces=(
            source.selector(("spec", "namespaces"), spec.namespaces) if spec.namespaces else None
        ),
        guarantee=None if spec.guarantee is None else quotas.read("guarantee", spec.guarantee),
        limit=quotas.read("limit", spec.limit),
        weight=spec.weight,
        reclaim_within_us=source.duration_us(("spec", "reclaimWithin"), spec.reclaim_within),
        types=tuple(WorkloadType(word) for word in spec.types or ()),
        priorities=tuple(
            Priority(name, each.value, tuple(each.subjects))
            for name, each in sorted(spec.priorities.items())
        ),
        eviction=_eviction(source, spec.eviction),
        budget=read_budget(source, spec.budget, prices),
        maximum_run_us=_durations(source, "maximumRun", spec.maximum_run),
        maximum_wait_us=_durations(source, "maximumWait", spec.maximum_wait),
        borrow=quotas.read("borrow", spec.borrow),
        lend=quotas.read("lend", spec.lend),
        placeable=quotas.read("placeable", spec.placeable),
        order=Order(spec.order),
        aging_us=_microseconds(source, ("spec", "aging"), spec.aging),
        starvation_after_us=source.duration_us(("spec", "starvationAfter"), spec.starvation_after),
        grace_max_us=_microseconds(
            source, ("spec", "eviction", "graceMax"), spec.eviction.grace_max
        ),
        shrink_after_us=(
            _microseconds(source, ("spec", "shrinkAfter"), spec.shrink_after)
            or defaults.shrink_after_us
        ),
        usage_half_life_us=_microseconds(source, ("spec", "usageHalfLife"), spec.usage_half_life),
    )
    return queue if len(source.problems) == before else None


def _check_root(source: Source, spec: QueueSpec) -> None:
    """Note what only the root can say where it is said elsewhere."""
    written = {"shrinkAfter": spec.shrink_after, "usageHalfLife": spec.usage_half_life}
    for field in OF_THE_ROOT:
        if spec.parent is not None and written[field] is not None:
            source.complain(
                ("spec", field),
                "counts for the whole tree, so it is written at its root; write it in the queue"
                " without a parent",
            )


class _Quotas:
    """Reads the quotas of one queue."""

    def __init__(self, source: Source, catalog: Catalog) -> None:
        self._source = source
        self._catalog = catalog
        self._names = names_of(catalog)

    def read(self, field: str, written: Mapping[str, int]) -> Quota:
        """A quota, with what is wrong noted."""
        known = {}
        for word in written:
            if word == UNITS:
                if len(written) > 1:
                    others = ", ".join(each for each in written if each != UNITS)
                    self._source.complain(
                        ("spec", field, word),
                        f"counts every accelerator, {others} as well; write units alone, or"
                        " accelerators alone",
                    )
                continue
            try:
                self._catalog.select(word)
            except KeyError as error:
                self._source.complain(("spec", field, word), f"{error.args[0]}")
            else:
                known[word] = behind(word, self._names)
        for one, other in combinations(known, 2):
            if known[one] & known[other]:
                self._source.complain(
                    ("spec", field, other),
                    f"is also part of {one}; write one of the two, or disjoint ones",
                )
        return tuple(sorted(written.items()))


def _eviction(source: Source, model: EvictionModel) -> EvictionBounds:
    at = ("spec", "eviction")
    return EvictionBounds(
        minimum_run_us=(
            None
            if model.minimum_run is None
            else source.duration_us((*at, "minimumRun"), model.minimum_run, or_none=True)
        ),
        per_workload_per_day=model.per_workload_per_day,
        device_hours_lost_per_day=model.device_hours_lost_per_day,
        checkpoint_interval_us=_microseconds(
            source, (*at, "checkpointInterval"), model.checkpoint_interval
        ),
    )


def _durations(
    source: Source, field: str, written: Mapping[TypeWord, str]
) -> tuple[tuple[WorkloadType, int], ...]:
    return tuple(
        (WorkloadType(word), source.duration_us(("spec", field, word), text))
        for word, text in sorted(written.items())
    )


def _microseconds(source: Source, path: tuple[str, ...], text: str | None) -> int | None:
    return None if text is None else source.duration_us(path, text)
