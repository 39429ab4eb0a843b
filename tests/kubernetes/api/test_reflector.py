"""A store stays equal to the cluster through everything that breaks."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shoal.kubernetes.api.backoff import Backoff
from shoal.kubernetes.api.client import Client, Selection
from shoal.kubernetes.api.reflector import Begun, Listed, Reflector, WatchOptions
from shoal.kubernetes.api.store import Store
from shoal.kubernetes.watching.cache import WatchCache
from shoal.kubernetes.wire.kinds import NODES, PODS
from shoal.kubernetes.wire.pod import Pod
from tests.kubernetes.fake_api import (
    FakeApi,
    Pauses,
    Refusal,
    in_loop,
    pod,
    transport_to,
    until,
)

TWO_A_PAGE = WatchOptions(page_size=2)
STREAMING = [pytest.param(True, id="streaming-lists"), pytest.param(False, id="paged-lists")]


class Rig:
    """A fake server, a store, and a reflector that runs between them."""

    def __init__(self, api: FakeApi, reflector: Reflector[Pod], store: Store[Pod]) -> None:
        self.api = api
        self.reflector = reflector
        self.store = store
        self.pauses = Pauses()
        self.changes: list[tuple[str, str]] = []
        store.subscribe(self._note)

    def _note(self, old: Pod | None, new: Pod | None) -> None:
        if old is None and new is not None:
            self.changes.append(("+", new.metadata.name))
        elif old is not None:
            self.changes.append(("-" if new is None else "~", old.metadata.name))

    async def equal(self) -> None:
        """Wait until the store has what the server has, in its newest version."""
        await until(lambda: self.versions() == self.truth())

    def versions(self) -> dict[str, str]:
        return {p.metadata.name: p.metadata.resource_version for p in self.store.values()}

    def truth(self) -> dict[str, str]:
        held = self.api.objects.get("pods", {}).values()
        return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in held}

    def asked(self, name: str) -> list[str | None]:
        """What the requests so far said for a query parameter."""
        return [request.query.get(name) for request in self.api.requests]


@asynccontextmanager
async def reflecting(api: FakeApi, options: WatchOptions = TWO_A_PAGE) -> AsyncIterator[Rig]:
    async with api, transport_to(api) as transport:
        store = Store(PODS)
        pauses = Pauses()
        reflector = Reflector(Client(transport), store, options=options, sleep=pauses)
        rig = Rig(api, reflector, store)
        rig.pauses = pauses
        task = asyncio.ensure_future(reflector.run())
        try:
            yield rig
        finally:
            if task.done():
                task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _fill(api: FakeApi, names: str) -> None:
    for name in names:
        api.put("pods", pod(name))


@pytest.mark.parametrize("streaming", STREAMING)
@in_loop
async def test_the_list_then_every_change(streaming: bool) -> None:
    api = FakeApi(streaming=streaming)
    _fill(api, "abcde")
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        assert sorted(rig.changes) == [("+", name) for name in "abcde"]
        await until(lambda: api.watching == 1)
        api.put("pods", pod("f"))
        api.put("pods", pod("a", node="n1"))
        api.remove("pods", "b", "ns")
        await rig.equal()
        assert rig.changes[5:] == [("+", "f"), ("~", "a"), ("-", "b")]
        assert rig.reflector.lists == 1
        lists = [request for request in api.requests if "limit" in request.query]
        assert len(lists) == (0 if streaming else 3)


@pytest.mark.parametrize("streaming", STREAMING)
@pytest.mark.parametrize("cut", [False, True])
@in_loop
async def test_a_stream_that_ends_is_resumed_where_it_was(streaming: bool, cut: bool) -> None:
    api = FakeApi(streaming=streaming)
    _fill(api, "abc")
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        for name in "defg":
            await until(lambda: api.watching == 1)
            api.end_watches(cut=cut)
            api.put("pods", pod(name))
            await rig.equal()
        assert rig.reflector.lists == 1
        assert rig.store.late == 0
        assert rig.asked("resourceVersion")[-1] == "6"


@in_loop
async def test_a_bookmark_moves_the_place_to_resume() -> None:
    api = FakeApi()
    async with reflecting(api) as rig:
        await until(lambda: api.watching == 1)
        _fill(api, "abc")
        await rig.equal()
        for _ in range(5):
            api.put("nodes", {"metadata": {"name": "n1"}})
        api.bookmark()
        api.end_watches()
        await until(lambda: rig.asked("resourceVersion")[-1] == "8")
        assert rig.reflector.lists == 1


@pytest.mark.parametrize("streaming", STREAMING)
@in_loop
async def test_after_410_the_list_is_compared(streaming: bool) -> None:
    api = FakeApi(streaming=streaming)
    _fill(api, "abcd")
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        await until(lambda: api.watching == 1)
        api.end_watches()
        rig.changes.clear()
        api.remove("pods", "b", "ns")
        api.put("pods", pod("c", node="n1"))
        api.remove("pods", "d", "ns")
        api.put("pods", pod("d"))
        api.put("pods", pod("e"))
        api.compact()
        await rig.equal()
        await until(lambda: rig.reflector.lists == 2)
        assert sorted(rig.changes) == [("+", "d"), ("+", "e"), ("-", "b"), ("-", "d"), ("~", "c")]
        assert rig.changes.index(("-", "d")) < rig.changes.index(("+", "d"))


@in_loop
async def test_a_410_as_an_answer_lists_again_too() -> None:
    api = FakeApi()
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        too_large = ({"reason": "ResourceVersionTooLarge"},)
        refusals = [
            Refusal(410, reason="Expired"),
            Refusal(504, reason="Timeout", causes=too_large),
        ]
        for lists, refusal in enumerate(refusals, start=2):
            await until(lambda: api.watching == 1)
            api.refuse("WATCH", refusal)
            api.end_watches()
            await until(lambda lists=lists: rig.reflector.lists == lists)  # type: ignore[misc]
            assert rig.reflector.trouble is None


@pytest.mark.parametrize("streaming", STREAMING)
@in_loop
async def test_a_restart_of_the_server_is_survived(streaming: bool) -> None:
    api = FakeApi(streaming=streaming)
    _fill(api, "abc")
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        await until(lambda: api.watching == 1)
        await api.stop()
        await until(lambda: len(rig.pauses.asked_s) > 3)
        assert rig.reflector.trouble is not None
        _fill(api, "de")
        api.remove("pods", "a", "ns")
        await api.start()
        await rig.equal()
        await until(lambda: rig.reflector.trouble is None)
        assert rig.reflector.lists == 1
        growing = rig.pauses.asked_s[:4]
        assert growing == sorted(growing)
        assert growing[3] > 2 * growing[0]
        assert max(rig.pauses.asked_s) <= 5


@in_loop
async def test_a_restart_that_forgot_everything_is_survived() -> None:
    api = FakeApi()
    _fill(api, "abc")
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        await until(lambda: api.watching == 1)
        await api.stop()
        api.remove("pods", "a", "ns")
        _fill(api, "d")
        api.compact()
        await api.start()
        await rig.equal()
        assert rig.reflector.lists == 2


@pytest.mark.parametrize("piece_bytes", [1, 7, 64])
@in_loop
async def test_events_in_crumbs_come_out_whole(piece_bytes: int) -> None:
    api = FakeApi(piece_bytes=piece_bytes)
    _fill(api, "ab")
    async with reflecting(api) as rig:
        await rig.equal()
        api.put("pods", pod("é-視"))
        await rig.equal()


@in_loop
async def test_an_event_of_megabytes_is_read() -> None:
    api = FakeApi()
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        await until(lambda: api.watching == 1)
        api.put("pods", pod("big", annotations={"x": "y" * 3_000_000}))
        await rig.equal()
        assert rig.reflector.lists == 1


@in_loop
async def test_a_line_that_breaks_off_is_heard_whole_later() -> None:
    api = FakeApi()
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        await until(lambda: api.watching == 1)
        api.send("pods", b'{"type":"ADDED","object":{"metadata":{"name":"gho')
        api.end_watches(cut=True)
        api.put("pods", pod("real"))
        await rig.equal()
        assert rig.changes == [("+", "real")]
        assert rig.reflector.lists == 1


@in_loop
async def test_a_silent_stream_is_given_up() -> None:
    api = FakeApi()
    async with reflecting(api, WatchOptions(silence_s=0.05)) as rig:
        await rig.store.wait_listed()
        await until(lambda: len([v for v in rig.asked("resourceVersion") if v]) > 2)
        api.put("pods", pod("a"))
        await rig.equal()
        assert rig.reflector.lists == 1


@in_loop
async def test_a_stream_that_never_ends_its_list_is_replaced_by_pages() -> None:
    api = FakeApi()
    api.ends_lists = False
    _fill(api, "abc")
    async with reflecting(api, WatchOptions(silence_s=0.05, page_size=2)) as rig:
        await rig.store.wait_listed()
        await rig.equal()
        assert "2" in rig.asked("limit")


@in_loop
async def test_what_only_a_broken_list_showed_does_not_stay() -> None:
    api = FakeApi()
    api.ends_lists = False
    _fill(api, "ab")
    async with reflecting(api) as rig:
        await until(lambda: len(rig.store) == 2)
        del api.objects["pods"]["ns", "b"]
        refused = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid"}
        api.send("pods", json.dumps({"type": "ERROR", "object": refused}).encode() + b"\n")
        await rig.store.wait_listed()
        assert [each.metadata.name for each in rig.store.values()] == ["a"]


@in_loop
async def test_a_server_without_streaming_lists_is_asked_only_once_for_one() -> None:
    api = FakeApi(streaming=False)
    _fill(api, "a")
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        assert rig.reflector.trouble is None
        for lists in (2, 3):
            await until(lambda: api.watching == 1)
            api.put("pods", pod("b"))
            api.compact()
            api.put("nodes", {"metadata": {"name": "n1"}})
            api.compact()
            api.end_watches(cut=True)
            await until(lambda lists=lists: rig.reflector.lists == lists)  # type: ignore[misc]
        assert rig.asked("sendInitialEvents").count("true") == 1


@in_loop
async def test_no_list_no_listing_and_then_all_is_well() -> None:
    """Case O01: while a list is missing, the store says so."""
    api = FakeApi()
    _fill(api, "ab")
    for verb in ("WATCH", "LIST"):
        api.refuse_until_told(verb, Refusal(500))
    async with reflecting(api) as rig:
        await until(lambda: len(rig.pauses.asked_s) > 4)
        assert not rig.store.is_listed
        assert rig.reflector.trouble is not None
        api.accept()
        await rig.store.wait_listed()
        await rig.equal()
        assert rig.reflector.trouble is None


@in_loop
async def test_a_forbidden_kind_is_tried_again_slowly_and_named() -> None:
    api = FakeApi()
    for verb in ("WATCH", "LIST"):
        api.refuse_until_told(verb, Refusal(403, "pods is forbidden"))
    options = WatchOptions(backoff=Backoff(first_s=1, most_s=8, chance=lambda: 1.0))
    async with reflecting(api, options) as rig:
        await until(lambda: len(rig.pauses.asked_s) >= 6)
        assert rig.pauses.asked_s[:6] == [1, 2, 4, 8, 8, 8]
        assert "pods is forbidden" in (rig.reflector.trouble or "")


@in_loop
async def test_an_object_that_cannot_be_read_is_trouble_not_silence() -> None:
    api = FakeApi()
    async with reflecting(api) as rig:
        await rig.store.wait_listed()
        await until(lambda: api.watching == 1)
        api.send("pods", b'{"type":"ADDED","object":{"metadata":{"name":5}}}\n')
        await until(lambda: rig.reflector.lists == 2)
        assert len(rig.pauses.asked_s) == 1


@in_loop
async def test_the_steps_say_when_a_list_begins_and_is_complete() -> None:
    api = FakeApi()
    _fill(api, "ab")
    async with api, transport_to(api) as transport:
        reflector = Reflector(Client(transport), Store(PODS), sleep=Pauses())
        steps = reflector.steps()
        assert await anext(steps) == Begun()
        seen = [await anext(steps) for _ in range(3)]
        assert seen[2] == Listed("2")
        await steps.aclose()


@in_loop
async def test_a_cache_is_listed_when_every_kind_is() -> None:
    api = FakeApi()
    _fill(api, "ab")
    api.put("nodes", {"metadata": {"name": "n1"}})
    async with api, transport_to(api) as transport:
        cache = WatchCache(Client(transport))
        pods = cache.watch(PODS, Selection(namespace="ns", labels="x=1"))
        nodes = cache.watch(NODES)
        with pytest.raises(ValueError, match="watched already"):
            cache.watch(NODES)
        task = asyncio.ensure_future(cache.run())
        await cache.wait_listed()
        assert cache.is_listed
        assert (len(pods), len(nodes)) == (2, 1)
        assert cache.troubles() == {}
        paths = {request.path for request in api.requests}
        assert paths == {"/api/v1/namespaces/ns/pods", "/api/v1/nodes"}
        assert {request.query.get("labelSelector") for request in api.requests} == {"x=1", None}
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
