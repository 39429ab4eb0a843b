"""Prices for the placement policy: what room for each class of pods is worth on a fleet.

The dual of the program says what one more pod of a class would add; what is left of the pod's
value is what its room is worth. One solution is a corner of a polyhedron: many classes get the same
price, and it jumps when the demand changes a little. So the program is solved for several demands
around the expected one, of slightly different load and drawn at random, and the prices averaged.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from shoal.bounds.program import Floats, Program
from shoal.bounds.types import LeafGroup, NodeType, node_types
from shoal.core.demand import ClassPrice, Prices, TaskClass
from shoal.model.node import WHOLE_COMPUTE_MILLI, Node
from shoal.model.request import DeviceRequest, Request

LOADS = (1.0, 1.03, 1.06, 1.1, 1.15)
"""Demand for devices over their number, in the demands solved for: a fleet a little too small."""

DRAWS = 2
"""Random demands for each load."""

SAMPLE = 0.4
"""A random demand varies as one does that was seen on so large a part of the fleet."""

CPU_VALUE = 0.01
"""Value of one CPU to a pod without devices, in devices: enough to have a price, no more."""

MEMORY_VALUE_PER_GIB = 0.0005
"""Value of one GiB of host memory to a pod without devices, in devices."""

MOST_CLASSES = 500
"""Classes solved for; lighter ones are merged by the devices that they ask for."""

THOUSANDTHS = 1_000_000
"""Thousandths of a price unit in one device."""

UNFIT = 1_000_000_000
"""Shortfall, in thousandths of a price unit, where a pod of the class does not fit at all."""

MOST_RESERVED = 8
"""Classes that get a reserve, those with the largest: each costs time whenever a node is scored."""

CAUTION = 0.5
"""Standard errors by which a learned demand is taken to be less when rooms are kept for it."""

LEAST_RESERVE = 0.01
"""Reserves below it are left out, in devices: a handicap outweighs them."""

MOST_SCARCITY = 1 << 20
"""Scarcity where an accelerator is asked for that the fleet does not have."""


def prices(
    nodes: Iterable[Node], classes: Sequence[TaskClass], *, arrival: int | None = None
) -> Prices:
    """Return prices for the fleet and the demand; none where nothing is asked for or there.

    `arrival` is the weight of one pod where the demand was learned from arrivals: what was seen n
    times is known to one part in the root of n (the standard error of a count), and room is kept
    only for what is left when `CAUTION` of that is taken off. None: the demand is known.
    The same nodes in the same order and the same classes give the same prices on one machine;
    elsewhere the last digits may differ.
    """
    types = node_types(nodes)
    asked = _few(classes)
    devices = sum(kind.nodes * kind.leaves for kind in types)
    weights = np.array([each.weight for each in asked], dtype=np.float64)
    values = np.array([_value(each.request, types) for each in asked])
    of_devices = np.array([each.request.devices.count > 0 for each in asked], dtype=np.bool_)
    wanted = float((weights * values)[of_devices].sum()) if asked else 0.0
    if not devices or not wanted:
        return Prices()
    demand = weights * (_capacity(types) / wanted)
    program = Program(types, [each.request for each in asked], values)
    worth, shortfall = _averaged(program, demand, values)
    names = [{group.accelerator for group in kind.groups if group.count} for kind in program.types]
    priced = []
    sure = demand if arrival is None else demand * _sure(weights / arrival)
    reserves = _reserves(types, program.requests, sure, values - worth)
    for i, each in enumerate(asked):
        losses = _by_accelerator(each.request.devices.accelerators, shortfall[i], names)
        price = round(THOUSANDTHS * float(worth[i]))
        priced.append(ClassPrice(each, price, losses, reserves.get(i, 0)))
    return Prices(tuple(priced), _scarcity(types, asked, demand * values))


def _sure(seen: Floats) -> Floats:
    """The part of a learned demand for which room is kept."""
    return 1.0 - CAUTION / np.sqrt(np.maximum(seen, 1.0))


def _averaged(program: Program, demand: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Mean worth by class, and mean shortfall by class and node type."""
    draw = np.random.Generator(np.random.PCG64(0))
    worth = np.zeros(len(values))
    shortfall = np.zeros((len(values), len(program.types)))
    for load in LOADS:
        for _ in range(DRAWS):
            solution = program.most(draw.poisson(load * SAMPLE * demand) / SAMPLE)
            worth += np.maximum(0.0, values - solution.shadow)
            shortfall += solution.shortfall
    solved = len(LOADS) * DRAWS
    return worth / solved, shortfall / solved


def _value(request: Request, types: Sequence[NodeType]) -> float:
    """What a pod is worth to whoever sent it, in devices: what it takes of them."""
    asked = request.devices
    if not asked.count:
        gib = request.memory_mib / 1024
        return request.cpu_milli / 1000 * CPU_VALUE + gib * MEMORY_VALUE_PER_GIB
    if asked.whole:
        return float(asked.count)
    sizes = [
        kind.nodes * group.count * np.array([1.0, _share(asked, group.memory_mib)])
        for kind in types
        for group in kind.groups
        if not asked.accelerators or group.accelerator in asked.accelerators
    ]
    total = np.sum(sizes, axis=0) if sizes else np.array([1.0, _share(asked, 0)])
    return float(asked.count * total[1] / total[0])


