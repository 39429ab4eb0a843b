"""What other queues would make of a world, found without changing it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shoal.core.arrays.charges import charges_of
from shoal.core.entry import Entry
from shoal.core.limits.timelimits import TimeLimits
from shoal.core.tenancy.owed import Owed
from shoal.core.tenancy.tenants import Tenants
from shoal.core.world import World
from shoal.model.queue import QueueTree
from shoal.model.workload import WorkloadType


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a tree makes of a world at a time.

    `owed` is by kind of rule, and by queue and accelerators, as `Tenants.owed` has it. `ended` and
    `refused` are the uids of those that have run or waited for their maximum, with that maximum.
    """

    owed: Mapping[tuple[str, str], Owed]
    ended: Mapping[str, int]
    refused: Mapping[str, int]


def foreseen(
    world: World, before: QueueTree, after: QueueTree, now_us: int
) -> tuple[Foreseen, Foreseen]:
    """Return what two trees, both as the core counts, make of what is held and waits now.

    `before` is the tree that the world keeps to or is about to. Guarantees that have shrunk on a
    fleet that is too small are worth as little afterwards.
    """
    tenants = Tenants(world.fleet)
    tenants.clock(max(now_us, world.tenants.now_us))
    tenants.set_tree(world.tenants.tree)
    tenants.remember(*world.tenants.remembered())
    first, second = (
        Foreseen(_owed(world, tenants, tree), *_ended(world, tree, now_us))
        for tree in (before, after)
    )
    return first, second


def _owed(world: World, tenants: Tenants, tree: QueueTree) -> Mapping[tuple[str, str], Owed]:
    tenants.set_tree(tree)
    for entry in world.entries.values():
        _charge(world, tenants, entry)
    tenants.bring_up_to_date()
    return tenants.owed()


def _charge(world: World, tenants: Tenants, entry: Entry) -> None:
    """Charge what a workload holds, or is kept for it, as `World.count` does."""
    charged = []
    for pod, placement in entry.held.items():
        charges = charges_of(world.fleet, entry.request_of(pod), placement)
        charged.append((pod, charges or entry.charges.get(pod, ())))
    if entry.reserved is not None:
        pods = (placement.pod for placement in entry.reserved.placements)
        charged += zip(pods, entry.reserved.charges, strict=True)
    queue = entry.workload.queue
    for pod, charges in charged:
        if not entry.rests(pod):
            fixed = tenants.stays(entry.workload, spared=entry.spared(pod))
            tenants.charge(queue, charges, 1, fixed=fixed)
        if entry.borrowed is not None:
            tenants.pin(queue, charges, entry.borrowed, 1)


def _ended(
    world: World, tree: QueueTree, now_us: int
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return who has run, and who has waited, for the maximum of their queue, with that."""
    limits = TimeLimits()
    limits.set_tree(tree)
    for entry in world.entries.values():
        limits.runs(entry)
        if not entry.held:
            limits.waits(entry)
    ended = _due(world, limits.running.due(now_us), limits.maximum_run_us)
    refused = _due(world, limits.waiting.due(now_us), limits.maximum_wait_us)
    return dict(ended), dict(refused)


def _due(
    world: World,
    due: list[tuple[int, str]],
    maximum_us: Callable[[str, WorkloadType], int | None],
) -> Iterator[tuple[str, int]]:
    for _, uid in due:
        workload = world.entries[uid].workload
        most_us = maximum_us(workload.queue, workload.type)
        if most_us is not None:
            yield uid, most_us
