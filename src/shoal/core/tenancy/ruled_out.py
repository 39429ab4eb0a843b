"""What a workload breaks by itself, whatever is free and whatever others hold."""

from collections import Counter

from shoal.core.arrays.charges import least_units
from shoal.core.arrays.shape import Shape
from shoal.core.entry import Entry
from shoal.core.world import World
from shoal.model.request import DeviceRequest
from shoal.model.verdict import OverQuota, Reason

MOST_UNITS = 1 << 48
"""So many units of a device are more than any fleet has, and accounts, which have 64 bits, hold
them at any exchange rate; whoever asks for more is judged as if it were these."""


def wants(devices: DeviceRequest, accelerator: str) -> bool:
    """Return whether an accelerator would do."""
    return devices.count > 0 and (not devices.accelerators or accelerator in devices.accelerators)


def ruled_out(world: World, entry: Entry, shapes: tuple[Shape, ...]) -> OverQuota | None:
    """Return the rule of its queues that a workload breaks by itself, None if it breaks none.

    Its queue is not there or takes no work, or has no use for its type; or it asks for more than a
    limit, or, if it cannot be returned, more than a guarantee that could cover it.
    """
    tenants, workload = world.tenants, entry.workload
    if workload.queue not in tenants.takes_work:
        return OverQuota(Reason.NO_QUEUE, workload.queue)
    closing = tenants.closing(workload.queue)
    if closing:
        return OverQuota(Reason.CLOSING, closing)
    return tenants.grants_type(workload) or _too_much(world, entry, shapes)


def _too_much(world: World, entry: Entry, shapes: tuple[Shape, ...]) -> OverQuota | None:
    """Return the rule that all of the pods that a workload needs break together.

    They are taken to be all on one accelerator. Where several will do, that proves it if the rule
    is one limit on all of them, or if there is only one pod.
    """
    workload = entry.workload
    needed = [
        (shape.request.devices, pod_set.needed)
        for shape, pod_set in zip(shapes, workload.pod_sets, strict=True)
        if shape.request.devices.count and pod_set.needed
    ]
    if not needed or not world.tenants.bounded(workload.queue):
        return None
    accelerators = [name for name in world.fleet.accelerators() if wants(needed[0][0], name)]
    alike = all(set(each.accelerators) == set(needed[0][0].accelerators) for each, _ in needed)
    if not alike and any(len(each.accelerators) != 1 for each, _ in needed):
        return None
    found = []
    for accelerator in accelerators:
        asked: Counter[str] = Counter()
        for devices, pods in needed:
            name = accelerator if alike else devices.accelerators[0]
            asked[name] += pods * least_units(devices, world.fleet.largest_mib(name))
        most = tuple(sorted((name, min(units, MOST_UNITS)) for name, units in asked.items()))
        returnable = world.returnable(workload)
        over = world.tenants.never(workload.queue, most, returnable=returnable)
        if over is None:
            return None
        found.append(over)
    if not found:
        return None
    pods = sum(pods for _, pods in needed)
    alone = pods == 1 and (needed[0][0].count == 1 or not world.fleet.mixed_rows)
    one_limit = found[0].reason is Reason.LIMIT and all(
        (over.reason, over.queue, over.accelerators)
        == (found[0].reason, found[0].queue, found[0].accelerators)
        for over in found
    )
    if len(accelerators) == 1 or not alike or alone or one_limit:
        return min(found, key=lambda over: over.asked_units - over.bound_units)
    return None
