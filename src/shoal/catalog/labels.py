"""Which accelerator a node has, from labels and from DRA device attributes.

Labels of vendors' labellers describe *a* node, not each device: on a node with two models, GPU
feature discovery writes one of them, at random after a restart, with the count of that one alone.
So what labels say is certain only where the count agrees with what the node allocates.

Where vendors leave something out, an administrator writes Shoal's own labels, which win:
``shoal.dev/accelerator`` (the catalogue's name, for all devices of the node),
``shoal.dev/accelerator-<index>`` (for one device of a node with several models) and
``shoal.dev/memory-mib`` (memory of each device, for a model whose memory no source gives).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from shoal.catalog.accelerators import Accelerator

NORM: Final = "shoal.dev/accelerator"
"""The label of the stated norm; ``-<index>`` after it speaks about one device."""

NORM_MEMORY: Final = "shoal.dev/memory-mib"
"""The label of the stated norm for memory of each device, in MiB."""

NO_COUNTS: Final[Mapping[str, int]] = MappingProxyType({})
_SUFFIX: Final = re.compile(r"(?:-MIG-(?P<profile>[A-Za-z0-9.+-]+))?(?P<shared>-SHARED)?$")
_INDEXED: Final = re.compile(re.escape(NORM) + r"-([0-9]{1,3})")


class Reads(StrEnum):
    """What the value of a label or attribute is."""

    PRODUCT = "product"
    DEVICE_ID = "device-id"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Clue:
    """A label or DRA attribute that names a model.

    ``driver`` is the DRA driver for attributes and empty for node labels. ``count`` is the label
    that counts devices of that model, ``resource`` the extended resource to compare it with.
    """

    key: str
    vendor: str
    reads: Reads
    driver: str = ""
    count: str = ""
    replicas: str = ""
    resource: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identified:
    """What labels say about the devices of a node.

    Attributes:
        accelerators: the models that it can be; more than one where the label is not exact.
        by_index: the model of each device index, where the norm's labels say so.
        certain: whether every device of the node is known to be ``accelerators[0]``.
        profile: the MIG profile of all its devices, where the label carries one.
        memory_mib: memory of each device by the norm's label.
        cautions: what is wrong or unknown, as sentences.
    """

    accelerators: tuple[Accelerator, ...] = ()
    by_index: tuple[tuple[int, Accelerator], ...] = ()
    certain: bool = False
    profile: str = ""
    memory_mib: int | None = None
    cautions: tuple[str, ...] = ()


def normal(text: str) -> str:
    """A product name as it is compared: lower case, spaces and underscores as hyphens."""
    return re.sub(r"[\s_]+", "-", text.strip()).lower()


def identify(
    labels: Mapping[str, str],
    clues: Sequence[Clue],
    models: Sequence[Accelerator],
    counts: Mapping[str, int] = NO_COUNTS,
) -> Identified:
    """What ``labels`` of a node say about its devices.

    Args:
        labels: the node's labels.
        clues: labels that name models.
        models: the catalogue's accelerators.
        counts: the node's extended resources, to compare with the labels' counts.
    """
    by_norm = _by_norm(labels, models)
    if by_norm is not None:
        return by_norm
    for clue in clues:
        value = labels.get(clue.key)
        if value is None or clue.driver:
            continue
        return _by_clue(labels, clue, value, models, counts)
    return Identified()


def identify_device(
    driver: str,
    attributes: Mapping[str, str],
    clues: Sequence[Clue],
    models: Sequence[Accelerator],
) -> tuple[Accelerator, ...]:
    """The models that a DRA device with these attributes can be; usually exactly one."""
    for clue in clues:
        if clue.driver == driver and clue.key in attributes:
            found = _matching(clue, attributes[clue.key], models)
            if found:
                return found
    return ()


def single_strategy_obstacles(layouts: Sequence[tuple[bool, Sequence[str]]]) -> tuple[str, ...]:
    """Why NVIDIA's device plugin would refuse a node under the MIG strategy ``single``.

    Args:
        layouts: per device whether MIG is enabled, and the profiles of its instances.

    The strategy needs MIG on every device of the node or on none, and one profile everywhere.
    Otherwise the plugin stops with an error and feature discovery labels the node
    ``MIG-INVALID`` with a count of 0.
    """
    obstacles = []
    enabled = {mig for mig, _ in layouts}
    if len(enabled) > 1:
        obstacles.append(
            "some devices of the node have MIG enabled and some not; the strategy single needs all "
            "or none: use the strategy mixed, or switch the others"
        )
    profiles = sorted({profile for mig, held in layouts if mig for profile in held})
    if len(profiles) > 1:
        obstacles.append(
            f"the node has instances of {', '.join(profiles)}; the strategy single needs one "
            "profile: use the strategy mixed"
        )
    if any(mig and not held for mig, held in layouts):
        obstacles.append("a device has MIG enabled and no instance; create one or disable MIG")
    return tuple(obstacles)


def _by_norm(labels: Mapping[str, str], models: Sequence[Accelerator]) -> Identified | None:
    named = {model.name: model for model in models}
    cautions: list[str] = []
    indexed: list[tuple[int, Accelerator]] = []
    for key, value in labels.items():
        match = _INDEXED.fullmatch(key)
        if match and value in named:
            indexed.append((int(match.group(1)), named[value]))
        elif match or (key == NORM and value not in named):
            cautions.append(f"{key} is {value!r}, which the catalogue does not have")
    memory = labels.get(NORM_MEMORY, "")
    memory_mib = int(memory) if re.fullmatch("[1-9][0-9]{0,8}", memory) else None
    one = named.get(labels.get(NORM, ""))
    if one is None and not indexed and not cautions:
        return None
    indexed.sort(key=lambda pair: pair[0])
    found = (one,) if one else tuple(dict.fromkeys(model for _, model in indexed))
    return Identified(
        accelerators=found,
        by_index=tuple(indexed),
        certain=one is not None and not indexed,
        memory_mib=memory_mib,
        cautions=tuple(cautions),
    )


def _by_clue(
    labels: Mapping[str, str],
    clue: Clue,
    value: str,
    models: Sequence[Accelerator],
    counts: Mapping[str, int],
) -> Identified:
    profile, cautions = "", []
    if clue.reads is Reads.PRODUCT:
        match = _SUFFIX.search(value)
        if match and match.group(0):
            value, profile = value[: match.start()], match["profile"] or ""
    if profile == "INVALID":
        profile = ""
        cautions.append(
            "the device plugin found this node unfit for the MIG strategy single "
            "(devices differ in MIG mode or profile)"
        )
    found = _matching(clue, value, models)
    if not found:
        cautions.append(
            f"{clue.key} is {value!r}, which no accelerator of the catalogue is known by; "
            f"add one to the catalogue, or label the node {NORM}"
        )
    elif len(found) > 1:
        names = ", ".join(model.name for model in found)
        cautions.append(f"{clue.key} is {value!r}, which can be {names}; label the node {NORM}")
    if labels.get("nvidia.com/vgpu.present") == "true":
        cautions.append("the node sees vGPUs, which are not supported")
    doubt = _count_doubt(labels, clue, counts)
    if doubt:
        cautions.append(doubt)
    return Identified(found, certain=not cautions, profile=profile, cautions=tuple(cautions))


def _count_doubt(labels: Mapping[str, str], clue: Clue, counts: Mapping[str, int]) -> str:
    """Why the labels' model need not be that of every device; empty if it must be."""
    counted = labels.get(clue.count, "")
    if not clue.count or not clue.resource or not re.fullmatch("[0-9]{1,6}", counted):
        return "labels do not say how many devices they describe; other models may be on the node"
    if clue.resource not in counts:
        return "the node's devices were not counted; other models may be on the node"
    text = labels.get(clue.replicas, "1")
    replicas = int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else 1
    total = counts[clue.resource]
    if total == int(counted) * replicas:
        return ""
    return (
        f"labels describe {counted} devices, the node has {total}: it has devices of another "
        "model, and which one the labels show changes at random; per-device discovery decides"
    )


def _matching(clue: Clue, value: str, models: Sequence[Accelerator]) -> tuple[Accelerator, ...]:
    own = [model for model in models if model.vendor == clue.vendor]
    wanted = normal(value)
    match clue.reads:
        case Reads.PRODUCT:
            return tuple(m for m in own if wanted in {normal(name) for name in m.products})
        case Reads.DEVICE_ID:
            wanted = wanted.removeprefix("0x")
            return tuple(m for m in own if wanted in {known.lower() for known in m.device_ids})
        case Reads.GROUP:
            wanted = wanted.removeprefix("huawei-")
            return tuple(m for m in own if wanted in {normal(group) for group in m.groups})
