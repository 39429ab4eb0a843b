"""What queues are granted, judged from the root of the tree down.

Whatever a queue may do is granted by the queue above it: devices, types of work, priorities, and
how well its work is protected. So nobody makes himself urgent, or impossible to evict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from shoal.model.fractions import RATE_ONE
from shoal.model.queue import UNITS, Priority, Queue, QueueTree, Quota
from shoal.model.workload import WorkloadType
from shoal.objects.budgets import Prices, check_prices
from shoal.objects.durations import duration_text
from shoal.objects.forms import Source
from shoal.objects.quotas import MOST_SETS, Part, Scale, bounding_sets, guaranteed

Protection = Mapping[str, tuple[int, str]]
"""The bounds of evictions that hold: each by its name, with the queue that wrote it."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """One bound: its field as people write it, and whether more of it protects better."""

    field: str
    more_protects: bool
    is_duration: bool


_BOUNDS: Final = {
    "minimum_run_us": _Bound("minimumRun", more_protects=True, is_duration=True),
    "per_workload_per_day": _Bound("perWorkloadPerDay", more_protects=False, is_duration=False),
    "device_hours_lost_per_day": _Bound(
        "deviceHoursLostPerDay", more_protects=False, is_duration=False
    ),
    "checkpoint_interval_us": _Bound("checkpointInterval", more_protects=True, is_duration=True),
    "grace_max_us": _Bound("graceMax", more_protects=True, is_duration=True),
}


@dataclass(frozen=True, slots=True)
class _Granted:
    """What a queue passes on to those below it."""

    types: tuple[WorkloadType, ...] = tuple(WorkloadType)
    priorities: tuple[Priority, ...] = ()
    protection: Protection = field(default_factory=dict)


class Grants:
    """Judges the queues of one tree; what is wrong is noted in their sources."""

    def __init__(
        self,
        queues: Mapping[str, Queue],
        sources: Mapping[str, Source],
        scale: Scale,
        prices: Prices,
    ) -> None:
        self._queues = queues
        self._sources = sources
        self._scale = scale
        self._prices = prices
        self._tree = QueueTree(tuple(queues.values()))
        """The same, in the order in which they are written."""

    def queues(self) -> tuple[Queue, ...]:
        """The queues from the root down, with what they have from those above them."""
        ordered: list[Queue] = []
        pending = list(self._tree.children(""))
        granted = {"": _Granted()}
        while pending:
            queue = pending.pop(0)
            above, children = granted[queue.parent], self._tree.children(queue.name)
            mine = _Granted(
                self._types(queue, above.types),
                self._priorities(queue, above.priorities),
                self._protection(queue, above.protection),
            )
            granted[queue.name] = mine
            ordered.append(replace(queue, types=mine.types, priorities=mine.priorities))
            self._check_guarantees(queue)
            self._check_limit(queue)
            self._check_shares(queue)
            self._check_placeable(queue)
            self._check_prices(queue)
            if queue.namespaces is not None and children:
                below = ", ".join(child.name for child in children)
                self._complain(
                    queue,
                    "namespaces",
                    f"work waits in leaves of the tree, and {queue.name} is above {below}; write"
                    " namespaces there",
                )
            pending += children
        return tuple(ordered)

    def _complain(self, queue: Queue, field: str, sentence: str, *deeper: str) -> None:
        self._sources[queue.name].complain(("spec", field, *deeper), sentence)

    # What work may be ---------------------------------------------------------------------------

    def _types(self, queue: Queue, granted: tuple[WorkloadType, ...]) -> tuple[WorkloadType, ...]:
        if not queue.types:
            return granted
        beyond = [each for each in queue.types if each not in granted]
        if beyond:
            self._complain(
                queue,
                "types",
                f"{queue.parent} grants {', '.join(granted)}, not {', '.join(beyond)}; write some"
                " of those",
            )
        return queue.types

    def _priorities(self, queue: Queue, granted: tuple[Priority, ...]) -> tuple[Priority, ...]:
        if not queue.priorities:
            return granted
        by_name = {each.name: each for each in granted}
        for each in queue.priorities if granted else ():
            above = by_name.get(each.name)
            if above is None:
                words = ", ".join(by_name)
                self._complain(
                    queue,
                    "priorities",
                    f"{queue.parent} grants the priorities {words}; write some of those",
                    each.name,
                )
                continue
            if each.value > above.value:
                self._complain(
                    queue,
                    "priorities",
                    f"is {each.value:,}, and {queue.parent} grants {above.value:,}; write"
                    f" {above.value:,} or less",
                    each.name,
                    "value",
                )
            beyond = ", ".join(sorted(set(each.subjects) - set(above.subjects)))
            if above.subjects and not each.subjects:
                beyond = "everyone"
            if above.subjects and beyond:
                self._complain(
                    queue,
                    "priorities",
                    f"{queue.parent} grants it to {', '.join(above.subjects)}, not to {beyond};"
                    " write some of those",
                    each.name,
                    "subjects",
                )
        return queue.priorities

    def _protection(self, queue: Queue, above: Protection) -> Protection:
        """Note where a queue protects its work better than the queues above it allow."""
        holds = dict(above)
        for name, bound in _BOUNDS.items():
            mine = queue.grace_max_us if name == "grace_max_us" else getattr(queue.eviction, name)
            if mine is None:
                continue
            theirs, by = above.get(name, (mine, queue.name))
            if mine != theirs and (mine > theirs) is bound.more_protects:
                shown = duration_text if bound.is_duration else _number
                others = " or less" if bound.more_protects else " or more"
                others = others if theirs or not bound.more_protects else ""
                self._complain(
                    queue,
                    "eviction",
                    f"is {shown(mine)}, which protects better than {by} grants; write"
                    f" {shown(theirs)}{others}",
                    bound.field,
                )
            holds[name] = (mine, queue.name)
        return holds

    # Devices ------------------------------------------------------------------------------------

    def _guaranteed(self, queue: Queue) -> Quota:
        return guaranteed(self._tree, queue, self._scale)

    def _check_guarantees(self, queue: Queue) -> None:
        """Note where the children of a queue are guaranteed more than it is."""
        if queue.guarantee is None:
            return
        parts = [
            (child.name, word, count)
            for child in self._tree.children(queue.name)
            for word, count in self._guaranteed(child)
            if count
        ]
        kept = [part for part in parts if self._is_passed_on(queue, queue.guarantee, part)]
        for word, count in queue.guarantee:
            within = [part for part in kept if self._scale.overlap(word, part[1])]
            cost = self._scale.cost(word, within)
            if cost > count * RATE_ONE:
                shown, least = self._scale.shown(word, within), -(-cost // RATE_ONE)
                self._complain(
                    queue,
                    "guarantee",
                    f"its children are guaranteed {shown}, and {queue.name} only {count:,}; raise"
                    f" it to {least:,} or lower theirs",
                    word,
                )

    def _is_passed_on(self, queue: Queue, guarantee: Quota, part: Part) -> bool:
        """Whether all that a child is guaranteed of a word is part of the queue's own guarantee."""
        child, word, count = part
        if any(self._scale.covers(above, word) for above, _ in guarantee):
            return True
        if word == UNITS:
            self._complain(
                self._queues[child],
                "guarantee",
                f"{count:,} units may be of any accelerator, and {queue.name} is guaranteed"
                f" {_shown(guarantee)}; write accelerators, or the guarantee of {queue.name} in"
                " units",
                word,
            )
            return False
        above = frozenset[str]().union(*(self._scale.behind(each) for each, _ in guarantee))
        missing = sorted(self._scale.behind(word) - above)
        if missing:
            partly = len(missing) < len(self._scale.behind(word))
            what = (
                f"no {', '.join(missing)}, which {word} means as well," if partly else f"no {word}"
            )
            self._complain(
                self._queues[child],
                "guarantee",
                f"{queue.name} is guaranteed {what} that it could pass on; it has"
                f" {_shown(guarantee)}",
                word,
            )
        return not missing

    def _check_limit(self, queue: Queue) -> None:
        """Note where a queue may use less than it, or what is below it, is guaranteed."""
        limits = dict(queue.limit)
        if UNITS in limits:
            self._check_limit_in_units(queue, limits[UNITS])
            return
        compared = bounding_sets(limits, self._words_below(queue), self._scale)
        if len(compared) > MOST_SETS:
            said = "overlaps with guarantees in too many ways to compare; write the same words"
            self._complain(queue, "limit", said)
            return
        short: list[frozenset[str]] = []
        for words in compared:
            behind = frozenset[str]().union(*map(self._scale.behind, words))
            parts = self._within(queue, behind)
            most, least = sum(limits[word] for word in words), sum(count for _, _, count in parts)
            if least > most and not any(each <= words for each in short):
                short.append(words)
                self._complain_of_limits(queue, {w: n for w, n in queue.limit if w in words}, parts)

    def _complain_of_limits(
        self, queue: Queue, limits: Mapping[str, int], parts: Sequence[Part]
    ) -> None:
        """Say that limits together are less than what is guaranteed of nothing else."""
        (word, limit), *others = limits.items()
        least = sum(count for _, _, count in parts)
        said, raised = f"is {limit:,}", f"raise it to {least:,}"
        if others:
            said += f", and {sum(limits.values()):,} together with {_shown(tuple(others))}"
            raised = f"raise them to {least:,}"
        if all(who == queue.name for who, _, _ in parts):
            terms = [f"{each} {count:,}" for _, each, count in parts]
            what, lower = "the guarantee", "the guarantee"
        else:
            terms = [f"{who} {count:,} {each}" for who, each, count in parts]
            what, lower = "what is guaranteed:", "that"
        summed = f" = {least:,}" if len(terms) > 1 else ""
        self._complain(
            queue,
            "limit",
            f"{said}, less than {what} {' + '.join(terms)}{summed}; {raised} or lower {lower}",
            word,
        )

    def _check_limit_in_units(self, queue: Queue, limit: int) -> None:
        within = self._parts(self._guaranteed(queue), UNITS)
        cost = self._scale.cost(UNITS, within)
        if cost > limit * RATE_ONE:
            self._complain(
                queue,
                "limit",
                f"is {limit:,}, less than the guarantee {self._sum(UNITS, within)}; raise it to"
                f" {-(-cost // RATE_ONE):,} or lower the guarantee",
                UNITS,
            )

    def _words_below(self, queue: Queue) -> set[str]:
        """The words in which a queue and those below it are guaranteed something."""
        words = {word for word, count in queue.guarantee or () if count and word != UNITS}
        return words.union(*map(self._words_below, self._tree.children(queue.name)))

    def _within(self, queue: Queue, accelerators: frozenset[str]) -> list[Part]:
        """What a queue and those below it are guaranteed of these accelerators and of no others.

        What a queue is guaranteed contains all of it that those below it are guaranteed.
        """
        own = [
            (queue.name, word, count)
            for word, count in queue.guarantee or ()
            if word != UNITS and count and self._scale.behind(word) <= accelerators
        ]
        rest = accelerators.difference(*(self._scale.behind(word) for _, word, _ in own))
        children = self._tree.children(queue.name) if rest else ()
        return own + [part for child in children for part in self._within(child, rest)]

    def _check_shares(self, queue: Queue) -> None:
        """Note where what is borrowed or lent cannot be told from what is guaranteed."""
        promised = self._guaranteed(queue)
        for share, quota in (("borrow", queue.borrow), ("lend", queue.lend)):
            for word, _ in quota:
                for other, _ in promised:
                    if self._scale.overlap(word, other) and not self._scale.covers(word, other):
                        self._complain(
                            queue,
                            share,
                            f"is only a part of {other}, which is guaranteed together; write"
                            f" {other}",
                            word,
                        )
        for word, lent in queue.lend:
            within = self._parts(promised, word)
            cost = self._scale.cost(word, within)
            if lent * RATE_ONE > cost:
                self._complain(
                    queue,
                    "lend",
                    f"is {lent:,}, more than the guarantee {self._sum(word, within)}; lower it to"
                    f" {cost // RATE_ONE:,} or raise the guarantee"
                    if within
                    else f"{queue.name} is guaranteed no {word} that it could lend; it has"
                    f" {_shown(promised)}",
                    word,
                )

    def _check_placeable(self, queue: Queue) -> None:
        """Note what cannot lie on one node, or is not guaranteed."""
        promised = self._guaranteed(queue)
        for word, count in queue.placeable:
            if word == UNITS:
                said = "devices lie on nodes, and units do not; write an accelerator"
                self._complain(queue, "placeable", said, word)
                continue
            same = [
                devices
                for other, devices in promised
                if other != UNITS and self._scale.behind(other) == self._scale.behind(word)
            ]
            if not same:
                only = f", only {_shown(promised)}" if promised else ""
                self._complain(
                    queue,
                    "placeable",
                    f"{queue.name} is not guaranteed {word}{only}; write a guarantee of the same"
                    " word",
                    word,
                )
            elif not 1 <= count <= same[0]:
                self._complain(
                    queue,
                    "placeable",
                    f"is {count:,}, and {same[0]:,} are guaranteed; write how many of them lie on"
                    f" one node, from 1 to {same[0]:,}",
                    word,
                )

    def _check_prices(self, queue: Queue) -> None:
        """Note where a budget in money could not count what is used."""
        if queue.budget is None or queue.budget.money_micro is None:
            return
        wanted: frozenset[str] = frozenset()
        above: Queue | None = queue
        while above is not None and not wanted:
            words = [word for word, _ in (*(above.guarantee or ()), *above.limit) if word != UNITS]
            wanted = wanted.union(*(self._scale.behind(word) for word in words))
            above = self._queues.get(above.parent)
        check_prices(self._sources[queue.name], wanted, self._prices)

    def _parts(self, quota: Quota, under: str) -> list[Part]:
        """The entries of a quota that lie within a word, each called by its own word."""
        return [
            ("" if under == UNITS else word, word, count)
            for word, count in quota
            if self._scale.covers(under, word)
        ]

    def _sum(self, under: str, parts: list[Part]) -> str:
        if len(parts) == 1 and (under != UNITS or parts[0][1] == UNITS):
            return f"{parts[0][1]} {parts[0][2]:,}"
        return self._scale.shown(under, parts)


def _shown(quota: Quota) -> str:
    return ", ".join(f"{word}: {devices:,}" for word, devices in quota) or "nothing"


def _number(value: int) -> str:
    return f"{value:,}"
