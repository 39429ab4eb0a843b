"""Past use of devices, forgotten at a half-life, in integers that are equal on any machine.

An account's past use is the average of what it held, in which a moment counts half as much for
every half-life that has gone by since. Instead of letting every account decay, later moments weigh
more (forward decay; Cormode, Shkapenyuk, Srivastava and Xu, ICDE 2009): at the time t the weight is
E(t) = 2^(t / half-life), and the average is what was held from a to b times E(b) - E(a), summed,
over E(now). Summed by parts that is what is held now, less each change times the weight of its
time, over E(now): one number an account, written only when the account changes.

Whenever a half-life is over, all these numbers are halved, which halvings in between leave equal
however often they are looked at.
"""

from collections.abc import Mapping, Sequence
from math import isqrt

import numpy as np

from shoal.core.arrays.journal import IntArray

Written = tuple[tuple[str, str, int], ...]
"""Queue, accelerator, and past use in units of a device, times the weight of its time."""

WEIGHT_BITS = 24
"""The weight at the beginning of a half-life, as a power of two."""

STEPS = 64
"""Parts of a half-life at whose ends the weight is exact; in between it grows linearly, so that it
is at most 15 millionths too large."""


def _weight(step: int) -> int:
    """Return the weight after so many steps of a half-life, rounded down."""
    root = 1 << (step + STEPS * WEIGHT_BITS)
    for _ in range(STEPS.bit_length() - 1):
        root = isqrt(root)
    return root


WEIGHTS = tuple(_weight(step) for step in range(STEPS + 1))


class Past:
    """Past use of accounts: a row for each queue, a column for each accelerator by its id."""

    def __init__(
        self,
        half_life_us: int,
        now_us: int,
        queues: Sequence[str],
        accelerator_ids: Mapping[str, int],
    ) -> None:
        self.half_life_us = half_life_us
        self._queues = queues
        self._accelerator_ids = accelerator_ids
        self._now_us = now_us
        self.weight = WEIGHTS[0]
        self._changes: IntArray = np.zeros((len(queues), 8), dtype=np.int64)
        """[queue, accelerator id]: the sum of all changes, each times the weight of its time."""
        self.clock(now_us)

    def clock(self, now_us: int) -> None:
        """Let it be that time, if it is later than it was."""
        now_us = max(now_us, self._now_us)
        halvings = now_us // self.half_life_us - self._now_us // self.half_life_us
        if halvings:
            self._changes >>= min(halvings, 63)
        self._now_us = now_us
        step, part = divmod(now_us % self.half_life_us * STEPS, self.half_life_us)
        grown = (WEIGHTS[step + 1] - WEIGHTS[step]) * part // self.half_life_us
        self.weight = WEIGHTS[step] + grown

    def book(self, row: int, column: int, change: int) -> None:
        """Note that an account has changed."""
        while column >= self._changes.shape[1]:
            self._changes = np.concatenate((self._changes, np.zeros_like(self._changes)), axis=1)
        self._changes[row, column] += change * self.weight

    def average(self, row: int, held: Sequence[int]) -> list[int]:
        """Return the past use of a queue whose accounts hold so much now, by accelerator id."""
        changes = self._changes[row].tolist()
        changes += [0] * (len(held) - len(changes))
        return [max(0, h - -(-c // self.weight)) for h, c in zip(held, changes, strict=False)]

    def written(self, used: IntArray) -> Written:
        """Return everything that is remembered; `used` are the accounts as they are now."""
        made = []
        for row, queue in enumerate(self._queues):
            for accelerator, column in sorted(self._accelerator_ids.items()):
                if column < min(used.shape[1], self._changes.shape[1]):
                    held, change = int(used[row, column]), int(self._changes[row, column])
                    if past := held * self.weight - change:
                        made.append((queue, accelerator, past))
        return tuple(made)

    def converted(self, written: Written, other: "Past") -> Written:
        """Return what was written just now as another `Past` with another half-life writes it."""
        if other.half_life_us == self.half_life_us:
            return written
        return tuple((q, a, past * other.weight // self.weight) for q, a, past in written)

    def restore(self, written: Written, as_of_us: int, used: IntArray) -> None:
        """Remember what was written at `as_of_us`, and nothing else; `used` as above."""
        self.clock(as_of_us)
        halvings = min(self._now_us // self.half_life_us - as_of_us // self.half_life_us, 63)
        was = {(queue, accelerator): past for queue, accelerator, past in written}
        for row, queue in enumerate(self._queues):
            for accelerator, column in self._accelerator_ids.items():
                held = int(used[row, column]) if column < used.shape[1] else 0
                past = was.get((queue, accelerator), 0) >> halvings
                self.book(row, column, 0)
                self._changes[row, column] = held * self.weight - past
