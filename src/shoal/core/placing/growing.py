"""Growing: running elastic work gets pods that it lacks, out of what nobody who waits can use.

A cycle comes to it when it has nothing left to decide: whoever waits was looked at, and neither
starts in the room that is left nor makes others go for it. Growing keeps to every rule that a start
keeps to, takes no place that is kept for somebody, and makes nobody go.

Queues have their turns as in `order`, by what they hold and are guaranteed, with users where these
have turns; a pod at a time, as each changes that. In a queue the first in its order grows first.
"""

from collections import deque
from collections.abc import Container
from heapq import heapify, heappop, heappush

from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.decisions import Resize
from shoal.core.entry import Entry
from shoal.core.placing.ahead import expected_end_us
from shoal.core.placing.board import Board
from shoal.core.placing.lacking import pods_of
from shoal.core.placing.placement import hardest_first
from shoal.core.queueing.grouping import place_of
from shoal.core.tenancy.quota import add_within_quota, promise
from shoal.core.tenancy.ruled_out import ruled_out
from shoal.core.world import World
from shoal.model.workload import Placement

Place = tuple[str, str]
"""A queue, and a user in it where users have their turns."""

Key = tuple[tuple[tuple[bool, int], ...], tuple[int | str, ...], Place]
"""What those with work that lacks pods are ordered by: their accounts, then their first work."""


class Growing:
    """The growing of one cycle. The world must be speculating, and what is spent be judged."""

    def __init__(
        self, world: World, board: Board, now_us: int, budget: Budget, leaving: Container[str]
    ) -> None:
        """`leaving` are workloads of which pods go by decisions of this cycle."""
        self._world = world
        self._board = board
        self._budget = budget
        self._now_us = now_us
        self._lacks = {
            uid: self._in_order(entry)
            for uid in world.lacking
            if uid not in leaving and self._may(entry := world.entries[uid])
        }
        """By workload: the pods that it may still be given, the next one first."""
        self._joined: dict[str, list[Placement]] = {}
        self._no_room: set[tuple[Shape, frozenset[str]]] = set()
        """Of which shapes no pod finds a place any more, for those whom these nodes refused."""
        self.complete = True
        """Whether everybody was looked at."""

    def grow(self) -> tuple[Resize, ...]:
        """Decide which pods join. What the budget does not reach is left out."""
        places: dict[Place, deque[Entry]] = {}
        entries = [self._world.entries[uid] for uid in self._lacks]
        for entry in sorted(entries, key=lambda entry: place_of(self._world, entry)):
            places.setdefault(self._place_of(entry), deque()).append(entry)
        heap = [self._key(place, entries[0]) for place, entries in places.items()]
        heapify(heap)
        while heap and not self._budget.spent:
            key = heappop(heap)
            waiting = places[key[-1]]
            now = self._key(key[-1], waiting[0])
            if now == key and not self._one_more(waiting[0]):
                waiting.popleft()
            if waiting:
                heappush(heap, self._key(key[-1], waiting[0]))
        self.complete = not heap
        return tuple(
            Resize(
                f"resize/{uid}/{self._world.entries[uid].attempt}/{found[0].pod}/{self._now_us}",
                uid,
                tuple(sorted(found, key=lambda placement: placement.pod)),
            )
            for uid, found in self._joined.items()
        )

    def _may(self, entry: Entry) -> bool:
        """Return whether work may grow: nothing is granted for what is past its time."""
        world = self._world
        known = world.declared.expected_us(entry.workload) is not None
        if known and entry.started and expected_end_us(world, entry, self._now_us) is None:
            return False
        shapes = world.shapes_of(entry)
        return not world.tenants.tree.queues or ruled_out(world, entry, shapes) is None

    def _in_order(self, entry: Entry) -> deque[int]:
        """Return the pods that a workload lacks, in the order in which starts place them."""
        lacked = pods_of(entry)
        order = hardest_first(self._world.shapes_of(entry))
        return deque(sorted(lacked, key=lambda pod: (order.index(entry.pod_set_of(pod)), pod)))

    def _place_of(self, entry: Entry) -> Place:
        queue = entry.workload.queue
        return queue, entry.workload.user if queue in self._world.tenants.users else ""

    def _key(self, place: Place, first: Entry) -> Key:
        tenants, (queue, user) = self._world.tenants, place
        asked = {name for each in first.requests for name in each.devices.accelerators}
        accelerators = tuple(sorted(asked))
        ranks = [tenants.rank(at, accelerators) for at in reversed(tenants.path(queue))]
        if user:
            ranks.append(tenants.rank_of_user(queue, user))
        order = place_of(self._world, first)
        return tuple(ranks), order[1:] if tenants.tree.queues else order, place

    def _one_more(self, entry: Entry) -> bool:
        """Give a workload one more pod; return whether it may be given another."""
        world, uid = self._world, entry.workload.uid
        lacked = self._lacks[uid]
        while lacked:
            pod = lacked.popleft()
            shape = world.shape_of(entry.request_of(pod), entry.workload.type)
            kind = shape, entry.refused
            if kind not in self._no_room:
                found = add_within_quota(world, self._board, entry, pod, self._budget)
                if found is not None:
                    promise(world, entry, (found,))
                    self._joined.setdefault(uid, []).append(found)
                    return bool(lacked)
                if self._board.best(shape, uid, entry.refused) is None:
                    self._no_room.add(kind)
            number = entry.pod_set_of(pod)
            while lacked and entry.pod_set_of(lacked[0]) == number:
                lacked.popleft()  # what one of them cannot have none of the others can
        return False
