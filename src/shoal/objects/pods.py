"""From a pod, or the template of one, to what it asks for. One piece of code for all of Shoal.

`request_of` gives the model's `Request` or a `Refusal`; `reading_of` gives all that can be read
beside it. Both take a pod as a plain manifest's struct (`manifests.read_pod`) or as the Kubernetes
adapter's wire type, and never raise for anything that an API server stores.

A pod that the webhook changed on its way into the cluster reads exactly as the template that it
came from: what was replaced stands in its annotation `shoal.dev/claim`.

What a caller on a cluster has to add: `Reading.resources` are the extended resources that a node
must offer for the pod to start there by the device-plugin channel (a request for `nvidia.com/gpu`
names no model of card). Keep it to those nodes by the request's `mask`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shoal.catalog.accelerators import Accelerator
from shoal.catalog.catalog import Catalog
from shoal.catalog.names import Ask
from shoal.model.isolation import PRESETS, Isolation
from shoal.model.modes import Channel
from shoal.model.refusal import Hint, HintCode, Refusal, RefusalCode
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import WorkloadType
from shoal.objects.affinity import affinity_of, selector_of, tolerations_of
from shoal.objects.annotations import (
    ACCELERATORS,
    COMPUTE,
    DEFAULT_QUEUE,
    DEVICES,
    ISOLATION,
    LINKS,
    MEMORY,
    TYPE,
    Annotations,
    nearest,
    read_annotations,
    refuse,
)
from shoal.objects.devices import Named, Span, read_annotation_names, read_names
from shoal.objects.hosts import host_request
from shoal.objects.manifests import PodLike
from shoal.objects.quantity import QuantityError

MAX_CLAIM_DEVICES: Final = 32
"""Devices that one ResourceClaim can hold (`resource.k8s.io/v1`, AllocationResultsMaxSize)."""

_GIB_MIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """What the reader has to know of the place where a pod is created.

    Attributes:
        channel: of the namespace.
        queues: those that the namespace may use.
        accelerators: names of those that the pod's queue may use; empty: every one.
    """

    channel: Channel = Channel.DEVICE_PLUGIN
    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    accelerators: tuple[str, ...] = ()


DEFAULT_RULES: Final = Rules()

DEFAULT_FLOORS: Final = {
    WorkloadType.TRAINING: PRESETS["device"],
    WorkloadType.INFERENCE: PRESETS["driver"],
    WorkloadType.NOTEBOOK: PRESETS["soft"],
    WorkloadType.BATCH: PRESETS["soft"],
}
"""The least isolation of shares that ask for none. Below a hardware partition they are beside work
of their own queue only, or of those that the pool lets share; those of inference are beside their
own in every pool, because beside others only `hardware` would do."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All that a pod's manifest says to Shoal.

    Attributes:
        request: what it asks for.
        annotations: Shoal's annotations on it.
        floor: the least isolation that it writes; `None`: its shares get the default of its type.
        vendor: whose devices; empty: any.
        profile: the partition profile that each leaf must be, as the vendor names it.
        resources: extended resources with the pod's total of each, sorted by name.
        spans: which of its devices each container uses.
        hints: what a person should know.
    """

    request: Request
    annotations: Annotations
    floor: Isolation | None = None
    vendor: str = ""
    profile: str = ""
    resources: tuple[tuple[str, int], ...] = ()
    spans: tuple[Span, ...] = ()
    hints: tuple[Hint, ...] = ()


def request_of(pod: PodLike, catalog: Catalog, rules: Rules = DEFAULT_RULES) -> Request | Refusal:
    """What one pod asks for. A pod without devices has `devices.count` 0."""
    reading = reading_of(pod, catalog, rules)
    return reading if isinstance(reading, Refusal) else reading.request


def reading_of(
    pod: PodLike,
    catalog: Catalog,
    rules: Rules = DEFAULT_RULES,
    type_: WorkloadType = WorkloadType.BATCH,
) -> Reading | Refusal:
    """Everything that one pod says, or the first thing that is wrong with it.

    `type_` is what kind of work it is where it does not say.
    """
    annotations = read_annotations(pod.metadata.annotations, rules.queues)
    if isinstance(annotations, Refusal):
        return annotations
    named = read_names(pod, catalog.names)
    if isinstance(named, Refusal):
        return named
    whole_pod = read_annotation_names(pod, catalog.names)
    if isinstance(whole_pod, Refusal):
        return whole_pod
    affinity = affinity_of(pod.spec)
    if isinstance(affinity, Refusal):
        return affinity
    try:
        cpu_milli, memory_mib = host_request(pod.spec)
    except QuantityError as error:
        return refuse(RefusalCode.BAD_NAMES, "spec.containers", detail=str(error))
    asked = _merge(named, whole_pod)
    type_ = annotations.type if TYPE in pod.metadata.annotations else type_
    reading = _devices(pod, catalog, rules, annotations, asked, type_)
    if isinstance(reading, Refusal):
        return reading
    request = replace(
        reading.request,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        selector=selector_of(pod.spec),
        affinity=affinity,
        tolerations=tolerations_of(pod.spec),
    )
    return replace(reading, request=request)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all names together ask for: the most that any container asks of each device."""

    named: Named
    asks: tuple[Ask, ...]
    count: int

    @property
    def vendor(self) -> str:
        return self.asks[0].vendor if self.asks else ""

    @property
    def profile(self) -> str:
        return self.asks[0].profile if self.asks else ""

    @property
    def whole(self) -> bool:
        """Whether some container wants whole devices, so that all get them."""
        return any(ask.whole for ask in self.asks)

    @property
    def compute_percent(self) -> int:
        return max((ask.compute_percent or 0 for ask in self.asks), default=0)

    def memory_mib(self, models: Sequence[Accelerator]) -> int:
        """Memory on each device; percentages are of the largest device that will do."""
        largest = max((model.memory_mib or 0 for model in models), default=0)
        of_each = (
            ask.memory_mib or largest * (ask.memory_percent or 0) // 100 for ask in self.asks
        )
        return max(of_each, default=0)

    @property
    def part(self) -> str:
        """What the names say about parts of a device; empty: nothing."""
        for ask in self.asks:
            if ask.profile:
                return ask.profile
            if not ask.whole:
                return ask.system
        return ""


