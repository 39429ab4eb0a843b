"""What no fleet like this one could ever hold, however empty and healthy: said at once, with why.

The claim is a relaxation that errs on one side only: labels, taints, cordons, lost devices and
whatever else runs are left out of account, so what is called "never" needs other hardware, or other
devices than are partitioned and shared as these are. What the fleet could hold, and the nodes whose
pools serve such work could not, needs other pools; a node of several pools is taken to serve it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.core.arrays.pool_rules import type_bit
from shoal.core.world import Entry
from shoal.model.node import Device, Leaf, Node, isolation_of
from shoal.model.request import DeviceRequest, Request
from shoal.server.standing import Look


@dataclass(frozen=True, slots=True)
class Never:
    """Why: `what` is asked for so many times, and this much is the most that there is.

    `what`: accelerator, devices, device-memory, isolation, isolated-memory (of what isolates as
    much as the floor, which is the `word`), cpu, memory (of one pod on one node), together (no node
    has all of it at once), pods (the empty fleet holds fewer than start together); pool, pool-pods
    (the same for the nodes that serve the type of work, which is the `word`; others would do).
    """

    what: str
    asked: int = 0
    most: int = 0
    accelerators: tuple[str, ...] = ()
    word: str = ""


def never(look: Look, entry: Entry) -> Never | None:
    """Why a workload could not start on this fleet if it were empty; None where it might."""
    fleet, type_ = look.world.fleet, entry.workload.type
    rows = [(row, node) for row, node in enumerate(fleet.nodes) if node is not None]
    if not rows:
        return None
    serving = [node for row, node in rows if not fleet.rules[row] & type_bit(type_)]
    nodes = [node for _, node in rows]
    by_pools: Never | None = None
    for pod_set, request in zip(entry.workload.pod_sets, entry.requests, strict=True):
        needed = pod_set.needed
        if not needed:
            continue
        holds = _pods_on(nodes, request, needed)
        if not holds:
            return _short(nodes, request)
        if holds < needed:
            return Never("pods", needed, holds)
        served = _pods_on(serving, request, needed)
        if served < needed and by_pools is None:
            what = "pool-pods" if served else "pool"
            by_pools = Never(what, needed, served, word=type_.value)
    return by_pools


def _pods_on(nodes: Sequence[Node], request: Request, most: int) -> int:
    """How many pods empty nodes could hold together; on each of them `most` are counted at most."""
    return sum(_pods_on_one(node, request, most) for node in nodes)


def _pods_on_one(node: Node, request: Request, most: int) -> int:
    for asked, there in (
        (request.cpu_milli, node.cpu_milli),
        (request.memory_mib, node.memory_mib),
        (1, node.pods),
        (request.devices.count, _slots(node, request.devices)),
    ):
        if asked:
            most = min(most, there // asked)
    return most


def _slots(node: Node, devices: DeviceRequest) -> int:
    """How many devices, or shares of them, an empty node could give to such pods."""
    slots = 0
    for device in _wanted(node, devices):
        if devices.whole:
            slots += len(device.leaves) == 1
            continue
        for leaf in _isolating(device, devices):
            shares = 1 if devices.apart else leaf.tenants
            if devices.memory_mib:
                shares = min(shares, leaf.memory_mib // devices.memory_mib)
            if devices.compute_milli:
                shares = min(shares, leaf.compute_milli // devices.compute_milli)
            slots += shares
    return slots


def _wanted(node: Node, devices: DeviceRequest) -> list[Device]:
    names = devices.accelerators
    return [each for each in node.devices if not names or each.accelerator in names]


def _isolating(device: Device, devices: DeviceRequest) -> list[Leaf]:
    """The leaves of a device that isolate a share as much as it asks for."""
    divided = len(device.leaves) > 1
    return [
        leaf for leaf in device.leaves if isolation_of(leaf, divided=divided).reaches(devices.floor)
    ]


def _short(nodes: Sequence[Node], request: Request) -> Never:
    """What no node has enough of for one pod."""
    devices = request.devices
    own = [device for node in nodes for device in _wanted(node, devices)]
    if devices.count and not own:
        return Never("accelerator", devices.count, 0, devices.accelerators)
    if devices.count and not devices.whole:
        short = _short_of_leaves(own, devices)
        if short is not None:
            return short
    for what, asked, most in (
        ("devices", devices.count, max(_slots(node, devices) for node in nodes)),
        ("cpu", request.cpu_milli, max(node.cpu_milli for node in nodes)),
        ("memory", request.memory_mib, max(node.memory_mib for node in nodes)),
    ):
        if most < asked:
            return Never(what, asked, most)
    return Never("together")


def _short_of_leaves(own: Sequence[Device], devices: DeviceRequest) -> Never | None:
    """Why none of these devices has a leaf for a share; None where one has by its size."""
    asked, floor = devices.memory_mib, str(devices.floor)
    largest = max((leaf.memory_mib for device in own for leaf in device.leaves), default=0)
    if largest < asked:
        return Never("device-memory", asked, largest)
    leaves = [leaf for device in own for leaf in _isolating(device, devices)]
    if not leaves:
        return Never("isolation", word=floor)
    largest = max(leaf.memory_mib for leaf in leaves)
    return Never("isolated-memory", asked, largest, word=floor) if largest < asked else None
