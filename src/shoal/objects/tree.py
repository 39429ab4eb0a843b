"""The tenant tree out of single queues: one root, no cycle, grants that fit into one another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from shoal.catalog.catalog import Catalog
from shoal.model.queue import UNITS, Queue, QueueTree
from shoal.model.workload import WorkloadType
from shoal.objects.annotations import nearest
from shoal.objects.budgets import Prices
from shoal.objects.forms import Source
from shoal.objects.grants import Grants
from shoal.objects.quotas import Names, Scale, guaranteed, names_of

Written = Sequence[tuple[Source, Queue]]
Times = tuple[tuple[WorkloadType, int], ...]

DEEPEST: Final = 16
"""Queues on the longest path from the root down."""


def grow(written: Written, catalog: Catalog, prices: Prices, day: date) -> QueueTree:
    """The tree of these queues; what does not fit is noted in their sources.

    The tree is only to be used where nothing was noted. Its rates and prices are those of `day`,
    and known only where a quota or a budget needs them.
    """
    sources: dict[str, Source] = {}
    queues: dict[str, Queue] = {}
    for source, queue in written:
        if queue.name in queues:
            source.complain(
                ("metadata", "name"), f"the queue {queue.name} is written twice; rename one"
            )
        else:
            sources[queue.name], queues[queue.name] = source, queue
    if not queues or not _check_shape(queues, sources):
        return QueueTree()
    counts = any(
        word == UNITS
        for queue in queues.values()
        for quota in (queue.guarantee or (), queue.limit, queue.borrow, queue.lend)
        for word, _ in quota
    )
    rates = _rates(catalog, day) if counts else ()
    scale = Scale(names_of(catalog), dict(rates))
    tree = QueueTree(Grants(queues, sources, scale, prices).queues(), rates)
    if any(queue.budget and queue.budget.money_micro is not None for queue in tree.queues):
        micro = tuple(sorted(prices.micro.items()))
        return replace(tree, prices_micro=micro, currency=prices.currency)
    return tree


def _rates(catalog: Catalog, day: date) -> tuple[tuple[str, int], ...]:
    found = ((name, catalog.rate(name, day)) for name in sorted(catalog.accelerators))
    return tuple((name, rate.milli) for name, rate in found if rate is not None)


def _check_shape(queues: Mapping[str, Queue], sources: Mapping[str, Source]) -> bool:
    """Whether the queues form one tree."""
    well = True
    roots = [name for name, queue in queues.items() if not queue.parent]
    if not roots:
        source = next(iter(sources.values()))
        source.complain(
            ("spec", "parent"), "no queue is the root; leave parent out of the one above all others"
        )
        well = False
    for name in roots[1:]:
        sources[name].complain(
            ("spec", "parent"),
            f"{name} and {roots[0]} both have no parent, and there is one root; write a parent",
        )
        well = False
    for name, queue in queues.items():
        if queue.parent and queue.parent not in queues:
            near = ", ".join(nearest(queue.parent, queues) or sorted(queues)[:3])
            sources[name].complain(
                ("spec", "parent"), f"there is no queue {queue.parent}; nearest: {near}"
            )
            well = False
    for name in _in_cycles(queues):
        circle = _circle(queues, name)
        if name == min(circle):
            sources[name].complain(
                ("spec", "parent"),
                f"is in a circle: {' under '.join((*circle, name))}; change one parent",
            )
        well = False
    for name in queues if well else ():
        if (depth := _depth(queues, name)) == DEEPEST + 1:
            sources[name].complain(
                ("spec", "parent"),
                f"is {depth} queues deep, and {DEEPEST} is the most; put it nearer to the root",
            )
            well = False
    return well


def _depth(queues: Mapping[str, Queue], name: str) -> int:
    depth = 1
    while name := queues[name].parent:
        depth += 1
    return depth


def _in_cycles(queues: Mapping[str, Queue]) -> list[str]:
    found = []
    for name in queues:
        above = queues[name].parent
        for _ in queues:
            if above == name:
                found.append(name)
            if above not in queues or above == name:
                break
            above = queues[above].parent
    return found


def _circle(queues: Mapping[str, Queue], name: str) -> list[str]:
    circle = [name]
    while (above := queues[circle[-1]].parent) != name:
        circle.append(above)
    return circle


def resolved(tree: QueueTree, names: Names) -> QueueTree:
    """The tree as the core counts.

    Groups are written out (`H100` as `H100-NVL-94GB|...`), every queue above others has the
    guarantee that it or its children together are given, and of maximum times on a path the
    shortest stands at every queue.
    """
    scale = Scale.of(tree, names)
    runs: dict[str, Times] = {}
    waits: dict[str, Times] = {}
    queues = []
    for queue in tree.queues:
        runs[queue.name] = _shortest(runs.get(queue.parent, ()), queue.maximum_run_us)
        waits[queue.name] = _shortest(waits.get(queue.parent, ()), queue.maximum_wait_us)
        guarantee = queue.guarantee
        if tree.children(queue.name):
            guarantee = guaranteed(tree, queue, scale)
        queues.append(
            replace(
                queue,
                guarantee=None if guarantee is None else scale.written_out(guarantee),
                limit=scale.written_out(queue.limit),
                borrow=scale.written_out(queue.borrow),
                lend=scale.written_out(queue.lend),
                placeable=scale.written_out(queue.placeable),
                maximum_run_us=runs[queue.name],
                maximum_wait_us=waits[queue.name],
            )
        )
    return replace(tree, queues=tuple(queues))


def words_of(tree: QueueTree, names: Names) -> Mapping[str, str]:
    """The words that people wrote, by what `resolved` made of them."""
    scale = Scale.of(tree, names)
    return {
        scale.core_word(word): word
        for queue in tree.queues
        for quota in (
            *(guaranteed(tree, queue, scale), queue.limit),
            *(queue.borrow, queue.lend, queue.placeable),
        )
        for word, _ in quota
    }


def _shortest(above: Times, written: Times) -> Times:
    """Of times by type on the path to the root, the shortest of each."""
    shortest = dict(above)
    for type_, time_us in written:
        shortest[type_] = min(time_us, shortest.get(type_, time_us))
    return tuple(sorted(shortest.items()))
