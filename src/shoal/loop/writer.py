"""The one writer: what happened and what people ask goes in, is decided upon, and made safe."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from time import monotonic
from typing import Protocol

from shoal.core import events as ev
from shoal.core.decisions import Decision
from shoal.core.world import World
from shoal.loop.engine import DEFAULT_BUDGET, Loop
from shoal.loop.inbox import (
    Act,
    Answer,
    Ask,
    Cancel,
    Inbox,
    InboxClosedError,
    KeepTo,
    Refused,
    Submit,
)
from shoal.loop.metrics import LoopMetrics
from shoal.loop.periods import is_time, periods_due
from shoal.loop.recording import FolderRecorder
from shoal.loop.story import Acting, Stopping
from shoal.model.workload import Outcome

ASKS = 200
"""Questions answered in one step, so that those who ask do not keep the others waiting."""


BATCH = 16
"""Events between two cycles, at most: a cycle costs more than in proportion to what has changed."""


class Outside(Protocol):
    """Where the work is."""

    def stop(self, uid: str, now_us: int) -> None:
        """Begin to end a workload that has been started; its end arrives as an event.

        Being asked again has no effect. It is recorded, and not yet safe, that it was asked.
        """
        ...


class Writer:
    """Takes steps. One thread does so, with times that never go back."""

    def __init__(
        self, loop: Loop, recorder: FolderRecorder, inbox: Inbox, outside: Outside
    ) -> None:
        self.metrics = LoopMetrics()
        self._loop = loop
        self._recorder = recorder
        self._inbox = inbox
        self._outside = outside

    @property
    def world(self) -> World:
        """The world that it writes."""
        return self._loop.world

    def step(self, now_us: int, events: Iterable[ev.Event] = ()) -> list[Decision]:
        """Take in events and some of what is asked, decide, and return when all of it is safe.

        Without any of these it decides where time alone may have changed an answer.

        Raises `OSError` where it cannot be made safe; then this was the last step, and who asked
        is told what is told to those who ask a writer that stops.
        """
        began_s = monotonic()
        oldest_us = now_us
        decisions: list[Decision] = []
        fed, is_due = 0, is_time(self.world, now_us)
        for event in chain(periods_due(self.world, now_us), events):
            oldest_us = min(oldest_us, event.at_us)
            self._feed(event)
            fed += 1
            if fed % BATCH == 0:
                decisions += self._decide(now_us)
        self.metrics.asking = len(self._inbox)
        tickets = self._inbox.take(ASKS)
        try:
            answers = [(ticket, self._answer(ticket.ask, now_us)) for ticket in tickets]
            for begun in periods_due(self.world, now_us):  # of budgets that were written just now
                self._feed(begun)
                is_due = True
            if tickets or fed % BATCH or is_due:
                decisions += self._decide(now_us)
            self._recorder.sync()
            self._loop.carry_out(now_us)
        except BaseException:
            for ticket in tickets:
                ticket.answer.set_exception(InboxClosedError())
            raise
        if fed or tickets:
            self.metrics.steps.add(monotonic() - began_s)
        self.metrics.offset = self._recorder.offset
        self.metrics.lag_s = (now_us - oldest_us) / 1e6
        for ticket, refused in answers:
            self.metrics.answers.add(monotonic() - ticket.put_s)
            ticket.answer.set_result(Answer(self._recorder.offset, now_us, refused))
        return decisions

    def _feed(self, event: ev.Event) -> None:
        self.metrics.events[type(event).__name__] += 1
        self._loop.feed(event)

    def _decide(self, now_us: int) -> list[Decision]:
        """Let cycles decide until there is nothing left to decide."""
        decisions: list[Decision] = []
        budget = DEFAULT_BUDGET
        complete = not self._recorder.story.acts
        while not complete:
            began_s = monotonic()
            came = self._loop.decide(now_us, budget)
            self.metrics.cycles.add(monotonic() - began_s)
            for decision in came.decisions:
                self.metrics.decided(decision)
            decisions += came.decisions
            complete = came.complete
            # A gang that is larger than the budget needs one that is larger than it.
            budget = DEFAULT_BUDGET if came.decisions else budget * 4
        return decisions

    def _answer(self, ask: Ask, now_us: int) -> Refused | None:
        match ask:
            case Submit():
                return self._submit(ask, now_us)
            case Cancel():
                return self._cancel(ask.uid, now_us)
            case Act():
                self._recorder.record(Acting(now_us, ask.acts))
                if ask.acts and self.world.evictions.frozen:
                    self._feed(ev.EvictionsResumed(now_us, ask.by))
                return None
            case KeepTo():
                if ask.pools != self.world.fleet.pools:
                    self._feed(ev.PoolsSet(now_us, ask.pools))
                if ask.queues != self.world.tenants.tree:
                    self._feed(ev.QueuesSet(now_us, ask.queues))
                return None

    def _submit(self, ask: Submit, now_us: int) -> Refused | None:
        story = self._recorder.story
        if any(story.life(workload.uid) is not None for workload in ask.workloads):
            return Refused.KNOWN
        for workload in ask.workloads:
            created = replace(workload, created_us=now_us)
            self._feed(ev.WorkloadSubmitted(now_us, created))
        return None

    def _cancel(self, uid: str, now_us: int) -> Refused | None:
        entry = self.world.entries.get(uid)
        if entry is None:
            return Refused.UNKNOWN
        if entry.held:
            self._recorder.record(Stopping(now_us, uid))
            self._outside.stop(uid, now_us)
        else:
            self._feed(ev.WorkloadEnded(now_us, uid, Outcome.CANCELLED))
        return None
