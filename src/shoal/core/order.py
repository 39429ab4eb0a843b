"""Whose turn it is: the heads of all queues, in the order of the tenant tree.

From the root down, that child goes first which is below a guarantee on what its next workload asks
for; then the one that holds least of the fleet for its weight; then the one whose next workload is
oldest. Every start changes that, so taking one head after another fills the tree evenly (weighted
max-min over dominant shares). Inside a queue heads have the order of their workloads. In a queue in
which users have their turns, each user with work is like a queue below it.
"""

from collections import Counter, deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from shoal.core.dominance import dominant_share
from shoal.core.entry import Entry
from shoal.core.grouping import place_of
from shoal.core.precedence import Order
from shoal.core.tenants import Tenants
from shoal.core.waiting import Group
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.node import WHOLE_COMPUTE_MILLI

ABOVE_ALL = ""
"""Above the root of the tree, and above the queues that the tree does not have."""


class Head(NamedTuple):
    """A workload whose turn may come: its order, its group, its place among the members."""

    order: Order
    group: Group
    member: int


Rank = tuple[tuple[bool, int], tuple[int, int, str] | tuple[int, str], Head]
"""What siblings are ordered by: their accounts, then their next workload, which comes last."""


class _Place:
    """A queue with heads in it or below it, or a user with heads in a queue."""

    __slots__ = ("children", "depth", "heads", "parent", "queue", "rank", "user")

    def __init__(self, queue: str, user: str | None, parent: "_Place | None") -> None:
        self.queue = queue
        self.user = user
        """None for the queue itself."""
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.heads: list[Head] = []
        """A heap, where there are no places below it."""
        self.children: list[tuple[Rank, int, _Place]] = []
        """A heap of those below it as they were ranked; what is not their rank now is passed."""
        self.rank: Rank | None = None
        """Its rank among its siblings, None while there is no head in it."""

    def next(self) -> Head | None:
        """Return the next head in it or below it."""
        children = self.children
        while children and children[0][2].rank is not children[0][0]:
            heappop(children)
        if children:
            return children[0][0][2]
        return self.heads[0] if self.heads else None


class Heads:
    """The heads of all queues.

    What a start changes in the accounts of the queue that the last head came from is seen; whoever
    changes those of other queues has to tell that they have `changed`.
    """

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._above_all = _Place(ABOVE_ALL, None, None)
        self._places: dict[tuple[str, str | None], _Place] = {}
        self._users: dict[str, list[_Place]] = {}
        self._stale: dict[_Place, None] = {}
        """Places whose rank, and that of all above them, has to be found anew."""
        self._numbers = count()

    def push(self, head: Head) -> None:
        """Add a head."""
        place = self._place_of(head.group)
        heappush(place.heads, head)
        self._stale[place] = None

    def pop(self) -> Head | None:
        """Take the head whose turn it is, None if there is none."""
        self._rank_anew()
        head = self._above_all.next()
        if head is not None:
            place = self._place_of(head.group)
            heappop(place.heads)
            self._stale[place] = None
        return head

    def changed(self, queue: str) -> None:
        """Note that the accounts of a queue have changed, and so those of its ancestors."""
        for place in self._users.get(queue, ()):
            self._stale[place] = None
        for name in self._tenants.path(queue):
            known = self._places.get((name, None))
            if known is not None:
                self._stale[known] = None

    def _place_of(self, group: Group) -> _Place:
        turns = group.queue in self._tenants.users
        place = self._places.get((group.queue, group.user if turns else None))
        if place is not None:
            return place
        place = self._above_all
        for name in reversed(self._tenants.path(group.queue) or (group.queue,)):
            place = self._place(name, None, place)
        if turns:
            place = self._place(group.queue, group.user, place)
            self._users.setdefault(group.queue, []).append(place)
        return place

    def _place(self, queue: str, user: str | None, parent: _Place) -> _Place:
        place = self._places.get((queue, user))
        if place is None:
            place = self._places[queue, user] = _Place(queue, user, parent)
        return place

    def _rank_anew(self) -> None:
        """Rank what is stale, and all above it, from the bottom up."""
        by_depth: list[dict[_Place, None]] = []
        for place in self._stale:
            while len(by_depth) <= place.depth:
                by_depth.append({})
            by_depth[place.depth][place] = None
        self._stale.clear()
        for depth in range(len(by_depth) - 1, 0, -1):
            for place in by_depth[depth]:
                parent = place.parent
                if parent is not None:
                    self._rank(place, parent)
                    by_depth[depth - 1][parent] = None

    def _rank(self, place: _Place, parent: _Place) -> None:
        head = place.next()
        if head is None:
            place.rank = None
            return
        if place.user is None:
            share = self._tenants.rank(place.queue, head.group.accelerators)
        else:
            share = self._tenants.rank_of_user(place.queue, place.user)
        # Orders of different queues cannot be compared, but ages can.
        tie = head.order[1:] if self._tenants.tree.queues else head.order
        rank = (share, tie, head)
        if rank != place.rank:
            place.rank = rank
            heappush(parent.children, (rank, next(self._numbers), place))


def in_turn(world: World, queue: str, waiting: Iterable[Entry]) -> list[Entry]:
    """Return work that waits in a queue in the order in which it would start if all of it fitted.

    Where users have their turns, each is counted on the first accelerator that it asks for by name.
    """
    places = {entry: place_of(world, entry) for entry in waiting}
    in_order = sorted(places, key=places.__getitem__)
    if queue not in world.tenants.users:
        return in_order
    of_user: dict[str, deque[Entry]] = {}
    for entry in in_order:
        of_user.setdefault(entry.workload.user, deque()).append(entry)
    held = {user: Counter(dict(world.tenants.users.held(queue, user))) for user in of_user}
    turns = []
    heap = [
        (dominant_share(world.fleet, held[user].items()), places[entries[0]], user)
        for user, entries in of_user.items()
    ]
    heapify(heap)
    while heap:
        _, _, user = heappop(heap)
        entry = of_user[user].popleft()
        turns.append(entry)
        for pod_set in entry.workload.pod_sets:
            devices = pod_set.request.devices
            first = world.fleet.accelerator_ids.get("".join(devices.accelerators[:1]), 1)
            part = UNIT if devices.whole else devices.compute_milli * (UNIT // WHOLE_COMPUTE_MILLI)
            held[user][first] += pod_set.count * devices.count * part
        if of_user[user]:
            share = dominant_share(world.fleet, held[user].items())
            heappush(heap, (share, places[of_user[user][0]], user))
    return turns