def _merge(named: Named, whole_pod: Ask | None) -> _Asked:
    asks = named.asks if whole_pod is None else (*named.asks, whole_pod)
    return _Asked(named, asks, max(named.total, whole_pod.devices if whole_pod else 0))


def _devices(
    pod: PodLike,
    catalog: Catalog,
    rules: Rules,
    annotations: Annotations,
    asked: _Asked,
    type_: WorkloadType,
) -> Reading | Refusal:
    wrong = _contradiction(annotations, asked) or _homeless(pod, rules, annotations, asked)
    if wrong is not None:
        return wrong
    count = asked.count or (annotations.devices or 1) * annotations.asks
    if not count:
        return Reading(Request(), annotations, annotations.isolation, hints=annotations.hints)
    models, narrowed = _models(catalog, rules, annotations, asked)
    if isinstance(models, Refusal):
        return models
    devices = _sized(annotations, asked, models, count, narrowed=narrowed)
    if isinstance(devices, Refusal):
        return devices
    floor = annotations.isolation
    if floor is None and asked.asks and (asked.profile or asked.asks[0].system != "vendor"):
        floor = asked.asks[0].floor
    share = not devices.whole
    if share:
        devices = _isolated(devices, floor or DEFAULT_FLOORS[type_], models, asked.profile)
        keeps = type_ is WorkloadType.INFERENCE and annotations.isolation is None
        devices = replace(devices, keeps_to_party=keeps and not devices.whole)
    hints = _hints(annotations, asked)
    if share and devices.whole:
        word = (TYPE, type_.value) if annotations.isolation is None else (ISOLATION, str(floor))
        hints = (*hints, Hint(HintCode.SHARE_BECOMES_DEVICE, *word))
    spans = asked.named.spans or (Span(pod.spec.containers[0].name, 0, count),)
    return Reading(
        Request(devices=devices),
        annotations,
        floor,
        asked.vendor,
        asked.profile,
        asked.named.resources,
        spans,
        hints,
    )


