"""The tenant tree out of single queues: one root, no cycle, grants that fit into one another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from shoal.catalog.catalog import Catalog
from shoal.model.queue import Queue, QueueTree, Quota, total
from shoal.model.workload import WorkloadType
from shoal.objects.annotations import nearest
from shoal.objects.forms import Source
from shoal.objects.queues import Names, behind, names_of

Written = Sequence[tuple[Source, Queue]]

DEEPEST: Final = 16
"""Queues on the longest path from the root down."""


def grow(written: Written, catalog: Catalog) -> QueueTree:
    """The tree of these queues; what does not fit is noted in their sources.

    The tree is only to be used where nothing was noted.
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
    return _Grants(queues, sources, names_of(catalog)).tree()


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
    """The tree with groups written out, as the core counts: `H100` as `H100-NVL-94GB|...`."""

    def written_out(quota: Quota) -> Quota:
        return tuple(("|".join(sorted(behind(word, names))), count) for word, count in quota)

    return QueueTree(
        tuple(
            replace(
                queue,
                guarantee=None if queue.guarantee is None else written_out(queue.guarantee),
                limit=written_out(queue.limit),
            )
            for queue in tree.queues
        )
    )


def words_of(tree: QueueTree, names: Names) -> Mapping[str, str]:
    """The words that people wrote, by what `resolved` made of them."""
    return {
        "|".join(sorted(behind(word, names))): word
        for queue in tree.queues
        for word, _ in (*(queue.guarantee or ()), *queue.limit)
    }


class _Grants:
    """Judges what queues are granted, from the root down."""

    def __init__(
        self, queues: Mapping[str, Queue], sources: Mapping[str, Source], names: Names
    ) -> None:
        self._queues = queues
        self._sources = sources
        self._names = names
        self._children: dict[str, list[str]] = {}
        for name, queue in queues.items():
            self._children.setdefault(queue.parent, []).append(name)

    def tree(self) -> QueueTree:
        ordered: list[Queue] = []
        pending = list(self._children[""])
        types: dict[str, tuple[WorkloadType, ...]] = {"": tuple(WorkloadType)}
        while pending:
            name = pending.pop(0)
            queue = self._queues[name]
            types[name] = self._types(queue, types[queue.parent])
            ordered.append(replace(queue, types=types[name]))
            self._check_guarantees(queue)
            self._check_limit(queue)
            if queue.namespaces is not None and name in self._children:
                below = ", ".join(self._children[name])
                self._sources[name].complain(
                    ("spec", "namespaces"),
                    f"work waits in leaves of the tree, and {name} is above {below}; write"
                    " namespaces there",
                )
            pending += self._children.get(name, ())
        return QueueTree(tuple(ordered))

    def _types(self, queue: Queue, granted: tuple[WorkloadType, ...]) -> tuple[WorkloadType, ...]:
        if not queue.types:
            return granted
        beyond = [each for each in queue.types if each not in granted]
        if beyond:
            self._sources[queue.name].complain(
                ("spec", "types"),
                f"{queue.parent} grants {', '.join(granted)}, not {', '.join(beyond)}; write some"
                " of those",
            )
        return queue.types

    def _guaranteed(self, queue: Queue) -> Quota:
        """What a queue is guaranteed: as written, or else what its children are together."""
        if queue.guarantee is not None:
            return queue.guarantee
        below = (self._guaranteed(self._queues[n]) for n in self._children.get(queue.name, ()))
        return tuple(sorted(total(below).items()))

    def _check_guarantees(self, queue: Queue) -> None:
        """Note where the children of a queue are guaranteed more than it is."""
        if queue.guarantee is None:
            return
        shares: dict[str, list[tuple[str, int]]] = {}
        for child in self._children.get(queue.name, ()):
            for word, devices in self._guaranteed(self._queues[child]):
                above = self._above(word, queue.guarantee)
                if above is not None:
                    shares.setdefault(above, []).append((child, devices))
                elif devices:
                    self._sources[child].complain(
                        ("spec", "guarantee", word),
                        f"{queue.name} is guaranteed no {word} that it could pass on; it has"
                        f" {_shown(queue.guarantee)}",
                    )
        for word, parts in shares.items():
            summed = sum(devices for _, devices in parts)
            if summed > dict(queue.guarantee)[word]:
                self._sources[queue.name].complain(
                    ("spec", "guarantee", word),
                    f"its children are guaranteed {_sum(parts)} = {summed:,}, and {queue.name} only"
                    f" {dict(queue.guarantee)[word]:,}; raise it to {summed:,} or lower theirs",
                )

    def _check_limit(self, queue: Queue) -> None:
        """Note where a queue may use less than it, or what is below it, is guaranteed."""
        guaranteed = self._guaranteed(queue)
        for word, limit in queue.limit:
            within = [
                (each, devices)
                for each, devices in guaranteed
                if behind(each, self._names) <= behind(word, self._names)
            ]
            summed = sum(devices for _, devices in within)
            if summed > limit:
                shown = f"{_sum(within)} = {summed:,}" if len(within) > 1 else _sum(within)
                self._sources[queue.name].complain(
                    ("spec", "limit", word),
                    f"is {limit:,}, less than the guarantee {shown}; raise it to {summed:,} or"
                    " lower the guarantee",
                )

    def _above(self, word: str, quota: Quota) -> str | None:
        """The word of a quota that covers another one."""
        for above, _ in quota:
            if behind(word, self._names) <= behind(above, self._names):
                return above
        return None


def _sum(parts: Sequence[tuple[str, int]]) -> str:
    return " + ".join(f"{name} {devices:,}" for name, devices in parts)


def _shown(quota: Quota) -> str:
    return ", ".join(f"{word}: {devices:,}" for word, devices in quota) or "none"
