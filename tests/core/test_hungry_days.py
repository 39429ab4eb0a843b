"""Busy days of a fleet that is too small, whose queues take back what is theirs.

The days of `test_random_days` with every rule of the tenant tree: all orders, guarantees that are
borrowed on and reclaimed, bounds of evictions, budgets, times after which work is ended, refused or
starves, declared runs, checkpoints, and people who resume what was frozen. What is asserted is the
same, and holds in every world at every time.
"""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import settings

from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, GiveUp, Refuse, Reserve, Start
from shoal.model.node import Node
from shoal.model.queue import (
    Budget,
    EvictionBounds,
    Order,
    Period,
    Priority,
    Queue,
    QueueTree,
    Quota,
    WhenSpent,
)
from shoal.model.request import Request
from shoal.model.workload import WorkloadType
from tests.core.build import node, share, whole
from tests.core.cases import MINUTE_US
from tests.core.test_random_days import AMPLE, QUEUES, Day, happened, live_through

STEPS = 120
WORDS = [("H100",), ("H100|A100",), ("H100", "A100")]
PRIORITIES = (Priority("hi", 2), Priority("lo", 0))
ALL_AFTER_80 = tuple((each, 80 * MINUTE_US) for each in WorkloadType)
MOST_CYCLES = 40
MINUTES = [1, 1, 2, 5, 10, 20, 40]


