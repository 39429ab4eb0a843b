"""What other pools and queues mean for a world, before it keeps to them.

The embedded fleet, a scheduler in a cluster and who asks about one all say it by this.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from shoal.core.foreseen import Foreseen, foreseen
from shoal.core.tenancy.inside import inside_of, running_on
from shoal.core.world import World
from shoal.model.meaning import (
    BorrowDebt,
    GuaranteeDebt,
    LendDebt,
    LimitDebt,
    Meaning,
    PlaceableDebt,
    QuotaDebt,
    RunsEnded,
    WaitsRefused,
)
from shoal.model.pool import pools_of_node
from shoal.model.queue import QueueTree
from shoal.model.workload import WorkloadType
from shoal.objects.files import Written
from shoal.objects.meaning import closing_kept, meaning, pools_meaning
from shoal.objects.pools import node_problems
from shoal.objects.quotas import Names
from shoal.objects.tree import resolved, words_of

_DEBTS: Final[Mapping[str, type[QuotaDebt]]] = {
    "limit": LimitDebt,
    "borrowing": BorrowDebt,
    "guarantee": GuaranteeDebt,
    "placeable": PlaceableDebt,
    "lending": LendDebt,
}
"""Debts by the kind of rule, as the core calls it."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of pools and queues: what there will be, with queues that close, and its meaning."""

    written: Written
    meanings: tuple[Meaning, ...]


def labels_of(world: World) -> dict[str, Mapping[str, str]]:
    """The labels of the nodes that are there, by name."""
    return {node.name: node.labels for node in world.fleet.nodes if node is not None}


def several_pools(world: World, old: Written, new: Written) -> list[str]:
    """What is wrong with new pools that choose a node twice which the old ones did not.

    Labels of nodes change as well, so a node may be in several pools already; that is no reason to
    refuse files that leave it there.
    """
    labels = labels_of(world)
    already = {name for name, own in labels.items() if len(pools_of_node(old.pools, own)) > 1}
    return node_problems(new.pools, {n: own for n, own in labels.items() if n not in already})


def change(world: World, old: Written, new: Written, names: Names, now_us: int) -> Change:
    """What becomes of pools and queues, and what that means for who runs and waits at a time.

    Both are as they are written; `old` is what the world keeps to, with queues that close. No node
    is in several of the new pools. Debts and ends that there are already, or that do not grow, are
    not listed.
    """
    inside = inside_of(world)
    tree = closing_kept(old.tree, new.tree, inside, names)
    counted = resolved(tree, names)
    before, after = foreseen(world, resolved(old.tree, names), counted, now_us)
    said = (
        *pools_meaning(old.pools, new.pools, running_on(world, counted), labels_of(world)),
        *meaning(old.tree, new.tree, inside),
        *_ends(world, before, after),
        *_debts(before, after, tree, names),
    )
    return Change(Written(new.pools, tree), said)


def _ends(world: World, before: Foreseen, after: Foreseen) -> Iterator[Meaning]:
    """Who has run or waited for too long at once, by queue, type and maximum."""
    for made, was, will in (
        (RunsEnded, before.ended, after.ended),
        (WaitsRefused, before.refused, after.refused),
    ):
        found: Counter[tuple[str, str, int]] = Counter()
        for uid in will.keys() - was.keys():
            workload = world.entries[uid].workload
            found[workload.queue, workload.type, will[uid]] += 1
        for (queue, type_, most_us), count in sorted(found.items()):
            yield made(queue, WorkloadType(type_), count, most_us)


def _debts(
    before: Foreseen, after: Foreseen, tree: QueueTree, names: Names
) -> tuple[QuotaDebt, ...]:
    """The debts that are new or grow, in the words that people wrote."""
    words = words_of(tree, names)
    grown = [
        owed
        for key, owed in after.owed.items()
        if key not in before.owed or owed.over_units > before.owed[key].over_units
    ]
    # Of a guarantee that counts several accelerators each tells the same.
    return tuple(
        _DEBTS[each.rule](
            each.queue,
            words.get(each.accelerators, each.accelerators),
            each.over_units,
            each.bound_units,
        )
        for each in dict.fromkeys(grown)
    )
