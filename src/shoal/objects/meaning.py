"""What changed queues will mean for what runs and waits, said before they are taken in.

A queue that is no longer written and in which work runs *closes*: it stays in the tree until it is
empty, so that the work is charged to it and to the queues above it as before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Final

from shoal.model.fractions import RATE_ONE, UNIT
from shoal.model.meaning import (
    FieldsChanged,
    GuaranteeDebt,
    Inside,
    LeafNoMore,
    LimitDebt,
    Meaning,
    NeighbourDebt,
    PoolChanged,
    PoolDebt,
    PoolHow,
    QueueAdded,
    QueueCloses,
    QueueGone,
    QueueMoved,
    QuotaChanged,
    QuotaDebt,
    QuotaField,
    Running,
    TypeDebt,
    TypesChanged,
    WeightChanged,
)
from shoal.model.pool import Pool
from shoal.model.queue import UNITS, Queue, QueueTree, Quota
from shoal.model.selector import Selector
from shoal.model.workload import WorkloadType
from shoal.objects.quotas import Names, Scale, guaranteed

InsideOf = Mapping[str, Inside]
"""The work in each queue by its name; queues without work may be left out."""

_EMPTY: Final = Inside()
_IN_NO_POOL: Final = Pool("", Selector(), tuple(WorkloadType), ())
_SAID_APART: Final = frozenset(
    {"name", "parent", "guarantee", "limit", "borrow", "lend", "weight", "types", "closing"}
)
_AS_WRITTEN: Final = {"grace_max_us": "eviction.graceMax"}


def meaning(old: QueueTree, new: QueueTree, inside: InsideOf, names: Names) -> tuple[Meaning, ...]:
    """What it will mean that the queues are those of `new`; both trees as they are written.

    First the queues in the order of the new tree, then those that go, then the debts that come of
    it: those that are there already and do not grow are not listed.
    """
    said: list[Meaning] = []
    books = _Books(old, inside, names)
    closing = _closing(old, new, inside)
    for queue in new.queues:
        known = old.get(queue.name)
        if known is None or known.closing:
            waiting = inside.get(queue.name, _EMPTY).waiting
            said.append(QueueAdded(queue.name, queue.parent, waiting))
        else:
            said += _changes(known, queue)
            said += _leaf_no_more(old, new, queue.name, inside)
    for queue in old.queues:
        if new.get(queue.name) is None and not queue.closing:
            here = inside.get(queue.name, _EMPTY)
            if queue.name in closing:
                said.append(QueueCloses(queue.name, here.running, here.waiting))
            else:
                said.append(QueueGone(queue.name, here.waiting))
    before = books.debts()
    after = _Books(closing_kept(old, new, inside, names), inside, names).debts()
    said += [debt for key, (debt, over) in after.items() if over > before.get(key, (debt, 0))[1]]
    return tuple(said)


def pools_meaning(
    old: Iterable[Pool],
    new: Iterable[Pool],
    running: Iterable[Running],
    labels: Mapping[str, Mapping[str, str]],
) -> tuple[PoolChanged | PoolDebt, ...]:
    """What becomes of pools, in the order of their names, and the debts that come of it.

    `labels` are those of the nodes by name; none of them is in several of the new pools. What runs
    where it may not start already is not listed.
    """
    before = {pool.name: pool for pool in old}
    after = {pool.name: pool for pool in new}
    said = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            said.append(PoolChanged(name, PoolHow.ADDED))
        elif name not in after:
            said.append(PoolChanged(name, PoolHow.REMOVED))
        elif before[name] != after[name]:
            said.append(PoolChanged(name, PoolHow.CHANGED))
    changed = {
        node: (_serving(before.values(), own), _serving(after.values(), own))
        for node, own in labels.items()
    }
    unserved: Counter[tuple[str, WorkloadType]] = Counter()
    beside: Counter[str] = Counter()
    for work in running:
        pairs = [(changed[node], node in work.beside_strangers) for node in sorted(work.nodes)]
        unserved.update(
            {
                (now.name, work.type)
                for (was, now), _ in pairs
                if work.type in was.types and work.type not in now.types
            }
        )
        beside.update(
            {
                now.name
                for (was, now), shares in pairs
                if shares and was.mixes_queues and not now.mixes_queues
            }
        )
    debts: list[PoolDebt] = [
        TypeDebt(name, type_, count) for (name, type_), count in sorted(unserved.items())
    ]
    debts += [NeighbourDebt(name, count) for name, count in sorted(beside.items())]
    return *said, *debts


def _serving(pools: Iterable[Pool], labels: Mapping[str, str]) -> Pool:
    """The pool of a node with these labels; without one it serves all, and no queues mix."""
    return next((pool for pool in pools if pool.nodes.matches(labels)), _IN_NO_POOL)


def closing_kept(old: QueueTree, new: QueueTree, inside: InsideOf, names: Names) -> QueueTree:
    """The new tree with the queues of the old one that are no longer written and hold something.

    They close under the nearest of the queues above them that still has others below it. Of their
    guarantee they keep what they use of it, as far as it fits beside those of the new queues.
    """
    books = _Books(old, inside, names)
    closing = _closing(old, new, inside)
    tree = new
    for queue in old.queues:
        if queue.name not in closing:
            continue
        parent = _parent_of_closing(old, tree, queue.name)
        if parent is None:
            continue
        kept = replace(
            queue,
            parent=parent,
            namespaces=None,
            guarantee=_kept_guarantee(old, tree, queue, parent, books),
            limit=(),
            borrow=(),
            lend=(),
            placeable=(),
            closing=True,
        )
        tree = replace(tree, queues=(*tree.queues, kept))
    return tree


def without_closed(tree: QueueTree, holds: Iterable[str]) -> QueueTree:
    """The tree without the closing queues in which and below which no queue of `holds` is."""
    if not any(queue.closing for queue in tree.queues):
        return tree
    kept = {above for name in holds for above in tree.path(name)}
    left = tuple(queue for queue in tree.queues if not queue.closing or queue.name in kept)
    return tree if len(left) == len(tree.queues) else replace(tree, queues=left)


def _changes(before: Queue, after: Queue) -> Iterator[Meaning]:
    name = after.name
    if before.parent != after.parent:
        yield QueueMoved(name, before.parent, after.parent)
    for field in QuotaField:
        old, new = dict(getattr(before, field) or ()), dict(getattr(after, field) or ())
        for word in sorted(old.keys() | new.keys()):
            if old.get(word) != new.get(word):
                yield QuotaChanged(name, field, word, old.get(word), new.get(word))
    if before.weight != after.weight:
        yield WeightChanged(name, before.weight, after.weight)
    if set(before.types) != set(after.types):
        added = tuple(each for each in after.types if each not in before.types)
        removed = tuple(each for each in before.types if each not in after.types)
        yield TypesChanged(name, added, removed)
    other = tuple(
        _as_written(each.name)
        for each in fields(Queue)
        if each.name not in _SAID_APART and getattr(before, each.name) != getattr(after, each.name)
    )
    if other:
        yield FieldsChanged(name, other)


def _as_written(field: str) -> str:
    """A field of the value as people write it."""
    head, *rest = field.removesuffix("_us").split("_")
    return _AS_WRITTEN.get(field, head + "".join(each.title() for each in rest))


def _leaf_no_more(
    old: QueueTree, new: QueueTree, name: str, inside: InsideOf
) -> Iterator[LeafNoMore]:
    here = inside.get(name, _EMPTY)
    if new.children(name) and not old.children(name) and (here.running or here.waiting):
        yield LeafNoMore(name, here.running, here.waiting)


def _closing(old: QueueTree, new: QueueTree, inside: InsideOf) -> set[str]:
    """The queues that are no longer written, in which or below which work runs that has no other.

    Work of a queue that has moved is no reason to keep the queue that it was under.
    """
    return {
        above
        for name, here in inside.items()
        if here.running and new.get(name) is None
        for above in old.path(name)
        if old.get(above) is not None and new.get(above) is None
    }


def _parent_of_closing(old: QueueTree, tree: QueueTree, name: str) -> str | None:
    """The queue under which one closes; None where every queue is a leaf, which it must stay."""
    root = tree.queues[0].name if tree.queues else ""
    for above in (*reversed(old.path(name)[:-1]), root):
        if tree.children(above) and tree.get(above) is not None:
            return above
    return None


def _kept_guarantee(
    old: QueueTree, tree: QueueTree, queue: Queue, parent: str, books: "_Books"
) -> Quota | None:
    """What a closing queue uses of its guarantee, as far as its parent has it to give."""
    above = tree.get(parent)
    promised = above.guarantee if above is not None else None
    scale = Scale.of(tree, books.scale.names)
    kept = []
    for word, count in guaranteed(old, queue, books.scale):
        left = min(count, -(-books.counted(queue.name, word) // UNIT))
        over = [pair for pair in promised or () if scale.overlap(pair[0], word)]
        if promised is not None and not any(scale.covers(wide, word) for wide, _ in over):
            left = 0
        for wide, given in over:
            parts = [
                (child.name, each, many)
                for child in tree.children(parent)
                for each, many in guaranteed(tree, child, scale)
                if scale.overlap(wide, each)
            ]
            spare = max(0, given * RATE_ONE - scale.cost(wide, parts))
            left = min(left, spare // scale.cost(wide, [("", word, 1)]))
        kept.append((word, left))
    return tuple(kept)


class _Books:
    """What the queues of a tree hold, with all that is below them, and what they owe."""

    def __init__(self, tree: QueueTree, inside: InsideOf, names: Names) -> None:
        self.scale = Scale.of(tree, names)
        self._tree = tree
        self._inside = inside
        self._units: dict[str, dict[str, int]] = {queue.name: {} for queue in tree.queues}
        self._fixed: dict[str, dict[str, int]] = {queue.name: {} for queue in tree.queues}
        for name, here in inside.items():
            for above in tree.path(name) if tree.get(name) is not None else ():
                for books, units in ((self._units, here.units), (self._fixed, here.fixed_units)):
                    for accelerator, number in units.items():
                        held = books[above]
                        held[accelerator] = held.get(accelerator, 0) + number
        self._promises: dict[str, Quota] = {}
        self._needs: dict[tuple[str, str], int] = {}

    def counted(self, name: str, word: str) -> int:
        """What a queue holds as a word counts it, in units of a device, rounded up."""
        return self.scale.counted(self._units[name], word)

    def debts(self) -> dict[tuple[str, str, str], tuple[QuotaDebt, int]]:
        """What is owed by (kind, queue, word), with by how many units."""
        found: dict[tuple[str, str, str], tuple[QuotaDebt, int]] = {}
        for queue in self._tree.queues:
            for word, limit in queue.limit:
                held = self.counted(queue.name, word)
                if held > limit * UNIT:
                    debt = LimitDebt(queue.name, word, held, limit)
                    found["limit", queue.name, word] = debt, held - limit * UNIT
        for queue_name in sorted(self._inside):
            for accelerator in sorted(self._inside[queue_name].fixed_units):
                owed = self._uncovered(queue_name, accelerator)
                if owed is not None:
                    over = owed.fixed_units - owed.guarantee * UNIT
                    found["guarantee", owed.queue, owed.word] = owed, over
        return found

    def _uncovered(self, queue: str, accelerator: str) -> GuaranteeDebt | None:
        """Why what cannot be taken back is not covered by a guarantee on the path to the root."""
        first: GuaranteeDebt | None = None
        for name in reversed(self._tree.path(queue)):
            above = self._tree.get(name)
            if above is None:
                return None
            word, count = self._guarantee_on(above, accelerator)
            needed = self._needed(above, word)
            if needed <= count * UNIT:
                return None
            first = first or GuaranteeDebt(name, word, needed, count)
        return first

    def _needed(self, queue: Queue, word: str) -> int:
        """How large a guarantee would have to be, in units: for leaves what cannot be taken back.

        Of every child the larger of what it needs and what it was promised.
        """
        known = self._needs.get((queue.name, word))
        if known is not None:
            return known
        here = self._inside.get(queue.name, _EMPTY)
        needed = self.scale.counted(here.fixed_units, word)
        for child in self._tree.children(queue.name):
            promised = {w: n for w, n in self._guaranteed(child) if self.scale.overlap(word, w)}
            for accelerator in self._fixed[child.name]:
                counts = self._known((word,), accelerator)
                if counts and not self._known(promised, accelerator):
                    promised[accelerator] = 0
            for each, count in promised.items():
                larger = max(self._needed(child, each), count * UNIT)
                rate = self.scale.highest_milli(each) if word == UNITS else RATE_ONE
                needed += -(-larger * rate // RATE_ONE)
        self._needs[queue.name, word] = needed
        return needed

    def _guaranteed(self, queue: Queue) -> Quota:
        known = self._promises.get(queue.name)
        if known is None:
            known = self._promises[queue.name] = guaranteed(self._tree, queue, self.scale)
        return known

    def _known(self, words: Iterable[str], accelerator: str) -> bool:
        return any(word == UNITS or accelerator in self.scale.behind(word) for word in words)

    def _guarantee_on(self, queue: Queue, accelerator: str) -> tuple[str, int]:
        for word, count in self._guaranteed(queue):
            if self._known((word,), accelerator):
                return word, count
        return accelerator, 0
