"""Teams in virtual time with the invariants on, and among them one that tries everything."""

from dataclasses import replace
from random import Random

import pytest

from benchmarks.tenancy import (
    ACCELERATOR,
    DAY_US,
    HOUR_US,
    MINUTE_US,
    RECLAIM_WITHIN_US,
    SECOND_US,
    Play,
    Teams,
    teams,
)
from shoal.core import events as ev
from shoal.core.validate import Validator, check
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.queue import Priority, QueueTree
from shoal.model.request import DeviceRequest, Request
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType

NODES = 4
MALLORY = "t0"


def checked(queues: QueueTree, seed: int) -> Play:
    """A run with the invariants on."""
    world = World()
    validator = Validator(world)
    return Play(NODES, seed, queues, validator.applied, world)


@pytest.mark.parametrize("seed", [1, 2])
def test_guarantees_are_back_in_time_with_the_invariants_on(seed: int) -> None:
    play = checked(teams(NODES), seed)
    play.run(Teams(seed, NODES).arrivals(DAY_US), DAY_US)
    check(play.world)
    still = [play.now_us - since_us for since_us in play.rights.since_us.values()]
    delays = sorted([*play.rights.delays_us, *still])
    assert len(delays) > 100
    assert len(play.evictions) > 10
    assert delays[int(0.99 * len(delays))] <= RECLAIM_WITHIN_US + 30 * SECOND_US


class Mallory:
    """A team that wants more than its part, and says whatever may bring it that."""

    def __init__(self, play: Play, seed: int) -> None:
        self.play = play
        self.chance = Random(seed)  # noqa: S311 - a test's
        self.number = 0

    def act(self) -> None:
        """Do one of the things that somebody could try."""
        self.chance.choice(
            (
                self.inflates_type,
                self.inflates_priority,
                self.forges_checkpoints,
                self.lies_about_time,
                self.floods,
                self.comes_again,
                self.asks_for_odd_quantities,
            )
        )()
        self.play.turn()

    def submit(self, runs_us: int, request: Request | None = None, **says: object) -> str:
        self.number += 1
        pods = int(str(says.pop("pods", 1)))
        workload = Workload(
            f"{MALLORY}/m{self.number}",
            (PodSet("main", pods, request or Request(1000, 64, DeviceRequest(1))),),
            queue=MALLORY,
            created_us=self.play.now_us,
        )
        workload = replace(workload, **says)  # type: ignore[arg-type]
        self.play.submit(workload, runs_us)
        return workload.uid

    def inflates_type(self) -> None:
        kind = self.chance.choice((WorkloadType.INFERENCE, WorkloadType.NOTEBOOK))
        self.submit(20 * HOUR_US, type=kind)

    def inflates_priority(self) -> None:
        self.submit(5 * HOUR_US, priority=10**6, type=WorkloadType.TRAINING)

    def forges_checkpoints(self) -> None:
        now_us = self.play.now_us
        for uid in list(self.play.world.holders.get(MALLORY, ())):
            for taken_us in (now_us + DAY_US, -DAY_US, 0, now_us):
                self.play.feed(ev.CheckpointReported(now_us, uid, taken_us))

    def lies_about_time(self) -> None:
        self.submit(10 * HOUR_US, run_us=MINUTE_US)

    def floods(self) -> None:
        for _ in range(100):
            self.submit(self.chance.randint(1, 30) * MINUTE_US)

    def comes_again(self) -> None:
        """The same with another size, after it was admitted or refused."""
        uid = self.submit(HOUR_US, pods=self.chance.choice((1, 8)))
        self.play.turn()
        self.play.feed(ev.WorkloadEnded(self.play.now_us, uid, Outcome.CANCELLED))
        self.submit(HOUR_US, pods=self.chance.choice((2, 64)))

    def asks_for_odd_quantities(self) -> None:
        for devices in (DeviceRequest(0), DeviceRequest(10**6), DeviceRequest(1, compute_milli=1)):
            self.submit(HOUR_US, Request(0, 0, devices))
        self.submit(HOUR_US, Request(10**12, 10**12, DeviceRequest(1)), grace_us=DAY_US)
        self.submit(HOUR_US, recreated=False)


def _with_limit(queues: QueueTree) -> QueueTree:
    """The teams, of which the first may hold twice its guarantee at most."""
    limited = []
    for queue in queues.queues:
        made = replace(queue, priorities=(Priority("normal", 0), Priority("urgent", 10)))
        if queue.name == MALLORY:
            each = dict(queue.guarantee or ())[ACCELERATOR]
            made = replace(made, limit=((ACCELERATOR, 2 * each),))
        limited.append(made)
    return replace(queues, queues=tuple(limited))


def test_a_day_of_somebody_who_tries_everything() -> None:
    """It gets no more than its limit, keeps nothing that is guaranteed to others, harms nobody."""
    tries_everything(days=1, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_days_of_somebody_who_tries_everything(seed: int) -> None:
    tries_everything(days=10, seed=seed)


def tries_everything(days: int, seed: int) -> None:
    """Live so many days with Mallory, and hold what came of it against the rules."""
    queues = _with_limit(teams(NODES))
    play = checked(queues, seed)
    mallory = Mallory(play, seed)
    own = dict(next(q for q in queues.queues if q.name == MALLORY).guarantee or ())[ACCELERATOR]
    for workload, run_us in Teams(seed, NODES).arrivals(days * DAY_US):
        if workload.queue == MALLORY:
            continue
        play.until(workload.created_us)
        if mallory.chance.random() < 0.15:
            mallory.act()
        play.submit(workload, run_us)
        play.turn()
        held = play.world.tenants.used_units(MALLORY).get(ACCELERATOR, 0)
        assert held <= 2 * own * UNIT
        waiting = [uid for uid in play.world.entries if uid.startswith(f"{MALLORY}/")]
        for uid in waiting[400:]:
            play.feed(ev.WorkloadEnded(play.now_us, uid, Outcome.CANCELLED))
    check(play.world)
    for evict in play.evictions:
        by_mallory = any(uid.startswith(f"{MALLORY}/") for uid in evict.for_)
        others = not evict.workload.startswith(f"{MALLORY}/")
        assert not (by_mallory and others and evict.reason is Reason.PREEMPTION)
    still = {uid: play.now_us - since_us for uid, since_us in play.rights.since_us.items()}
    late = [
        uid
        for uid, delay_us in (*play.rights.delayed.items(), *still.items())
        if delay_us > RECLAIM_WITHIN_US + 30 * SECOND_US and not uid.startswith(f"{MALLORY}/")
    ]
    assert len(late) <= len(play.rights.delays_us) // 100
    assert any(evict.workload.startswith(MALLORY) for evict in play.evictions)
