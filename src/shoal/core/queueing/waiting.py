"""Who waits, in which order, and what wakes them.

Waiting workloads that ask for the same in the same queue form a group: they share one verdict, and
where the first of them does not fit none does. A group that was looked at sleeps. Where it fitted
nowhere it can only fit on a node that has gained room since, so cycles look at sleepers through the
nodes that gained room (`fresh`), and a cycle costs what changed and not what waits.
"""

from bisect import bisect_left, insort
from collections.abc import Container, Generator, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.shape import Shape
from shoal.core.events import Examined
from shoal.core.limits.spending import Declaration
from shoal.core.placing.eligibility import StaticMasks
from shoal.core.queueing.precedence import Order
from shoal.core.queueing.sleepers import Kind, Kinds, Room
from shoal.model.verdict import Verdict
from shoal.model.workload import WorkloadType


class Standing(NamedTuple):
    """What else decides about workloads that ask for the same.

    Types may do different things. Where there are queues: users have their turns in some of them;
    priority, and having been evicted before, say who may make others go; what cannot be returned
    may not borrow; work that ends sooner fills in behind reservations (`run_length` is the number
    of bits of its declared microseconds, 0 where it declared nothing); where a budget has to
    suffice, what is reserved follows from `budgeted`.
    """

    type: WorkloadType
    user: str = ""
    priority: int = 0
    returnable: bool = True
    was_evicted: bool = False
    run_length: int = 0
    budgeted: Declaration | None = None


GroupKey = tuple[str, tuple[tuple[Shape, int, int], ...], frozenset[str], Standing]
"""Queue; shape, count and needed pods of each pod set; the nodes that refused the workload."""


QueueAndUser = tuple[str, str]
"""Where groups stand together in the order; the user is empty where users have no turns."""


class Group:
    """Waiting workloads of one queue that ask for the same and were refused by the same nodes."""

    __slots__ = (
        "accelerators",
        "again_us",
        "asleep",
        "blocked_at",
        "hungry",
        "key",
        "members",
        "missing_pods",
        "pods",
        "priority",
        "queue",
        "shapes",
        "unanswered",
        "user",
        "verdict",
        "was_evicted",
    )

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.queue, self.user = key[0], key[3].user
        self.priority, self.was_evicted = key[3].priority, key[3].was_evicted
        self.shapes = tuple(shape for shape, _, _ in key[1])
        """One for each pod set."""
        self.accelerators = tuple(
            sorted({name for shape in self.shapes for name in shape.request.devices.accelerators})
        )
        """Those that its pod sets name; none where any will do."""
        self.pods = sum(needed for _, _, needed in key[1])
        """How many of a workload of the group have to start."""
        self.members: list[Order] = []
        """In order; never empty while the group exists."""
        self.asleep = False
        """Whether it was looked at, fitted nowhere, and may only fit where room has come."""
        self.blocked_at = ""
        """The queue whose quota stands in the way of a sleeping group, if one does."""
        self.hungry = False
        """Whether others may come to have to make room for a sleeping group."""
        self.again_us: int | None = None
        """When time alone may let a sleeping group start, if it may."""
        self.missing_pods: int | None = 1
        """Of a sleeping gang: room for how many more pods has to come before it is worth a look.

        None where room would not help.
        """
        self.verdict: Verdict | None = None
        """Why they wait; None until they were looked at."""
        self.unanswered: dict[str, None] = {}
        """Members that have not been told."""


Places = dict[QueueAndUser, dict[Group, None]]
"""Groups by where they stand."""


