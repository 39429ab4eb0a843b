"""What a pool makes of its nodes, in numbers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from shoal.core.arrays.labels import BoolArray
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

NUMBER: Final = MIXES << 1
"""What the number of its pool, from 1 on in their order, counts times in the sum."""


def type_bit(type_: WorkloadType) -> int:
    """Return the bit of a node whose pool does not serve a type of work."""
    return 1 << list(WorkloadType).index(type_)


def rules_of(pools: Iterable[Pool], node: Node) -> int:
    """Return what the pools make of a node, as a sum of bits.

    A node that no pool chooses takes every type, so that the first pool closes no other node. One
    that several choose has the bit `SEVERAL` and no other.
    """
    own = [each for each in enumerate(pools, 1) if each[1].nodes.matches(node.labels)]
    if len(own) > 1:
        return SEVERAL
    if not own:
        return 0
    ((number, pool),) = own
    closed_to = sum(type_bit(each) for each in WorkloadType if each not in pool.types)
    return closed_to + MIXES * pool.mixes_queues + NUMBER * number


def pool_number(fleet: "Fleet", row: int) -> int:
    """Return the number of the pool that a row is in, 0 where it is in none or in several."""
    return int(fleet.rules[row]) // NUMBER


def is_in(fleet: "Fleet", number: int) -> BoolArray:
    """Return for each row whether it is in the pool with a number, from 1 on in their order."""
    found: BoolArray = fleet.rules[: fleet.size] // NUMBER == number
    return found


def closed(fleet: "Fleet", row: int, type_: WorkloadType) -> bool:
    """Return whether the pools let no work of a type start on a row."""
    return bool(fleet.rules[row] & (SEVERAL | type_bit(type_)))
