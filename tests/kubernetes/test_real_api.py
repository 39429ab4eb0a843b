"""The same against a real API server: what the fake one takes for granted is true."""

import asyncio
import base64
import contextlib
import json
import threading
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shoal.kubernetes.api import lease as module
from shoal.kubernetes.api.client import Client, PatchForm, Selection
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    DisruptionBlockedError,
    InvalidError,
    NotFoundError,
    QuotaExceededError,
)
from shoal.kubernetes.api.events import EventRecorder, RecorderOptions, Told
from shoal.kubernetes.api.identity import KubeconfigIdentity
from shoal.kubernetes.api.lease import LEASE_LIMITS, LeaderLease, LeaseTerms
from shoal.kubernetes.api.reflector import Reflector, WatchOptions
from shoal.kubernetes.api.store import Store
from shoal.kubernetes.api.transport import Transport
from shoal.kubernetes.watching.cache import WatchCache
from shoal.kubernetes.wire import kinds
from shoal.kubernetes.wire.kinds import EVENTS, LEASES, NODES, PODS, Kind
from shoal.kubernetes.wire.meta import ObjectReference
from shoal.kubernetes.wire.pod import Pod
from tests.cluster.harness.cluster import Cluster
from tests.kubernetes.fake_api import BOUND_S, PATIENT, in_loop, patient, until

pytestmark = pytest.mark.cluster

KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, Kind)]
NS = "default"


def _gated(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name} | metadata,
        "spec": {
            "schedulingGates": [{"name": "shoal.dev/plan"}],
            "containers": [{"name": "main", "image": "none"}],
        },
    }


@asynccontextmanager
async def _client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Transport(KubeconfigIdentity(str(cluster.kubeconfig)), PATIENT) as transport:
        yield Client(transport)


@asynccontextmanager
async def _reflecting(
    client: Client, options: WatchOptions, gate: asyncio.Event | None = None
) -> AsyncIterator[tuple[Store[Pod], Reflector[Pod]]]:
    """A reflector of the default namespace's pods, which pauses until `gate` opens."""

    async def sleep(seconds: float) -> None:
        if gate is not None:
            await gate.wait()
        await asyncio.sleep(min(seconds, 0.05))

    store = Store(PODS)
    reflector = Reflector(client, store, Selection(namespace=NS), options, sleep=sleep)
    task = asyncio.ensure_future(reflector.run())
    try:
        yield store, reflector
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _equal(client: Client, store: Store[Pod]) -> None:
    """Wait until the store has what the API server lists."""
    listed = await client.list_all(PODS, Selection(namespace=NS))
    truth = {(pod.key, pod.uid, pod.metadata.resource_version) for pod in listed}
    await until(
        lambda: (
            truth == {(pod.key, pod.uid, pod.metadata.resource_version) for pod in store.values()}
        )
    )


async def _restart(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.api_server.kill)
    await asyncio.to_thread(cluster.api_server.start)
    await asyncio.to_thread(cluster.ready)


