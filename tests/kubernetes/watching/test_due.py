"""Owners are looked at again at every time that was asked for."""

import pytest

from shoal.kubernetes.watching.due import Due
from shoal.kubernetes.watching.units import REFUSED_US
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import job, namespace, node, pod
from tests.kubernetes.rig import START, Rig, Shoal

SECOND_US = 1_000_000


def test_the_earliest_time_comes_first_and_a_later_one_is_not_lost() -> None:
    due = Due()
    assert due.next_us() is None
    for at_us in (300, 2, 300, 60):
        due.add("one", at_us)
    due.add("other", 60)
    assert due.next_us() == 2
    assert due.take(1) == set()
    assert due.take(2) == {"one"}
    assert due.take(2) == set()
    assert due.next_us() == 60
    assert due.take(299) == {"one", "other"}
    assert due.take(301) == {"one"}
    assert due.next_us() is None
    due.add("one", 300)
    assert due.take(400) == {"one"}


@pytest.mark.parametrize("first", ["refused", "incomplete"])
@in_loop
async def test_a_refusal_ends_in_time_although_its_owner_was_due_for_something_else(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wave that settles for two seconds, and a node that is not tried again for five minutes."""
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 2))
    time = {"us": int(START.timestamp()) * SECOND_US}
    monkeypatch.setattr("shoal.kubernetes.scheduler.now_us", lambda: time["us"])
    shoal = Shoal(rig)
    source = shoal.scheduler.source
    await shoal.step()
    if first == "refused":
        source.units.refused("uid-train", "n1", time["us"])
    owner = rig.put(JOBS, job("train", 2) | {"status": {"failed": 1}})
    rig.put(PODS, pod("train-0", owner=owner))
    await shoal.step()
    assert shoal.states() == {}, "one of two pods"
    if first == "incomplete":
        source.units.refused("uid-train", "n1", time["us"])
    refused_us = time["us"] + REFUSED_US
    time["us"] += 20 * SECOND_US
    await shoal.step()
    assert shoal.states() == {"uid-train/0": "waiting"}
    assert source.next_due_us() == refused_us
    time["us"] = refused_us - 1
    await shoal.step()
    assert shoal.states() == {"uid-train/0": "waiting"}
    time["us"] = refused_us
    await shoal.step()
    rig.kube_schedule()
    await shoal.step()
    assert shoal.states() == {"uid-train/0": "running"}
