"""Who waits, in which order, and what wakes them.

Waiting workloads that ask for the same in the same queue form a group: they share one verdict, and
where the first of them does not fit none does. A group that was looked at sleeps until capacity has
come free that could hold what it lacks. Nothing else looks at it again, so a cycle costs what
changed and not what waits.
"""

from bisect import insort
from collections.abc import Iterator

import numpy as np

from shoal.core.eligibility import may_run_on
from shoal.core.fleet import Fleet
from shoal.core.journal import IntArray
from shoal.core.shape import Shape
from shoal.model.verdict import Verdict
from shoal.model.workload import PodSet, Workload

GroupKey = tuple[str, tuple[PodSet, ...], frozenset[str]]
Order = tuple[int, int, str]

_NEEDS = 5  # CPU, host memory, whole devices, compute on a leaf, memory on a leaf


def order_of(workload: Workload) -> Order:
    """Return the place of a workload in its queue: priority, then age, then uid."""
    return -workload.priority, workload.created_us, workload.uid


class Group:
    """Waiting workloads of one queue that ask for the same and were refused by the same nodes."""

    __slots__ = ("key", "members", "missing_pods", "shapes", "slot", "unanswered", "verdict")

    def __init__(self, key: GroupKey, shapes: tuple[Shape, ...], slot: int) -> None:
        self.key = key
        self.shapes = shapes
        """One for each pod set."""
        self.members: list[Order] = []
        """In order; never empty while the group exists."""
        self.verdict: Verdict | None = None
        """Why they wait; None until they were looked at."""
        self.unanswered: dict[str, None] = {}
        """Members that have not been told."""
        self.missing_pods = 0
        """Room for how many more pods has to come free before it is worth a look."""
        self.slot = slot


class Waiting:
    """All waiting groups, and those among them that have to be looked at."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.woken: dict[Group, None] = {}
        self.unanswered: dict[Group, None] = {}
        """Groups with members that have not been told why they wait."""
        self._needs: IntArray = np.zeros((_NEEDS, 16), dtype=np.int64)
        """[what, slot]: the least that any pod of the group needs; empty slots need too much."""
        self._needs[:] = np.iinfo(np.int64).max
        self._slots: list[Group | None] = [None] * 16
        self._empty = list(range(15, -1, -1))

    def add(self, workload: Workload, key: GroupKey, shapes: tuple[Shape, ...]) -> Group:
        """Let a workload wait, in its group."""
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(key, shapes, self._new_slot(shapes))
            self._slots[group.slot] = group
            self.woken[group] = None
        insort(group.members, order_of(workload))
        self.untold(group, workload.uid)
        return group

    def untold(self, group: Group, uid: str) -> None:
        """Note that a member has not been told why it waits."""
        group.unanswered[uid] = None
        self.unanswered[group] = None

    def told(self, group: Group, uid: str) -> None:
        """Note that a member has been told why it waits, or that it waits no longer."""
        group.unanswered.pop(uid, None)
        if not group.unanswered:
            self.unanswered.pop(group, None)

    def remove(self, workload: Workload, group: Group) -> None:
        """Let a workload wait no longer."""
        group.members.remove(order_of(workload))
        self.told(group, workload.uid)
        if not group.members:
            del self.groups[group.key]
            self.woken.pop(group, None)
            self._needs[:, group.slot] = np.iinfo(np.int64).max
            self._slots[group.slot] = None
            self._empty.append(group.slot)

    def sleep(self, group: Group, missing_pods: int) -> None:
        """Note that a group was looked at and lacks room for so many of the first one's pods."""
        self.woken.pop(group, None)
        group.missing_pods = missing_pods

    def wake(self, group: Group) -> None:
        """See to it that the next cycle looks at a group."""
        self.woken[group] = None

    def room_on(self, fleet: Fleet, row: int) -> None:
        """Wake the groups that may fit now that a node has more room, or other properties.

        A gang of equal pods sleeps on until the nodes that changed could hold all the pods that it
        lacked: the others fitted when it was looked at, and a node adds at most what it can hold.
        """
        if not self.groups or not fleet.present[row]:
            return
        free = (
            int(fleet.cpu_free[row]),
            int(fleet.memory_free[row]),
            int(fleet.whole_free[row]),
            int(fleet.leaf_compute_free[row].max()),
            int(fleet.leaf_memory_free[row].max()),
        )
        enough = (self._needs <= np.array(free)[:, None]).all(axis=0)
        for slot in np.flatnonzero(enough).tolist():
            group = self._slots[slot]
            if group is None or group in self.woken:
                continue
            if any(may_run_on(fleet, shape, row) for shape in group.shapes):
                group.missing_pods -= self._could_hold(group, free)
                if group.missing_pods <= 0:
                    self.wake(group)

    def heads(self) -> Iterator[Group]:
        """Return the groups to be looked at, by their first members' order."""
        return iter(sorted(self.woken, key=lambda group: group.members[0]))

    def _could_hold(self, group: Group, free: tuple[int, ...]) -> int:
        if len(group.shapes) > 1:
            return 1
        request = group.shapes[0].request
        fits = [group.key[1][0].count]
        if request.cpu_milli:
            fits.append(free[0] // request.cpu_milli)
        if request.memory_mib:
            fits.append(free[1] // request.memory_mib)
        if request.devices.whole and request.devices.count:
            fits.append(free[2] // request.devices.count)
        return min(fits)

    def _new_slot(self, shapes: tuple[Shape, ...]) -> int:
        if not self._empty:
            size = len(self._slots)
            none = np.full((_NEEDS, size), np.iinfo(np.int64).max, dtype=np.int64)
            self._needs = np.concatenate((self._needs, none), axis=1)
            self._slots += [None] * size
            self._empty = list(range(2 * size - 1, size - 1, -1))
        slot = self._empty.pop()
        self._needs[:, slot] = np.array([_least_needs(shape) for shape in shapes]).min(axis=0)
        return slot


def _least_needs(shape: Shape) -> tuple[int, ...]:
    """Return what a node must have free at least; where nothing is needed, any number will do."""
    request = shape.request
    devices = request.devices
    anything = int(np.iinfo(np.int64).min)
    whole = devices.count if devices.count and devices.whole else anything
    shares = devices.count > 0 and not devices.whole
    return (
        request.cpu_milli or anything,
        request.memory_mib or anything,
        whole,
        devices.compute_milli if shares and devices.compute_milli else anything,
        devices.memory_mib if shares and devices.memory_mib else anything,
    )