class Waiting:
    """All waiting groups, and what could end their waiting."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.by_priority: dict[str, dict[int, dict[Group, None]]] = {}
        """The groups of each queue, by what their priority is worth."""
        self.awake: Places = {}
        """Groups that the next cycle has to look at."""
        self.fresh: dict[int, None] = {}
        """Rows that have gained room, or other properties, since the last complete cycle."""
        self.unanswered: dict[Group, None] = {}
        """Groups with members that have not been told why they wait."""
        self.joined: dict[Group, None] = {}
        """Those of them that sleep, because others were looked at before."""
        self._blocked: dict[str, dict[Group, None]] = {}
        """Sleeping groups by the queue whose quota stands in their way."""
        self._kinds = Kinds()
        self._of_kind: dict[Kind, Places] = {}
        """Sleeping groups for which room may come, by what they ask for."""
        self._gangs: dict[Group, None] = {}
        self._hungry: dict[Group, None] = {}
        self.stirred = False
        """Whether others may have come to have to make room for somebody since the last complete
        cycle."""
        self.freed = False
        """Whether something may have become free since the last complete cycle, in room or in
        quota, or by other rules; running work that lacks pods is looked at then."""
        self._since: dict[str, int] = {}
        """Since when each that waits has, by uid."""
        self._oldest: dict[str, list[tuple[int, str]]] = {}
        """By queue a heap of those times, and of those that are true no longer."""
        self._times: list[tuple[int, int, Group]] = []
        """A heap of the times at which time alone may wake a sleeping group. What is not its time
        any more is passed."""
        self._numbers = count()

    def add(self, order: Order, key: GroupKey, since_us: int) -> Group:
        """Let a workload wait, in its place in its group; it has since a time."""
        self._since[order[2]] = since_us
        self._remember(key[0], since_us, order[2])
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(key)
            _put(self.awake, group)
            of_queue = self.by_priority.setdefault(group.queue, {})
            of_queue.setdefault(group.priority, {})[group] = None
            if group.pods > 1:
                self._gangs[group] = None
        insort(group.members, order)
        group.unanswered[order[2]] = None
        self.unanswered[group] = None
        if group.asleep:
            self.joined[group] = None
        return group

    def remove(self, order: Order, group: Group) -> None:
        """Let a workload wait no longer."""
        del group.members[bisect_left(group.members, order)]
        del self._since[order[2]]
        self.told(group, order[2])
        if not group.members:
            self.wake(group)
            del self.groups[group.key]
            self._forget(group)
            _drop(self.awake, group)
            self._gangs.pop(group, None)

    def _forget(self, group: Group) -> None:
        of_queue = self.by_priority[group.queue]
        del of_queue[group.priority][group]
        if not of_queue[group.priority]:
            del of_queue[group.priority]
        if not of_queue:
            del self.by_priority[group.queue]

    def most_urgent(self, queue: str) -> int | None:
        """Return what the most urgent work of a queue is worth that may preempt; None: none may."""
        of_queue = self.by_priority.get(queue, {}).items()
        may = (worth for worth, groups in of_queue if any(not each.was_evicted for each in groups))
        return max(may, default=None)

    def reorder(self, group: Group, before: Order, order: Order) -> None:
        """Give a member of a group another place in it."""
        del group.members[bisect_left(group.members, before)]
        insort(group.members, order)

    def _remember(self, queue: str, since_us: int, uid: str) -> None:
        """Note since when one waits; of who waits no longer no more is kept than of who does."""
        heap = self._oldest.setdefault(queue, [])
        if len(heap) > 2 * len(self._since) + 1000:
            heap[:] = sorted({each for each in heap if self._since.get(each[1]) == each[0]})
        heappush(heap, (since_us, uid))

    def oldest(self, queue: str, latest_us: int) -> Generator[str, None, None]:
        """Yield who of a queue waits since then or before, longest first; ask before it changes."""
        heap = self._oldest.get(queue, [])
        found: dict[tuple[int, str], None] = {}
        try:
            while heap and heap[0][0] <= latest_us:
                each = heappop(heap)
                if self._since.get(each[1]) == each[0] and each not in found:
                    found[each] = None
                    yield each[1]
        finally:
            for each in found:
                heappush(heap, each)

    def told(self, group: Group, uid: str) -> None:
        """Note that a member has been told why it waits, or waits no longer."""
        group.unanswered.pop(uid, None)
        if not group.unanswered:
            self.unanswered.pop(group, None)
            self.joined.pop(group, None)

    def sleep(self, group: Group, examined: Examined, masks: StaticMasks) -> None:
        """Note that a group was looked at, and what stood in the way of its first member."""
        self.wake(group)
        group.asleep = True
        if group.unanswered:
            self.joined[group] = None
        _drop(self.awake, group)
        group.missing_pods = examined.missing_pods
        group.hungry = examined.hungry
        if group.hungry:
            self._hungry[group] = None
        group.again_us = examined.again_us
        self._wake_at(group)
        if examined.blocked_at:
            group.blocked_at = examined.blocked_at
            self._blocked.setdefault(examined.blocked_at, {})[group] = None
        if examined.missing_pods is not None:
            self._kinds.add(group.shapes, masks)
            _put(self._of_kind.setdefault(group.shapes, {}), group)

    def wake(self, group: Group) -> None:
        """See to it that the next cycle looks at a group."""
        if group.asleep:
            group.asleep = False
            self.joined.pop(group, None)
            if group.missing_pods is not None:
                self._kinds.drop(group.shapes)
                _drop(self._of_kind[group.shapes], group)
                if not self._of_kind[group.shapes]:
                    del self._of_kind[group.shapes]
            group.missing_pods = 1
            group.hungry = False
            group.again_us = None
            self._hungry.pop(group, None)
            _put(self.awake, group)
            if group.blocked_at:
                del self._blocked[group.blocked_at][group]
                group.blocked_at = ""

    def quota_on(self, queue: str) -> None:
        """Wake those for whom a queue's quota stood in the way; it holds less now."""
        self.freed = True
        for group in tuple(self._blocked.get(queue, ())):
            self.wake(group)

    def blocked(self) -> dict[Group, None]:
        """Return the sleeping groups for which a quota stands in the way."""
        return {group: None for groups in self._blocked.values() for group in groups}

    def wake_blocked(self) -> None:
        """Wake those for whom a quota stood in the way: quotas are worth something else now."""
        self.stirred = self.freed = True
        for group in self.blocked():
            self.wake(group)

    def wake_hungry(self) -> None:
        """See to it that the next cycle looks at those for whom others may have to make room."""
        self.stirred = True
        for group in tuple(self._hungry):
            self.wake(group)

    def due(self, now_us: int) -> list[Group]:
        """Return the sleeping groups whose time has come."""
        found: dict[Group, None] = {}
        while self._times and self._times[0][0] <= now_us:
            at_us, _, group = heappop(self._times)
            if group.again_us == at_us:
                found[group] = None
        for group in found:
            self._wake_at(group)
        return list(found)

    def next_us(self, but: Container[Group] = ()) -> int | None:
        """Return when time will wake a sleeping group, None if it will not; `but` do not count."""
        passed: dict[Group, None] = {}
        first_us: int | None = None
        while self._times and first_us is None:
            at_us, _, group = self._times[0]
            if group.again_us == at_us and group not in but:
                first_us = at_us
            else:
                heappop(self._times)
                if group.again_us == at_us:
                    passed[group] = None
        for group in passed:
            self._wake_at(group)
        return first_us

    def _wake_at(self, group: Group) -> None:
        if group.again_us is not None:
            heappush(self._times, (group.again_us, next(self._numbers), group))

    def wake_all(self) -> None:
        """See to it that the next cycle looks at everybody."""
        self.stirred = self.freed = True
        for group in self.groups.values():
            self.wake(group)

    def room_on(self, fleet: Fleet, row: int) -> None:
        """Note that a node has more room, or other properties.

        A gang sleeps on until the nodes that gained could hold all the pods that it lacked: the
        others fitted when it was looked at, and a node adds at most what it can hold.
        """
        if not fleet.present[row]:
            return
        self.fresh[row] = None
        self.freed = True
        for group in self._gangs:
            if group.asleep and group.missing_pods is not None:
                group.missing_pods -= _could_hold(fleet, row, group)

    def end_of_cycle(self) -> None:
        """Note that a cycle has looked at everything there was to look at."""
        self.fresh.clear()
        self.stirred = self.freed = False

    def room(self, fleet: Fleet, masks: StaticMasks, rows: Iterable[int]) -> Room:
        """Return what sleeping groups ask for of whom a pod may fit on one of these rows."""
        return self._kinds.room(fleet, masks, tuple(rows))

    def places_of(self, kinds: Iterable[Kind]) -> dict[QueueAndUser, None]:
        """Return the queues, and users where these have their turns, with such sleeping groups."""
        return {place: None for kind in kinds for place in self._of_kind[kind]}

    def sleepers_in(self, place: QueueAndUser, kinds: Iterable[Kind]) -> list[Group]:
        """Return the sleeping groups of such kinds there, of gangs those that may be whole now."""
        return [
            group
            for kind in kinds
            for group in self._of_kind[kind].get(place, ())
            if group.pods == 1 or (group.missing_pods or 0) <= 0
        ]


def _put(places: Places, group: Group) -> None:
    places.setdefault((group.queue, group.user), {})[group] = None


def _drop(places: Places, group: Group) -> None:
    place = group.queue, group.user
    del places[place][group]
    if not places[place]:
        del places[place]


def _could_hold(fleet: Fleet, row: int, group: Group) -> int:
    """Return how many pods of a gang a node could hold at most."""
    if len(group.shapes) > 1:
        return 1
    request = group.shapes[0].request
    most = group.pods
    if request.cpu_milli:
        most = min(most, int(fleet.cpu_free[row]) // request.cpu_milli)
    if request.memory_mib:
        most = min(most, int(fleet.memory_free[row]) // request.memory_mib)
    if request.devices.whole and request.devices.count:
        most = min(most, int(fleet.whole_free[row]) // request.devices.count)
    return max(0, most)
