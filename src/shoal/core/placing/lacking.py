"""Running elastic work that lacks pods: those that it can do without, and that it does not hold.

It may have started without them, they may have been evicted, or they did not start. A pod that has
ended by itself is not missed: the work is about to be done then, and grows no more.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.core.entry import Entry
from shoal.model.workload import Placement

if TYPE_CHECKING:
    from shoal.core.world import World


def pods_of(entry: Entry) -> tuple[int, ...]:
    """Return the pods that a workload lacks and may be given; none while any of it goes."""
    if not entry.grows or not entry.held or entry.evicting or entry.finishing:
        return ()
    missing = tuple(pod for pod in range(entry.workload.pods) if pod not in entry.held)
    return missing if all(entry.spared(pod) for pod in missing) else ()


def look_at(world: "World", entry: Entry) -> None:
    """Note whether a workload lacks pods, as what it holds has changed."""
    if not entry.grows:
        return
    if pods_of(entry):
        world.lacking[entry.workload.uid] = None
        world.waiting.freed = True
    else:
        world.lacking.pop(entry.workload.uid, None)


def joins(world: "World", entry: Entry, placements: Iterable[Placement]) -> None:
    """Let pods join a workload, which is given these places for them."""
    for placement in placements:
        world.hold(entry, placement)
        entry.joining.add(placement.pod)
    look_at(world, entry)


def refuses(world: "World", entry: Entry, node: str) -> None:
    """Plan a workload no more where a pod of it did not start, before the node has changed."""
    entry.refused |= {node}
    world.refused_on.setdefault(node, set()).add(entry.workload.uid)
