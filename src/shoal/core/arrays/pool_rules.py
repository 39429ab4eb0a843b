"""What a pool makes of its nodes, in numbers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from shoal.model.node import Node
from shoal.model.pool import Pool
from shoal.model.workload import WorkloadType

if TYPE_CHECKING:
    from shoal.core.arrays.fleet import Fleet

SEVERAL: Final = 1 << len(WorkloadType)
"""The bit of a node that several pools choose: which rules hold there is for a person to say, and
until then nothing new starts there."""

MIXES: Final = SEVERAL << 1
"""The bit of a node whose pool lets different queues share a leaf."""


def type_bit(type_: WorkloadType) -> int:
    """Return the bit of a node whose pool does not serve a type of work."""
    return 1 << list(WorkloadType).index(type_)


def rules_of(pools: Iterable[Pool], node: Node) -> int:
    """Return what the pools make of a node, as a sum of bits.

    A node that no pool chooses takes every type, so that the first pool closes no other node. One
    that several choose has the bit `SEVERAL` and no other.
    """
    own = [pool for pool in pools if pool.nodes.matches(node.labels)]
    if len(own) > 1:
        return SEVERAL
    if not own:
        return 0
    closed_to = sum(type_bit(each) for each in WorkloadType if each not in own[0].types)
    return closed_to + MIXES * own[0].mixes_queues


def closed(fleet: "Fleet", row: int, type_: WorkloadType) -> bool:
    """Return whether the pools let no work of a type start on a row."""
    return bool(fleet.rules[row] & (SEVERAL | type_bit(type_)))
