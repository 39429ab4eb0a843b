"""The loop: one writer to the world. It records before it applies and applies before it acts."""

from collections.abc import Callable
from typing import Protocol

from shoal.core.budget import Budget
from shoal.core.cycle import Cycle, cycle
from shoal.core.decisions import Decision
from shoal.core.events import Cycled, Decided, Event
from shoal.core.policies import Policy
from shoal.core.world import World

DEFAULT_BUDGET = 1000
"""Places searched for in one cycle; whoever has one that is not complete runs another soon."""


class Executor(Protocol):
    """Carries decisions out, in a cluster, an embedded fleet or virtual time."""

    def carry_out(self, decision: Decision) -> None:
        """Begin to carry out a decision; what comes of it arrives as events.

        Being asked twice for the same key has one effect.
        """
        ...


class Recorder(Protocol):
    """Keeps what happened."""

    def record(self, event: Event) -> None:
        """Keep an event."""
        ...

    def sync(self) -> None:
        """Return when everything recorded so far survives the end of the process."""
        ...

    def settle(self, at_us: int, world: World) -> None:
        """Make a snapshot of the world if it is time for one; called between two cycles."""
        ...


class NoRecorder:
    """A recorder for runs that nobody wants to look at again."""

    def record(self, event: Event) -> None:
        """Keep nothing."""

    def sync(self) -> None:
        """Return at once."""

    def settle(self, at_us: int, world: World) -> None:
        """Make none."""


class Loop:
    """Feeds events to a world and carries out what its cycles decide.

    `check` is called with every event after it was applied, for instance a validator's `applied`.
    """

    def __init__(
        self,
        world: World,
        policy: Policy,
        seed: int,
        executor: Executor,
        recorder: Recorder,
        check: Callable[[Event], None] | None = None,
    ) -> None:
        self.world = world
        self._policy = policy
        self._seed = seed
        self._executor = executor
        self._recorder = recorder
        self._check = check
        self._decided: list[Decision] = []
        """Decisions that have become state and are not carried out yet."""
        self._unsynced = False

    def feed(self, event: Event) -> None:
        """Record an event and apply it."""
        self._recorder.record(event)
        self.world.apply(event)
        if self._check is not None:
            self._check(event)

    def turn(self, now_us: int, budget: int = DEFAULT_BUDGET) -> Cycle:
        """Run one cycle: its decisions become state, are synced, and are carried out, in order."""
        came = self.decide(now_us, budget)
        self.carry_out(now_us)
        return came

    def decide(self, now_us: int, budget: int = DEFAULT_BUDGET) -> Cycle:
        """Run one cycle whose decisions become state; they wait for `carry_out`."""
        came = cycle(self.world, self._policy, now_us, self._seed, Budget(budget))
        world = self.world
        if came.decisions or came.examined or world.waiting.fresh or world.may_grow:
            for decision in came.decisions:
                self.feed(Decided(now_us, decision))
            self.feed(Cycled(now_us, budget, came.complete, came.examined))
            self._unsynced = True
        self._decided += came.decisions
        return came

    def carry_out(self, now_us: int) -> None:
        """Sync what was decided, and carry it out, in order."""
        if self._unsynced:
            self._recorder.sync()
            self._unsynced = False
        decided, self._decided = self._decided, []
        for decision in decided:
            self._executor.carry_out(decision)
        self._recorder.settle(now_us, self.world)
