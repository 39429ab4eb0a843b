"""Nodes grouped into types: the fleet as the linear programs see it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from shoal.model.modes import Sharing
from shoal.model.node import Node


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """`count` equal leaves of one node.

    Leaves with `undivided` are whole devices, the only ones that may be given away whole; those
    with `shared` take several pods.
    """

    accelerator: str
    compute_milli: int
    memory_mib: int
    shared: bool
    undivided: bool
    count: int


@dataclass(frozen=True, slots=True)
class NodeType:
    """`nodes` nodes that are equal in everything that a placement can use up."""

    cpu_milli: int
    memory_mib: int
    groups: tuple[LeafGroup, ...]
    nodes: int

    @property
    def leaves(self) -> int:
        """Leaves on one node."""
        return sum(group.count for group in self.groups)


def node_types(nodes: Iterable[Node]) -> tuple[NodeType, ...]:
    """The types of `nodes` with their counts, in the order in which they first appear."""
    counts = Counter((node.cpu_milli, node.memory_mib, _groups(node)) for node in nodes)
    return tuple(
        NodeType(cpu_milli, memory_mib, groups, count)
        for (cpu_milli, memory_mib, groups), count in counts.items()
    )


def _groups(node: Node) -> tuple[LeafGroup, ...]:
    kinds = Counter(
        (
            device.accelerator,
            leaf.compute_milli,
            leaf.memory_mib,
            leaf.tenants > 1 and leaf.sharing is not Sharing.EXCLUSIVE,
            len(device.leaves) == 1,
        )
        for device in node.devices
        for leaf in device.leaves
    )
    return tuple(LeafGroup(*kind, count) for kind, count in sorted(kinds.items()))
