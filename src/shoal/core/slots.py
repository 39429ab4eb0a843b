"""Guarantees that are kept placeable: so many devices together on one node, not anywhere.

A slot is `k` devices of one node, in working order, that nobody holds for good. Work holds devices
for good, as seen from a queue, if it cannot be returned or keeps within a guarantee that is not
also that queue's. What began on borrowed devices is counted as borrowed until it ends, also where
its queue comes to hold less than its guarantee meanwhile: what the queue has freed elsewhere is
there for it. So slots do not become fewer by what ends, only by what starts, and whatever would
start where it leaves fewer of them than are promised is placed elsewhere, or waits.

A queue's own work is not in the way of its slots, even where it is spread over several.

Slots of several queues do not overlap. They are chosen in the order of their size: first on nodes
where the work on trial cannot run anyway, then where fewest devices are left over.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from shoal.core.accounts import Bound
from shoal.core.charges import Charge
from shoal.core.fleet import Fleet
from shoal.core.journal import IntArray
from shoal.core.labels import BoolArray
from shoal.model.fractions import UNIT
from shoal.model.queue import UNITS, QueueTree

NEVER_RETURNED = -1
"""In place of how many queues work borrowed for: it cannot be returned."""

Worth = Callable[[str, str], Bound]
"""What a queue is guaranteed at present of an accelerator."""


@dataclass(frozen=True, slots=True)
class Promise:
    """So many devices to a node of those that a queue is guaranteed; `path` is up to the root."""

    queue: str
    word: str
    accelerators: frozenset[str]
    devices: int
    path: tuple[str, ...]


class Slots:
    """What is promised on single nodes, and who is in the way there."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.promises: list[Promise] = []
        self.lay_out(QueueTree())

    def lay_out(self, tree: QueueTree) -> None:
        """Begin anew for a tree; whoever knows who holds what pins it again."""
        self._tree = tree
        found = [
            Promise(
                queue.name,
                word,
                frozenset(word.split("|")),
                devices,
                tuple(reversed(tree.path(queue.name))),
            )
            for queue in tree.queues
            for word, devices in queue.placeable
            if devices > 0 and word != UNITS
        ]
        self.promises = sorted(found, key=lambda promise: -promise.devices)
        count = len(self.promises)
        self._in_the_way = [self._rows() for _ in range(count)]
        """By promise, [row]: devices that others hold for good."""
        self._own = [self._rows() for _ in range(count)]
        """By promise, [row]: devices that the queue itself holds."""
        self._held = [self._rows() for _ in range(count)]
        """By promise, [row]: devices that anybody holds for good."""
        self._pins: Counter[tuple[int, int, str]] = Counter()
        """Pods by promise, account (0 to 2, as above) and device."""
        self._there = [self._rows() for _ in range(count)]
        """By promise, [row]: undivided devices in working order on nodes that are open."""
        self._read = -1

    def _rows(self) -> IntArray:
        return np.zeros(self._fleet.capacity, dtype=np.int64)

    # Who holds what ---------------------------------------------------------------------------

    def pin(self, queue: str, charges: Iterable[Charge], borrowed: int, sign: int) -> None:
        """Note what work holds (`sign` 1), or holds no longer (-1).

        `borrowed` is how many queues, from its own up, held more than their guarantee when it had
        started, or `NEVER_RETURNED`.
        """
        if not self.promises:
            return
        path = tuple(reversed(self._tree.path(queue)))
        for number, promise in enumerate(self.promises):
            mine = [c for c in charges if c.accelerator in promise.accelerators]
            if not mine:
                continue
            own = promise.queue in path
            common = next((i for i, at in enumerate(path) if at in promise.path), len(path) + 1)
            for charge in mine:
                if own:
                    self._count(self._own, (number, 1, charge.device), charge.node, sign)
                elif borrowed < common:
                    self._count(self._in_the_way, (number, 0, charge.device), charge.node, sign)
                if own or borrowed < common:
                    self._count(self._held, (number, 2, charge.device), charge.node, sign)

    def pins(self) -> dict[tuple[int, int, str], int]:
        """Return the pods by promise, account and device, to compare."""
        return dict(self._pins)

    def _count(
        self, accounts: list[IntArray], key: tuple[int, int, str], node: str, sign: int
    ) -> None:
        before = self._pins[key]
        self._pins[key] = before + sign
        if not self._pins[key]:
            del self._pins[key]
        row = self._fleet.row_of.get(node)
        if row is None or min(before, before + sign) > 0:
            return
        self._fit(accounts, key[0])[row] += sign

    # What is promised -------------------------------------------------------------------------

    def missing(self, worth: Worth) -> dict[int, int]:
        """Return how many slots of each promise there are not, by its number."""
        found, _ = self._choose(worth, None)
        return {number: slots for number, slots in enumerate(found) if slots}

    def closed(self, queue: str, devices: int, allowed: BoolArray, worth: Worth) -> frozenset[str]:
        """Return the nodes where a pod that is not returned would be in the way of a slot.

        It holds so many devices; `allowed` says on which rows it may run at all.
        """
        path = self._tree.path(queue)
        _, chosen = self._choose(worth, allowed)
        closed = np.zeros(self._fleet.capacity, dtype=np.bool_)
        others = [n for n, promise in enumerate(self.promises) if promise.queue not in path]
        for number in others:
            accelerators = self.promises[number].accelerators
            needed = self._rows()
            for other in others:
                if not self.promises[other].accelerators.isdisjoint(accelerators):
                    needed += np.maximum(0, chosen[other] - self._fit(self._own, other))
            free = self._there[number] - self._fit(self._held, number)
            closed |= (needed > 0) & (free - needed < devices)
        return frozenset(self._fleet.names[row] for row in np.flatnonzero(closed).tolist())

    def _choose(self, worth: Worth, allowed: BoolArray | None) -> tuple[list[int], list[IntArray]]:
        """Choose the nodes of all slots; return how many are missing, and devices by row."""
        self._look_at_fleet()
        fleet = self._fleet
        missing: list[int] = []
        chosen: list[IntArray] = []
        names = np.array(fleet.names + [""] * (fleet.capacity - len(fleet.names)))
        for number, promise in enumerate(self.promises):
            accelerator = min(promise.accelerators)
            wanted = worth(promise.queue, accelerator).units // (promise.devices * UNIT)
            left = self._there[number] - self._fit(self._in_the_way, number)
            for other, devices in enumerate(chosen):
                if not self.promises[other].accelerators.isdisjoint(promise.accelerators):
                    left = left - np.maximum(0, devices - self._fit(self._own, other))
            slots = np.maximum(0, left) // promise.devices
            rows = np.flatnonzero(slots)
            runs = np.zeros(len(rows), dtype=np.int64) if allowed is None else allowed[rows]
            order = rows[np.lexsort((names[rows], left[rows] % promise.devices, runs))]
            before = np.cumsum(slots[order]) - slots[order]
            taken = np.clip(wanted - before, 0, slots[order])
            devices = self._rows()
            devices[order] = taken * promise.devices
            chosen.append(devices)
            missing.append(max(0, wanted - int(taken.sum())))
        return missing, chosen

    def _fit(self, accounts: list[IntArray], number: int) -> IntArray:
        """Return an account with a place for every row that the fleet has by now."""
        account = accounts[number]
        if len(account) < self._fleet.capacity:
            grown = self._rows()
            grown[: len(account)] = account
            accounts[number] = account = grown
        return account

    def _look_at_fleet(self) -> None:
        """Count the devices that are there, where nodes have changed."""
        fleet = self._fleet
        log = fleet.static_changes
        found = log.since(self._read) if self._read >= 0 else None
        rows = range(fleet.size) if found is None else sorted(set(found.tolist()))
        for number, promise in enumerate(self.promises):
            there = self._fit(self._there, number)
            for row in rows:
                node = fleet.nodes[row]
                lost = fleet.lost_devices.get(fleet.names[row], frozenset())
                there[row] = sum(
                    1
                    for device in (node.devices if node and not node.cordoned else ())
                    if device.accelerator in promise.accelerators
                    and len(device.leaves) == 1
                    and device.name not in lost
                )
        self._read = log.read()
