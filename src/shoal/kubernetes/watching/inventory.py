"""From what Kubernetes says about nodes and devices to the model's nodes.

Devices come from the ResourceSlices of a node, under their uuids. Where a node has none, its
device plugins' counts stand for devices of their own, named `NODE/RESOURCE/NUMBER` with the `/` of
the resource as `-`: which physical device a pod gets is learned by nobody before the pod runs. A
node that offers the same devices both ways has them once, as the slices name them.

Pure: the same objects give the same nodes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from shoal.catalog.catalog import Catalog
from shoal.kubernetes.executing.plans import DevicePin
from shoal.kubernetes.wire.node import Node as WireNode
from shoal.kubernetes.wire.node import Taint as WireTaint
from shoal.kubernetes.wire.resource import Device as WireDevice
from shoal.kubernetes.wire.resource import ResourceSlice
from shoal.model.node import UNSCHEDULABLE, Device, Leaf, Node, Taint, TaintEffect
from shoal.objects.quantity import MIB, MILLI, QuantityError, floor

NOT_READY: Final = Taint("node.kubernetes.io/not-ready", TaintEffect.NO_SCHEDULE)
"""What the controller manager gives a node that is not ready; here it counts from the condition."""

_KEEPS_OFF: Final = ("NoSchedule", "NoExecute")

Identity = tuple[str, str, str]
"""A device as claims name it: driver, pool, device."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A node as the core sees it, and what only the adapter has to know.

    Attributes:
        node: the model's node.
        offers: resources that its device plugins offer now, and `dra/DRIVER` for its slices.
        pins: how claims name each device, by leaf; only of slices.
        leaf_of: the leaf of each device by its identity; only of slices.
    """

    node: Node
    offers: frozenset[str]
    pins: Mapping[str, DevicePin]
    leaf_of: Mapping[Identity, str]


def take_inventory(
    node: WireNode, slices: Collection[ResourceSlice], catalog: Catalog
) -> Inventory:
    """The inventory of one node; `slices` are those that name it."""
    allocatable = node.status.allocatable
    counts = device_counts(allocatable, catalog)
    name = node.metadata.name
    pins: dict[str, DevicePin] = {}
    leaf_of: dict[Identity, str] = {}
    devices: list[Device] = []
    for identity, device in usable_devices(slices):
        leaf = _attribute(device, identity[0], "uuid")
        if leaf and leaf not in pins:
            pins[leaf] = DevicePin(identity[0], leaf)
            leaf_of[identity] = leaf
            devices.append(_from_slice(identity[0], device, leaf, catalog))
    offers = {resource for resource, count in counts.items() if count}
    offers |= {dra_offer(identity[0]) for identity in leaf_of}
    if not devices:
        devices = _from_counts(node, counts, catalog)
    seen = Node(
        name=name,
        cpu_milli=_floor(allocatable, "cpu", milli=True),
        memory_mib=_floor(allocatable, "memory", milli=False),
        pods=int(_floor(allocatable, "pods", milli=True) // 1000),
        devices=tuple(devices),
        labels=node.metadata.labels,
        taints=_taints(node),
        cordoned=node.spec.unschedulable,
    )
    return Inventory(seen, frozenset(offers), pins, leaf_of)


def dra_offer(driver: str) -> str:
    """What a node offers whose slices are of this driver."""
    return f"dra/{driver}"


def synthetic_leaf(node: str, resource: str, number: int) -> str:
    """The name of a device that only a device plugin's count stands for."""
    return f"{node}/{resource.replace('/', '-')}/{number}"


def device_counts(quantities: Mapping[str, str], catalog: Catalog) -> dict[str, int]:
    """Counts of the resources that are devices of some vendor, by resource."""
    counts = {}
    for resource, text in quantities.items():
        if "/" in resource and catalog.vendor_of_resource(resource):
            try:
                counts[resource] = max(0, floor(text))
            except QuantityError:
                counts[resource] = 0
    return counts


def usable_devices(slices: Iterable[ResourceSlice]) -> list[tuple[Identity, WireDevice]]:
    """Whole devices of complete pools that no taint keeps claims off, in a fixed order.

    A pool counts when all slices of its highest generation are there; others are being replaced.
    """
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault((each.spec.driver, each.spec.pool.name), []).append(each)
    found = []
    for (driver, pool), members in sorted(pools.items()):
        newest = max(each.spec.pool.generation for each in members)
        current = [each for each in members if each.spec.pool.generation == newest]
        if len(current) < current[0].spec.pool.resource_slice_count:
            continue
        for each in sorted(current, key=lambda member: member.metadata.name):
            found += [
                ((driver, pool, device.name), device)
                for device in each.spec.devices
                if not any(taint.effect in _KEEPS_OFF for taint in device.taints)
                and _attribute(device, driver, "type") in ("", "gpu")
            ]
    return found


def _from_slice(driver: str, device: WireDevice, leaf: str, catalog: Catalog) -> Device:
    attributes = {
        name.removeprefix(f"{driver}/"): value.string
        for name, value in device.attributes.items()
        if value.string is not None
    }
    models = catalog.identify_device(driver, attributes)
    product = attributes.get("productName", "") or driver
    accelerator = models[0].name if models else product
    memory = device.capacity.get("memory") or device.capacity.get(f"{driver}/memory")
    try:
        memory_mib = floor(memory.value, MIB) if memory is not None else 0
    except QuantityError:
        memory_mib = 0
    return Device(leaf, accelerator, (Leaf(leaf, memory_mib),))


def _from_counts(node: WireNode, counts: Mapping[str, int], catalog: Catalog) -> list[Device]:
    labels = node.metadata.labels
    identified = catalog.identify(labels, counts)
    by_index = dict(identified.by_index)
    devices = []
    for resource, count in sorted(counts.items()):
        for number in range(count):
            leaf = synthetic_leaf(node.metadata.name, resource, number)
            model = by_index.get(number) or next(iter(identified.accelerators), None)
            memory = identified.memory_mib or (model.memory_mib if model else None) or 0
            name = model.name if model else resource
            devices.append(Device(leaf, name, (Leaf(leaf, memory),)))
    return devices


def _taints(node: WireNode) -> tuple[Taint, ...]:
    """The taints that keep pods off; that of a cordon is left out, as it has a field of its own."""
    taints = [
        Taint(taint.key, TaintEffect(taint.effect), taint.value)
        for taint in node.spec.taints
        if _is_known(taint) and taint.key != UNSCHEDULABLE.key
    ]
    if not node.is_ready and not any(taint.key == NOT_READY.key for taint in taints):
        taints.append(NOT_READY)
    return tuple(taints)


def _is_known(taint: WireTaint) -> bool:
    return taint.effect in tuple(TaintEffect)


def _attribute(device: WireDevice, driver: str, name: str) -> str:
    found = device.attributes.get(name) or device.attributes.get(f"{driver}/{name}")
    return (found.string or "") if found is not None else ""


def _floor(quantities: Mapping[str, str], name: str, *, milli: bool) -> int:
    text = quantities.get(name)
    if text is None:
        return 0
    try:
        return floor(text, MILLI if milli else MIB)
    except QuantityError:
        return 0
