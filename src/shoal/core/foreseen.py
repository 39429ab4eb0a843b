"""What other queues would make of a world, found without changing it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from shoal.core.arrays.charges import Charge, charges_of
from shoal.core.entry import Entry
from shoal.core.limits.timelimits import TimeLimits
from shoal.core.tenancy.owed import Owed
from shoal.core.tenancy.tenants import Tenants
from shoal.core.world import World
from shoal.model.queue import QueueTree
from shoal.model.workload import WorkloadType

Charged = list[tuple[int, tuple[Charge, ...]]]
"""What is charged for pods, by their numbers."""


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
    charged = [(entry, _charged(world, entry)) for entry in world.entries.values()]
    first, second = (
        Foreseen(_owed(tenants, tree, charged), *_ended(world, tree, now_us))
        for tree in (before, after)
    )
    return first, second


def _charged(world: World, entry: Entry) -> Charged:
    """Return what a workload holds, or is kept for it, by pod."""
    charged = []
    for pod, placement in entry.held.items():
        charges = charges_of(world.fleet, entry.request_of(pod), placement)
        charged.append((pod, charges or entry.charges.get(pod, ())))
    if entry.reserved is not None:
        pods = (placement.pod for placement in entry.reserved.placements)
        charged += zip(pods, entry.reserved.charges, strict=True)
    return charged


def _owed(
    tenants: Tenants, tree: QueueTree, charged: Iterable[tuple[Entry, Charged]]
) -> Mapping[tuple[str, str], Owed]:
    """Charge all of it by a tree, as `World.count` does, and return what is owed."""
    tenants.set_tree(tree)
    for entry, by_pod in charged:
        queue = entry.workload.queue
        for pod, charges in by_pod:
            if not entry.rests(pod):
                fixed = tenants.stays(entry.workload, spared=entry.spared(pod))
                tenants.charge(queue, charges, 1, fixed=fixed)
            if entry.borrowed is not None:
                tenants.pin(queue, charges, entry.borrowed, 1)
    tenants.bring_up_to_date()
    return tenants.owed()


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
