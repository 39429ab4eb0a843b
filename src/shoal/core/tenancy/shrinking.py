"""What guarantees are worth on a fleet that is smaller than what is promised.

First every accelerator for itself: what is promised of it at the top of the tree shrinks to what
there is. Then from the root down: what the queues below one are promised shrinks to what that one
has left. Either is divided in proportion to what was promised, in whole devices by largest
remainder. Nobody has less than what is used inside its guarantee.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shoal.core.tenancy.accounts import Bound
from shoal.model.fractions import RATE_ONE, UNIT

REMAINDER_BITS = 64
"""Remainders are compared as fractions of a device with so many binary places."""

Weight = Callable[[Bound, str], int]
"""What a unit of an accelerator counts under a bound, in thousandths."""

Promises = Sequence[Sequence[Bound]]
"""The guarantees of each queue; parents stand before their children."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is promised, what must be left of it, and what a unit counts, in thousandths."""

    size: int
    floor: int
    weight: int


def divide(total_milli: int, parts: Sequence[_Part]) -> list[int]:
    """Return what is left of each part, in units, where there is less than all parts together."""
    left = [part.floor for part in parts]
    active = list(range(len(parts)))
    while active:
        fixed = (i for i in range(len(parts)) if i not in active)
        rest = max(0, total_milli - sum(left[i] * parts[i].weight for i in fixed))
        found = _in_proportion(rest, [parts[i] for i in active])
        if all(each >= parts[i].floor for i, each in zip(active, found, strict=True)):
            for i, each in zip(active, found, strict=True):
                left[i] = each
            break
        active = [i for i, each in zip(active, found, strict=True) if each >= parts[i].floor]
    return left


def _in_proportion(total_milli: int, parts: Sequence[_Part]) -> list[int]:
    """Divide by size in whole devices; those with the largest remainders get one more."""
    together = sum(part.size * part.weight for part in parts)
    if not together:
        return [0 for _ in parts]
    found, remainders = [], []
    for number, part in enumerate(parts):
        device = UNIT * part.weight
        share = part.size * part.weight * total_milli  # over `together`
        devices = share // (together * device)
        found.append(devices * UNIT)
        rest = share - devices * together * device
        remainders.append((-(rest << REMAINDER_BITS) // (together * device), number))
    left = total_milli - sum(each * part.weight for each, part in zip(found, parts, strict=True))
    for _, number in sorted(remainders):
        part = parts[number]
        if left >= UNIT * part.weight and found[number] + UNIT <= part.size:
            found[number] += UNIT
            left -= UNIT * part.weight
    return found


class Shrinking:
    """The order in which the guarantees of one tree shrink."""

    def __init__(
        self,
        promises: Promises,
        children: Mapping[int, Sequence[int]],
        paths: Sequence[Sequence[int]],
        weight: Weight,
    ) -> None:
        """`paths` lead from each queue up to the root."""
        self._promises = promises
        self._weight = weight
        self._weights: dict[tuple[str, str], int] = {}
        """What `_dearest` has found, by the words of its bounds."""
        self._below = [
            [
                [
                    (child, index)
                    for child in children[number]
                    for index, each in enumerate(promises[child])
                    if each.within(bound)
                ]
                for bound in bounds
            ]
            for number, bounds in enumerate(promises)
        ]
        """By queue and guarantee: those of the queues right below that are parts of it."""
        words = {bound.name: bound for bounds in promises for bound in bounds}
        self._words = sorted(words.values(), key=lambda b: (b.rated, len(b.accelerators), b.name))
        """Each is counted before those that cover it."""
        above = {
            number: {bound.name for above in path[1:] for bound in promises[above]}
            for number, path in enumerate(paths)
        }
        self._tops = {
            word.name: [
                (number, index)
                for number, bounds in enumerate(promises)
                for index, bound in enumerate(bounds)
                if bound.name == word.name and word.name not in above[number]
            ]
            for word in self._words
        }
        """Where each word is promised at the top, and as which of the queue's guarantees."""
        self._beside = {
            word.name: [
                (number, index)
                for inner in self._words
                if inner.name != word.name and inner.within(word)
                for number, index in self._tops[inner.name]
                if word.name not in above[number]
                and all(bound.name != word.name for bound in promises[number])
            ]
            for word in self._words
        }
        """What else is promised of a word at the top, under words that it covers."""

    def fits(self, capacity: Mapping[str, int]) -> bool:
        """Return whether units of each accelerator are enough for everything that is promised."""
        return all(
            self._counted(word, [*self._tops[word.name], *self._beside[word.name]], self._promises)
            <= self._capacity(word, capacity)
            for word in self._words
        )

    def shrunk(
        self, capacity: Mapping[str, int], floors: Sequence[Sequence[int]], sizes: Promises
    ) -> list[tuple[Bound, ...]]:
        """Return what is left of `sizes`, none less than its floor, on such a fleet."""
        left = [list(bounds) for bounds in sizes]
        for word in self._words:
            beside = self._counted(word, self._beside[word.name], left)
            available = max(0, self._capacity(word, capacity) - beside)
            self._divide(word, available, self._tops[word.name], left, floors)
        for number in range(len(left)):
            for bound, places in zip(left[number], self._below[number], strict=True):
                if places:
                    self._divide(bound, bound.units * RATE_ONE, places, left, floors)
        return [tuple(bounds) for bounds in left]

    def _divide(
        self,
        under: Bound,
        available_milli: int,
        places: Sequence[tuple[int, int]],
        left: list[list[Bound]],
        floors: Sequence[Sequence[int]],
    ) -> None:
        if self._counted(under, places, left) <= available_milli:
            return
        parts = [
            _Part(left[n][i].units, min(left[n][i].units, floors[n][i]), self._dearest(under, b))
            for n, i in places
            for b in (left[n][i],)
        ]
        for (n, i), units in zip(places, divide(available_milli, parts), strict=True):
            left[n][i] = Bound(left[n][i].name, left[n][i].accelerators, units)

    def _counted(self, under: Bound, places: Sequence[tuple[int, int]], bounds: Promises) -> int:
        return sum(
            bounds[number][index].units * self._dearest(under, bounds[number][index])
            for number, index in places
        )

    def _dearest(self, under: Bound, bound: Bound) -> int:
        """Return what a unit of what a bound counts may count under another, in thousandths."""
        if bound.rated:
            return RATE_ONE
        key = (under.name, bound.name)
        if key not in self._weights:
            self._weights[key] = max(self._weight(under, name) for name in bound.accelerators)
        return self._weights[key]

    def _capacity(self, word: Bound, capacity: Mapping[str, int]) -> int:
        return sum(
            units * self._weight(word, name)
            for name, units in capacity.items()
            if word.counts((name,))
        )
