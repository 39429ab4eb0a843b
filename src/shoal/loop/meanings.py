"""What other pools and queues mean for a world, before it keeps to them."""

from collections.abc import Mapping

from shoal.core.tenancy.inside import running_on
from shoal.core.world import World
from shoal.model.meaning import Inside, Meaning
from shoal.objects.files import Written
from shoal.objects.meaning import meaning, pools_meaning
from shoal.objects.quotas import Names


def labels_of(world: World) -> dict[str, Mapping[str, str]]:
    """The labels of the nodes that are there, by name."""
    return {node.name: node.labels for node in world.fleet.nodes if node is not None}


def meanings(
    world: World, inside: Mapping[str, Inside], old: Written, new: Written, names: Names
) -> tuple[Meaning, ...]:
    """What it means that pools and queues are others than before, all as they are written.

    `inside` is the work in each queue now; no node is in several of the new pools.
    """
    return (
        *pools_meaning(old.pools, new.pools, running_on(world), labels_of(world)),
        *meaning(old.tree, new.tree, inside, names),
    )
