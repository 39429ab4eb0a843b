"""Who waits, in which order, and what wakes them.

Waiting workloads that ask for the same in the same queue form a group: they share one verdict, and
where the first of them does not fit none does. A group that was looked at sleeps. Where it fitted
nowhere it can only fit on a node that has gained room since, so cycles look at sleepers through the
nodes that gained room (`fresh`), and a cycle costs what changed and not what waits.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.core.eligibility import StaticMasks
from shoal.core.events import Examined
from shoal.core.fleet import Fleet
from shoal.core.journal import IntArray
from shoal.core.precedence import Order
from shoal.core.shape import Shape
from shoal.core.spending import Declaration
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

SEVERAL = -1
"""In place of a mask's number where pod sets have different ones: every row may do."""

ANYTHING = int(np.iinfo(np.int64).min)
NOTHING = int(np.iinfo(np.int64).max)
_NEEDS = 5  # CPU, host memory, whole devices, compute on a leaf, memory on a leaf


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
        "queue",
        "shapes",
        "slot",
        "unanswered",
        "user",
        "verdict",
    )

    def __init__(self, key: GroupKey, slot: int) -> None:
        self.key = key
        self.queue, self.user = key[0], key[3].user
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
        self.slot = slot


class Waiting:
    """All waiting groups, and what could end their waiting."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.awake: dict[Group, None] = {}
        """Groups that the next cycle has to look at."""
        self.fresh: dict[int, None] = {}
        """Rows that have gained room, or other properties, since the last complete cycle."""
        self.unanswered: dict[Group, None] = {}
        """Groups with members that have not been told why they wait."""
        self._blocked: dict[str, dict[Group, None]] = {}
        """Sleeping groups by the queue whose quota stands in their way."""
        self._needs: IntArray = np.full((_NEEDS, 16), NOTHING, dtype=np.int64)
        """[what, slot]: the least that any pod of a sleeping group needs."""
        self._mask_of: NDArray[np.intp] = np.full(16, SEVERAL, dtype=np.intp)
        """[slot]: the number of the static mask of a sleeping group's pods, or `SEVERAL`."""
        self._masks_version = (0, 0)
        self._slots: list[Group | None] = [None] * 16
        self._empty = list(range(15, -1, -1))
        self._gangs: dict[Group, None] = {}
        self._hungry: dict[Group, None] = {}
        self._timed: dict[Group, None] = {}
        """Sleeping groups that time alone may wake."""

    def add(self, order: Order, key: GroupKey) -> Group:
        """Let a workload wait, in its place in its group."""
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(key, self._new_slot())
            self._slots[group.slot] = group
            self.awake[group] = None
            if group.pods > 1:
                self._gangs[group] = None
        insort(group.members, order)
        group.unanswered[order[2]] = None
        self.unanswered[group] = None
        return group

    def remove(self, order: Order, group: Group) -> None:
        """Let a workload wait no longer."""
        del group.members[bisect_left(group.members, order)]
        self.told(group, order[2])
        if not group.members:
            self.wake(group)
            del self.groups[group.key], self.awake[group]
            self._gangs.pop(group, None)
            self._slots[group.slot] = None
            self._empty.append(group.slot)

    def reorder(self, group: Group, before: Order, order: Order) -> None:
        """Give a member of a group another place in it."""
        del group.members[bisect_left(group.members, before)]
        insort(group.members, order)

    def told(self, group: Group, uid: str) -> None:
        """Note that a member has been told why it waits, or waits no longer."""
        group.unanswered.pop(uid, None)
        if not group.unanswered:
            self.unanswered.pop(group, None)

    def sleep(self, group: Group, examined: Examined, masks: StaticMasks) -> None:
        """Note that a group was looked at, and what stood in the way of its first member."""
        self.wake(group)
        group.asleep = True
        del self.awake[group]
        group.missing_pods = examined.missing_pods
        group.hungry = examined.hungry
        if group.hungry:
            self._hungry[group] = None
        group.again_us = examined.again_us
        if group.again_us is not None:
            self._timed[group] = None
        if examined.blocked_at:
            group.blocked_at = examined.blocked_at
            self._blocked.setdefault(examined.blocked_at, {})[group] = None
        if examined.missing_pods is not None:
            needs = [_least_needs(shape) for shape in group.shapes]
            self._needs[:, group.slot] = np.array(needs).min(axis=0)
            self._mask_of[group.slot] = _mask_number(masks, group)

    def wake(self, group: Group) -> None:
        """See to it that the next cycle looks at a group."""
        if group.asleep:
            group.asleep = False
            group.missing_pods = 1
            group.hungry = False
            group.again_us = None
            self._hungry.pop(group, None)
            self._timed.pop(group, None)
            self.awake[group] = None
            self._needs[:, group.slot] = NOTHING
            if group.blocked_at:
                del self._blocked[group.blocked_at][group]
                group.blocked_at = ""

    def quota_on(self, queue: str) -> None:
        """Wake those for whom a queue's quota stood in the way; it holds less now."""
        for group in tuple(self._blocked.get(queue, ())):
            self.wake(group)

    def blocked(self) -> dict[Group, None]:
        """Return the sleeping groups for which a quota stands in the way."""
        return {group: None for groups in self._blocked.values() for group in groups}

    def wake_blocked(self) -> None:
        """Wake those for whom a quota stood in the way: quotas are worth something else now."""
        for group in self.blocked():
            self.wake(group)

    def wake_hungry(self) -> None:
        """See to it that the next cycle looks at those for whom others may have to make room."""
        for group in tuple(self._hungry):
            self.wake(group)

    def due(self, now_us: int) -> list[Group]:
        """Return the sleeping groups whose time has come."""
        return [g for g in self._timed if g.again_us is not None and g.again_us <= now_us]

    def next_us(self) -> int | None:
        """Return when time will wake a sleeping group, None if it will not."""
        return min((g.again_us for g in self._timed if g.again_us is not None), default=None)

    def timed(self) -> tuple[Group, ...]:
        """Return the sleeping groups that time alone may wake."""
        return tuple(self._timed)

    def wake_all(self) -> None:
        """See to it that the next cycle looks at everybody."""
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
        for group in self._gangs:
            if group.asleep and group.missing_pods is not None:
                group.missing_pods -= _could_hold(fleet, row, group)

    def end_of_cycle(self) -> None:
        """Note that a cycle has looked at everything there was to look at."""
        self.fresh.clear()

    def sleepers_for(
        self, fleet: Fleet, masks: StaticMasks, rows: Iterable[int]
    ) -> dict[Group, None]:
        """Return the sleeping groups of which a pod may fit on one of these rows."""
        found: dict[Group, None] = {}
        for row in rows:
            enough = np.logical_and.reduce(self._needs <= _free_on(fleet, row), axis=0)
            slots = np.flatnonzero(enough)
            if not len(slots):
                continue
            masks_of = self._up_to_date(fleet, masks)[slots]
            allowed = (masks_of == SEVERAL) | masks.table[masks_of, row]
            for slot in slots[allowed].tolist():
                group = self._slots[slot]
                if group is not None and (group.pods == 1 or (group.missing_pods or 0) <= 0):
                    found[group] = None
        return found

    def _up_to_date(self, fleet: Fleet, masks: StaticMasks) -> NDArray[np.intp]:
        """Return the number of each slot's mask, having brought the masks up to date."""
        for _ in range(2):  # the masks may be made anew the first time, where the fleet has grown
            if self._masks_version == (fleet.static_changes.head, masks.generation):
                return self._mask_of
            self._masks_version = (fleet.static_changes.head, masks.generation)
            for group in self.groups.values():
                if group.asleep:
                    self._mask_of[group.slot] = _mask_number(masks, group)
        if self._masks_version[1] != masks.generation:
            self._mask_of[:] = SEVERAL  # these are more masks than are kept at once
        return self._mask_of

    def _new_slot(self) -> int:
        if not self._empty:
            size = len(self._slots)
            none = np.full((_NEEDS, size), NOTHING, dtype=np.int64)
            self._needs = np.concatenate((self._needs, none), axis=1)
            several = np.full(size, SEVERAL, dtype=np.intp)
            self._mask_of = np.concatenate((self._mask_of, several))
            self._slots += [None] * size
            self._empty = list(range(2 * size - 1, size - 1, -1))
        return self._empty.pop()


def _mask_number(masks: StaticMasks, group: Group) -> int:
    return masks.number_of(group.shapes[0]) if len(group.shapes) == 1 else SEVERAL


def _free_on(fleet: Fleet, row: int) -> IntArray:
    """Return what is free on a row, as a column to compare needs with."""
    return np.array(
        [
            [fleet.cpu_free[row]],
            [fleet.memory_free[row]],
            [fleet.whole_free[row]],
            [fleet.leaf_compute_free[row].max()],
            [fleet.leaf_memory_free[row].max()],
        ],
        dtype=np.int64,
    )


def _least_needs(shape: Shape) -> tuple[int, ...]:
    """Return what a node must have free at least, in the order of `_free_on`."""
    request = shape.request
    devices = request.devices
    shares = devices.count > 0 and not devices.whole
    return (
        request.cpu_milli or ANYTHING,
        request.memory_mib or ANYTHING,
        devices.count if devices.count and devices.whole else ANYTHING,
        devices.compute_milli if shares and devices.compute_milli else ANYTHING,
        devices.memory_mib if shares and devices.memory_mib else ANYTHING,
    )


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
