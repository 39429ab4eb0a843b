"""Whose turn it is: the heads of all queues, in the order of the tenant tree.

From the root down, that child goes first which is below a guarantee on what its next workload asks
for; then the one that holds least of the fleet for its weight; then the one whose next workload is
oldest. Every start changes that, so taking one head after another fills the tree evenly (weighted
max-min over dominant shares). Inside a queue heads have the order of their workloads. In a queue in
which users have their turns, each user with work is like a queue below it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from shoal.core.entry import Entry
from shoal.core.queueing.grouping import place_of
from shoal.core.queueing.looks import Looks
from shoal.core.queueing.precedence import Order
from shoal.core.queueing.waiting import Group
from shoal.core.tenancy.dominance import dominant_share
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.node import WHOLE_COMPUTE_MILLI

ABOVE_ALL = ""
"""Above the root of the tree, and above the queues that the tree does not have."""


Head = tuple[Order, Group, int]
"""A workload whose turn may come: its order, its group, its place among the members."""

Key = tuple[tuple[bool, int], tuple[int | str, ...]]
"""What siblings are ordered by: their accounts, then their next workload."""


class _Place:
    """A queue with heads in it or below it, or a user with heads in a queue."""

    __slots__ = ("children", "depth", "heads", "key", "leaf", "parent", "queue", "unseen", "user")

    def __init__(self, queue: str, user: str | None, parent: "_Place | None") -> None:
        self.queue = queue
        self.user = user
        """None for the queue itself."""
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.heads: list[Head] = []
        """A heap, where there are no places below it."""
        self.unseen = False
        """Whether its groups are not among the heads yet."""
        self.children: list[tuple[Key, int, _Place]] = []
        """A heap of those below it by their keys; what is not their key now is passed."""
        self.key: Key | None = None
        """Its key among its siblings, None while there is no head in it."""
        self.leaf = self
        """Where its next head is."""

    def next(self, worth: Callable[[Group], bool]) -> "_Place | None":
        """Return where its next head is, having forgotten those that are not worth a look."""
        children = self.children
        while children and children[0][2].key is not children[0][0]:
            heappop(children)
        if children:
            return children[0][2].leaf
        heads = self.heads
        while heads and not worth(heads[0][1]):
            heappop(heads)
        return self if heads or self.unseen else None


class Heads:
    """The heads of all queues.

    When there is no room left for any group that slept, these are forgotten all at once. What a
    start changes in the accounts of the queue that the last head came from is seen; whoever changes
    those of other queues has to tell that they have `changed`.

    Which groups a queue has is asked when its turn may have come, so that a cycle costs what it
    starts, and not what waits.
    """

    def __init__(self, world: World, looks: Looks) -> None:
        self._tenants = world.tenants
        self._looks = looks
        self._next: dict[Group, int] = {}
        """From which member on groups go on that were taken."""
        self._numbers = count()
        self._begin()

    def _begin(self) -> None:
        """Begin with the queues in which there is something to look at."""
        self._narrowed = not self._looks.any_room()
        """Whether there are no groups that slept."""
        self._above_all = _Place(ABOVE_ALL, None, None)
        self._places: dict[tuple[str, str | None], _Place] = {}
        self._users: dict[str, list[_Place]] = {}
        self._stale: dict[_Place, None] = {}
        """Places whose rank, and that of all above them, has to be found anew."""
        for queue, user in self._looks.places():
            place = self._place_of(queue, user)
            place.unseen = True
            self._stale[place] = None

    def push(self, group: Group, member: int) -> None:
        """Add the member of a group with this number, if it has so many."""
        self._next[group] = member
        if member < len(group.members):
            place = self._place_of(group.queue, group.user)
            heappush(place.heads, (group.members[member], group, member))
            self._stale[place] = None

    def pop(self) -> tuple[Group, int] | None:
        """Take the group whose turn it is and the number of its member, None if there is none."""
        while True:
            if not self._narrowed and not self._looks.any_room():
                self._begin()
            self._rank_anew()
            place = self._above_all.next(self._looks.worth)
            if place is None:
                return None
            self._stale[place] = None
            if place.unseen:
                self._see(place)
            elif self._looks.worth(place.heads[0][1]):
                _, group, member = heappop(place.heads)
                self._next[group] = len(group.members)
                return group, member

    def _see(self, place: _Place) -> None:
        """Find the groups of a queue, or of a user in it."""
        place.unseen = False
        after = self._next
        place.heads = [
            (group.members[member], group, member)
            for group in self._looks.groups_in((place.queue, place.user or ""))
            if (member := after.get(group, 0)) < len(group.members)
        ]
        heapify(place.heads)

    def changed(self, queue: str) -> None:
        """Note that the accounts of a queue have changed, and so those of its ancestors."""
        for place in self._users.get(queue, ()):
            self._stale[place] = None
        for name in self._tenants.path(queue):
            known = self._places.get((name, None))
            if known is not None:
                self._stale[known] = None

    def _place_of(self, queue: str, user: str) -> _Place:
        return self._place(queue, user if queue in self._tenants.users else None)

    def _place(self, queue: str, user: str | None) -> _Place:
        place = self._places.get((queue, user))
        if place is None:
            parent = self._above_all
            if user is not None:
                parent = self._place(queue, None)
            elif above := self._tenants.path(queue)[1:]:
                parent = self._place(above[0], None)
            place = self._places[queue, user] = _Place(queue, user, parent)
            if user is not None:
                self._users.setdefault(queue, []).append(place)
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
        leaf = place.next(self._looks.worth)
        if leaf is None:
            place.key = None
            return
        place.leaf = leaf
        accelerators: tuple[str, ...] = ()
        tie: tuple[int | str, ...] = ()
        if not leaf.unseen:  # otherwise this is the least that its key can be
            order, group, _ = leaf.heads[0]
            accelerators = group.accelerators
            # Orders of different queues cannot be compared, but ages can.
            tie = order[1:] if self._tenants.tree.queues else order
        if place.user is None:
            share = self._tenants.rank(place.queue, accelerators)
        else:
            share = self._tenants.rank_of_user(place.queue, place.user)
        key = share, tie
        if key != place.key:
            place.key = key
            heappush(parent.children, (key, next(self._numbers), place))


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
