"""What a pool makes of its nodes, in numbers."""

from collections.abc import Iterable

from shoal.model.node import Node
from shoal.model.pool import Pool
from shoal.model.workload import WorkloadType


def type_bit(type_: WorkloadType) -> int:
    """Return the bit that stands for a type of work."""
    return 1 << list(WorkloadType).index(type_)


def rules_of(pools: Iterable[Pool], node: Node) -> tuple[int, int]:
    """Return the bits of the types that a node is closed to, and 1 if queues mix on it, else 0."""
    for pool in pools:
        if pool.nodes.matches(node.labels):
            closed_to = sum(type_bit(each) for each in WorkloadType if each not in pool.types)
            return closed_to, int(pool.mixes_queues)
    return 0, 0
