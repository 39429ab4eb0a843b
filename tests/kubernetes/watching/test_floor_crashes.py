"""Whoever leads next finds the same floors."""

from collections.abc import Callable

import pytest

from shoal.kubernetes.wire.kinds import NAMESPACES, NODES
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import namespace, node
from tests.kubernetes.rig import Crash, Rig, Shoal
from tests.kubernetes.services import (
    KINDS,
    OPTIONS,
    Service,
    closing,
    five_devices,
    reclaimed,
    replaced,
    shrunk,
    slots,
    told,
)


@pytest.fixture
def rig() -> Rig:
    return five_devices()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", [shrunk, closing, replaced, reclaimed])
@in_loop
async def test_a_successor_and_a_standby_find_the_same_floor(
    rig: Rig, what: Callable[[Rig, Service, Shoal], None], kind: str
) -> None:
    service, shoal = Service(rig, kind), Shoal(rig, options=OPTIONS)
    standby = Shoal(rig, leads=False, options=OPTIONS)
    await service.settle(shoal)
    what(rig, service, shoal)
    await service.settle(shoal)
    await standby.step()
    assert slots(standby) == slots(shoal)
    after = Shoal(rig, leads=False, options=OPTIONS)
    events = told(after)
    await after.step()
    assert slots(after) == slots(shoal)
    assert len(events) == len(slots(shoal)), "each is told once, as it is"


@in_loop
async def test_a_crash_at_any_moment_of_a_reclaim_spares_the_floor() -> None:
    crash_at, crashed = 0, True
    while crashed:
        rig = Rig()
        rig.put(NAMESPACES, namespace())
        rig.put(NODES, node("n1", 5))
        service, first = Service(rig), Shoal(rig, options=OPTIONS)
        await service.settle(first)
        floor_pods = {service.pod_in(first, slot) for slot in (0, 1)}
        reclaimed(rig, service, first)
        rig.crash_at = len(rig.writes) + crash_at
        crashed = False
        try:
            await service.settle(first)
        except Crash:
            crashed = True
        for task in first.scheduler.executor.running:
            task.cancel()
        rig.truths.clear()
        rig.crash_at = None
        second = Shoal(rig, options=OPTIONS)
        await service.settle(second)
        rig.finish()
        await service.settle(second)
        assert "asker" in rig.bound(), crash_at
        assert floor_pods <= rig.bound().keys(), crash_at
        assert slots(second) == {0: False, 1: False, 2: True, 3: True, 4: True}, crash_at
        third = Shoal(rig, leads=False, options=OPTIONS)
        await third.settle()
        assert slots(third) == slots(second), crash_at
        crash_at += 1
    assert crash_at >= 4
