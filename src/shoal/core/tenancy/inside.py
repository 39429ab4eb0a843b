"""What is inside the queues, and who runs on which nodes: what changed rules are held against."""

from shoal.core.arrays.charges import charges_of
from shoal.core.arrays.neighbours import party_of, strangers
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.meaning import Inside, Running
from shoal.model.queue import QueueTree


def inside_of(world: World) -> dict[str, Inside]:
    """Return the work in each queue that has any, as the world charges it."""
    running: dict[str, int] = {}
    waiting: dict[str, int] = {}
    on_device: dict[tuple[str, str, str], int] = {}
    for entry in world.entries.values():
        queue = entry.workload.queue
        counts = running if entry.held else waiting
        counts[queue] = counts.get(queue, 0) + 1
        for pod, placement in entry.held.items():
            for charge in charges_of(world.fleet, entry.request_of(pod), placement):
                place = (queue, charge.accelerator, charge.device)
                on_device[place] = on_device.get(place, 0) + charge.units
    units: dict[str, dict[str, int]] = {}
    for (queue, accelerator, _), charged in on_device.items():
        held = units.setdefault(queue, {})
        held[accelerator] = held.get(accelerator, 0) + min(charged, UNIT)
    return {
        queue: Inside(running.get(queue, 0), waiting.get(queue, 0), units.get(queue, {}))
        for queue in sorted(running.keys() | waiting.keys())
    }


def running_on(world: World, then: QueueTree) -> list[Running]:
    """Return the workloads that hold something on nodes that are there.

    `then` is the tree by which it is judged whether they will share devices with strangers.
    """
    fleet = world.fleet
    parties: dict[tuple[str, str], set[str]] = {}
    """By node and leaf: the queues right below the root that have a share of it then."""
    for entry in world.entries.values():
        party = party_of(entry.workload.queue, then)
        for pod, placement in entry.held.items():
            if not entry.request_of(pod).devices.whole:
                for leaf in placement.leaves:
                    parties.setdefault((placement.node, leaf), set()).add(party)
    found = []
    for entry in world.entries.values():
        nodes, beside, beside_then = set(), set(), set()
        for placement in entry.held.values():
            row = fleet.row_of[placement.node]
            if not fleet.present[row]:
                continue
            nodes.add(placement.node)
            columns = (fleet.leaves[row].index(leaf) for leaf in placement.leaves)
            if any(strangers(fleet, row, column) for column in columns):
                beside.add(placement.node)
            if any(len(parties.get((placement.node, leaf), ())) > 1 for leaf in placement.leaves):
                beside_then.add(placement.node)
        if nodes:
            found.append(
                Running(
                    entry.workload.type,
                    frozenset(nodes),
                    frozenset(beside),
                    frozenset(beside_then),
                )
            )
    return found
