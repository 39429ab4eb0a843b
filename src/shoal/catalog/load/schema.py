"""The form of a file of the catalogue: strict, with unknown keys refused."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SCHEMA = "shoal.dev/catalog/v1"

Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=600)]
Short = Annotated[str, StringConstraints(min_length=1, max_length=120)]
VersionText = Annotated[str, StringConstraints(min_length=1, max_length=40)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Engine = Annotated[int, Field(ge=0, le=1000)]
Requires = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Pair = Annotated[list[VersionText], Field(min_length=2, max_length=2)]
ResourceText = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9.-]{1,80}/[A-Za-z0-9.-]{0,40}\{(profile|suffix)\}$")
]
NameText = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9./_-]{1,120}(\{(profile|mib|gib|gb)\})?[A-Za-z0-9._-]{0,40}$"
    ),
]
Sources = Annotated[list[Key], Field(min_length=1, max_length=20)]


class Strict(BaseModel):
    """Base of every part: no unknown key, no value of another type than written."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SourceModel(Strict):
    """Where facts were read."""

    what: Text
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s]{3,300}$")]
    read: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class LinkModel(Strict):
    """A connection of the device."""

    kind: Key
    gbytes_per_s: Count
    peers: Annotated[int, Field(ge=0, le=10**6)] = 0
    bridge: bool = False


class FactsModel(Strict):
    """Facts of one accelerator that were read in the same place."""

    source: Sources
    architecture: Short | None = None
    memory_gb: Count | None = None
    memory_mib: Count | None = None
    reserved_mib: Count | None = None
    compute_units: Count | None = None
    bandwidth_gbytes_per_s: Count | None = None
    fp16_gflops: Count | None = None
    compute_capability: VersionText | None = None
    links: Annotated[list[LinkModel], Field(max_length=20)] | None = None
    products: Annotated[list[Short], Field(max_length=50)] | None = None
    device_ids: (
        Annotated[
            list[Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{4}$")]],
            Field(max_length=50),
        ]
        | None
    ) = None
    partitioning: Key | None = None


class AcceleratorModel(Strict):
    """A model of card; in a user's file, one that exists may be written again to override facts."""

    name: Key
    vendor: Key | None = None
    groups: Annotated[list[Key], Field(max_length=20)] | None = None
    notes: Annotated[list[Text], Field(max_length=20)] | None = None
    facts: Annotated[list[FactsModel], Field(max_length=50)] = []


class ShapeModel(Strict):
    """One way to cut."""

    name: Key
    compute: Count
    memory: Count
    attributes: Annotated[list[Key], Field(max_length=20)] = []
    cpu: Annotated[int, Field(ge=0, le=10**6)] = 0
    groups: Annotated[int, Field(ge=0, le=10**6)] = 0
    per_group: Count = 1
    suffix: Short | None = None
    ids: Annotated[list[Short], Field(max_length=10)] = []


class AtMostModel(Strict):
    """At most so many instances with one of these attributes."""

    count: Count
    attributes: Annotated[list[Key], Field(min_length=1)]
    text: Text


class OnlyWithModel(Strict):
    """Beside an instance with the attribute, only instances with one of the others."""

    attribute: Key
    others: Annotated[list[Key], Field(min_length=1)]
    text: Text


class ApartModel(Strict):
    """Shapes that cannot coexist before a driver."""

    shapes: Annotated[list[Key], Field(min_length=2, max_length=10)]
    before_driver: VersionText
    text: Text


class GeometryModel(Strict):
    """How a family of boards can be cut."""

    name: Key
    kind: Literal["placed", "uniform", "counted", "unplaced"]
    source: Sources
    compute: Count
    memory: Count
    units_per_slice: Count = 1
    cpu: Annotated[int, Field(ge=0, le=10**6)] = 0
    groups: Annotated[int, Field(ge=0, le=10**6)] = 0
    shapes: Annotated[list[ShapeModel], Field(min_length=1, max_length=100)]
    at_most: list[AtMostModel] = []
    only_with: list[OnlyWithModel] = []
    apart: list[ApartModel] = []


class ProfileModel(Strict):
    """A shape as a board names and sizes it."""

    name: Key
    memory_mib: Count | None = None
    compute_units: Count | None = None
    engines: Annotated[list[Engine], Field(min_length=5, max_length=5)] | None = None
    aliases: Annotated[list[Key], Field(max_length=20)] = []


class PartitioningModel(Strict):
    """The profiles of one or several models of card."""

    name: Key
    geometry: Key
    source: Sources
    resource: Annotated[
        str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9.-]*\{(profile|suffix)\}$")
    ]
    driver: VersionText | None = None
    measured_on: Count | None = None
    notes: Annotated[list[Text], Field(max_length=20)] = []
    profiles: Annotated[dict[Key, ProfileModel], Field(min_length=1, max_length=100)]


