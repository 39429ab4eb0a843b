"""Evictions that no rule asks for, so that tests meet them whatever the day is like."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from shoal.core.budget import Budget
from shoal.core.cycle import Cycle, cycle
from shoal.core.decisions import Evict
from shoal.core.placing.randomness import keyed
from shoal.core.policies import Policy
from shoal.core.world import State, World
from shoal.loop import engine
from shoal.model.verdict import Reason

MINUTE_US = 60_000_000
GRACES_US = (0, 20_000_000, 120_000_000)


def evict(uid: str, pods: tuple[int, ...], grace_us: int = 0, number: int = 1, *for_: str) -> Evict:
    """A preemption that loses an hour of a device."""
    key = f"evict/{uid}/{number}"
    return Evict(key, uid, pods, for_, 3_600_000_000, True, grace_us, Reason.PREEMPTION)


def _odd(world: World, now_us: int) -> Iterator[Evict]:
    """Evict every fifth start of a workload some minutes after its last pod runs."""
    for uid, entry in sorted(world.entries.items()):
        if entry.state is not State.RUNNING or entry.evicting:
            continue
        name = f"{uid}\0{entry.attempt}"
        draw = keyed(1, "is evicted", name)
        after_us = MINUTE_US * (draw % 90)
        if draw % 5 == 0 and now_us >= max(entry.started.values()) + after_us:
            pods = tuple(sorted(entry.held))
            yield evict(uid, pods, GRACES_US[draw % 3], entry.attempt)


@contextmanager
def evictions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have every cycle evict as a function of the world and the time."""

    def odd_cycle(world: World, policy: Policy, now_us: int, seed: int, budget: Budget) -> Cycle:
        came = cycle(world, policy, now_us, seed, budget)
        touched = {getattr(each, "workload", "") for each in came.decisions}
        more = tuple(each for each in _odd(world, now_us) if each.workload not in touched)
        return replace(came, decisions=came.decisions + more)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "cycle", odd_cycle)
        yield
