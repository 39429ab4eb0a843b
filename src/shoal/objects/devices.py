"""What the names under a pod's containers ask for, container by container.

Init containers and sidecars are counted as kube-scheduler and the kubelet count devices: a device
that an ordinary init container had is given to the app containers after it. So a pod's devices are
numbered from 0, and each container has a *span* of them: sidecars keep theirs, other init
containers use what follows and hand it on.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, assert_never

from shoal.catalog.names import Ask, Field, Name, Names, Place, read
from shoal.model.refusal import Refusal, RefusalCode
from shoal.objects.annotations import CLAIM, PREFIX, refuse
from shoal.objects.hosts import is_sidecar
from shoal.objects.manifests import ContainerLike, PodLike
from shoal.objects.quantity import MIB, QuantityError, exact

MOST_COUNT: Final = 999_999
"""The most that one name may ask for, as with `shoal.dev/devices`: more than any node has, and so
little that whole gangs can be counted in 64 bits."""

_BYTES: Final = re.compile(r"(?:[KMGTPE]i|[MGTPE])")


@dataclass(frozen=True, slots=True)
class Span:
    """The devices `start` to `start + count - 1` of a pod, which one container uses."""

    container: str
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Named:
    """What the names of a whole pod ask for.

    `asks` are those of its containers that ask for anything. `total` is how many devices the pod
    holds for its whole life, `running` how many its app containers and sidecars use. `resources`
    are the extended resources by name with the pod's total of each, sorted.
    """

    asks: tuple[Ask, ...]
    spans: tuple[Span, ...]
    total: int
    running: int
    resources: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """What the webhook wrote into `shoal.dev/claim` when it put a claim in the place of resources.

    `name` is that of the claim; `asked` what each container had under `limits`.
    """

    name: str
    asked: Mapping[str, Mapping[str, str]]

    def text(self) -> str:
        """As the annotation holds it; equal values give equal texts."""
        body = {"asked": self.asked, "name": self.name}
        return json.dumps(body, sort_keys=True, separators=(",", ":"))


def claimed_of(pod: PodLike) -> Claimed | None:
    """What the webhook replaced, if it did; text that it cannot have written is nothing."""
    text = pod.metadata.annotations.get(CLAIM)
    if text is None:
        return None
    try:
        body = json.loads(text)
        asked = {
            str(container): {str(name): str(value) for name, value in names.items()}
            for container, names in body["asked"].items()
        }
        return Claimed(str(body["name"]), asked)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_names(pod: PodLike, names: Names) -> Named | Refusal:
    """What the pod's containers ask for by name, or the first thing that is wrong with it."""
    claimed = claimed_of(pod)
    inits, apps = pod.spec.init_containers, pod.spec.containers
    asks: dict[str, Ask] = {}
    wanted: dict[str, dict[str, str]] = {}
    for container in (*inits, *apps):
        mine = device_names(container, names, claimed)
        if isinstance(mine, Refusal):
            return mine
        ask = _ask(names, mine, {}, container.name)
        if isinstance(ask, Refusal):
            return ask
        wanted[container.name] = mine
        if ask is not None:
            asks[container.name] = ask
    counts = {name: ask.devices for name, ask in asks.items()}
    spans, total, running = lay_out(inits, apps, counts)
    totals = []
    for resource in sorted({name for mine in wanted.values() for name in mine}):
        of_each = {c: int(exact(mine.get(resource, "0"))) for c, mine in wanted.items()}
        totals.append((resource, lay_out(inits, apps, of_each)[1]))
    return Named(tuple(asks.values()), spans, total, running, tuple(totals))


def read_annotation_names(pod: PodLike, names: Names) -> Ask | Refusal | None:
    """What annotations of other systems ask for, for the pod as a whole."""
    found: dict[str, str] = {}
    for key, value in pod.metadata.annotations.items():
        # Names with a part that varies are resources' only; as annotations they are others' words.
        name = names.exact.get(key)
        if name is None:
            continue
        wrong = _wrong(name, key, value, Place.ANNOTATION)
        if wrong is not None:
            return wrong
        found[key] = value
    return _ask(names, {}, found, "metadata.annotations")


