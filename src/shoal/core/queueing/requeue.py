"""What another tree of queues makes of the world."""

from typing import TYPE_CHECKING

from shoal.core.arrays.charges import charges_of
from shoal.core.arrays.neighbours import asked_by
from shoal.core.entry import Entry
from shoal.core.queueing import grouping
from shoal.model.queue import QueueTree

if TYPE_CHECKING:
    from shoal.core.world import World


def queues_set(world: "World", queues: QueueTree) -> None:
    """Charge everything anew, by other queues, and look at everybody who waits."""
    world.tenants.set_tree(queues)
    world.protection.forget()
    world.limits.set_tree(queues)
    world.spending.set_tree(queues, world.entries)
    for entry in world.entries.values():
        _ask_anew(world, entry)
        world.limits.runs(entry)
        if not entry.held:
            world.limits.waits(entry)
        for pod, placement in entry.held.items():
            charges = charges_of(world.fleet, entry.request_of(pod), placement)
            entry.charges[pod] = charges or entry.charges.get(pod, ())
            world.count(entry, pod, 1)
        if entry.reserved is not None:
            world.charge_reserved(entry, entry.reserved, 1)
    world.tenants.remember_past()
    grouping.regroup(world, world.entries.values())
    world.waiting.wake_all()


def _ask_anew(world: "World", entry: Entry) -> None:
    """Book what a workload holds, or is kept for it, by the neighbours that it may have now."""
    before, now = entry.requests, asked_by(entry.workload, world.tenants.tree)
    if now == before:
        return
    kept = entry.reserved.placements if entry.reserved is not None else ()
    placements = (*entry.held.values(), *kept)
    entry.requests = now
    for placement in placements:
        world.fleet.take(entry.request_of(placement.pod), placement)
    entry.requests = before
    for placement in placements:
        world.fleet.give_back(entry.request_of(placement.pod), placement)
    entry.requests = now
