"""What happens to nodes and devices, and what the world makes of it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.core import events as ev
from shoal.core.arrays.charges import charges_of
from shoal.model.node import Node

if TYPE_CHECKING:
    from shoal.core.world import World

FleetEvent = ev.NodeSeen | ev.NodeLost | ev.NodeCordoned | ev.DeviceLost | ev.DeviceReturned


def changed(world: "World", event: FleetEvent) -> None:
    """Take in what happened to a node or device."""
    match event:
        case ev.NodeSeen():
            _node_seen(world, event.node)
        case ev.NodeLost():
            _node_lost(world, event.name)
        case ev.NodeCordoned():
            _node_cordoned(world, event)
        case ev.DeviceLost():
            _device_lost(world, event)
        case ev.DeviceReturned():
            _device_returned(world, event)


def _node_seen(world: "World", node: Node) -> None:
    row = world.fleet.row_of.get(node.name)
    if row is not None and world.fleet.nodes[row] == node:
        return
    accelerators = world.fleet.accelerators()
    old = None if row is None else world.fleet.nodes[row]
    row = world.fleet.see(node)
    world.tenants.node_changed(old, node)
    _charge_anew(world, node.name)
    forget_refusals(world, node.name)
    world.waiting.room_on(world.fleet, row)
    if old is None or old.devices != node.devices or world.tenants.slots.promises:
        # Who would be in the way of devices promised on one node may have another place now.
        world.waiting.wake_blocked()
    if world.tenants.tree.queues and world.fleet.accelerators() != accelerators:
        # Whoever has used up what it may have of the others may have these.
        world.waiting.wake_all()


def _charge_anew(world: "World", node: str) -> None:
    """Charge what is held on a node by its devices as they are now."""
    if not world.tenants.tree.queues or not world.fleet.holds_something(node):
        return
    for entry in world.entries.values():
        for pod, placement in entry.held.items():
            if placement.node == node:
                world.count(entry, pod, -1)
                entry.charges[pod] = charges_of(world.fleet, entry.request_of(pod), placement)
                world.count(entry, pod, 1)
                world.quota_on(entry)


def _node_lost(world: "World", name: str) -> None:
    row = world.fleet.lose(name)
    world.tenants.node_gone(name)
    if row is not None:
        world.waiting.fresh.pop(row, None)
    forget_refusals(world, name)


def _node_cordoned(world: "World", event: ev.NodeCordoned) -> None:
    row = world.fleet.row_of.get(event.name)
    node = world.fleet.nodes[row] if row is not None else None
    if node is not None:
        _node_seen(world, replace(node, cordoned=event.cordoned))


def _device_lost(world: "World", event: ev.DeviceLost) -> None:
    lost = world.fleet.lost_devices.get(event.node, frozenset())
    row = world.fleet.set_lost_devices(event.node, lost | {event.device})
    node = None if row is None else world.fleet.nodes[row]
    if node is not None:
        world.tenants.node_changed(node, node)


def _device_returned(world: "World", event: ev.DeviceReturned) -> None:
    lost = world.fleet.lost_devices.get(event.node, frozenset())
    if event.device in lost:
        row = world.fleet.set_lost_devices(event.node, lost - {event.device})
        forget_refusals(world, event.node)
        node = None if row is None else world.fleet.nodes[row]
        if row is not None and node is not None:
            world.tenants.node_changed(node, node)
            world.waiting.room_on(world.fleet, row)
            world.waiting.wake_blocked()


def mask_set(world: "World", event: ev.MaskSet) -> None:
    """Take in on which nodes pods with a mask may run."""
    world.fleet.set_mask(event.mask, frozenset(event.nodes))
    world.waiting.freed = True
    for group in world.waiting.groups.values():
        if any(shape.request.mask == event.mask for shape in group.shapes):
            world.waiting.wake(group)


def forget_refusals(world: "World", node: str) -> None:
    """Let work be planned again on a node that refused it."""
    for uid in sorted(world.refused_on.pop(node, ())):
        entry = world.entries.get(uid)
        if entry is None:
            continue
        waits = entry.group is not None
        if waits:
            world.wait_no_more(entry)
        entry.refused -= {node}
        if waits:
            world.wait(entry)
