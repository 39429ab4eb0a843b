"""The story knows of each workload what the world knows of it."""

from shoal.core import events as ev
from shoal.core.decisions import Decision
from shoal.core.world import World
from shoal.loop.engine import Loop
from shoal.loop.story import Story
from shoal.model.workload import Placement
from tests.core.build import SEED, job, node, policy, whole


class Telling:
    """A recorder that tells a story, and an executor that does nothing."""

    def __init__(self) -> None:
        self.story = Story()
        self.offset = 0

    def record(self, event: ev.Event) -> None:
        """Tell of it."""
        self.offset += 1
        self.story.apply(self.offset, event)

    def sync(self) -> None:
        """Do nothing."""

    def settle(self, at_us: int, world: World) -> None:
        """Do nothing."""

    def carry_out(self, decision: Decision) -> None:
        """Do nothing."""


def test_a_pod_that_moved_is_where_it_runs_now() -> None:
    """A move of one that does not run is none, in the world and in the story."""
    telling = Telling()
    loop = Loop(World(), policy(), SEED, telling, telling)
    for name in ("a", "b", "c"):
        loop.feed(ev.NodeSeen(0, node(name, 1)))
    loop.feed(ev.WorkloadSubmitted(1, job("w", whole(1), pods=2)))
    loop.turn(1)
    loop.feed(ev.PodStarted(2, "w", 0))
    held = loop.world.entries["w"].held
    (free,) = {"a", "b", "c"} - {place.node for place in held.values()}
    left = held[1]
    for pod in (0, 1, 7):
        loop.feed(ev.PodMoved(3, "w", Placement(pod, free, (f"{free}/0",))))
    assert telling.story.lives["w"].placements == (Placement(0, free, (f"{free}/0",)), left)
    assert loop.world.entries["w"].held == {0: Placement(0, free, (f"{free}/0",)), 1: left}
