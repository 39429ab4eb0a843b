"""Tries, credentials, limits and errors of single calls."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.kubernetes.api.client import Client, PatchForm, Selection
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    DisruptionBlockedError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    QuotaExceededError,
    ServerError,
    Status,
    StatusCause,
    StatusDetails,
    StatusError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
    status_error,
)
from shoal.kubernetes.wire.kinds import LEASES, NODES, PODS
from tests.kubernetes.fake_api import (
    PATIENT,
    FakeApi,
    Pauses,
    Refusal,
    in_loop,
    pod,
    transport_to,
    until,
)


@in_loop
async def test_objects_are_read_written_and_deleted() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        client = Client(transport)
        created = await client.create(PODS, pod("a"), "ns")
        assert (await client.get(PODS, "a", "ns")).uid == created.uid
        patched = await client.patch(
            PODS, "a", {"metadata": {"uid": created.uid, "labels": {"x": "1"}}}, "ns"
        )
        assert patched.metadata.labels == {"x": "1"}
        await client.delete(PODS, "a", "ns", uid=created.uid)
        with pytest.raises(NotFoundError):
            await client.get(PODS, "a", "ns")
        assert not any(request.method == "PUT" for request in api.requests)


@in_loop
async def test_a_successor_of_the_same_name_is_not_deleted_patched_or_evicted() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        client = Client(transport)
        api.put("pods", pod("a"))
        with pytest.raises(ConflictError):
            await client.delete(PODS, "a", "ns", uid="old")
        with pytest.raises(ConflictError):
            await client.evict("a", "ns", uid="old")
        with pytest.raises(ConflictError):
            await client.patch(PODS, "a", {"metadata": {"uid": "old"}}, "ns")
        with pytest.raises(ValueError, match="uid"):
            await client.delete(PODS, "a", "ns", uid="")
        assert api.version == 1


@in_loop
async def test_bodies_and_queries_are_what_the_api_documents() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        client = Client(transport)
        uid = api.put("pods", pod("a"))["metadata"]["uid"]
        await client.patch(PODS, "a", {"spec": {}}, "ns", form=PatchForm.STRATEGIC, dry_run=True)
        await client.apply(PODS, "a", {"metadata": {"labels": {}}}, "ns", force=True)
        await client.bind("a", "ns", uid=uid, node="n1")
        await client.evict("a", "ns", uid=uid, grace_s=5)
        types = [request.content_type for request in api.requests]
        assert types[0] == "application/strategic-merge-patch+json"
        assert types[1] == "application/apply-patch+yaml"
        assert api.requests[0].query["dryRun"] == "All"
        assert dict(api.requests[1].query) == {"fieldManager": "shoal", "force": "true"}
        assert [request.path for request in api.requests[2:]] == [
            "/api/v1/namespaces/ns/pods/a/binding",
            "/api/v1/namespaces/ns/pods/a/eviction",
        ]
        assert ("ns", "a") not in api.objects["pods"]


@in_loop
async def test_pages_are_of_one_moment_and_name_where_a_watch_goes_on() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        client = Client(transport)
        for i in range(7):
            api.put("pods", pod(f"p{i}", "ns" if i % 2 else "other"))
        pages = [page async for page in client.pages(PODS, page_size=3)]
        assert [len(page.items) for page in pages] == [3, 3, 1]
        assert pages[-1].metadata.resource_version == "7"
        assert len(await client.list_all(PODS, Selection(namespace="ns"))) == 3


@in_loop
async def test_a_compaction_between_pages_is_told_not_hidden() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        for i in range(4):
            api.put("pods", pod(f"p{i}"))
        pages = Client(transport).pages(PODS, page_size=2)
        await anext(pages)
        api.put("pods", pod("late"))
        api.compact()
        with pytest.raises(GoneError):
            await anext(pages)


@in_loop
async def test_versions_and_served_kinds_are_asked_for() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        client = Client(transport)
        api.put("pods", pod("a"))
        assert await client.server_version() == (1, 37)
        assert await client.serves(PODS)
        assert not await client.serves(LEASES)


@in_loop
async def test_retry_after_is_the_least_wait() -> None:
    async with FakeApi() as api:
        pauses = Pauses()
        async with transport_to(api, pauses) as transport:
            api.put("pods", pod("a"))
            api.refuse("GET", Refusal(429, retry_after=7), times=2)
            await Client(transport).get(PODS, "a", "ns")
            assert len(pauses.asked_s) == 2
            assert all(7 < asked <= 7.5 for asked in pauses.asked_s)
            assert transport.counters.retries["GET"] == 2
            assert transport.counters.calls["GET", "pods", 429] == 2
            assert transport.counters.of("GET") == 3


@pytest.mark.parametrize("code", [429, 503])
@in_loop
async def test_tries_end_when_the_patience_is_spent(code: int) -> None:
    async with FakeApi() as api:
        pauses = Pauses()
        async with transport_to(api, pauses) as transport:
            api.refuse_until_told("GET", Refusal(code))
            with pytest.raises(TooManyRequestsError if code == 429 else ServerError):
                await Client(transport).get(NODES, "n1")
            assert 10 < sum(pauses.asked_s) <= 30
            assert 4 < len(pauses.asked_s) < 12


@in_loop
async def test_a_wait_longer_than_the_patience_is_not_begun() -> None:
    async with FakeApi() as api:
        pauses = Pauses()
        async with transport_to(api, pauses) as transport:
            api.refuse("GET", Refusal(429, retry_after=3600))
            with pytest.raises(TooManyRequestsError) as caught:
                await Client(transport).get(NODES, "n1")
            assert caught.value.status.retry_after_s == 3600
            assert pauses.asked_s == []


@in_loop
async def test_a_create_whose_answer_was_lost_says_that_it_may_have_been_done() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        api.refuse("POST", Refusal(500, cut=True, arrives=True))
        with pytest.raises(AlreadyExistsError) as caught:
            await Client(transport).create(PODS, pod("a"), "ns")
        assert caught.value.maybe_done
        assert api.version == 1
        with pytest.raises(AlreadyExistsError) as caught:
            await Client(transport).create(PODS, pod("a"), "ns")
        assert not caught.value.maybe_done


@in_loop
async def test_a_repeated_patch_has_one_effect() -> None:
    async with FakeApi() as api, transport_to(api) as transport:
        stored = api.put("pods", pod("a"))
        version = stored["metadata"]["resourceVersion"]
        api.refuse("PATCH", Refusal(500, cut=True, arrives=True))
        body = {"metadata": {"resourceVersion": version, "labels": {"x": "1"}}}
        with pytest.raises(ConflictError) as caught:
            await Client(transport).patch(PODS, "a", body, "ns")
        assert caught.value.maybe_done
        assert api.version == 2


@in_loop
async def test_a_server_that_is_away_is_found_again() -> None:
    async with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}})

        class Returning(Pauses):
            async def __call__(self, seconds: float) -> None:
                await super().__call__(seconds)
                if len(self.asked_s) == 3:
                    await api.start()

        pauses = Returning()
        async with transport_to(api, pauses) as transport:
            client = Client(transport)
            await client.get(NODES, "n1")
            await api.stop()
            assert (await client.get(NODES, "n1")).metadata.name == "n1"
            assert len(pauses.asked_s) == 3


@in_loop
async def test_no_server_is_unreachable_and_a_silent_one_too() -> None:
    async with FakeApi() as api:
        limits = replace(PATIENT, answer_s=0.05, patience_s=0)
        async with transport_to(api, limits=limits) as transport:
            api.hold = asyncio.Event()
            with pytest.raises(UnreachableError, match="GET /api/v1/nodes/n1"):
                await Client(transport).get(NODES, "n1")
            api.hold.set()
        await api.stop()
        async with transport_to(api, limits=replace(PATIENT, patience_s=0)) as transport:
            with pytest.raises(UnreachableError):
                await Client(transport).get(NODES, "n1")
            assert transport.counters.calls["GET", "nodes", 0] == 1


@in_loop
async def test_credentials_are_read_again_after_a_401_and_only_once_for_many() -> None:
    async with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.token, api.tokens = "one", {"one": "admin"}
        async with transport_to(api) as transport:
            client = Client(transport)
            await client.get(NODES, "n1")
            api.token, api.tokens = "two", {"two": "admin"}
            await asyncio.gather(*(client.get(NODES, "n1") for _ in range(20)))
            assert api.credentials_given == 2
            api.tokens = {"three": "admin"}
            with pytest.raises(UnauthorizedError):
                await client.get(NODES, "n1")


@in_loop
async def test_credentials_are_replaced_when_their_time_is_up() -> None:
    async with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.lifetime_s = 60
        clock = [0.0]
        async with transport_to(api) as transport:
            transport._monotonic_s = lambda: clock[0]
            for now_s, given in [(0.0, 1), (59.0, 1), (60.0, 2), (119.0, 2), (120.0, 3)]:
                clock[0] = now_s
                await Client(transport).get(NODES, "n1")
                assert api.credentials_given == given


@in_loop
async def test_no_more_calls_at_once_than_allowed() -> None:
    async with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.hold = asyncio.Event()
        async with transport_to(api, limits=replace(PATIENT, concurrency=3)) as transport:
            client = Client(transport)
            calls = [asyncio.ensure_future(client.get(NODES, "n1")) for _ in range(10)]
            await until(lambda: api.answered["GET"] == 3)
            await asyncio.sleep(0.05)
            assert api.answered["GET"] == 3
            api.hold.set()
            await asyncio.gather(*calls)
            assert api.peak == 3


@in_loop
async def test_a_blocked_eviction_and_a_server_error_on_a_write_are_not_repeated() -> None:
    async with FakeApi() as api:
        pauses = Pauses()
        async with transport_to(api, pauses) as transport:
            client = Client(transport)
            api.put("pods", pod("a"))
            blocked = Refusal(429, causes=({"reason": "DisruptionBudget"},), retry_after=10)
            api.refuse("POST", blocked)
            with pytest.raises(DisruptionBlockedError):
                await client.evict("a", "ns", uid="u1")
            api.refuse("POST", Refusal(500, "more than one PodDisruptionBudget"))
            with pytest.raises(ServerError, match="more than one"):
                await client.evict("a", "ns", uid="u1")
            assert pauses.asked_s == []


TOO_LARGE = StatusDetails(causes=(StatusCause("ResourceVersionTooLarge"),))
QUOTA = "pods is forbidden: exceeded quota: team, requested: x=1, used: x=4, limited: x=4"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status(403, "Forbidden", "no"), ForbiddenError),
        (Status(403, "Forbidden", QUOTA), QuotaExceededError),
        (Status(409, "AlreadyExists"), AlreadyExistsError),
        (Status(409, "Conflict"), ConflictError),
        (Status(410, "Expired"), GoneError),
        (Status(422, "Invalid"), InvalidError),
        (Status(504, "Timeout"), ServerError),
        (Status(504, "Timeout", details=TOO_LARGE), GoneError),
        (Status(418), StatusError),
    ],
)
def test_a_status_becomes_the_error_of_its_code(status: Status, kind: type[StatusError]) -> None:
    assert type(status_error(status)) is kind


def test_an_exceeded_quota_has_its_name() -> None:
    error = status_error(Status(403, "Forbidden", QUOTA), "POST /x")
    assert isinstance(error, QuotaExceededError)
    assert error.quota == "team"
    assert str(error).startswith("POST /x was answered with 403: ")


def test_paths_are_escaped_and_namespaces_asked_for() -> None:
    assert PODS.path("a/b", "c?d", "status") == "/api/v1/namespaces/a%2Fb/pods/c%3Fd/status"
    assert LEASES.path("ns") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    assert NODES.path(name="n") == "/api/v1/nodes/n"
    with pytest.raises(ValueError, match="give one"):
        PODS.path(name="a")
    with pytest.raises(ValueError, match="no namespace"):
        NODES.path("ns")


def test_there_is_no_put(repository: Path) -> None:
    for module in sorted((repository / "src/shoal/kubernetes").rglob("*.py")):
        assert '"PUT"' not in module.read_text(encoding="utf-8"), module
