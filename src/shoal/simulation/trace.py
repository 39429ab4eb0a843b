"""What a simulation is fed: a fleet, and the pods that were asked for."""

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.model.node import WHOLE_COMPUTE_MILLI, Node
from shoal.model.request import Request


@dataclass(frozen=True, slots=True)
class TracePod:
    """One pod of a trace: its name there, and what it asks for."""

    name: str
    request: Request


@dataclass(frozen=True, slots=True)
class Trace:
    """A fleet and the pods that were asked for, under the name of the workload."""

    workload: str
    nodes: tuple[Node, ...]
    pods: tuple[TracePod, ...]


def demand_milli(request: Request) -> int:
    """Return the compute that `request` asks for, in thousandths of a device."""
    devices = request.devices
    return devices.count * (WHOLE_COMPUTE_MILLI if devices.whole else devices.compute_milli)


def capacity_milli(nodes: Iterable[Node]) -> int:
    """Return the compute of all devices of `nodes`, in thousandths of a device."""
    return sum(len(node.devices) for node in nodes) * WHOLE_COMPUTE_MILLI
