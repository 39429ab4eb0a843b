"""What is inside the queues, and who runs on which nodes: what changed rules are held against."""

from shoal.core.arrays.charges import charges_of
from shoal.core.arrays.neighbours import strangers
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.meaning import Inside, Running


def inside_of(world: World) -> dict[str, Inside]:
    """Return the work in each queue that has any, as the world charges it."""
    running: dict[str, int] = {}
    waiting: dict[str, int] = {}
    on_device: dict[tuple[str, bool, str, str], int] = {}
    for entry in world.entries.values():
        queue = entry.workload.queue
        counts = running if entry.held else waiting
        counts[queue] = counts.get(queue, 0) + 1
        for pod, placement in entry.held.items():
            fixed = world.tenants.stays(entry.workload, spared=entry.spared(pod))
            for charge in charges_of(world.fleet, entry.request_of(pod), placement):
                for part in (False, True) if fixed else (False,):
                    place = (queue, part, charge.accelerator, charge.device)
                    on_device[place] = on_device.get(place, 0) + charge.units
    units: dict[tuple[str, bool], dict[str, int]] = {}
    for (queue, fixed, accelerator, _), charged in on_device.items():
        held = units.setdefault((queue, fixed), {})
        held[accelerator] = held.get(accelerator, 0) + min(charged, UNIT)
    return {
        queue: Inside(
            running.get(queue, 0),
            waiting.get(queue, 0),
            units.get((queue, False), {}),
            units.get((queue, True), {}),
        )
        for queue in sorted(running.keys() | waiting.keys())
    }


def running_on(world: World) -> list[Running]:
    """Return the workloads that hold something on nodes that are there."""
    fleet = world.fleet
    found = []
    for entry in world.entries.values():
        nodes, beside = set(), set()
        for placement in entry.held.values():
            row = fleet.row_of[placement.node]
            if not fleet.present[row]:
                continue
            nodes.add(placement.node)
            columns = (fleet.leaves[row].index(leaf) for leaf in placement.leaves)
            if any(strangers(fleet, row, column) for column in columns):
                beside.add(placement.node)
        if nodes:
            found.append(Running(entry.workload.type, frozenset(nodes), frozenset(beside)))
    return found