def _isolated(
    share: DeviceRequest, floor: Isolation, models: Sequence[Accelerator], profile: str
) -> DeviceRequest:
    """A share with its floor, or a whole device for one that has to be alone on it."""
    if not floor.alone or profile:
        return replace(share, floor=floor)
    enough = [m.name for m in models if m.memory_mib is None or m.memory_mib >= share.memory_mib]
    names = share.accelerators if len(enough) == len(models) else tuple(enough)
    return DeviceRequest(share.count, whole=True, accelerators=names)


def _hints(annotations: Annotations, asked: _Asked) -> tuple[Hint, ...]:
    hints = list(annotations.hints)
    notes = dict.fromkeys((ask.system, note) for ask in asked.asks for note in ask.notes)
    hints.extend(Hint(HintCode.TRANSLATED, system, "", (("note", note),)) for system, note in notes)
    unused = asked.named.total - asked.named.running
    if unused > 0:
        details = (("devices", unused),)
        hints.append(Hint(HintCode.UNUSED_AFTER_INIT, "spec.initContainers", "", details))
    return tuple(hints)


def _contradiction(annotations: Annotations, asked: _Asked) -> Refusal | None:
    """Two places that say different things about the same."""
    if not asked.asks:
        return None
    vendors = sorted({ask.vendor for ask in asked.asks})
    if len(vendors) > 1:
        return refuse(RefusalCode.SEVERAL_VENDORS, "spec.containers", words=", ".join(vendors))
    profiles = sorted({ask.profile for ask in asked.asks})
    if len(profiles) > 1:
        words = ", ".join(profile or "a whole device" for profile in profiles)
        return refuse(RefusalCode.SEVERAL_PROFILES, "spec.containers", words=words)
    if annotations.devices is not None and annotations.devices != asked.count:
        return _contradicts(DEVICES, str(annotations.devices), f"{asked.count} under limits")
    if not asked.part:
        return None
    for key, value in ((MEMORY, annotations.memory_mib), (COMPUTE, annotations.compute_percent)):
        if value is not None:
            return _contradicts(key, str(value), f"the part that {asked.part} names")
    return None


def _contradicts(key: str, text: str, other: str) -> Refusal:
    return refuse(RefusalCode.CONTRADICTION, key, text, other=other)


def _homeless(
    pod: PodLike, rules: Rules, annotations: Annotations, asked: _Asked
) -> Refusal | None:
    """Devices that no container would get, or that the channel cannot carry."""
    if asked.named.asks:
        count = asked.count
    elif asked.asks or annotations.asks:
        count = asked.count or annotations.devices or 1
        if not pod.spec.containers:
            return refuse(RefusalCode.NO_CONTAINER, "spec.containers")
        if rules.channel is Channel.DEVICE_PLUGIN:
            return refuse(RefusalCode.NO_RESOURCE_NAME, "spec.containers", count=count)
        if len(pod.spec.containers) > 1:
            names = ", ".join(each.name for each in pod.spec.containers)
            return refuse(RefusalCode.SEVERAL_CONTAINERS, "spec.containers", names, count=count)
    else:
        return None
    if rules.channel is Channel.DRA and count > MAX_CLAIM_DEVICES:
        return refuse(
            RefusalCode.TOO_MANY_DEVICES, "spec.containers", str(count), most=MAX_CLAIM_DEVICES
        )
    return None


