"""Until when work is protected from those who want a guarantee back, and where it holds devices.

All of it follows from the world. Whoever asks has what changed since looked at again, so that
asking costs what changed and not what runs.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from shoal.core import events as ev
from shoal.core.arrays.journal import IntArray
from shoal.core.decisions import Wait, workloads_of
from shoal.core.entry import Entry
from shoal.core.eviction.victims import BEFORE_ALL_US, reclaimable_from_us, victims_of

if TYPE_CHECKING:
    from shoal.core.world import World

Rows = dict[int, int]
"""Devices by row."""


class Line:
    """The work of one queue that may be taken back from on one accelerator, in order of time."""

    def __init__(self) -> None:
        self._times: list[tuple[int, str]] = []
        self._known: dict[str, tuple[int, Rows]] = {}
        self._all: IntArray = np.zeros(16, dtype=np.int64)
        """[row]: devices that all of it holds."""
        self._open: IntArray = np.zeros(16, dtype=np.int64)
        """[row]: devices of those that may go at `_open_us`."""
        self._open_us = BEFORE_ALL_US - 1

    def set(self, uid: str, from_us: int, rows: Rows) -> None:
        """Let work stand in the line, from when on it may go, and with what it would free."""
        self.drop(uid)
        self._known[uid] = from_us, rows
        insort(self._times, (from_us, uid))
        self._count(uid, 1)

    def drop(self, uid: str) -> None:
        """Let work stand in the line no longer."""
        if uid in self._known:
            self._count(uid, -1)
            from_us, _ = self._known.pop(uid)
            del self._times[bisect_left(self._times, (from_us, uid))]

    def until(self, at_us: int) -> Iterator[str]:
        """Yield the uids of those that may go at a time."""
        return (self._times[place][1] for place in range(self._place(at_us)))

    def after(self, at_us: int) -> Iterator[tuple[int, str]]:
        """Yield when others may, and their uids, in order."""
        return (self._times[place] for place in range(self._place(at_us), len(self._times)))

    def devices(self, size: int) -> IntArray:
        """Return the most devices that would be free by row if all of them went."""
        self._grow(size)
        return self._all[:size]

    def open_devices(self, size: int, now_us: int) -> IntArray:
        """Return the same of those that may go now; it is never asked of a time before another."""
        self._grow(size)
        for place in range(self._place(self._open_us), self._place(now_us)):
            for row, devices in self._known[self._times[place][1]][1].items():
                self._open[row] += devices
        self._open_us = max(self._open_us, now_us)
        return self._open[:size]

    def _place(self, at_us: int) -> int:
        """Return how many may go at a time."""
        return bisect_left(self._times, (at_us + 1, ""))

    def _count(self, uid: str, sign: int) -> None:
        from_us, rows = self._known[uid]
        for row, devices in rows.items():
            self._grow(row + 1)
            self._all[row] += sign * devices
            if from_us <= self._open_us:
                self._open[row] += sign * devices

    def _grow(self, size: int) -> None:
        if size > len(self._all):
            more = np.zeros(max(size - len(self._all), len(self._all)), dtype=np.int64)
            self._all = np.concatenate((self._all, more))
            self._open = np.concatenate((self._open, more))


class Protection:
    """The lines of all queues, as far as somebody has asked for them."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, dict[str, Line]]] = {}
        """By queue, by how soon a lender wants his devices back, and by accelerator."""
        self._queue_of: dict[str, str] = {}
        self._changed: dict[str, None] = {}

    def happens(self, world: "World", event: ev.Event) -> None:
        """Note whom an event, which is about to be taken in, is about."""
        uids: tuple[str, ...] = ()
        match event:
            case ev.Decided():
                if not isinstance(event.decision, Wait):
                    uids = workloads_of(event.decision)
            case ev.DisruptionBudgetSet():
                _, before = world.evictions.budgets.get(event.name, (0, frozenset[str]()))
                uids = (*sorted(before), *event.workloads)
            case ev.WorkloadAdopted() | ev.WorkloadRestored():
                uids = (event.workload.uid,)
            case (
                ev.WorkloadEnded()
                | ev.PodStarted()
                | ev.PodEnded()
                | ev.PodMoved()
                | ev.StartFailed()
                | ev.EvictionBlocked()
            ):
                uids = (event.uid,)
            case _:
                pass
        self._changed.update(dict.fromkeys(uids))

    def forget(self) -> None:
        """Look at everybody anew: what protects work is another thing now."""
        self._lines.clear()
        self._queue_of.clear()

    def lines(self, world: "World", queue: str, lender: str) -> Mapping[str, Line]:
        """Return the work of a queue that a lender may take back from, by accelerator."""
        self._look_again(world)
        within_us = world.tenants.reclaim_within_us(lender)
        of_queue = self._lines.setdefault(queue, {})
        if within_us not in of_queue:
            of_queue[within_us] = {}
            for uid in world.holders.get(queue, ()):
                self._queue_of[uid] = queue
                _put(world, world.entries[uid], within_us, of_queue[within_us])
        return of_queue[within_us]

    def _look_again(self, world: "World") -> None:
        for uid in self._changed:
            entry = world.entries.get(uid)
            before = self._lines.get(self._queue_of.pop(uid, ""), {})
            for lines in before.values():
                for line in lines.values():
                    line.drop(uid)
            if entry is None or not entry.held:
                continue
            if entry.workload.queue in self._lines:
                self._queue_of[uid] = entry.workload.queue
            for within_us, lines in self._lines.get(entry.workload.queue, {}).items():
                _put(world, entry, within_us, lines)
        self._changed.clear()


def _put(world: "World", entry: Entry, within_us: int, lines: dict[str, Line]) -> None:
    """Let a workload stand in the lines of what it holds, if it may go at all."""
    uid = entry.workload.uid
    if entry.failed_on is not None or world.evictions.allowed(uid) == 0:
        return
    from_us = reclaimable_from_us(world, entry, within_us)
    if from_us is None:
        return
    devices: dict[str, Rows] = {}
    for pod in dict.fromkeys(pod for victim in victims_of(world, entry, 0) for pod in victim.pods):
        row = world.fleet.row_of[entry.held[pod].node]
        for name in dict.fromkeys(charge.accelerator for charge in entry.charges.get(pod, ())):
            rows = devices.setdefault(name, {})
            rows[row] = rows.get(row, 0) + len(entry.held[pod].leaves)
    for name, rows in devices.items():
        lines.setdefault(name, Line()).set(uid, from_us, rows)