def _share(asked: DeviceRequest, memory_mib: int) -> float:
    of_memory = asked.memory_mib / memory_mib if memory_mib else 0.0
    return max(asked.compute_milli / WHOLE_COMPUTE_MILLI, min(1.0, of_memory))


def _capacity(types: Sequence[NodeType]) -> float:
    """Devices of the fleet; a partition counts by its compute."""
    return sum(
        kind.nodes * group.count * group.compute_milli / WHOLE_COMPUTE_MILLI
        for kind in types
        for group in kind.groups
    )


def _by_accelerator(
    allowed: Sequence[str], shortfall: Floats, names: Sequence[set[str]]
) -> tuple[tuple[str, int], ...]:
    """The least shortfall on any node type with the accelerator, where it is not nothing."""
    least: dict[str, float] = {}
    for amount, accelerators in zip(shortfall.tolist(), names, strict=True):
        for name in accelerators.intersection(allowed) if allowed else accelerators:
            least[name] = min(amount, least.get(name, np.inf))
    return tuple(
        (name, round(min(THOUSANDTHS * amount, UNFIT)))
        for name, amount in sorted(least.items())
        if round(min(THOUSANDTHS * amount, UNFIT))
    )


def _reserves(
    types: Sequence[NodeType], requests: Sequence[Request], demand: Floats, refused: Floats
) -> dict[int, int]:
    """What a room for a class should be worth beyond its price, by the number of the class.

    The price takes it that room can be had elsewhere. Where it cannot, because only few nodes have
    the host resources that the class asks for beside devices, and others take these nodes as well,
    each that is taken lets the last go earlier. The pods that come after it are refused, which
    costs `refused` each beyond the price. If others take the nodes at a steady pace, one node taken
    means that so many pods more will come after the last: those that come, over the rooms that
    there are. It counts in so far as the class cannot run on nodes that have devices for it.
    """
    reserves = {}
    for i, request in enumerate(requests):
        asked = request.devices
        if not asked.count or not asked.whole:
            continue
        with_devices = [kind for kind in types if _has_devices(kind, asked)]
        enough = [each for each in with_devices if _room(each, request)]
        rooms = sum(each.nodes * _room(each, request) for each in enough)
        if not rooms:
            continue
        others = 1 - sum(each.nodes for each in enough) / sum(each.nodes for each in with_devices)
        reserve = others * min(1.0, float(demand[i]) / rooms) * max(0.0, float(refused[i]))
        if reserve >= LEAST_RESERVE:
            reserves[i] = round(THOUSANDTHS * reserve)
    largest = sorted(reserves, key=lambda i: (-reserves[i], i))[:MOST_RESERVED]
    return {i: reserves[i] for i in largest}


def _has_devices(kind: NodeType, asked: DeviceRequest) -> bool:
    return any(_fitting(group, asked) for group in kind.groups)


def _fitting(group: LeafGroup, asked: DeviceRequest) -> int:
    """How many pods a node's group of whole devices could serve, host resources aside."""
    if not group.undivided or (asked.accelerators and group.accelerator not in asked.accelerators):
        return 0
    return group.count // asked.count


def _room(kind: NodeType, request: Request) -> int:
    """How many pods of a class, which takes whole devices, an empty node could take."""
    room = max(_fitting(group, request.devices) for group in kind.groups)
    if request.cpu_milli:
        room = min(room, kind.cpu_milli // request.cpu_milli)
    if request.memory_mib:
        room = min(room, kind.memory_mib // request.memory_mib)
    return room


def _scarcity(
    types: Sequence[NodeType], classes: Sequence[TaskClass], wanted: Floats
) -> tuple[tuple[str, int], ...]:
    """Devices wanted by classes that name accelerators, over the devices of those they name."""
    devices: dict[str, int] = {}
    for kind in types:
        for group in kind.groups:
            devices[group.accelerator] = (
                devices.get(group.accelerator, 0) + kind.nodes * group.count
            )
    scarcity: dict[str, float] = {}
    for each, amount in zip(classes, wanted.tolist(), strict=True):
        named = set(each.request.devices.accelerators)
        allowed = sum(devices.get(name, 0) for name in named)
        for name in named if allowed else ():
            scarcity[name] = scarcity.get(name, 0.0) + amount / allowed
    return tuple(
        (name, min(round(1000 * amount), MOST_SCARCITY))
        for name, amount in sorted(scarcity.items())
        if name in devices
    )


def _few(classes: Sequence[TaskClass]) -> list[TaskClass]:
    """The heaviest classes; lighter ones merged by devices, with their mean CPU and memory."""
    few = list(classes[:MOST_CLASSES])
    rest: dict[DeviceRequest, tuple[int, int, int]] = {}
    for each in classes[MOST_CLASSES:]:
        request, weight = each.request, each.weight
        total, cpu, memory = rest.get(request.devices, (0, 0, 0))
        rest[request.devices] = (
            total + weight,
            cpu + weight * request.cpu_milli,
            memory + weight * request.memory_mib,
        )
    few += [
        TaskClass(Request(cpu // total, memory // total, devices), total)
        for devices, (total, cpu, memory) in rest.items()
    ]
    return few
