"""The loop's order: recorded, applied, synced, and only then carried out."""

from shoal.core import events as ev
from shoal.core.decisions import Decision
from shoal.core.world import World
from shoal.loop.engine import Loop
from tests.core.build import SEED, job, node, policy, whole


class Witness:
    """A recorder and executor that notes the order in which it is asked."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.world = World()

    def record(self, event: ev.Event) -> None:
        """Note the event, and that it was not applied yet."""
        if isinstance(event, ev.WorkloadSubmitted):
            assert event.workload.uid not in self.world.entries
        self.story.append(type(event).__name__)

    def sync(self) -> None:
        """Note it."""
        self.story.append("sync")

    def settle(self, _: int, world: World) -> None:
        """Note it."""
        assert world is self.world
        self.story.append("settle")

    def carry_out(self, decision: Decision) -> None:
        """Note the decision."""
        self.story.append(decision.key)


def test_order_of_things() -> None:
    """Nothing is carried out that is not recorded, applied and synced."""
    witness = Witness()
    applied: list[ev.Event] = []
    loop = Loop(witness.world, policy(), SEED, witness, witness, applied.append)
    loop.feed(ev.NodeSeen(0, node("n", 1)))
    for uid in ("a", "b"):
        loop.feed(ev.WorkloadSubmitted(1, job(uid, whole(1))))
    loop.turn(2)
    assert witness.story[3:] == [
        "Decided",
        "Decided",
        "Cycled",
        "sync",
        "start/a/1",
        "wait/b/2",
        "settle",
    ]
    assert [type(event).__name__ for event in applied] == witness.story[:6]


def test_a_cycle_that_has_nothing_to_say_leaves_no_trace() -> None:
    """Neither in the recording nor on the disk."""
    witness = Witness()
    loop = Loop(witness.world, policy(), SEED, witness, witness)
    loop.turn(1)
    assert witness.story == ["settle"]
