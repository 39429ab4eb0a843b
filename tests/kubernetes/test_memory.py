"""What no other object says survives the end of a leader in one ConfigMap."""

import asyncio
import contextlib
from typing import Any

import pytest
import structlog

from shoal.core.demand import Learned
from shoal.core.events import DemandRestored, EvictionsRestored, NodeLost
from shoal.kubernetes import memory as module
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.memory import Content, Memory, content_of, events_of
from shoal.kubernetes.scheduler import SchedulerOptions, now_us
from shoal.kubernetes.watching.history import Ended, Mark, Past
from shoal.kubernetes.wire.cluster import ConfigMap
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS, REPLICA_SETS
from shoal.loop.records import encode
from shoal.model.hold import HoldReason
from shoal.model.queue import Queue, QueueTree
from shoal.objects.files import Written
from tests.kubernetes.fake_api import FakeApi, Refusal, in_loop, transport_to, until
from tests.kubernetes.manifests import job, namespace, node, pod, replica_set
from tests.kubernetes.rig import Rig, Shoal
from tests.kubernetes.tenants import OPTIONS, Owners, in_queue, names, settle

EVENTS = (
    EvictionsRestored(0, frozen=True, approved=(12, 0), recent_us=(5,), lost=(("q", 3, 4),)),
    DemandRestored(0, Learned(pods=7)),
)
CONTENT = Content(
    b"".join(encode(event) for event in EVENTS),
    {"uid/0": Past(1, was_evicted=True, evictions_us=(2,), served_device_us=9)},
    {"owner": {"n1": 10}},
    {"other": (Ended("nb-0", 7, Mark(HoldReason.TOO_LONG, "q", 8, 8)),)},
)


@in_loop
async def test_it_comes_back_as_it_was_kept_and_is_written_only_when_it_changed() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        client = Client(transport)
        memory = Memory(client, "m", "shoal")
        assert await memory.read() == Content()
        await memory.write(CONTENT)
        await memory.write(CONTENT)
        assert api.answered["POST"] + api.answered["PATCH"] == 1
        found = await Memory(client, "m", "shoal").read()
        assert found == CONTENT
        assert tuple(events_of(found)) == EVENTS
        more = Content(CONTENT.events, {}, {})
        await memory.write(more)
        assert await Memory(client, "m", "shoal").read() == more
        assert not any(request.method == "PUT" for request in api.requests)


@in_loop
async def test_another_leaders_word_is_not_written_over_at_once() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        old, new = (Memory(Client(transport), "m", "shoal") for _ in range(2))
        await old.read()
        await new.read()
        await new.write(CONTENT)
        await old.write(Content(b"", {}, {"late": {"n": 1}}))
        assert await new.read() == CONTENT


@in_loop
async def test_what_cannot_be_read_is_nothing() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        memory = Memory(Client(transport), "m", "shoal")
        api.put("configmaps", {"metadata": {"name": "m", "namespace": "shoal"}} | _data("eA=="))
        with structlog.testing.capture_logs() as logged:
            assert await memory.read() == Content()
        assert [line["event"] for line in logged] == ["what is remembered cannot be read"]
        await memory.write(CONTENT)
        assert await memory.read() == CONTENT
        strange = Content(encode(NodeLost(0, "n1")) + EVENTS_OF_NOBODY)
        with structlog.testing.capture_logs() as logged:
            assert tuple(events_of(strange)) == ()
        assert [line["event"] for line in logged] == ["what was learned cannot be read"]


EVENTS_OF_NOBODY = b"\x01\x00\x00\x00\xff\x00"


def _data(text: str) -> dict[str, Any]:
    return {"binaryData": {module.KEY: text}}


@in_loop
async def test_an_api_server_that_refuses_is_told_of_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.001)
    async with FakeApi() as api, transport_to(api) as transport:
        memory = Memory(Client(transport), "m", "shoal")
        api.refuse("POST", Refusal(403, "no right"), times=3)
        with structlog.testing.capture_logs() as logged:
            task = asyncio.ensure_future(memory.run(lambda: CONTENT))
            await until(lambda: bool(memory._written))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert [line["event"] for line in logged] == ["not remembered"]
        assert await Memory(Client(transport), "m", "shoal").read() == CONTENT