@in_loop
async def test_the_list_comes_as_a_stream_and_changes_follow(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        await asyncio.gather(*(client.create(PODS, _gated(f"p{i}"), NS) for i in range(40)))
        async with _reflecting(client, WatchOptions()) as (store, reflector):
            await store.wait_listed()
            assert len(store) == 40
            calls = client.transport.counters.calls
            assert sum(n for (verb, _, _), n in calls.items() if verb in ("LIST", "WATCH")) == 1
            body = {"metadata": {"labels": {"x": "1"}}}
            patched = await client.patch(PODS, "p1", body, NS)
            await client.delete(PODS, "p2", NS, uid=store_uid(store, "p2"), grace_s=0)
            await client.create(PODS, _gated("late"), NS)
            await _equal(client, store)
            assert store.get("p1", NS) == patched
            assert reflector.lists == 1
            assert store.late == 0


def store_uid(store: Store[Pod], name: str) -> str:
    found = store.get(name, NS)
    assert found is not None
    return found.uid


@in_loop
async def test_the_list_comes_in_pages_where_streams_are_not_wanted(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        await asyncio.gather(*(client.create(PODS, _gated(f"p{i}"), NS) for i in range(20)))
        options = WatchOptions(streams_lists=False, page_size=7)
        async with _reflecting(client, options) as (store, reflector):
            await store.wait_listed()
            assert len(store) == 20
            assert client.transport.counters.calls["LIST", "pods", 200] == 3
            await client.create(PODS, _gated("late"), NS)
            await _equal(client, store)
            assert reflector.lists == 1


@in_loop
async def test_a_restart_of_the_api_server_and_what_happened_meanwhile(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        for name in ("stays", "goes", "returns"):
            await client.create(PODS, _gated(name), NS)
        gate = asyncio.Event()
        changes: list[tuple[str, str]] = []

        def note(old: Pod | None, new: Pod | None) -> None:
            found = new or old
            assert found is not None
            sign = "+" if old is None else "-" if new is None else "~"
            changes.append((sign, found.metadata.name))

        async with _reflecting(client, WatchOptions(), gate) as (store, reflector):
            await store.wait_listed()
            store.subscribe(note)
            changes.clear()
            await _restart(cluster)
            await until(lambda: reflector.trouble is not None)
            for name in ("goes", "returns"):
                await client.delete(PODS, name, NS, uid=store_uid(store, name), grace_s=0)
            await client.create(PODS, _gated("returns"), NS)
            await client.create(PODS, _gated("new"), NS)
            gate.set()
            await _equal(client, store)
            await until(lambda: reflector.trouble is None)
            # A deletion also changes the object, before it goes.
            assert sorted(each for each in changes if each[0] != "~") == [
                ("+", "new"),
                ("+", "returns"),
                ("-", "goes"),
                ("-", "returns"),
            ]


@in_loop
async def test_a_version_that_was_compacted_leads_to_a_new_list(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        await client.create(PODS, _gated("stays"), NS)
        await client.create(PODS, _gated("goes"), NS)
        gate = asyncio.Event()
        async with _reflecting(client, WatchOptions(), gate) as (store, reflector):
            await store.wait_listed()
            await _restart(cluster)
            await until(lambda: reflector.trouble is not None)
            await client.delete(PODS, "goes", NS, uid=store_uid(store, "goes"), grace_s=0)
            last = await client.create(PODS, _gated("new"), NS)
            await asyncio.to_thread(_compact, cluster, int(last.metadata.resource_version))
            # The API server remembers the last changes itself: only a new one has forgotten.
            await _restart(cluster)
            gate.set()
            await _equal(client, store)
            assert reflector.lists == 2
            assert sorted(pod.metadata.name for pod in store.values()) == ["new", "stays"]


def _compact(cluster: Cluster, revision: int) -> None:
    body = json.dumps({"revision": revision, "physical": True}).encode()
    request = urllib.request.Request(f"{cluster._etcd_url}/v3/kv/compaction", body)  # noqa: S310
    with urllib.request.urlopen(request, timeout=BOUND_S) as answer:  # noqa: S310
        assert answer.status == 200


@in_loop
async def test_every_kind_is_where_we_say_and_can_be_watched(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        cache = WatchCache(client)
        for kind in KINDS:
            assert await client.serves(kind), kind
            cache.watch(kind)
        task = asyncio.ensure_future(cache.run())
        await cache.wait_listed()
        assert cache.troubles() == {}
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert await client.server_version() == (1, 37)
        nowhere = Kind(Pod, name="Pod", plural="pods", group="no.such", version="v9")
        assert not await client.serves(nowhere)


@in_loop
async def test_preconditions_hold_and_names_are_taken_once(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        pod = await client.create(PODS, _gated("a"), NS)
        with pytest.raises(AlreadyExistsError):
            await client.create(PODS, _gated("a"), NS)
        stale = pod.metadata.resource_version
        fresh = await client.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}}, NS)
        for metadata in ({"resourceVersion": stale}, {"uid": "other"}):
            body = {"metadata": metadata | {"labels": {"x": "2"}}}
            with pytest.raises(ConflictError):
                await client.patch(PODS, "a", body, NS)
        for attempt in (
            client.delete(PODS, "a", NS, uid="other"),
            client.delete(PODS, "a", NS, uid=pod.uid, resource_version=stale),
        ):
            with pytest.raises(ConflictError):
                await attempt
        operations = [{"op": "test", "path": "/metadata/uid", "value": "other"}]
        with pytest.raises(InvalidError):
            await client.patch(PODS, "a", operations, NS, form=PatchForm.JSON)
        assert (await client.get(PODS, "a", NS)) == fresh
        await client.delete(PODS, "a", NS, uid=pod.uid, grace_s=0)
        with pytest.raises(NotFoundError):
            await client.evict("a", NS, uid=pod.uid)


@in_loop
async def test_one_patch_pins_and_ungates_and_a_dry_run_does_not(cluster: Cluster) -> None:
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-0"]}]}
    terms = {"nodeSelectorTerms": [pin]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    async with _client(cluster) as client:
        pod = await client.create(PODS, _gated("a"), NS)
        metadata = {"uid": pod.uid, "resourceVersion": pod.metadata.resource_version}
        body = {"metadata": metadata, "spec": {"schedulingGates": None, "affinity": affinity}}
        tried = await client.patch(PODS, "a", body, NS, dry_run=True)
        assert not tried.spec.scheduling_gates
        assert (await client.get(PODS, "a", NS)).has_gate("shoal.dev/plan")
        done = await client.patch(PODS, "a", body, NS)
        assert not done.spec.scheduling_gates
        assert json.loads(bytes(done.spec.affinity)) == affinity


@in_loop
async def test_apply_keeps_the_fields_of_others_and_takes_back_its_own(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        node: dict[str, Any] = {"metadata": {"labels": {"ours": "1", "more": "1"}}}
        await client.apply(NODES, "n1", node)
        await client.patch(NODES, "n1", {"metadata": {"labels": {"theirs": "1"}}})
        node["metadata"]["labels"].pop("more")
        applied = await client.apply(NODES, "n1", node)
        assert {"ours", "theirs"} <= set(applied.metadata.labels)
        assert "more" not in applied.metadata.labels
        node["metadata"]["labels"]["ours"] = "2"
        with pytest.raises(ConflictError):
            await client.apply(NODES, "n1", node, manager="somebody")
        taken = await client.apply(NODES, "n1", node, manager="somebody", force=True)
        assert taken.metadata.labels["ours"] == "2"


@in_loop
async def test_a_quota_and_a_disruption_budget_refuse_by_their_own_errors(
    cluster: Cluster,
) -> None:
    async with _client(cluster) as client:
        team = await asyncio.to_thread(cluster.namespace, "team")
        quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "1"}}}
        await client.create(kinds.RESOURCE_QUOTAS, quota, team)
        quotas = WatchCache(client)
        store = quotas.watch(kinds.RESOURCE_QUOTAS)
        task = asyncio.ensure_future(quotas.run())
        await until(lambda: any(each.status.used == {"pods": "0"} for each in store.values()))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        pod = await client.create(PODS, _gated("a", labels={"app": "a"}), team)
        with pytest.raises(QuotaExceededError) as caught:
            await client.create(PODS, _gated("b"), team)
        assert caught.value.quota == "team"
        budget = {
            "metadata": {"name": "a"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        }
        await client.create(kinds.DISRUPTION_BUDGETS, budget, team)
        status = {"status": {"phase": "Running"}}
        await client.patch(PODS, "a", status, team, subresource="status")
        with pytest.raises(DisruptionBlockedError):
            await client.evict("a", team, uid=pod.uid)


@in_loop
async def test_events_pass_the_api_servers_validation_and_merge(cluster: Cluster) -> None:
    async with _client(cluster) as client:
        pod = await client.create(PODS, _gated("a"), NS)
        about = ObjectReference.to("v1", "Pod", pod.metadata)
        recorder = EventRecorder(
            client, "shoal.dev/scheduler", "pod-0", RecorderOptions(series_every_s=0)
        )
        told = Told(about, "Waiting", "x" * 3000, "Planning")
        for told_now in (told, told, Told(about, "Started", "on gpu-0", "Planning", related=about)):
            recorder.record(told_now)
            await recorder.flush()
        node = ObjectReference("v1", "Node", "", "n1", "u")
        recorder.record(Told(node, "Unhealthy", "視", "Watching", warning=True))
        await recorder.flush()
        assert recorder.lost == 0
        events = await client.list_all(EVENTS, Selection(namespace=NS))
        ours = {e.reason: e for e in events if e.reporting_controller == "shoal.dev/scheduler"}
        assert set(ours) == {"Waiting", "Started", "Unhealthy"}
        assert ours["Waiting"].series is not None
        assert ours["Waiting"].series.count == 2
        assert ours["Unhealthy"].type == "Warning"


@in_loop
async def test_a_lease_changes_hands_when_its_holder_gives_it_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE_LIMITS", patient(LEASE_LIMITS))
    identity = KubeconfigIdentity(str(cluster.kubeconfig))
    leads = [threading.Event(), threading.Event()]

    def stand(i: int) -> LeaderLease:
        def note(now: bool) -> None:
            if now:
                leads[i].set()
            else:
                leads[i].clear()

        # It does not run out by itself, however long this process has to wait for a processor.
        terms = LeaseTerms(duration_s=int(2 * BOUND_S), renew_deadline_s=BOUND_S, retry_s=0.1)
        return LeaderLease(identity, "shoal", NS, f"pod-{i}", terms, on_change=note)

    leases = [stand(0), stand(1)]
    try:
        await asyncio.to_thread(leases[0].start)
        assert await asyncio.to_thread(leads[0].wait, BOUND_S)
        await asyncio.to_thread(leases[1].start)
        await until(lambda: leases[1].leader == "pod-0")
        assert not leads[1].is_set()
        await asyncio.to_thread(leases[0].stop, BOUND_S)
        assert await asyncio.to_thread(leads[1].wait, BOUND_S)
        assert not leads[0].is_set()
        async with _client(cluster) as client:
            held = await client.get(LEASES, "shoal", NS)
            assert held.spec.holder_identity == "pod-1"
            assert held.spec.lease_transitions == leases[1].term == 1
    finally:
        for lease in leases:
            if lease._thread.ident is not None:
                await asyncio.to_thread(lease.stop)


@in_loop
async def test_client_certificates_given_as_data_are_accepted(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = json.loads(cluster.kubeconfig.read_text())

    def inline(holder: dict[str, Any], name: str) -> None:
        path = holder.pop(name)
        with open(path, "rb") as file:  # noqa: PTH123
            holder[f"{name}-data"] = base64.b64encode(file.read()).decode()

    inline(content["clusters"][0]["cluster"], "certificate-authority")
    inline(content["users"][0]["user"], "client-certificate")
    inline(content["users"][0]["user"], "client-key")
    path = tmp_path_factory.mktemp("kubeconfig") / "config"
    path.write_text(json.dumps(content))
    async with Transport(KubeconfigIdentity(str(path))) as transport:
        assert await Client(transport).server_version() == (1, 37)
