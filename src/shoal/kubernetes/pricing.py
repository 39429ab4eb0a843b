"""Prices for the placement policy, made from the learned demand while the scheduler goes on.

Solving the programs takes tenths of a second on a large mixed fleet, which is too long for a loop
that has to answer a freed device at once. So they are solved in a thread, on values that cannot
change: nearly all of that time is spent in numpy and the solver, outside the interpreter's lock.
What comes of it is an event like any other, recorded where it is fed.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from shoal.bounds.prices import prices
from shoal.core.demand import ONE_ARRIVAL, Prices, TaskClass
from shoal.core.events import PricesSet
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.model.node import Node

_log = structlog.get_logger(__name__)

NEEDS_PRICES: Final = frozenset({"fragmentation"})
"""Policies that prices mean anything to."""

_PAUSE_S: Final = 60.0
"""The pause after programs that could not be solved; what is priced meanwhile stays as it was."""


class Pricing:
    """Has prices made when the world's demand says that they are due."""

    def __init__(self, world: World, policy: Policy, wake: Callable[[], None]) -> None:
        """Prepare; `wake` is called in the loop once there are prices to be fed."""
        self._world = world
        self._needed = policy.name in NEEDS_PRICES
        self._wake = wake
        self._due = asyncio.Event()
        self._made: Prices | None = None

    def changes(self, at_us: int) -> Iterator[PricesSet]:
        """Yield prices that have been made since the last call, and ask for those that are due."""
        made, self._made = self._made, None
        if made is not None:
            yield PricesSet(at_us, made)
        if self._needed and self._world.demand.pricing_due:
            self._due.set()

    async def run(self) -> None:
        """Make prices whenever they are due, until cancelled."""
        while True:
            await self._due.wait()
            began_s = time.perf_counter()
            try:
                self._made = await asyncio.to_thread(prices, *self._question())
            except Exception:  # noqa: BLE001  (old prices still do, and deciding goes on)
                _log.exception("no prices")
                await asyncio.sleep(_PAUSE_S)
            else:
                seconds = round(time.perf_counter() - began_s, 3)
                _log.info("priced", classes=len(self._made.classes), seconds=seconds)
                self._due.clear()
                self._wake()

    def _question(self) -> tuple[list[Node], tuple[TaskClass, ...]]:
        return known_nodes(self._world), self._world.demand.classes()


def known_nodes(world: World) -> list[Node]:
    """The nodes of a world by name, so that a restart prices the same fleet in the same way."""
    nodes = [node for node in world.fleet.nodes if node is not None]
    return sorted(nodes, key=lambda node: node.name)


def price_now(world: World, policy: Policy, at_us: int) -> Iterator[PricesSet]:
    """Yield prices made at once, for whoever looks at a world only once."""
    if policy.name in NEEDS_PRICES and world.demand.pricing_due:
        yield PricesSet(
            at_us, prices(known_nodes(world), world.demand.classes(), arrival=ONE_ARRIVAL)
        )
