"""What no fleet like this one could ever hold, however empty and healthy: said at once, with why.

The claim is a relaxation that errs on one side only: labels, taints, cordons, lost devices and
whatever else runs are left out of account, so what is called "never" needs other hardware.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.core.world import Entry
from shoal.model.node import Node
from shoal.model.request import Request
from shoal.server.standing import Look


@dataclass(frozen=True, slots=True)
class Never:
    """Why: `what` is asked for so many times, and this much is the most that there is.

    `what`: accelerator, devices, device-memory, cpu, memory (of one pod on one node), together (no
    node has all of it at once), pods (the empty fleet holds fewer than start together).
    """

    what: str
    asked: int = 0
    most: int = 0
    accelerators: tuple[str, ...] = ()


def never(look: Look, entry: Entry) -> Never | None:
    """Why a workload could not start on this fleet if it were empty; None where it might."""
    nodes = [node for node in look.world.fleet.nodes if node is not None]
    if not nodes:
        return None
    for pod_set in entry.workload.pod_sets:
        holds = [_pods_on(node, pod_set.request, pod_set.count) for node in nodes]
        if not any(holds):
            return _short(nodes, pod_set.request)
        if sum(holds) < pod_set.count:
            return Never("pods", pod_set.count, sum(holds))
    return None


def _pods_on(node: Node, request: Request, most: int) -> int:
    """How many pods an empty node could hold at most, up to `most`."""
    for asked, there in (
        (request.cpu_milli, node.cpu_milli),
        (request.memory_mib, node.memory_mib),
        (1, node.pods),
        (request.devices.count, _slots(node, request)),
    ):
        if asked:
            most = min(most, there // asked)
    return most


def _slots(node: Node, request: Request) -> int:
    """How many devices, or shares of them, an empty node could give to such pods."""
    wanted = request.devices.accelerators
    slots = 0
    for device in node.devices:
        if wanted and device.accelerator not in wanted:
            continue
        if request.devices.whole:
            slots += len(device.leaves) == 1
            continue
        for leaf in device.leaves:
            shares = leaf.tenants
            if request.devices.memory_mib:
                shares = min(shares, leaf.memory_mib // request.devices.memory_mib)
            if request.devices.compute_milli:
                shares = min(shares, leaf.compute_milli // request.devices.compute_milli)
            slots += shares
    return slots


def _short(nodes: Iterable[Node], request: Request) -> Never:
    """What no node has enough of for one pod."""
    listed = list(nodes)
    devices = request.devices
    own = [
        device
        for node in listed
        for device in node.devices
        if not devices.accelerators or device.accelerator in devices.accelerators
    ]
    if devices.count and not own:
        return Never("accelerator", devices.count, 0, devices.accelerators)
    if devices.count and not devices.whole:
        largest = max(leaf.memory_mib for device in own for leaf in device.leaves)
        if largest < devices.memory_mib:
            return Never("device-memory", devices.memory_mib, largest)
    for what, asked, most in (
        ("devices", devices.count, max(_slots(node, request) for node in listed)),
        ("cpu", request.cpu_milli, max(node.cpu_milli for node in listed)),
        ("memory", request.memory_mib, max(node.memory_mib for node in listed)),
    ):
        if most < asked:
            return Never(what, asked, most)
    return Never("together")
