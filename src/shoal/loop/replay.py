"""A recording run again: under the same policy its decisions come out equal, byte for byte."""

from collections.abc import Iterable
from dataclasses import dataclass

from shoal.core.budget import Budget
from shoal.core.cycle import cycle
from shoal.core.decisions import Decision
from shoal.core.events import Cycled, Decided, Event, Examined
from shoal.core.policies import Policy
from shoal.core.world import World


@dataclass(frozen=True, slots=True)
class Difference:
    """A cycle that decided otherwise than the recorded one."""

    at_us: int
    recorded: tuple[Decision, ...]
    decided: tuple[Decision, ...]
    recorded_examined: tuple[Examined, ...]
    examined: tuple[Examined, ...]


def replay(events: Iterable[Event], policy: Policy, seed: int) -> tuple[World, list[Difference]]:
    """Apply events to a new world, deciding anew at each recorded cycle; return what differs.

    The world follows the recorded decisions, so that one difference does not make the next.
    """
    world = World()
    differences = []
    recorded: list[Decided] = []
    for event in events:
        if isinstance(event, Decided):
            recorded.append(event)
            continue
        if isinstance(event, Cycled):
            came = cycle(world, policy, event.at_us, seed, Budget(event.budget))
            decisions = tuple(decided.decision for decided in recorded)
            if came.decisions != decisions or came.examined != event.examined:
                differences.append(
                    Difference(
                        event.at_us, decisions, came.decisions, event.examined, came.examined
                    )
                )
            for decided in recorded:
                world.apply(decided)
            recorded = []
        world.apply(event)
    return world, differences
