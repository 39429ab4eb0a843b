"""Virtual time: a fleet on which every decision comes true, and whose clock is its events.

It is one of the worlds that the loop serves; the loop and the core are those of production.
"""

from heapq import heappop, heappush

from shoal.bounds.prices import prices
from shoal.core.decisions import Decision, Evict, Resize, Start
from shoal.core.demand import ONE_ARRIVAL
from shoal.core.events import Event, NodeSeen, PodEnded, PodStarted, PricesSet
from shoal.core.limits.deadlines import earliest
from shoal.core.placing.defragment import Move, propose
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.loop.engine import Loop, NoRecorder
from shoal.loop.periods import look_again_us, periods_due
from shoal.model.node import Node


class VirtualTime:
    """A world that runs as fast as it is decided. Implements the loop's executor.

    Events that are due later wait in a heap, ordered by time and, within an instant, by the order
    in which they were scheduled. With `learns`, prices are made from the demand seen so far, when
    the demand says that they are due; they come true at once. What starts runs at once; a pod that
    is evicted takes `stop_us` to end, but no longer than its grace.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        policy: Policy,
        seed: int,
        *,
        learns: bool = False,
        stop_us: int = 0,
    ) -> None:
        self.now_us = 0
        self._learns, self._stop_us = learns, stop_us
        self._policy, self._seed = policy, seed
        self.world = World()
        self._loop = Loop(self.world, policy, seed, self, NoRecorder())
        self._due: list[tuple[int, int, Event]] = []
        self._scheduled = 0
        for node in nodes:
            self.feed(NodeSeen(0, node))

    def carry_out(self, decision: Decision) -> None:
        """Make a decision come true. Saying twice that a pod runs or has ended is harmless."""
        if isinstance(decision, Start | Resize):
            for placement in decision.placements:
                self.schedule(PodStarted(self.now_us, decision.workload, placement.pod))
        elif isinstance(decision, Evict):
            ends_us = self.now_us + min(self._stop_us, decision.grace_us)
            for pod in decision.pods:
                self.schedule(PodEnded(ends_us, decision.workload, pod))

    def schedule(self, event: Event) -> None:
        """Let `event` happen when its time has come."""
        heappush(self._due, (event.at_us, self._scheduled, event))
        self._scheduled += 1

    def feed(self, event: Event) -> None:
        """Let `event` happen now, after everything that was due before it."""
        self.now_us = max(self.now_us, event.at_us)
        while self._due and self._due[0][0] <= self.now_us:
            self._loop.feed(heappop(self._due)[2])
        self._loop.feed(event)

    def propose_moves(self, uid: str, most: int) -> tuple[Move, ...]:
        """Return moves of running pods after which the waiting pod `uid` would fit."""
        return propose(self.world, self._policy, self._seed, uid, most)

    def turn(self) -> tuple[Decision, ...]:
        """Let the loop decide now, and return what was decided and has come true."""
        if self._learns and self.world.demand.pricing_due:
            nodes = [node for node in self.world.fleet.nodes if node is not None]
            self.feed(
                PricesSet(
                    self.now_us, prices(nodes, self.world.demand.classes(), arrival=ONE_ARRIVAL)
                )
            )
        for event in periods_due(self.world, self.now_us):
            self.feed(event)
        return self._loop.turn(self.now_us).decisions

    def run_until(self, end_us: int) -> tuple[Decision, ...]:
        """Let time pass to `end_us`: the loop decides whenever something happens or may do.

        Returns what was decided, in order.
        """
        decided: list[Decision] = []
        while (next_us := self._next_us()) is not None and next_us <= end_us:
            self.now_us = max(self.now_us, next_us)
            while self._due and self._due[0][0] <= self.now_us:
                self._loop.feed(heappop(self._due)[2])
            came = self.turn()
            while came:
                decided += came
                came = self.turn()
        self.now_us = max(self.now_us, end_us)
        return tuple(decided)

    def _next_us(self) -> int | None:
        return earliest(self._due[0][0] if self._due else None, look_again_us(self.world))