def _models(
    catalog: Catalog, rules: Rules, annotations: Annotations, asked: _Asked
) -> tuple[tuple[Accelerator, ...], bool] | tuple[Refusal, bool]:
    """The accelerators that will do, and whether anything but the vendor narrows them."""
    vendor = asked.vendor
    models = [model for model in catalog.models if vendor in ("", model.vendor)]
    narrowed = False
    for names in (rules.accelerators, *(ask.accelerators for ask in asked.asks)):
        if names:
            models, narrowed = _named(models, names), True
    if annotations.accelerators:
        known = {name for model in catalog.models for name in (model.name, *model.groups)}
        for word in annotations.accelerators:
            if word not in known:
                near = ", ".join(nearest(word, known) or nearest(word, known, least=0.0))
                return refuse(RefusalCode.UNKNOWN_ACCELERATOR, ACCELERATORS, word, near=near), False
        models, narrowed = _named(models, annotations.accelerators), True
    if annotations.links:
        kinds = {link.kind for model in catalog.models for link in model.links}
        for word in annotations.links:
            if word not in kinds:
                words = ", ".join(sorted(kinds))
                return refuse(RefusalCode.BAD_WORD, LINKS, word, known=words), False
        wanted = set(annotations.links)
        models = [m for m in models if wanted & {link.kind for link in m.links}]
        narrowed = True
    if asked.profile:
        models = [model for model in models if model.profile(asked.profile)]
    if not models and catalog.models:
        usable = ", ".join(rules.accelerators) or "all"
        where = _narrower(annotations, asked)
        return refuse(RefusalCode.NO_ACCELERATOR, *where, usable=usable), False
    return tuple(models), narrowed


def _named(models: Sequence[Accelerator], names: Collection[str]) -> list[Accelerator]:
    wanted = set(names)
    return [model for model in models if wanted & {model.name, *model.groups}]


def _narrower(annotations: Annotations, asked: _Asked) -> tuple[str, str]:
    """The field that left no accelerator, and its value."""
    if annotations.links:
        return LINKS, "|".join(annotations.links)
    if annotations.accelerators:
        return ACCELERATORS, "|".join(annotations.accelerators)
    return "spec.containers", asked.profile or asked.vendor


def _sized(
    annotations: Annotations,
    asked: _Asked,
    models: Sequence[Accelerator],
    count: int,
    *,
    narrowed: bool,
) -> DeviceRequest | Refusal:
    names = tuple(model.name for model in models) if narrowed else ()
    if asked.profile:
        return _profile_request(asked.profile, models, count, names)
    memory = max(annotations.memory_mib or 0, asked.memory_mib(models))
    largest = _largest_mib(models)
    if largest is not None and memory > largest:
        key = MEMORY if annotations.memory_mib == memory else "spec.containers"
        return refuse(RefusalCode.OVER_LARGEST_DEVICE, key, _shown(memory), largest=largest)
    compute = max(annotations.compute_percent or 0, asked.compute_percent)
    part = annotations.memory_mib is not None or annotations.compute_percent is not None
    # What names ask for whole, an annotation may make a part of.
    whole = not (part or asked.part) or (asked.whole and bool(asked.part))
    if whole:
        return DeviceRequest(count, whole=True, accelerators=names)
    return DeviceRequest(
        count, whole=False, memory_mib=memory, compute_milli=compute * 10, accelerators=names
    )


def _profile_request(
    name: str, models: Sequence[Accelerator], count: int, names: tuple[str, ...]
) -> DeviceRequest:
    """A partition by its profile: the least that any model gives under that name."""
    memory, compute = [], []
    for model in models:
        profile = model.profile(name)
        if profile is not None and model.geometry is not None:
            memory.append(profile.memory_mib or 0)
            compute.append(profile.shape.compute * 1000 // model.geometry.compute)
    return DeviceRequest(
        count,
        whole=False,
        memory_mib=min(memory, default=0),
        compute_milli=min(compute, default=0),
        accelerators=names,
    )


def _largest_mib(models: Sequence[Accelerator]) -> int | None:
    """The memory of the largest of them; `None` where one may be of any size.

    A card is sold by fewer gigabytes than it has GiB, so those bound what no source measured.
    """
    sizes = []
    for model in models:
        size = model.memory_mib
        if size is None and model.memory_gb is not None:
            size = model.memory_gb * _GIB_MIB
        if size is None:
            return None
        sizes.append(size)
    return max(sizes, default=None)


def _shown(memory_mib: int) -> str:
    return f"{memory_mib}Mi"
