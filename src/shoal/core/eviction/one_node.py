"""The cheapest victims on one node, after whose going a pod would fit there."""

from collections.abc import Callable, Sequence

from shoal.core.arrays.shape import Shape
from shoal.core.eviction.victims import Cost, Victim, total
from shoal.core.placing.eligibility import fits_on
from shoal.core.world import World

STEPS = 400
"""Sets of victims looked at on one node; beyond, the best of them is taken."""


def each_once(victims: Sequence[Victim]) -> tuple[Victim, ...]:
    """Leave out pods of workloads that go whole."""
    whole = {victim.uid for victim in victims if not victim.spared}
    return tuple(v for v in victims if not v.spared or v.uid not in whole)


class OneNode:
    """The search on one node."""

    def __init__(
        self,
        world: World,
        shape: Shape,
        row: int,
        victims: Sequence[Victim],
        permitted: Callable[[Sequence[Victim]], bool],
    ) -> None:
        """`victims` are there, the cheapest first; `permitted` says who of them may go at once."""
        self._fleet = world.fleet
        self._shape, self._row = shape, row
        self._victims, self._permitted = victims, permitted
        self._best: tuple[Cost, tuple[Victim, ...] | None] | None = None
        self._steps = STEPS

    @property
    def complete(self) -> bool:
        """Whether every set of victims was looked at that could be the cheapest."""
        return self._steps > 0

    def cheapest(self, together: Sequence[Victim], most: Cost | None) -> tuple[Victim, ...] | None:
        """Return the victims that cost least, None where none cost less than `most`.

        `together` are as many of them as may go at once, to begin with.
        """
        chosen = each_once(together)
        if not self._fits_without(chosen):
            return None
        for victim in reversed(chosen):
            rest = tuple(each for each in chosen if each is not victim)
            if self._fits_without(rest):
                chosen = rest
        cost = total(chosen)
        self._best = (cost, chosen) if most is None or cost < most else (most, None)
        self._go_on(0, (), total(()))
        return self._best[1]

    def _fits(self) -> bool:
        return fits_on(self._fleet, self._shape, self._row)

    def _fits_without(self, victims: Sequence[Victim]) -> bool:
        checkpoint = self._fleet.journal.checkpoint()
        for victim in victims:
            self._remove(victim)
        fits = self._fits()
        self._fleet.rollback(checkpoint)
        return fits

    def _remove(self, victim: Victim) -> None:
        for pod in victim.pods:
            held = victim.entry.held[pod]
            self._fleet.give_back(victim.entry.request_of(pod), held)

    def _go_on(self, index: int, chosen: tuple[Victim, ...], cost: Cost) -> None:
        """Look at sets that have `chosen` and any of the victims from `index` on."""
        self._steps -= 1
        if self._fits():
            if self._best is None or cost < self._best[0]:
                self._best = cost, chosen
            return
        if index == len(self._victims) or self._steps <= 0:
            return
        victim = self._victims[index]
        with_it = cost.plus(victim.cost)
        if self._best is not None and with_it >= self._best[0]:
            return
        new = all(each.uid != victim.uid or (each.spared and victim.spared) for each in chosen)
        if new and self._permitted((*chosen, victim)):
            checkpoint = self._fleet.journal.checkpoint()
            self._remove(victim)
            self._go_on(index + 1, (*chosen, victim), with_it)
            self._fleet.rollback(checkpoint)
        self._go_on(index + 1, chosen, cost)
