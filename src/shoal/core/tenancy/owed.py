"""What is owed where rules of the tenant tree are broken by what is held already."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owed:
    """A rule that is broken, by how much, and what it says; in units of a device.

    `rule` is `limit`, `borrowing`, `guarantee`, `placeable` or `lending`, at a queue, on the
    accelerators (`A|B`, or `units`) that it counts. What it says is, in this order: the limit; the
    most that is borrowed; what is guaranteed to what cannot be taken back; what is promised
    together on single nodes; what is kept free, which is owed to the queue that keeps most of it.
    """

    rule: str
    queue: str
    accelerators: str
    over_units: int
    bound_units: int