class HungryDay(Day):
    """A day on which more is asked for than there is."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.queues_change()

    def feed(self, event: ev.Event) -> None:
        """Let something happen; work comes with users, declared runs and times to stop."""
        if isinstance(event, ev.WorkloadSubmitted):
            pick = self.chance.choice
            workload = replace(
                event.workload,
                user=pick(["", "u", "v"]),
                run_us=pick([None, None, 10 * MINUTE_US, 50 * MINUTE_US]),
                grace_us=pick([0, 3, 8, 100]) * MINUTE_US,
                recreated=self.chance.random() < 0.8,
            )
            event = replace(event, workload=workload)
        super().feed(event)

    # What is drawn ----------------------------------------------------------------------------

    def some_node(self, name: str) -> Node:
        """Return a node, mostly one of four whole devices."""
        if self.chance.random() < 0.15:
            return super().some_node(name)
        labels = {"zone": self.chance.choice("ab"), "size": self.chance.choice("0123")}
        kind = "H100" if int(name[1:]) % 3 else "A100"
        return node(name, 4, accelerator=kind, labels=labels)

    def some_request(self) -> Request:
        """Return what a pod asks for, mostly whole devices of either kind."""
        pick, kind = self.chance.choice, self.chance.random()
        if kind < 0.2:
            return super().some_request()
        if kind < 0.4:
            return share(pick([300, 500, 900]), pick([0, 10]))
        names = pick([(), (), ("H100",), ("A100",), ("H100", "A100")])
        return whole(pick([1, 1, 1, 2, 2, 3, 4]), 1, *names)

    def some_quota(self, most: int, often: float) -> Quota:
        """Return what may be written as a quota, or nothing."""
        if self.chance.random() >= often:
            return ()
        return tuple((word, self.chance.randrange(most)) for word in self.chance.choice(WORDS))

    def some_queue(self, name: str, parent: str) -> Queue:
        """Return a queue with any of the rules that there are."""
        pick, leaf = self.chance.choice, name in "abc"
        bounds = EvictionBounds(
            minimum_run_us=pick([None, 0, 10 * MINUTE_US, 60 * MINUTE_US]),
            per_workload_per_day=pick([None, None, 1, 2]),
            device_hours_lost_per_day=pick([None, None, None, 0, 1]),
            checkpoint_interval_us=pick([None, 30 * MINUTE_US]),
        )
        spending = Budget(Period.DAY, pick([0, 2, 9]), pick([*WhenSpent]))
        return Queue(
            name,
            parent,
            guarantee=self.some_quota(7 if leaf else 12, 0.8) or None if parent else None,
            limit=self.some_quota(16, 0.2) if parent else (),
            weight=self.chance.randrange(1, 4),
            reclaim_within_us=pick([5, 50, 600]) * MINUTE_US,
            priorities=PRIORITIES,
            eviction=bounds,
            budget=pick([None] * 5 + [spending]),
            maximum_run_us=pick([()] * 5 + [ALL_AFTER_80]),
            maximum_wait_us=pick([()] * 5 + [ALL_AFTER_80]),
            borrow=self.some_quota(6, 0.15),
            lend=self.some_quota(6, 0.15),
            placeable=tuple(
                (word, self.chance.randrange(1, 5))
                for word in ("H100", "A100")
                if leaf and self.chance.random() < 0.2
            ),
            order=pick([*Order]),
            aging_us=pick([None, None, 10 * MINUTE_US]),
            starvation_after_us=pick([5, 40, 1440]) * MINUTE_US,
            grace_max_us=pick([None, 5 * MINUTE_US]),
            shrink_after_us=pick([0, 30, 1000]) * MINUTE_US,
            usage_half_life_us=None if parent else pick([None, None, 50 * MINUTE_US]),
        )

    # What happens -----------------------------------------------------------------------------

    def kinds(self) -> dict[Callable[[], None], float]:
        """Return what may happen, and how often."""
        return {
            self.node_changes: 1,
            self.device_changes: 1,
            self.queues_change: 1,
            self.pools_change: 0.2,
            self.arrives: 16,
            self.is_adopted: 0.5,
            self.ends: 5,
            self.pod_ends: 2,
            self.pod_starts: 8,
            self.start_fails: 1.5,
            self.pod_moves: 0.3,
            self.time_passes: 10,
            self.evicted_pods_end: 6,
            self.an_eviction_is_refused: 0.6,
            self.somebody_resumes: 2,
            self.checkpoint_is_reported: 1,
            self.priority_changes: 0.6,
            self.a_period_begins: 1,
            self.cycle_with_ample_budget: 8,
            self.cycles_until_nothing_is_left: 6,
            self.cycle_with_small_budget: 3,
            self.restart: 1,
        }

    def queues_change(self) -> None:
        """Another tree is written."""
        queues = tuple(self.some_queue(name, parent) for name, parent in QUEUES)
        rates = (("A100", self.chance.choice([400, 577, 1000])),)
        self.feed(ev.QueuesSet(self.now(), QueueTree(queues, rates)))

    def time_passes(self) -> None:
        """Nothing happens for a while."""
        self.time += self.chance.choice(MINUTES) * MINUTE_US

    def evicted_pods_end(self) -> None:
        """Most of those that were told to stop are gone."""
        going = [(uid, pod) for uid, each in self.world.entries.items() for pod in each.evicting]
        for uid, pod in going:
            if self.chance.random() < 0.7:
                self.feed(ev.PodEnded(self.now(), uid, pod))

    def an_eviction_is_refused(self) -> None:
        """A disruption budget does not allow one."""
        going = [(uid, pod) for uid, each in self.world.entries.items() for pod in each.evicting]
        if going:
            uid, pod = self.chance.choice(going)
            attempt = self.world.entries[uid].attempt
            self.feed(ev.EvictionBlocked(self.now(), uid, attempt, pod))

    def somebody_resumes(self) -> None:
        """Evictions go on that were frozen."""
        if self.world.evictions.frozen:
            self.feed(ev.EvictionsResumed(self.now(), "somebody"))

    def checkpoint_is_reported(self) -> None:
        """Work says that it is safe, which need not be true."""
        if (pod := self.some_pod()) is not None:
            taken_us = self.time + self.chance.choice([-50, -5, 0, 5]) * MINUTE_US
            self.feed(ev.CheckpointReported(self.now(), pod[0], taken_us))

    def priority_changes(self) -> None:
        """Work is given another priority."""
        if self.world.entries:
            uid = self.chance.choice(list(self.world.entries))
            self.feed(ev.PrioritySet(self.now(), uid, self.chance.choice(["hi", "lo", ""])))

    def a_period_begins(self) -> None:
        """The day of a budget begins."""
        name = self.chance.choice([name for name, _ in QUEUES])
        self.feed(ev.PeriodBegan(self.now(), name, self.time, self.time + 1440 * MINUTE_US))

    def is_late(self, decision: Decision) -> bool:
        """Whether a decision ought to have been made in the cycle before.

        For whoever is kept places that are late, others may go as soon as they have started.
        """
        return not isinstance(decision, GiveUp)

    def cycles_until_nothing_is_left(self) -> None:
        """In few cycles everything is decided."""
        for _ in range(MOST_CYCLES):
            if self.decide(AMPLE).complete:
                return
        raise AssertionError("there is always more to decide")


def test_hungry_days() -> None:
    """Many days, on which every decision is made."""
    days = settings().max_examples // 2
    live_through(days, HungryDay, STEPS)
    for kind in (Start, Evict, Reserve, Refuse, GiveUp):
        assert happened[kind.__name__] >= days // 10, kind
