"""In which group a workload waits, and in which place."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.core.entry import Entry
from shoal.core.queueing.precedence import Order, order_of, priority_of
from shoal.core.queueing.waiting import GroupKey, Standing
from shoal.model.queue import Order as Kind

if TYPE_CHECKING:
    from shoal.core.world import World


def place_of(world: "World", entry: Entry) -> Order:
    """Return the place of a workload in its queue; what comes first has less."""
    workload = entry.workload
    run_us = world.declared.expected_us(workload)
    return order_of(workload, world.tenants.tree, run_us, entry.served_device_us)


def comes_before(world: "World", one: Entry, other: Entry) -> bool:
    """Return whether a workload comes before another one of its queue.

    Where users have their turns that is known of the work of one user only.
    """
    users = one.workload.queue in world.tenants.users
    if users and one.workload.user != other.workload.user:
        return False
    return place_of(world, one) < place_of(world, other)


def starves(world: "World", entry: Entry, now_us: int) -> bool:
    """Return whether a workload has waited for too long."""
    queue = world.tenants.tree.get(entry.workload.queue)
    return queue is not None and entry.waits_since_us <= now_us - queue.starvation_after_us


def key_of(world: "World", entry: Entry) -> GroupKey:
    """Return what all workloads of its group have in common."""
    workload = entry.workload
    shapes = tuple(
        (shape, pod_set.count, pod_set.needed)
        for shape, pod_set in zip(world.shapes_of(entry), workload.pod_sets, strict=True)
    )
    return workload.queue, shapes, entry.refused, _standing(world, entry)


def _standing(world: "World", entry: Entry) -> Standing:
    workload, tree = entry.workload, world.tenants.tree
    if not tree.queues:
        return Standing(workload.type)
    return Standing(
        type=workload.type,
        user=workload.user if workload.queue in world.tenants.users else "",
        priority=priority_of(tree, workload),
        returnable=world.returnable(workload),
        was_evicted=entry.was_evicted,
        run_length=(workload.run_us or 0).bit_length(),
        budgeted=world.spending.run_of(workload),
    )


def learn(world: "World", entry: Entry, at_us: int, *, completed: bool) -> None:
    """Learn from a workload that ends how true declarations are, which others wait by."""
    queue, user = entry.workload.queue, entry.workload.user
    before = world.declared.correction(queue, user)
    world.declared.ended(entry, at_us, completed=completed)
    tree = world.tenants.tree.get(queue)
    if tree is None or tree.order is not Kind.SHORTEST:
        return
    if world.declared.correction(queue, user) != before:
        others = (each for each in world.entries.values() if each.workload.queue == queue)
        regroup(world, [each for each in others if each.workload.user == user])


def set_priority(world: "World", uid: str, name: str) -> None:
    """Give a workload another priority, by its name in the table of its queue."""
    entry = world.entries.get(uid)
    if entry is None:
        return
    entry.workload = replace(entry.workload, priority_name=name)
    regroup(world, (entry,))
    if entry.group is not None:
        world.waiting.wake(entry.group)
    elif entry.held:
        world.waiting.wake_hungry()


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
