"""Upper bounds on what any scheduler could allocate, one that moves pods included.

Because the demand is the expected one and the optimum is concave in it, they bound the mean over
seeds as well. They forget labels, taints and which pods share a node, so they may be too high,
never too low.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.bounds.program import Program
from shoal.bounds.types import node_types
from shoal.core.demand import TaskClass
from shoal.model.node import WHOLE_COMPUTE_MILLI, Node
from shoal.model.request import Request


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds in percent of all devices.

    `allocated_pct` is by load (devices asked for, in percent of all); `host_pods_forced_pct` the
    same where every pod without devices has to be placed, None where they do not fit.
    `no_failure_pct` is the largest load of which everything fits, 0 where some pod fits on no node.
    """

    allocated_pct: dict[int, float]
    host_pods_forced_pct: dict[int, float | None]
    no_failure_pct: float


def upper_bounds(
    nodes: Iterable[Node], classes: Sequence[TaskClass], loads_pct: Sequence[int]
) -> Bounds:
    """Return the bounds for a fleet and a demand, at each load.

    Compute decides: of a share of a device counts the compute that it asks for. Raises ValueError
    where the fleet has no devices or nobody asks for any.
    """
    types = node_types(nodes)
    requests = [each.request for each in classes]
    values = np.array([_devices(request) for request in requests])
    weights = np.array([each.weight for each in classes], dtype=np.float64)
    capacity = sum(
        kind.nodes * group.count * group.compute_milli / WHOLE_COMPUTE_MILLI
        for kind in types
        for group in kind.groups
    )
    if not capacity:
        raise ValueError("The fleet has no devices, so there is nothing to bound.")
    if not len(values) or not float(weights @ values):
        raise ValueError("No pod asks for a device, so there is nothing to bound.")
    program = Program(types, requests, values)
    demand = weights * (capacity / float(weights @ values))
    forced = values == 0
    allocated: dict[int, float] = {}
    with_host_pods: dict[int, float | None] = {}
    for load in loads_pct:
        asked = demand * (load / 100)
        allocated[load] = 100 * program.most(asked).value / capacity
        try:
            with_host_pods[load] = 100 * program.most(asked, forced).value / capacity
        except ValueError:
            with_host_pods[load] = None
    return Bounds(allocated, with_host_pods, 100 * program.largest_load(demand))


def _devices(request: Request) -> float:
    asked = request.devices
    each = 1.0 if asked.whole else asked.compute_milli / WHOLE_COMPUTE_MILLI
    return asked.count * each
