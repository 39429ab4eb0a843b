"""Small fleets and pods that the tests of this room share."""

from shoal.model.node import Node
from shoal.model.request import DeviceRequest, Request
from shoal.simulation.trace import Trace, TracePod

NODES = "name,cpu_milli,memory_mib,devices,accelerator\n"
PODS = "name,cpu_milli,memory_mib,devices,compute_milli\n"
OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
OPENB_PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def whole(count: int, cpu_milli: int = 1000) -> Request:
    return Request(cpu_milli, 1024, DeviceRequest(count=count))


def share(compute_milli: int, cpu_milli: int = 1000) -> Request:
    return Request(cpu_milli, 1024, DeviceRequest(1, whole=False, compute_milli=compute_milli))


def trace(nodes: tuple[Node, ...], *requests: Request) -> Trace:
    pods = tuple(TracePod(f"p{i}", request) for i, request in enumerate(requests))
    return Trace("small", nodes, pods)