def device_names(
    container: ContainerLike, names: Names, claimed: Claimed | None = None
) -> dict[str, str] | Refusal:
    """The names under one container that ask for devices, with their values.

    A count of 0 asks for nothing and is left out, as Kubernetes allows it.
    """
    replaced = claimed.asked.get(container.name, {}) if claimed is not None else {}
    # What stands under the limits counts: nobody makes his pod smaller by an annotation.
    given = {**replaced, **container.resources.requests, **container.resources.limits}
    found: dict[str, str] = {}
    for key, value in given.items():
        if key.startswith(PREFIX):
            return refuse(RefusalCode.MISPLACED, key, value, place="annotation", instead="")
        name = names.find(key)
        if name is None or (name[0].field in (Field.DEVICES, Field.PROFILE) and _is_zero(value)):
            continue
        wrong = _wrong(name[0], key, value, Place.LIMITS)
        if wrong is not None:
            return wrong
        found[key] = value
    return found


def lay_out(
    inits: Sequence[ContainerLike], apps: Sequence[ContainerLike], counts: Mapping[str, int]
) -> tuple[tuple[Span, ...], int, int]:
    """Spans of the containers with a count, the pod's total, and what runs after all inits."""
    spans, kept, total = [], 0, 0
    for init in inits:
        count = counts.get(init.name, 0)
        if count:
            spans.append(Span(init.name, kept, count))
        total = max(total, kept + count)
        if is_sidecar(init):
            kept += count
    for app in apps:
        count = counts.get(app.name, 0)
        if count:
            spans.append(Span(app.name, kept, count))
        kept += count
    return tuple(spans), max(total, kept), kept


def _ask(
    names: Names, limits: Mapping[str, str], annotations: Mapping[str, str], where: str
) -> Ask | Refusal | None:
    conflict = _conflict(names, [*limits, *annotations], where)
    if conflict is not None:
        return conflict
    try:
        return read(names, limits, annotations)
    except ValueError as error:
        return refuse(RefusalCode.BAD_NAMES, where, detail=str(error))


def _conflict(names: Names, keys: Iterable[str], where: str) -> Refusal | None:
    found = [(name[0], key) for key in keys if (name := names.find(key)) is not None]
    vendors = sorted({name.vendor for name, _ in found})
    if len(vendors) > 1:
        return refuse(RefusalCode.SEVERAL_VENDORS, where, words=", ".join(vendors))
    systems = sorted({name.system for name, _ in found} - {"vendor"})
    if len(systems) > 1:
        return refuse(RefusalCode.SEVERAL_SYSTEMS, where, words=", ".join(systems))
    profiles = sorted(key for name, key in found if name.field is Field.PROFILE)
    if len(profiles) > 1:
        return refuse(RefusalCode.SEVERAL_PROFILES, where, words=", ".join(profiles))
    return None


def _wrong(name: Name, key: str, value: str, place: Place) -> Refusal | None:
    """What is wrong with one name and its value, before the names are read together."""
    if name.place is not place:
        instead = _instead(name, value)
        return refuse(RefusalCode.MISPLACED, key, value, place=name.place.value, instead=instead)
    try:
        amount = exact(value)
    except QuantityError:
        return refuse(RefusalCode.NOT_A_QUANTITY, key, value)
    match name.field:
        case Field.MEMORY:
            if _BYTES.search(value):
                units = amount / MIB / name.unit_mib
                instead = str(-(-units.numerator // units.denominator))
                unit = "MiB" if name.unit_mib == 1 else f"{name.unit_mib} MiB"
                return refuse(RefusalCode.COUNTS_MIB, key, value, unit=unit, instead=instead)
            good, code = _is_count(amount), RefusalCode.NOT_A_COUNT
        case Field.DEVICES | Field.PROFILE:
            good, code = _is_count(amount), RefusalCode.NOT_A_COUNT
        case Field.MEMORY_PERCENT | Field.COMPUTE_PERCENT:
            good = amount.denominator == 1 and 1 <= amount <= 100
            code = RefusalCode.NOT_A_PERCENTAGE
        case Field.FRACTION:
            good = 0 < amount <= 1 and (amount * 100).denominator == 1
            code = RefusalCode.NOT_A_FRACTION
        case _:
            assert_never(name.field)
    return None if good else refuse(code, key, value)


def _is_count(amount: Fraction) -> bool:
    return 1 <= amount <= MOST_COUNT and amount.denominator == 1


def _instead(name: Name, value: str) -> str:
    """The annotation of ours that says what a misplaced name meant; empty if there is none."""
    if not re.fullmatch("[1-9][0-9]{0,8}", value):
        return ""
    match name.field:
        case Field.MEMORY:
            return f"{PREFIX}memory: {int(value) * name.unit_mib}Mi"
        case Field.COMPUTE_PERCENT:
            return f"{PREFIX}compute: {value}"
        case _:
            return ""


def _is_zero(value: str) -> bool:
    try:
        return exact(value) == 0
    except QuantityError:
        return False