class LimitModel(Strict):
    """At most so many tenants where all of this holds."""

    tenants: Count
    when: Annotated[list[Short], Field(max_length=10)] = []


class WayModel(Strict):
    """One mechanism that provides a mode."""

    name: Key
    mode: Short
    vendor: Key
    channel: Literal["device-plugin", "dra"]
    source: Sources
    requires: Annotated[list[Requires], Field(max_length=30)]
    memory: Short
    compute: Short
    fault: Short
    tenants: Annotated[list[LimitModel], Field(max_length=10)] = []
    split: Literal["whole", "equal", "own", "none"] = "none"
    replicas: Short | None = None
    single: bool = False
    per_process: bool = False
    profile_attribute: Key | None = None
    idle: Literal["nothing", "process", "instance", "device", "node", "host"] = "device"
    switch: Text
    cautions: Annotated[list[Text], Field(max_length=20)] = []


class CudaModel(Strict):
    """Which CUDA version a driver brings."""

    source: Sources
    drivers: Annotated[list[Pair], Field(max_length=200)]


class UnsupportedModel(Strict):
    """What exists and is not planned."""

    name: Key
    what: Text
    reason: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    source: Sources


class NameModel(Strict):
    """A name that asks for devices."""

    name: NameText
    system: Key
    vendor: Key
    field: Literal["devices", "memory", "memory-percent", "compute-percent", "profile", "fraction"]
    place: Literal["limits", "annotation"] = "limits"
    unit_mib: Annotated[int, Field(ge=1, le=10**6)] = 1
    accelerators: Annotated[list[Key], Field(max_length=50)] = []
    floor: Short | None = None
    source: Sources


class ClueModel(Strict):
    """A node label or DRA attribute that names a model."""

    key: Short
    vendor: Key
    reads: Literal["product", "device-id", "group"]
    driver: Short | None = None
    count: Short | None = None
    replicas: Short | None = None
    resource: Short | None = None
    source: Sources


class RateModel(Strict):
    """An organisation's own exchange rate."""

    accelerator: Key
    milli: Count
    valid_from: date
    reason: Text


class PriceModel(Strict):
    """An organisation's price of one device for an hour, in millionths of the currency."""

    accelerator: Key
    micro_per_hour: Annotated[int, Field(ge=0, le=10**15)]
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
    valid_from: date
    valid_until: date | None = None
    pool: Key | None = None
    example: bool = False


class CatalogFile(Strict):
    """One file. Any part may be left out."""

    schema_: Annotated[Literal["shoal.dev/catalog/v1"], Field(alias="schema")]
    sources: Annotated[dict[Key, SourceModel], Field(max_length=1000)] = {}
    geometries: Annotated[list[GeometryModel], Field(max_length=200)] = []
    partitionings: Annotated[list[PartitioningModel], Field(max_length=500)] = []
    accelerators: Annotated[list[AcceleratorModel], Field(max_length=1000)] = []
    cuda: CudaModel | None = None
    unsupported: Annotated[list[UnsupportedModel], Field(max_length=100)] = []
    ways: Annotated[list[WayModel], Field(max_length=500)] = []
    names: Annotated[list[NameModel], Field(max_length=2000)] = []
    clues: Annotated[list[ClueModel], Field(max_length=500)] = []
    reference: Key | None = None
    rates: Annotated[list[RateModel], Field(max_length=5000)] = []
    prices: Annotated[list[PriceModel], Field(max_length=20000)] = []
