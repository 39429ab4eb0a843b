"""What changed queues will mean for what runs and waits, said before they are taken in.

A queue that is no longer written and in which work runs *closes*: it stays in the tree until it is
empty, so that the work is charged to it and to the queues above it as before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from shoal.model.fractions import RATE_ONE, UNIT
from shoal.model.meaning import (
    Inside,
    LeafNoMore,
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
    QuotaField,
    Running,
    TypeDebt,
    TypesChanged,
    WeightChanged,
)
from shoal.model.pool import Pool
from shoal.model.queue import Queue, QueueTree, Quota
from shoal.model.selector import Selector
from shoal.model.workload import WorkloadType
from shoal.objects.changed_fields import fields_changed
from shoal.objects.quotas import Names, Part, Scale, guaranteed

InsideOf = Mapping[str, Inside]
"""The work in each queue by its name; queues without work may be left out."""

_EMPTY: Final = Inside()
_IN_NO_POOL: Final = Pool("", Selector(), tuple(WorkloadType), ())


def meaning(old: QueueTree, new: QueueTree, inside: InsideOf) -> tuple[Meaning, ...]:
    """What it will mean that the queues are those of `new`; both trees as they are written.

    First the queues in the order of the new tree, then those that go. What comes of it for who runs
    and waits, and which debts, is for the core to say (`core.foreseen`).
    """
    said: list[Meaning] = []
    closing = _closing(old, new, inside)
    for queue in new.queues:
        known = old.get(queue.name)
        if known is None or known.closing:
            waiting = inside.get(queue.name, _EMPTY).waiting
            said.append(QueueAdded(queue.name, queue.parent, waiting))
        else:
            said += _changes(known, queue)
            said += fields_changed(known, queue, (old.currency, new.currency))
            said += _leaf_no_more(old, new, queue.name, inside)
    for queue in old.queues:
        if new.get(queue.name) is None and not queue.closing:
            here = inside.get(queue.name, _EMPTY)
            if queue.name in closing and new.queues:
                said.append(QueueCloses(queue.name, here.running, here.waiting))
            else:
                said.append(QueueGone(queue.name, here.waiting, here.running))
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
    old, new = tuple(old), tuple(new)
    said = list(_pools_changed({each.name: each for each in old}, {e.name: e for e in new}))
    changed = {node: (_serving(old, own), _serving(new, own)) for node, own in labels.items()}
    unserved: Counter[tuple[str, WorkloadType]] = Counter()
    beside: Counter[str] = Counter()
    for work in running:
        places = [
            (*changed[node], node in work.beside_strangers, node in work.strangers_then)
            for node in sorted(work.nodes)
        ]
        unserved.update(
            {
                (now.name, work.type)
                for was, now, _, _ in places
                if work.type in was.types and work.type not in now.types
            }
        )
        beside.update(
            {
                now.name
                for was, now, before, then in places
                if then and not now.mixes_queues and (was.mixes_queues or not before)
            }
        )
    debts: list[PoolDebt] = [
        TypeDebt(name, type_, count) for (name, type_), count in sorted(unserved.items())
    ]
    debts += [NeighbourDebt(name, count) for name, count in sorted(beside.items())]
    return *said, *debts


def _pools_changed(old: Mapping[str, Pool], new: Mapping[str, Pool]) -> Iterator[PoolChanged]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield PoolChanged(name, PoolHow.ADDED)
        elif name not in new:
            yield PoolChanged(name, PoolHow.REMOVED)
        elif old[name] != new[name]:
            yield PoolChanged(name, PoolHow.CHANGED)


def _serving(pools: Iterable[Pool], labels: Mapping[str, str]) -> Pool:
    """The pool of a node with these labels; without one it serves all, and no queues mix."""
    return next((pool for pool in pools if pool.nodes.matches(labels)), _IN_NO_POOL)


def closing_kept(old: QueueTree, new: QueueTree, inside: InsideOf, names: Names) -> QueueTree:
    """The new tree with the queues of the old one that are no longer written and hold something.

    Each closes under the nearest of the queues above it that there still is, so that what runs in
    it counts under the quotas there as before; else under the root. Of their guarantee they keep
    what they use of it, as far as it fits beside those of the new queues. Where no queue is written
    there is no tree, and nothing to close under.
    """
    if not new.queues:
        return new
    held = _held(old, inside)
    closing = _closing(old, new, inside)
    tree = new
    for queue in old.queues:
        if queue.name not in closing:
            continue
        above = reversed(old.path(queue.name)[:-1])
        parent = next((each for each in above if tree.get(each)), tree.queues[0].name)
        kept = replace(
            queue,
            parent=parent,
            namespaces=None,
            guarantee=_kept_guarantee(old, tree, queue, parent, held[queue.name], names),
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


def _leaf_no_more(
    old: QueueTree, new: QueueTree, name: str, inside: InsideOf
) -> Iterator[LeafNoMore]:
    here = inside.get(name, _EMPTY)
    took_work = not any(not each.closing for each in old.children(name))
    if new.children(name) and took_work and (here.running or here.waiting):
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


def _held(tree: QueueTree, inside: InsideOf) -> Mapping[str, Mapping[str, int]]:
    """What each queue holds with all that is below it, in units by accelerator."""
    held: dict[str, Counter[str]] = {queue.name: Counter() for queue in tree.queues}
    for name, here in inside.items():
        for above in tree.path(name) if name in held else ():
            held[above].update(here.units)
    return held


def _kept_guarantee(
    old: QueueTree,
    tree: QueueTree,
    queue: Queue,
    parent: str,
    held: Mapping[str, int],
    names: Names,
) -> Quota:
    """What a closing queue uses of its guarantee, as far as there is something to give above it.

    A queue that writes no guarantee has what its children have together, so it is the nearest one
    that writes one that has to have it.
    """
    before, scale = Scale.of(old, names), Scale.of(tree, names)
    above = tree.get(parent)
    while above is not None and above.guarantee is None:
        above = tree.get(above.parent)
    kept = []
    for word, count in guaranteed(old, queue, before):
        left = min(count, -(-before.counted(held, word) // UNIT))
        if above is not None:
            left = min(left, _spare(tree, above, word, scale))
        kept.append((word, left))
    return tuple(kept)


def _spare(tree: QueueTree, queue: Queue, word: str, scale: Scale) -> int:
    """How many devices of a word a queue's guarantee has beyond what its children are promised."""
    over = [pair for pair in queue.guarantee or () if scale.overlap(pair[0], word)]
    if not any(scale.covers(wide, word) for wide, _ in over):
        return 0
    spare = []
    for wide, given in over:
        parts: list[Part] = [
            (child.name, each, many)
            for child in tree.children(queue.name)
            for each, many in guaranteed(tree, child, scale)
            if scale.overlap(wide, each)
        ]
        left = max(0, given * RATE_ONE - scale.cost(wide, parts))
        spare.append(left // scale.cost(wide, [("", word, 1)]))
    return min(spare)
