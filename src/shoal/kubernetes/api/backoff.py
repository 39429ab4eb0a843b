"""How long to wait before the next try."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Backoff:
    """Exponential growth with full jitter in its upper half, so that many clients spread out."""

    first_s: float = 0.2
    factor: float = 2.0
    most_s: float = 30.0
    chance: Callable[[], float] = random.random

    def delay_s(self, tries: int, asked_s: float | None = None) -> float:
        """The wait after `tries` failures in a row (1, 2, ...).

        What the server asked for (`Retry-After`) is the least; jitter comes on top of it.
        """
        grown = min(self.first_s * self.factor ** min(tries - 1, 32), self.most_s)
        jittered = grown * (0.5 + 0.5 * self.chance())
        return jittered if asked_s is None else asked_s + jittered * 0.5


PROMPT: Final = Backoff()
"""For single calls, which somebody waits for."""

STEADY: Final = Backoff(most_s=5.0)
"""For what goes on for ever: a server that came back is found within seconds."""