@in_loop
async def test_what_changed_last_is_kept_although_a_write_was_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.001)
    async with FakeApi() as api, transport_to(api) as transport:
        memory = Memory(Client(transport), "m", "shoal")
        await memory.write(Content())
        kept = [Content(b"", {}, {"first": {"n": 1}})]
        answer = memory._put

        async def slowly(data: dict[str, str]) -> ConfigMap:
            done = await answer(data)
            await asyncio.sleep(60 if len(kept) == 1 else 0)
            return done

        monkeypatch.setattr(memory, "_put", slowly)
        task = asyncio.ensure_future(memory.run(lambda: kept[-1]))
        await until(lambda: api.answered["PATCH"] == 1)
        kept.append(CONTENT)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await Memory(Client(transport), "m", "shoal").read() == CONTENT


async def successor(rig: Rig, shoal: Shoal, owners: Owners) -> Shoal:
    """A new process that leads after another, and remembers what that one did."""
    content = content_of(shoal.world, shoal.scheduler.source, QueueTree(), now_us())
    rig.truths.clear()
    after = Shoal(rig, options=shoal.scheduler.options)
    after.scheduler._recalled = content
    await settle(rig, after, owners)
    return after


@pytest.mark.parametrize("kind", ["ReplicaSet", "Job"])
@in_loop
async def test_e02_the_evicted_keep_their_arrival_through_a_restart(kind: str) -> None:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 2))
    if kind == "Job":
        owner = rig.put(JOBS, job("work", 2))
    else:
        owner = rig.put(REPLICA_SETS, replica_set("work", 2))
    owners = Owners(rig, (owner, kind, "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await settle(rig, shoal, owners)
    came = {uid: e.workload.created_us for uid, e in shoal.world.entries.items()}
    rig.put(PODS, in_queue(pod("asker", 2), "owner"))
    await settle(rig, shoal, owners)
    assert names(rig) == ["asker"]
    after = await successor(rig, shoal, owners)
    for uid, came_us in came.items():
        assert after.world.entries[uid].workload.created_us == came_us
        assert after.world.entries[uid].was_evicted
    assert after.world.evictions.recent_us == shoal.world.evictions.recent_us
    assert after.world.demand.learned() == shoal.world.demand.learned()
    rig.remove(PODS, "asker", "ns")
    await settle(rig, after, owners)
    assert len(rig.bound()) == 2
    # What runs again keeps its past too, and a standby takes it over.
    third = await successor(rig, after, owners)
    assert {uid: third.world.entries[uid].workload.created_us for uid in came} == came
    assert all(third.world.entries[uid].was_evicted for uid in came)


@in_loop
async def test_frozen_evictions_stay_frozen_until_a_person_resumes_them() -> None:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 2))
    shoal = Shoal(rig, options=OPTIONS)
    owners = Owners(rig)
    await settle(rig, shoal, owners)
    shoal.scheduler.loop.feed(
        EvictionsRestored(now_us(), frozen=True, approved=(0, 0), recent_us=(), lost=())
    )
    after = await successor(rig, shoal, owners)
    assert after.world.evictions.frozen
    assert after.scheduler.resume("somebody")
    await after.step()
    assert not after.world.evictions.frozen


@in_loop
async def test_a_node_that_refused_a_pod_is_not_tried_again_after_a_restart() -> None:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 1))
    owner = rig.put(REPLICA_SETS, replica_set("web", 1))
    owners = Owners(rig, (owner, "ReplicaSet", "borrower"))
    shoal = Shoal(rig, options=OPTIONS)
    await shoal.step()
    shoal.scheduler.source.units.refused("uid-web", "n1", now_us())
    await settle(rig, shoal, owners)
    assert rig.bound() == {}
    after = await successor(rig, shoal, owners)
    assert rig.bound() == {}
    assert after.world.entries["uid-web/0"].refused == frozenset({"n1"})
    rig.put(NODES, node("n2", 1))
    await settle(rig, after, owners)
    assert list(rig.bound().values()) == ["n2"]


@in_loop
async def test_only_a_leader_remembers() -> None:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    for leads in (True, False):
        shoal = Shoal(
            rig,
            leads=leads,
            options=SchedulerOptions(written=Written((), QueueTree((Queue("q"),)))),
        )
        await shoal.step()
        assert (shoal.scheduler._to_remember() is not None) == leads
