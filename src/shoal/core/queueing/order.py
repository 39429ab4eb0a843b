"""Whose turn it is: the heads of all queues, in the order of the tenant tree.

From the root down, that child goes first which is below a guarantee on what its next workload asks
for; then the one that holds least of the fleet for its weight; then the one whose next workload is
oldest. Every start changes that, so taking one head after another fills the tree evenly (weighted
max-min over dominant shares). Inside a queue heads have the order of their workloads. In a queue in
which users have their turns, each user with work is like a queue below it.

What could be preempted as soon as it started does not start before work of its queue that could do
that: when its turn comes the most urgent of that goes first. The others keep their order.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count

from shoal.core.entry import Entry
from shoal.core.eviction.victims import preemptible_at_once
from shoal.core.queueing.grouping import place_of
from shoal.core.queueing.looks import Looks
from shoal.core.queueing.precedence import Order, by_priority, priority_of
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

    __slots__ = (
        "children",
        "depth",
        "first",
        "heads",
        "key",
        "leaf",
        "parent",
        "queue",
        "unseen",
        "user",
    )

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
        self.first: Head | None = None
        """What goes first when its turn comes: its next head, or more urgent work of its queue."""

    def next(self, worth: Callable[[Head], bool]) -> "_Place | None":
        """Return where its next head is, having forgotten those that are not worth a look."""
        children = self.children
        while children and children[0][2].key is not children[0][0]:
            heappop(children)
        if children:
            return children[0][2].leaf
        heads = self.heads
        while heads and not worth(heads[0]):
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
        self._world = world
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
        self._urgent: dict[str, list[tuple[int, Head]]] = {}
        """By queue whose order is not that of priorities: a heap of the heads that may preempt, the
        most urgent first; what has been taken is passed."""
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
            place, head = (
                self._place_of(group.queue, group.user),
                (group.members[member], group, member),
            )
            heappush(place.heads, head)
            self._note(head)
            self._stale[place] = None

    def pop(self) -> tuple[Group, int] | None:
        """Take the group whose turn it is and the number of its member, None if there is none."""
        while True:
            if not self._narrowed and not self._looks.any_room():
                self._begin()
            self._rank_anew()
            place = self._above_all.next(self._worth)
            if place is None:
                return None
            self._stale[place] = None
            if place.unseen:
                self._see(place)
            elif self._worth(place.heads[0]) and place.first == self._first(place):
                first = place.first
                if first == place.heads[0]:
                    heappop(place.heads)
                _, group, member = first
                self._stale[self._place_of(group.queue, group.user)] = None
                self._next[group] = len(group.members)
                return group, member

    def _worth(self, head: Head) -> bool:
        """Return whether a head was not taken yet, and is to be looked at."""
        _, group, member = head
        return self._next.get(group, 0) == member and self._looks.worth(group)

    def _first(self, place: _Place) -> Head:
        """Return what goes first when the turn of a place has come, which has a head."""
        head = place.heads[0]
        urgent = self._urgent.get(place.queue, [])
        while urgent and -urgent[0][0] > head[1].priority:
            other = urgent[0][1]
            if self._worth(other):
                entry = self._world.entries[head[0][2]]
                at_once = preemptible_at_once(self._world, entry, self._tenants.now_us)
                return other if at_once else head
            heappop(urgent)
        return head

    def _note(self, head: Head) -> None:
        """Note a head that others may have to let go first."""
        group = head[1]
        if not group.was_evicted and not by_priority(self._tenants.tree, group.queue):
            heappush(self._urgent.setdefault(group.queue, []), (-group.priority, head))

    def _see(self, place: _Place) -> None:
        """Find the groups of a queue, or of a user in it.

        Where others may have to go first, those of all its users.
        """
        places = [place]
        several = len(self._world.waiting.by_priority.get(place.queue, ())) > 1
        if place.user is not None and several:
            places = [each for each in self._users[place.queue] if each.unseen]
        for each in places:
            each.unseen = False
            each.heads = [
                (group.members[member], group, member)
                for group in self._looks.groups_in((each.queue, each.user or ""))
                if (member := self._next.get(group, 0)) < len(group.members)
            ]
            heapify(each.heads)
            for head in each.heads:
                self._note(head)
            self._stale[each] = None

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
        leaf = place.next(self._worth)
        if leaf is None:
            place.key = None
            return
        place.leaf = leaf
        accelerators: tuple[str, ...] = ()
        tie: tuple[int | str, ...] = ()
        if not leaf.unseen:  # otherwise this is the least that its key can be
            head = leaf.heads[0]
            if place.user is None:
                if place.queue == leaf.queue:
                    leaf.first = self._first(leaf)
                head = leaf.first or head
            order, group, _ = head
            accelerators = group.accelerators
            # Orders of different queues cannot be compared, but ages can.
            of_one = place.user is not None or not self._tenants.tree.queues
            tie = order if of_one else order[1:]
        if place.user is None:
            share = self._tenants.rank(place.queue, accelerators)
        else:
            share = self._tenants.rank_of_user(place.queue, place.user)
        key = share, tie
        if key != place.key:
            place.key = key
            heappush(parent.children, (key, next(self._numbers), place))


class _Turns:
    """Work of one queue that waits, of which some goes before what it could preempt at once."""

    def __init__(self, world: World, queue: str, in_order: Iterable[Entry]) -> None:
        self._world = world
        self._left = dict.fromkeys(in_order)
        tree = world.tenants.tree
        self._worth = {entry: priority_of(tree, entry.workload) for entry in self._left}
        self._urgent: deque[Entry] = deque()
        if not by_priority(tree, queue):
            urgent = (entry for entry in self._left if not entry.was_evicted)
            self._urgent.extend(sorted(urgent, key=self._worth.__getitem__, reverse=True))

    def left(self, entry: Entry) -> bool:
        """Return whether work has not had its turn."""
        return entry in self._left

    def take(self, entry: Entry) -> Entry:
        """Take what goes first when the turn of this work has come."""
        while self._urgent and not self.left(self._urgent[0]):
            self._urgent.popleft()
        first, world, urgent = entry, self._world, self._urgent
        if urgent and self._worth[urgent[0]] > self._worth[entry]:
            at_once = preemptible_at_once(world, entry, world.tenants.now_us)
            first = urgent[0] if at_once else entry
        del self._left[first]
        return first


def in_turn(world: World, queue: str, waiting: Iterable[Entry]) -> list[Entry]:
    """Return work that waits in a queue in the order in which it would start if all of it fitted.

    Where users have their turns, each is counted on the first accelerator that it asks for by name.
    """
    places = {entry: place_of(world, entry) for entry in waiting}
    in_order = sorted(places, key=places.__getitem__)
    turns = _Turns(world, queue, in_order)
    found = []
    if queue not in world.tenants.users:
        for entry in in_order:
            while turns.left(entry):
                found.append(turns.take(entry))
        return found
    of_user: dict[str, deque[Entry]] = {}
    for entry in in_order:
        of_user.setdefault(entry.workload.user, deque()).append(entry)
    held = {user: Counter(dict(world.tenants.users.held(queue, user))) for user in of_user}

    def key(user: str) -> tuple[int, Order, str]:
        return dominant_share(world.fleet, held[user].items()), places[of_user[user][0]], user

    heap = [key(user) for user in of_user]
    heapify(heap)
    while heap:
        before = heappop(heap)
        own = of_user[before[-1]]
        while own and not turns.left(own[0]):
            own.popleft()
        if not own:
            continue
        now = key(before[-1])
        if now == before:
            entry = turns.take(own[0])
            found.append(entry)
            _count(world, entry, held[entry.workload.user])
        heappush(heap, now)
    return found


def _count(world: World, entry: Entry, held: Counter[int]) -> None:
    """Count what a workload would hold, on the first accelerator that it asks for by name."""
    for pod_set in entry.workload.pod_sets:
        devices = pod_set.request.devices
        first = world.fleet.accelerator_ids.get("".join(devices.accelerators[:1]), 1)
        part = UNIT if devices.whole else devices.compute_milli * (UNIT // WHOLE_COMPUTE_MILLI)
        held[first] += pod_set.count * devices.count * part
