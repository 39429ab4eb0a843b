"""Plans by which others go for a workload, or none."""

from dataclasses import dataclass
from typing import NamedTuple

from shoal.core.eviction.victims import Cost, Victim, total
from shoal.model.workload import Placement


class Fit(NamedTuple):
    """Where a workload would be, and whose places it would take that are kept ahead, by uid."""

    placements: tuple[Placement, ...]
    given_way: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """A complete plan. `exact`: no other victims would cost less.

    `by_us`: of those who go already it counts only on who is gone by then; None: on all.
    """

    fit: Fit
    victims: tuple[Victim, ...]
    exact: bool
    by_us: int | None = None

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the workload would be."""
        return self.fit.placements

    @property
    def cost(self) -> Cost:
        """What it costs."""
        return total(self.victims)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Nobody has to go, as things are.

    `hungry`: that may change without anything becoming free. `again_us`: when it may by time alone.
    """

    hungry: bool
    again_us: int | None = None
