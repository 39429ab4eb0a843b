"""Pools: sets of nodes with a purpose, a sharing policy and a placement policy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from shoal.model.modes import Mode
from shoal.model.selector import Selector
from shoal.model.workload import WorkloadType


class PlacementPolicy(StrEnum):
    """How nodes and leaves of a pool are scored."""

    PACK = "pack"
    SPREAD = "spread"
    FRAGMENTATION = "fragmentation"
    TOPOLOGY = "topology"


@dataclass(frozen=True, slots=True)
class Pool:
    """A set of nodes with a purpose; a node is in one pool, or in none.

    `types` says which work it serves and `modes` how its devices may be shared, in the order in
    which they are preferred. Without a `placement` it has the policy of all other nodes. `levels`
    are the node labels of its topology from the smallest domain to the largest; only the policy
    `topology` has them. `mixes_queues` says that work of different queues below the root may share
    a device there.
    """

    name: str
    nodes: Selector
    types: tuple[WorkloadType, ...]
    modes: tuple[Mode, ...]
    placement: PlacementPolicy | None = None
    levels: tuple[str, ...] = ()
    mixes_queues: bool = False


def pools_of_node(pools: Iterable[Pool], labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the pools that a node with these labels would be in, in their order."""
    return tuple(pool.name for pool in pools if pool.nodes.matches(labels))
