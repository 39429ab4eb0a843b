"""Chance that belongs to names: a number depends on the seed, a purpose and a name alone.

So whatever is drawn is the same after a restart, whoever asks for it and in whichever order.
"""

from collections.abc import Sequence
from math import cos, exp, pi
from statistics import NormalDist

from shoal.core.placing.randomness import keyed

_BITS = 63
_NORMAL = NormalDist()


class Chance:
    """Draws numbers for one seed."""

    __slots__ = ("_seed",)

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def unit(self, purpose: str, name: str) -> float:
        """Return a number above 0 and below 1, evenly distributed."""
        return (keyed(self._seed, purpose, name) + 0.5) / (1 << _BITS)

    def between(self, least: float, most: float, purpose: str, name: str) -> float:
        """Return a number between two others, evenly distributed."""
        return least + (most - least) * self.unit(purpose, name)

    def around(self, median: float, spread: float, purpose: str, name: str) -> float:
        """Return a log-normal number; about two thirds lie within a factor exp(`spread`)."""
        return median * exp(spread * _NORMAL.inv_cdf(self.unit(purpose, name)))

    def count(self, mean: float, purpose: str, name: str) -> int:
        """Return how many of rare events happen where `mean` are expected (Poisson)."""
        left, total = exp(-mean), 0
        below = self.unit(purpose, name)
        term = left
        while below > left and total < 10_000:
            total += 1
            term *= mean / total
            left += term
        return total

    def one_of(self, choices: Sequence[int], purpose: str, name: str) -> int:
        """Return one of `choices`, each as likely as the others."""
        return choices[int(self.unit(purpose, name) * len(choices))]

    def wave(self, purpose: str, name: str, now_s: float, period_s: float) -> float:
        """Return smooth noise between 0 and 1 that changes over about `period_s` seconds."""
        step, part = divmod(now_s / period_s, 1.0)
        before = self.unit(purpose, f"{name}\0{int(step)}")
        after = self.unit(purpose, f"{name}\0{int(step) + 1}")
        return before + (after - before) * (1 - cos(pi * part)) / 2
