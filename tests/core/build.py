"""Short ways to write nodes, requests and workloads in tests."""

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import Cycle, cycle
from shoal.core.decisions import Start
from shoal.core.demand import TaskClass
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.model.modes import Cap, Sharing
from shoal.model.node import Device, Leaf, Node, Taint
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import PodSet, Workload

SEED = 42
DEMAND = (
    TaskClass(Request(4000, 0, DeviceRequest(1)), 5),
    TaskClass(Request(2000, 0, DeviceRequest(1, whole=False, compute_milli=500)), 3),
    TaskClass(Request(16_000, 0, DeviceRequest(4)), 1),
    TaskClass(Request(2000), 1),
)


def device(
    name: str,
    accelerator: str = "H100",
    tenants: int = 8,
    memory_mib: int = 80,
    cap: Cap = Cap.NONE,
) -> Device:
    """An undivided device that several pods may share."""
    leaf = Leaf(name, memory_mib, 1000, tenants, Sharing.TIME_SLICED, cap)
    return Device(name, accelerator, (leaf,))


def divided(name: str, parts: int, accelerator: str = "A100") -> Device:
    """A device in equal partitions, each for one pod."""
    each = 1000 // parts
    leaves = tuple(Leaf(f"{name}/{p}", 80 // parts, each) for p in range(parts))
    return Device(name, accelerator, leaves)


def node(
    name: str,
    devices: int = 0,
    *,
    cpu: int = 32,
    memory: int = 1000,
    accelerator: str = "H100",
    labels: dict[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    pods: int = 110,
) -> Node:
    """A node with so many whole devices; `cpu` in cores, `memory` in MiB."""
    cards = tuple(device(f"{name}/{d}", accelerator) for d in range(devices))
    return Node(name, cpu * 1000, memory, pods, cards, labels or {}, taints)


def whole(count: int, cpu: int = 1, *accelerators: str) -> Request:
    """A request for whole devices."""
    return Request(cpu * 1000, 0, DeviceRequest(count, accelerators=accelerators))


def share(compute_milli: int, memory_mib: int = 0, *, cpu: int = 1, count: int = 1) -> Request:
    """A request for parts of devices."""
    return Request(
        cpu * 1000,
        0,
        DeviceRequest(count, whole=False, memory_mib=memory_mib, compute_milli=compute_milli),
    )


def job(uid: str, request: Request, pods: int = 1, *, priority: int = 0) -> Workload:
    """A workload of equal pods."""
    return Workload(uid, (PodSet("main", pods, request),), priority=priority)


def world_of(*nodes: Node) -> World:
    """A world that has seen these nodes."""
    world = World()
    for seen in nodes:
        world.apply(ev.NodeSeen(0, seen))
    return world


def policy(name: str = "best-fit") -> Policy:
    """A policy; one that needs to know the demand is told of a small one."""
    return Policy(name, DEMAND)


def decide(world: World, which: Policy | None = None, now_us: int = 1) -> Cycle:
    """Run a cycle and make its decisions state, as the loop does."""
    came = cycle(world, which or policy(), now_us, SEED, Budget(10_000))
    for decision in came.decisions:
        world.apply(ev.Decided(now_us, decision))
    world.apply(ev.Cycled(now_us, 10_000, came.complete, came.examined))
    return came


def submit(world: World, *workloads: Workload, which: Policy | None = None) -> Cycle:
    """Submit workloads and decide."""
    for workload in workloads:
        world.apply(ev.WorkloadSubmitted(0, workload))
    return decide(world, which)


def started(came: Cycle) -> dict[str, list[str]]:
    """Return the nodes of each workload that was started, by uid."""
    return {
        decision.workload: [placement.node for placement in decision.placements]
        for decision in came.decisions
        if isinstance(decision, Start)
    }
