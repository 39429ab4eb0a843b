"""Whose turn it is: the heads of all queues, in the order of the tenant tree.

From the root down, that child goes first which is below a guarantee on what its next workload asks
for; then the one that holds least of the fleet for its weight. Every start changes that, so taking
one head after another fills the tree evenly (weighted max-min over dominant shares). Inside a queue
heads have the order of their workloads.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from shoal.core.tenants import Tenants
from shoal.core.waiting import Group, Order

ABOVE_ALL = ""
"""Above the root of the tree, and above the queues that the tree does not have."""


class Head(NamedTuple):
    """A workload whose turn may come: its order, its group, its place among the members."""

    order: Order
    group: Group
    member: int


class Heads:
    """The heads of all queues; whoever starts one has to tell that its queue has `changed`."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._of_queue: dict[str, list[Head]] = {}
        self._children: dict[str, dict[str, None]] = {}
        """Queues with heads in them or below them, by parent."""
        self._next: dict[str, tuple[tuple[bool, int], Order, str]] = {}
        """Of such a queue: its rank among its siblings, and the next head with its queue."""

    def push(self, head: Head) -> None:
        """Add a head."""
        queue = head.group.key[0]
        heappush(self._of_queue.setdefault(queue, []), head)
        self.changed(queue)

    def pop(self) -> Head | None:
        """Take the head whose turn it is, None if there is none."""
        children = self._children.get(ABOVE_ALL)
        if not children:
            return None
        queue = min(self._next[child] for child in children)[2]
        head = heappop(self._of_queue[queue])
        self.changed(queue)
        return head

    def changed(self, queue: str) -> None:
        """Note that a queue's heads or accounts have changed, and so those of its ancestors."""
        path = self._tenants.path(queue) or (queue,)
        for name, parent in zip(path, (*path[1:], ABOVE_ALL), strict=True):
            head = self._head_of(name)
            siblings = self._children.setdefault(parent, {})
            if head is None:
                siblings.pop(name, None)
                self._next.pop(name, None)
                continue
            siblings[name] = None
            rank = self._tenants.rank(name, head.group.accelerators)
            self._next[name] = (rank, head.order, head.group.key[0])

    def _head_of(self, name: str) -> Head | None:
        """Return the next head in a queue or below it."""
        children = self._children.get(name)
        if children:
            name = min(self._next[child] for child in children)[2]
        heads = self._of_queue.get(name)
        return heads[0] if heads else None
