"""Guarantees that are kept placeable: so many devices together on one node, not anywhere.

A slot is `k` devices of one node, in working order, that nobody holds for good. Work holds devices
for good, as seen from a queue, if it cannot be returned or keeps within a guarantee that is not
also that queue's. What began on borrowed devices is counted as borrowed until it ends, also where
its queue comes to hold less than its guarantee meanwhile: what the queue has freed elsewhere is
there for it. Whatever would start where it leaves fewer slots than are promised is placed
elsewhere, or waits.

A queue's own work is not in the way of its slots, even where it is spread over several.

What a queue is promised is part of what is promised above it, so its slots lie inside those. Slots
of others do not overlap, whether or not their own work is there already. They are chosen in the
order of their size: inside those of queues above and around those of queues below, where these
are; first on nodes where the work on trial cannot run anyway, then where fewest devices are left
over. On a node the count is exact; which nodes are chosen is not always the best choice.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from shoal.core.arrays.charges import Charge
from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray
from shoal.core.tenancy.accounts import Bound
from shoal.model.fractions import UNIT
from shoal.model.queue import UNITS, QueueTree

NEVER_RETURNED = -1
"""In place of how many queues work borrowed for: it cannot be returned."""

MOST_REMEMBERED = 1 << 16
"""Answers about nodes that are kept until the tree changes."""

Worth = Callable[[str, str], Bound]
"""What a queue is guaranteed at present of an accelerator."""

Kinds = tuple[tuple[int, int], ...]
"""Devices of a node by who may have slots on them, a bit a promise, and how many of them."""

Chosen = tuple[tuple[int, int], ...]
"""Promises that have slots on a node, and of how many devices together."""


@dataclass(frozen=True, slots=True)
class Promise:
    """So many devices to a node of those that a queue is guaranteed; `path` is up to the root."""

    queue: str
    word: str
    accelerators: frozenset[str]
    devices: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """Devices of a node that a promise may have slots on, and which of them are no loss to others.

    These are in slots of queues above it or below it.
    """

    devices: int
    shared: int


def left_beside(kinds: Kinds, chosen: Chosen, promise: int | None) -> int:
    """Return how many devices of a node are left for a promise beside slots that do not overlap.

    Without a promise: how many that anybody could have may be taken, whichever they are. By Hall's
    theorem, slots have room if any of them together have as many devices as they need.
    """
    together = {} if promise is None else {_kinds_for(kinds, promise): 0}
    for number, devices in chosen:
        mine = _kinds_for(kinds, number)
        alone = [(0, 0)] if promise is None else []
        for others, needed in [*together.items(), *alone]:
            both = others | mine
            together[both] = max(together.get(both, 0), needed + devices)
    return min(
        sum(devices for kind, (_, devices) in enumerate(kinds) if some >> kind & 1) - needed
        for some, needed in together.items()
    )


def _kinds_for(kinds: Kinds, promise: int) -> int:
    """Return on which kinds of devices a promise may have slots, as bits."""
    return sum(1 << kind for kind, (who, _) in enumerate(kinds) if who >> promise & 1)


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
        self._above = [self._promises_above(each) for each in self.promises]
        """By promise: those that it is part of, the nearest first."""
        self._lefts: dict[tuple[Kinds, Chosen, int], Left] = {}
        """What `_left` has found."""
        self._pins: Counter[tuple[int, str, str]] = Counter()
        """By promise, node and device: pods that hold it for good."""
        self._barred: dict[tuple[str, str], int] = {}
        """By node and device: promises that may have no slot there, a bit each."""
        self._changed: set[str] = set()
        """Nodes on which that has changed since `_kinds` was brought up to date."""
        self._kinds: dict[int, Kinds] = {}
        """By row, those with devices in working order that are not divided, on open nodes."""
        self._usable = [self._rows() for _ in self.promises]
        """By promise, [row]: devices that it may have slots on."""
        self._read = -1

    def _promises_above(self, promise: Promise) -> tuple[int, ...]:
        above: list[int] = []
        for queue in promise.path[1:]:
            of = self.promises[above[-1]].accelerators if above else promise.accelerators
            above += [
                number
                for number, each in enumerate(self.promises)
                if each.queue == queue and of <= each.accelerators
            ][:1]
        return tuple(above)

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
            common = next((i for i, at in enumerate(path) if at in promise.path), len(path) + 1)
            if promise.queue in path or borrowed >= common:
                continue
            for charge in charges:
                if charge.accelerator in promise.accelerators:
                    self._count(number, charge, sign)

    def pins(self) -> dict[tuple[int, str, str], int]:
        """Return the pods by promise, node and device, to compare."""
        return dict(self._pins)

    def _count(self, number: int, charge: Charge, sign: int) -> None:
        key = number, charge.node, charge.device
        before = self._pins[key]
        self._pins[key] = before + sign
        if not self._pins[key]:
            del self._pins[key]
        if min(before, before + sign) > 0:
            return
        device = charge.node, charge.device
        self._barred[device] = self._barred.get(device, 0) ^ (1 << number)
        if not self._barred[device]:
            del self._barred[device]
        self._changed.add(charge.node)

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
        closed = []
        for row, slots in chosen.items():
            others = tuple(each for each in slots if self.promises[each[0]].queue not in path)
            apart = self._apart(others)
            if apart and left_beside(self._kinds[row], tuple(apart.items()), None) < devices:
                closed.append(self._fleet.names[row])
        return frozenset(closed)

    def _choose(
        self, worth: Worth, allowed: BoolArray | None
    ) -> tuple[list[int], dict[int, Chosen]]:
        """Choose the nodes of all slots; return how many are missing, and what is chosen by row."""
        self._look_at_nodes()
        fleet = self._fleet
        missing: list[int] = []
        chosen: dict[int, Chosen] = {}
        names = np.array(fleet.names + [""] * (fleet.capacity - len(fleet.names)))
        for number, promise in enumerate(self.promises):
            accelerator = min(promise.accelerators)
            wanted = worth(promise.queue, accelerator).units // (promise.devices * UNIT)
            if not wanted:
                missing.append(0)
                continue
            left, shared = self._fit(number).copy(), self._rows()
            for row, slots_there in chosen.items():
                found = self._left(self._kinds[row], slots_there, number)
                left[row], shared[row] = found.devices, found.shared
            taken = self._rows()
            for devices in shared, left:
                slots = devices // promise.devices - taken
                rows = np.flatnonzero(slots > 0)
                runs = np.zeros(len(rows), dtype=np.int64) if allowed is None else allowed[rows]
                order = rows[np.lexsort((names[rows], left[rows] % promise.devices, runs))]
                before = np.cumsum(slots[order]) - slots[order]
                taken[order] += np.clip(wanted - int(taken.sum()) - before, 0, slots[order])
            for row in np.flatnonzero(taken).tolist():
                here = number, int(taken[row]) * promise.devices
                chosen[row] = (*chosen.get(row, ()), here)
            missing.append(max(0, wanted - int(taken.sum())))
        return missing, chosen

    def _apart(self, chosen: Chosen) -> dict[int, int]:
        """Return the devices that slots on a node need besides those of queues below theirs."""
        needed = dict(chosen)
        among = dict.fromkeys(n for number in needed for n in (number, *self._above[number]))
        below: Counter[int] = Counter()
        apart: dict[int, int] = {}
        for number in sorted(among, key=lambda each: (-len(self._above[each]), each)):
            together = max(needed.get(number, 0), below[number])
            apart[number] = together - below[number]
            for above in self._above[number][:1]:
                below[above] += together
        return {number: devices for number, devices in apart.items() if devices}

    def _left(self, kinds: Kinds, chosen: Chosen, number: int) -> Left:
        """Return what of a node is left for slots of a promise beside those that are chosen there.

        As far as they lie in slots of queues above, these need no room of their own.
        """
        key = kinds, chosen, number
        if key not in self._lefts:
            if len(self._lefts) >= MOST_REMEMBERED:
                self._lefts.clear()
            apart = self._apart(chosen)
            above = self._above[number]
            below = sum(n for each, n in apart.items() if number in self._above[each])
            around = sum(n for each, n in apart.items() if each in above)
            others = tuple((each, n) for each, n in apart.items() if each not in above)
            devices = below + left_beside(kinds, others, number)
            self._lefts[key] = Left(devices, min(devices, below + around))
        return self._lefts[key]

    def _fit(self, number: int) -> IntArray:
        """Return a promise's devices with a place for every row that the fleet has by now."""
        usable = self._usable[number]
        if len(usable) < self._fleet.capacity:
            grown = self._rows()
            grown[: len(usable)] = usable
            self._usable[number] = usable = grown
        return usable

    def _look_at_nodes(self) -> None:
        """Sort the devices of nodes that have changed, or on which others are held, by kinds."""
        fleet = self._fleet
        log = fleet.static_changes
        found = log.since(self._read) if self._read >= 0 else None
        rows = set(range(fleet.size) if found is None else found.tolist())
        rows |= {fleet.row_of[name] for name in self._changed if name in fleet.row_of}
        for row in sorted(rows):
            kinds = self._kinds[row] = self._kinds_on(row)
            for number in range(len(self.promises)):
                usable = sum(devices for who, devices in kinds if who >> number & 1)
                self._fit(number)[row] = usable
        self._read = log.read()
        self._changed.clear()

    def _kinds_on(self, row: int) -> Kinds:
        node = self._fleet.nodes[row]
        if node is None or node.cordoned:
            return ()
        lost = self._fleet.lost_devices.get(node.name, frozenset())
        kinds: Counter[int] = Counter()
        for device in node.devices:
            if len(device.leaves) == 1 and device.name not in lost:
                kinds[self._wanted(device.accelerator, node.name, device.name)] += 1
        return tuple(sorted((who, devices) for who, devices in kinds.items() if who))

    def _wanted(self, accelerator: str, node: str, device: str) -> int:
        """Return which promises may have slots on a device, a bit each."""
        wanted = sum(
            1 << number
            for number, promise in enumerate(self.promises)
            if accelerator in promise.accelerators
        )
        return wanted & ~self._barred.get((node, device), 0)
