"""The embedded fleet: it carries decisions out, runs the work, and tells what happens.

Everything that is going to happen follows from the world, the story, the seed and the time. Nothing
else is remembered, so that a fleet which begins anew from a recording goes on as if it had never
stopped: `resume` finds again whatever was about to happen.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from heapq import heappop, heappush

from shoal.bounds.prices import prices
from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, Resize, Start
from shoal.core.demand import ONE_ARRIVAL
from shoal.core.limits.deadlines import earliest
from shoal.core.world import Entry, State, World
from shoal.loop.periods import look_again_us
from shoal.loop.story import Eviction, Story
from shoal.model.node import Node
from shoal.model.workload import Outcome, Workload
from shoal.simulation.breakdowns import Breakdowns, Turn
from shoal.simulation.chance import Chance
from shoal.simulation.organisation import Organisation
from shoal.simulation.progress import (
    SAVE_EVERY_US,
    SAVING_US,
    fails,
    leaves_us,
    length_us,
    next_save_us,
    saves,
    saves_at_end,
)

START_S = (9.0, 0.6)
"""From a decision to a running pod, most of it for the image: median and spread."""

STOP_S = (2.0, 15.0)
"""From the wish that work ends to the end of its pods: from, to."""

FAILED_START_S = 45
FAILED_STARTS = 0.004
"""The part of pods that do not start where they were planned, and when that is known."""

MOST_RETRIES = 5
"""How often work that lost its node or device is sent again."""

_RETRY = "~"
"""Stands in a uid before the number of the retry."""

ARRIVAL, TURN, POD, SAVE, LAST_SAVE, LEAVE, END, STOP = range(8)
"""Kinds of what is due, in the order in which they happen at one moment."""

Due = tuple[int, int, str, int, int]
"""When, its kind, uid, start of the workload, pod: things of one moment happen in this order."""


class Embedded:
    """Implements the loop's executor, and what the writer needs of the outside.

    Without an organisation nothing comes in by itself. `begin_us` is when the fleet began.
    """

    def __init__(
        self,
        seed: int,
        nodes: tuple[Node, ...],
        begin_us: int,
        world: World,
        story: Story,
        organisation: Organisation | None,
    ) -> None:
        self.chance = Chance(seed)
        self._nodes = {node.name: node for node in nodes}
        self._world = world
        self._story = story
        self._organisation = organisation
        self._breakdowns = Breakdowns(seed, nodes, begin_us)
        self._arrivals: Iterator[Workload] = iter(())
        self._turns: Iterator[Turn] = iter(())
        self._arrival: Workload | None = None
        self._turn: Turn | None = None
        self._due: list[Due] = []

    # Beginning --------------------------------------------------------------------------------

    def begin(self, now_us: int) -> Iterator[ev.Event]:
        """Yield the nodes of a fleet that begins now."""
        for node in self._nodes.values():
            yield ev.NodeSeen(now_us, node)
        self.resume(now_us)

    def resume(self, now_us: int) -> None:
        """Go on where a recording ends; all that was due up to `now_us` has happened."""
        if self._organisation is not None:
            self._arrivals = self._organisation.arrivals(now_us)
        self._turns = self._breakdowns.turns(now_us)
        self._next_arrival()
        self._next_turn()
        for uid, entry in sorted(self._world.entries.items()):
            self._schedule_starts(uid, entry, entry.held)
            if entry.state is State.RUNNING:
                self._schedule_run(uid, entry, now_us)
            life = self._story.lives[uid]
            for eviction in life.evicting:
                self._schedule_leaving(entry, eviction, now_us)
            if life.stopping_us is not None:
                self.stop(uid, life.stopping_us)

    def _next_arrival(self) -> None:
        self._arrival = next(self._arrivals, None)
        if self._arrival is not None:
            self._schedule(self._arrival.created_us, ARRIVAL)

    def _next_turn(self) -> None:
        self._turn = next(self._turns, None)
        if self._turn is not None:
            self._schedule(self._turn.at_us, TURN)

    # Carrying out -----------------------------------------------------------------------------

    def carry_out(self, decision: Decision) -> None:
        """Let pods start, and have those stop that are evicted; nothing else costs anything."""
        if not isinstance(decision, Start | Resize | Evict):
            return
        entry = self._world.entries.get(decision.workload)
        if entry is None or not entry.held:
            return
        if isinstance(decision, Start | Resize):
            pods = [placement.pod for placement in decision.placements]
            self._schedule_starts(decision.workload, entry, pods)
            return
        for eviction in self._story.lives[decision.workload].evicting:
            if eviction.decision == decision:
                self._schedule_leaving(entry, eviction, eviction.at_us)

    def stop(self, uid: str, now_us: int) -> None:
        """End the pods of a workload in a few seconds."""
        entry = self._world.entries.get(uid)
        if entry is not None:
            self._schedule(now_us + self._stopping_us(uid), STOP, uid, entry.attempt)

    def _schedule_starts(self, uid: str, entry: Entry, pods: Collection[int]) -> None:
        """Let those of these pods start that do not run yet."""
        for pod in sorted(entry.held.keys() - entry.started.keys() - entry.evicting.keys()):
            if pod in pods:
                at_us, _ = self._start_of(uid, entry.attempt, pod)
                self._schedule(at_us, POD, uid, entry.attempt, pod)

    def _start_of(self, uid: str, attempt: int, pod: int) -> tuple[int, bool]:
        """Return when a pod starts, or is known not to, and whether it does."""
        life = self._story.lives[uid]
        joined_us = life.joining.get(pod)
        name = f"{uid}\0{attempt}\0{pod}" + ("" if joined_us is None else f"\0{joined_us}")
        decided_us = joined_us or life.started_us or 0
        if self.chance.unit("fails to start", name) < FAILED_STARTS:
            return decided_us + FAILED_START_S * 1_000_000, False
        seconds = self.chance.around(*START_S, "start", name)
        return decided_us + int(seconds * 1e6), True

    def _schedule_run(self, uid: str, entry: Entry, now_us: int) -> None:
        """Let running work save what it does, and end when it has done all that it has to."""
        life = self._story.lives[uid]
        running_us = life.running_us or 0
        left_us = max(0, length_us(self.chance, entry.workload) - life.done_us)
        self._schedule(running_us + left_us + self._stopping_us(uid), END, uid, entry.attempt)
        if saves(self.chance, entry.workload):
            self._schedule(next_save_us(running_us, now_us), SAVE, uid, entry.attempt)

    def _schedule_leaving(self, entry: Entry, eviction: Eviction, now_us: int) -> None:
        """Let evicted pods stop; what was to be safe up to `now_us` is."""
        workload, grace_us = entry.workload, eviction.decision.grace_us
        uid, at_us = workload.uid, eviction.at_us
        running_us = self._story.lives[uid].running_us
        for pod in eviction.decision.pods:
            if pod in entry.evicting:
                name = f"{uid}\0{entry.attempt}\0{pod}"
                stops_us = leaves_us(self.chance, workload, name, grace_us)
                self._schedule(at_us + stops_us, LEAVE, uid, entry.attempt, pod)
        runs = running_us is not None and running_us <= at_us
        if runs and saves_at_end(self.chance, workload, grace_us) and at_us + SAVING_US > now_us:
            self._schedule(at_us + SAVING_US, LAST_SAVE, uid, entry.attempt)

    def _schedule(
        self, at_us: int, kind: int, uid: str = "", attempt: int = 0, pod: int = 0
    ) -> None:
        heappush(self._due, (at_us, kind, uid, attempt, pod))

    def _stopping_us(self, uid: str) -> int:
        return int(self.chance.between(*STOP_S, "stop", uid) * 1e6)

    # Happening --------------------------------------------------------------------------------

    def next_due_us(self) -> int | None:
        """Return when the next thing happens, or may be decided by time alone; None: never."""
        due_us = self._due[0][0] if self._due else None
        return earliest(due_us, look_again_us(self._world) if self._story.acts else None)

    def due(self, now_us: int) -> Iterator[ev.Event]:
        """Yield what happens up to `now_us`, in order; each is applied before the next is asked."""
        while self._due and self._due[0][0] <= now_us:
            at_us, kind, uid, attempt, pod = heappop(self._due)
            if kind == ARRIVAL:
                yield from self._arrives()
            elif kind == TURN:
                yield from self._turns_over()
            else:
                yield from self._goes_on(at_us, kind, uid, attempt, pod)
        demand = self._world.demand
        if demand.pricing_due:
            nodes = [node for node in self._world.fleet.nodes if node is not None]
            nodes.sort(key=lambda node: node.name)
            yield ev.PricesSet(now_us, prices(nodes, demand.classes(), arrival=ONE_ARRIVAL))

    def _arrives(self) -> Iterator[ev.Event]:
        if self._arrival is not None:
            yield ev.WorkloadSubmitted(self._arrival.created_us, self._arrival)
        self._next_arrival()

    def _goes_on(
        self, at_us: int, kind: int, uid: str, attempt: int, pod: int
    ) -> Iterator[ev.Event]:
        """Yield what comes of one workload, unless it has come to something else since."""
        entry = self._world.entries.get(uid)
        if entry is None:
            return
        if kind == STOP:
            # Whoever wanted it to end does so whatever it has come to.
            yield ev.WorkloadEnded(at_us, uid, Outcome.CANCELLED)
        elif entry.attempt == attempt and entry.held:
            yield from self._runs_on(at_us, kind, uid, entry, pod)

    def _runs_on(
        self, at_us: int, kind: int, uid: str, entry: Entry, pod: int
    ) -> Iterator[ev.Event]:
        """Yield what comes of work that holds something."""
        leaving = entry.held.keys() <= entry.evicting.keys()
        if kind == LEAVE and pod in entry.evicting:
            yield ev.PodEnded(at_us, uid, pod)
            self._may_run(at_us, uid)
        elif kind == SAVE and not leaving:
            yield ev.CheckpointReported(at_us, uid, at_us - SAVING_US)
            self._schedule(at_us + SAVE_EVERY_US, SAVE, uid, entry.attempt)
        elif kind == LAST_SAVE and leaving:
            yield ev.CheckpointReported(at_us, uid, at_us - SAVING_US)
        elif kind == END and not leaving:
            failed = fails(self.chance, entry.workload)
            yield ev.WorkloadEnded(at_us, uid, Outcome.FAILED if failed else Outcome.COMPLETED)
        elif (
            kind == POD and pod in entry.held.keys() - entry.started.keys() - entry.evicting.keys()
        ):
            starts_us, starts = self._start_of(uid, entry.attempt, pod)
            if starts_us != at_us:
                return  # it was to start before, and was evicted meanwhile
            if not starts:
                yield ev.StartFailed(at_us, uid, entry.attempt, pod)
                return
            yield ev.PodStarted(at_us, uid, pod)
            self._may_run(at_us, uid)

    def _may_run(self, at_us: int, uid: str) -> None:
        """See to the run of work if this is when it has become whole."""
        life = self._story.lives.get(uid)
        if life is not None and life.running_us == at_us:
            self._schedule_run(uid, self._world.entries[uid], at_us)

    # Failing ----------------------------------------------------------------------------------

    def _turns_over(self) -> Iterator[ev.Event]:
        turn = self._turn
        if turn is not None:
            yield from self._turned(turn)
        self._next_turn()

    def _turned(self, turn: Turn) -> Iterator[ev.Event]:
        at_us, node, device = turn.at_us, turn.node, turn.device
        if turn.back:
            yield (
                ev.DeviceReturned(at_us, node, device)
                if device
                else ev.NodeSeen(at_us, self._nodes[node])
            )
            return
        yield ev.DeviceLost(at_us, node, device) if device else ev.NodeLost(at_us, node)
        leaves = {
            leaf.name
            for card in self._nodes[node].devices
            if card.name == device
            for leaf in card.leaves
        }
        for _, entry in sorted(self._world.entries.items()):
            if any(
                held.node == node and (not device or leaves & set(held.leaves))
                for held in entry.held.values()
            ):
                yield from self._lost(at_us, entry.workload)

    def _lost(self, at_us: int, workload: Workload) -> Iterator[ev.Event]:
        """Yield the end of work that lost what it ran on, and its being sent again."""
        yield ev.WorkloadEnded(at_us, workload.uid, Outcome.FAILED)
        stopping = self._story.ended[workload.uid].stopping_us is not None
        again = next_try(workload)
        if again is not None and not stopping:
            yield ev.WorkloadSubmitted(at_us, replace(again, created_us=at_us))


def next_try(workload: Workload) -> Workload | None:
    """Return a workload as its owner sends it again after a failure that was not its own."""
    root, _, retry = workload.uid.partition(_RETRY)
    number = int(retry or 0) + 1
    if number > MOST_RETRIES:
        return None
    name = f"{workload.name.partition(_RETRY)[0]}{_RETRY}{number}"
    return replace(workload, uid=f"{root}{_RETRY}{number}", name=name)
