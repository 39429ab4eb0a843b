"""In which group a workload waits, and in which place."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.core.entry import Entry
from shoal.core.precedence import Order, order_of
from shoal.core.waiting import GroupKey

if TYPE_CHECKING:
    from shoal.core.world import World


def place_of(world: "World", entry: Entry) -> Order:
    """Return the place of a workload in its queue; what comes first has less."""
    workload = entry.workload
    return order_of(workload, world.tenants.tree, workload.run_us, entry.served_device_us)


def key_of(world: "World", entry: Entry) -> GroupKey:
    """Return what all workloads of its group have in common."""
    workload = entry.workload
    shapes = tuple(
        (shape, pod_set.count, pod_set.needed)
        for shape, pod_set in zip(world.shapes_of(workload), workload.pod_sets, strict=True)
    )
    user = workload.user if workload.queue in world.tenants.users else ""
    kind = (workload.type, world.returnable(workload))
    return workload.queue, shapes, entry.refused, user, kind


def regroup(world: "World", entries: Iterable[Entry]) -> None:
    """Give workloads that wait their places anew; what decides about them has changed."""
    for entry in entries:
        if entry.group is None:
            continue
        if entry.group.key != key_of(world, entry):
            world.wait_no_more(entry)
            world.wait(entry)
        else:
            order = place_of(world, entry)
            world.waiting.reorder(entry.group, entry.order, order)
            entry.order = order
