"""Quotas as people write them, compared and added exactly.

A word of a quota stands for one accelerator, for several that count together, or (`units`) for all
of them by their exchange rates. Where the words of two quotas differ, the worst case counts: what
is promised of a group may be held on any accelerator of it, the dearest as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from shoal.catalog.catalog import Catalog
from shoal.model.fractions import RATE_ONE
from shoal.model.queue import UNITS, Queue, QueueTree, Quota

Names = Mapping[str, frozenset[str]]
"""The accelerators behind each word of the catalogue: a name, a group, or `units`."""

MOST_SETS: Final = 4096
"""Sets of limits that are compared with what is guaranteed, for each queue."""

Part = tuple[str, str, int]
"""Who is promised something, the word, and how many devices of it (or units)."""


def behind(word: str, names: Names) -> frozenset[str]:
    """Return the accelerators behind a word, or several joined by `|`; itself where unknown."""
    return frozenset(
        name for part in word.split("|") for name in names.get(part, frozenset({part}))
    )


def names_of(catalog: Catalog) -> Names:
    """Return which accelerators each name and each group stands for."""
    names: dict[str, set[str]] = {UNITS: set(catalog.accelerators)}
    for model in catalog.models:
        for word in (model.name, *model.groups):
            names.setdefault(word, set()).add(model.name)
    return {word: frozenset(models) for word, models in names.items()}


@dataclass(frozen=True, slots=True)
class Scale:
    """What words stand for, and what accelerators are worth in thousandths of the reference."""

    names: Names
    rates: Mapping[str, int]

    @classmethod
    def of(cls, tree: QueueTree, names: Names) -> "Scale":
        """The scale of a tree's own rates."""
        return cls(names, dict(tree.rates))

    def behind(self, word: str) -> frozenset[str]:
        """The accelerators behind a word."""
        return behind(word, self.names)

    def overlap(self, one: str, other: str) -> bool:
        """Whether some accelerator counts under both words."""
        return UNITS in (one, other) or not self.behind(one).isdisjoint(self.behind(other))

    def covers(self, wide: str, word: str) -> bool:
        """Whether everything that counts under `word` also counts under `wide`."""
        if UNITS in (wide, word):
            return wide == UNITS
        return self.behind(word) <= self.behind(wide)

    def milli(self, accelerator: str) -> int:
        """The exchange rate of an accelerator; one without a rate counts as the reference."""
        return self.rates.get(accelerator, RATE_ONE)

    def counted(self, held: Mapping[str, int], word: str) -> int:
        """What is held of accelerators, as a word counts it; parts of a number are rounded up."""
        if word == UNITS:
            cost = sum(number * self.milli(name) for name, number in held.items())
            return -(-cost // RATE_ONE)
        within = self.behind(word)
        return sum(number for name, number in held.items() if name in within)

    def highest_milli(self, word: str) -> int:
        """The rate of the dearest accelerator behind a word."""
        if word == UNITS:
            return RATE_ONE
        return max(self.milli(name) for name in self.behind(word))

    def cost(self, under: str, parts: Iterable[Part]) -> int:
        """The most that parts may count under a word, in thousandths of what it counts."""
        if under == UNITS:
            return sum(count * self.highest_milli(word) for _, word, count in parts)
        return sum(count * RATE_ONE for _, _, count in parts)

    def shown(self, under: str, parts: Sequence[Part]) -> str:
        """The sum that `cost` makes, as people check it: `vision 16 H100 x 1.734 = 27.744`."""
        terms = " + ".join(self._term(under, *part) for part in parts)
        return f"{terms} = {thousandths(self.cost(under, parts))}"

    def _term(self, under: str, who: str, word: str, count: int) -> str:
        if under == UNITS and word != UNITS:
            return f"{who} {count:,} {word} x {thousandths(self.highest_milli(word))}".strip()
        mark = "" if self.covers(under, word) else f" {word}"
        return f"{who} {count:,}{mark}".strip()

    def together(self, quotas: Iterable[Quota]) -> Quota:
        """The sum of quotas, with words that overlap made one; beside `units` all become units."""
        summed: dict[str, int] = {}
        for quota in quotas:
            for word, count in quota:
                summed[word] = summed.get(word, 0) + count
        if UNITS in summed and len(summed) > 1:
            cost = self.cost(UNITS, [("", word, count) for word, count in summed.items()])
            return ((UNITS, -(-cost // RATE_ONE)),)
        while pair := self._overlapping(summed):
            one, other = pair
            count = summed.pop(one) + summed.pop(other)
            both = self._joined(one, other)
            summed[both] = summed.get(both, 0) + count
        return tuple(sorted(summed.items()))

    def _overlapping(self, words: Iterable[str]) -> tuple[str, str] | None:
        return next((p for p in combinations(sorted(words), 2) if self.overlap(*p)), None)

    def _joined(self, one: str, other: str) -> str:
        for wide, word in ((one, other), (other, one)):
            if self.covers(wide, word):
                return wide
        return "|".join(dict.fromkeys((*one.split("|"), *other.split("|"))))

    def written_out(self, quota: Quota) -> Quota:
        """A quota with groups written out, as the core counts: `H100-NVL-94GB|...`."""
        return tuple((self.core_word(word), count) for word, count in quota)

    def core_word(self, word: str) -> str:
        """What the core calls a word."""
        return UNITS if word == UNITS else "|".join(sorted(self.behind(word)))


def bounding_sets(
    limits: Iterable[str], words: Iterable[str], scale: Scale
) -> list[frozenset[str]]:
    """Which words of a limit have to be compared together with what is guaranteed, fewest first.

    What is guaranteed of one word may be held under any limit on a part of it, and is bounded by
    those limits together where they leave no part out. Where two such sets have a limit in common,
    both of what they bound may want it, so their union counts as well. Other sets bound nothing
    more, which is Hall's condition (Hall, "On Representatives of Subsets", 1935). Where there are
    more than `MOST_SETS`, some are left out.
    """
    parts = {limit: scale.behind(limit) for limit in limits}
    single: set[frozenset[str]] = set()
    for word in words:
        wanted = scale.behind(word)
        bounding = frozenset(limit for limit, part in parts.items() if part & wanted)
        if not wanted.difference(*(parts[limit] for limit in bounding)):
            single.add(bounding)
    found, pending = set(single), list(single)
    while pending and len(found) <= MOST_SETS:
        one = pending.pop()
        unions = {one | other for other in single if one & other} - found
        found |= unions
        pending += unions
    return sorted(found, key=lambda words: (len(words), sorted(words)))


def guaranteed(tree: QueueTree, queue: Queue, scale: Scale) -> Quota:
    """What a queue is guaranteed: as written, or else what its children are together."""
    if queue.guarantee is not None:
        return queue.guarantee
    return scale.together(guaranteed(tree, each, scale) for each in tree.children(queue.name))


def thousandths(milli: int) -> str:
    """Thousandths as a number without needless zeros: 27,744 is 27.744."""
    whole, part = divmod(milli, RATE_ONE)
    return f"{whole:,}.{part:03}".rstrip("0").rstrip(".")
