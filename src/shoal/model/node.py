"""What a fleet is made of: nodes, their devices, and the leaves that can be allocated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal.model.isolation import PRESETS, Isolation
from shoal.model.modes import Cap, Sharing

WHOLE_COMPUTE_MILLI = 1000
"""Compute of a whole device, in thousandths of it."""


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it (the Kubernetes names)."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark on a node that keeps away pods which do not tolerate it."""

    key: str
    effect: TaintEffect
    value: str = ""


UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", TaintEffect.NO_SCHEDULE)
"""The taint that a cordoned node behaves as if it had; tolerating it tolerates the cordon."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What can be allocated: the whole device, or one partition of it.

    `name` is unique in the fleet. `compute_milli` is in thousandths of the whole device, and
    `tenants` says how many pods may use the leaf at once (1 where sharing is exclusive).
    """

    name: str
    memory_mib: int
    compute_milli: int = WHOLE_COMPUTE_MILLI
    tenants: int = 1
    sharing: Sharing = Sharing.EXCLUSIVE
    cap: Cap = Cap.NONE


def memory_of(leaves: Iterable[Leaf]) -> int:
    """Return the memory of a device with these leaves."""
    return sum(leaf.memory_mib for leaf in leaves)


def isolation_of(leaf: Leaf, *, divided: bool) -> Isolation:
    """Return what protects one tenant of a leaf from the others on its device.

    `divided` says whether the device has other leaves. Nothing is promised of compute and faults
    below a hardware partition: tenants of one leaf share its engines, and the ways of capping
    compute do not hold on every device (NVIDIA, MPS guide; HAMi-core). The caps of a library and
    of an MPS server can be undone by the tenant itself; that of the driver cannot.
    """
    if leaf.tenants <= 1:
        return PRESETS["hardware" if divided else "device"]
    match leaf.cap:
        case Cap.LIBRARY | Cap.MPS:
            return PRESETS["soft"]
        case Cap.DRIVER:
            return PRESETS["driver"]
        case Cap.NONE:
            return PRESETS["shared"]


@dataclass(frozen=True, slots=True)
class Device:
    """One physical card of a node, with the leaves it is divided into at present.

    An undivided device has exactly one leaf; only such a device can be given away whole.
    """

    name: str
    accelerator: str
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine as Kubernetes reports it: what it can give away, and what it is marked with."""

    name: str
    cpu_milli: int
    memory_mib: int
    pods: int
    devices: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
