"""What pods are charged for the parts of devices that they hold, in units of a device."""

from dataclasses import dataclass

from shoal.core.arrays.fleet import Fleet
from shoal.model.fractions import UNIT, fraction_up
from shoal.model.node import WHOLE_COMPUTE_MILLI, memory_of
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Placement


@dataclass(frozen=True, slots=True)
class Charge:
    """What a pod is charged for its part of one device, on the node where it is."""

    accelerator: str
    device: str
    units: int
    node: str = ""


def charges_of(fleet: Fleet, request: Request, placement: Placement) -> tuple[Charge, ...]:
    """Return what a pod is charged for where it is; nothing for devices not seen yet."""
    row = fleet.row_of.get(placement.node)
    node = fleet.nodes[row] if row is not None else None
    if node is None:
        return ()
    charges = []
    for device in node.devices:
        for leaf in device.leaves:
            if leaf.name not in placement.leaves:
                continue
            compute, memory = request.devices.compute_milli, request.devices.memory_mib
            if request.devices.whole or leaf.tenants == 1:
                compute, memory = leaf.compute_milli, leaf.memory_mib
            units = _units(compute, memory, memory_of(device.leaves))
            charges.append(Charge(device.accelerator, device.name, units, node.name))
    return tuple(charges)


def least_units(devices: DeviceRequest, largest_mib: int) -> int:
    """Return what a pod is charged at least on an accelerator, over all of its devices.

    `largest_mib` is the memory of the accelerator's largest device.
    """
    if devices.whole:
        return devices.count * UNIT
    return devices.count * _units(devices.compute_milli, devices.memory_mib, largest_mib)


def _units(compute_milli: int, memory_mib: int, of_mib: int) -> int:
    """Return the larger of two fractions of a device; each counts as the whole at most."""
    units = fraction_up(min(compute_milli, WHOLE_COMPUTE_MILLI), WHOLE_COMPUTE_MILLI)
    if of_mib:
        units = max(units, fraction_up(min(memory_mib, of_mib), of_mib))
    return units
