"""The webhook's process: over TLS, with a certificate that can be changed while it serves."""

import asyncio
import base64
import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

import aiohttp
import pytest

from shoal.catalog.load import load_catalog
from shoal.kubernetes.admission.certificates import Pair, issue, server_context, use
from shoal.kubernetes.admission.process import WebhookOptions, serve
from shoal.kubernetes.admission.server import Server, application
from shoal.kubernetes.api.client import Client
from tests.kubernetes.fake_api import Refusal, in_loop, transport_to, until
from tests.kubernetes.strategic import StrategicApi
from tests.objects.small import manifest


def pair() -> tuple[Pair, bytes]:
    return issue(["127.0.0.1"], datetime.now(UTC))


def trusting(authority: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.decode())


async def ask(port: int, authority: bytes, path: str, body: object) -> tuple[int, str]:
    connector = aiohttp.TCPConnector(ssl=trusting(authority))
    async with aiohttp.ClientSession(connector=connector) as session:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with session.post(f"https://127.0.0.1:{port}{path}", data=data) as answer:
            return answer.status, await answer.text()


def review(**resources: str) -> dict[str, object]:
    body = manifest({"nvidia.com/gpu": "1"}, resources)
    return {"request": {"uid": "u", "operation": "CREATE", "object": body}}


@in_loop
async def test_it_answers_by_channel() -> None:
    served, authority = pair()
    context = server_context()
    use(context, served)
    app = application(load_catalog(), gates=False)
    async with Server(app, context, "127.0.0.1", 0) as server:
        status, text = await ask(server.port, authority, "/mutate/dra", review())
        assert status == 200
        assert "patch" in json.loads(text)["response"]
        status, text = await ask(server.port, authority, "/mutate/device-plugin", review())
        assert json.loads(text)["response"] == {"uid": "u", "allowed": True}
        assert (await ask(server.port, authority, "/mutate/other", review()))[0] == 404
        assert (await ask(server.port, authority, "/mutate/dra", b"{"))[0] == 400
        odd = {"request": {"operation": "CREATE", "object": {"spec": 1}}}
        assert (await ask(server.port, authority, "/mutate/dra", odd))[0] == 400


@in_loop
async def test_a_new_certificate_is_served_from_the_next_connection_on() -> None:
    (one, first), (two, second) = pair(), pair()
    context = server_context()
    use(context, one)
    async with Server(application(load_catalog(), gates=True), context, "127.0.0.1", 0) as server:
        assert (await ask(server.port, first, "/mutate/dra", review()))[0] == 200
        use(context, two)
        assert (await ask(server.port, second, "/mutate/dra", review()))[0] == 200


@in_loop
async def test_it_says_that_it_is_well() -> None:
    served, authority = pair()
    context = server_context()
    use(context, served)
    async with Server(application(load_catalog(), gates=True), context, "127.0.0.1", 0) as server:
        connector = aiohttp.TCPConnector(ssl=trusting(authority))
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"https://127.0.0.1:{server.port}/healthz"
            async with session.get(url) as answer:
                assert await answer.text() == "ok"


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody else takes, and that the test may listen on."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


@in_loop
async def test_the_process_serves_its_own_certificate_until_it_is_stopped(port: int) -> None:
    stop = asyncio.Event()
    options = WebhookOptions(names=("127.0.0.1",), host="127.0.0.1", port=port)
    async with StrategicApi() as api, transport_to(api) as transport:
        serving = asyncio.create_task(serve(Client(transport), load_catalog(), options, stop))
        await until(lambda: bool(api.objects.get("secrets")))
        ((_, secret),) = api.objects["secrets"].items()
        authority = base64.b64decode(secret["data"]["ca.crt"])
        status, text = 0, ""
        while not status:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                status, text = await ask(options.port, authority, "/mutate/dra", review())
        assert status == 200
        # The fake API server is a 1.37, where a policy adds the gate.
        patch = base64.b64decode(json.loads(text)["response"]["patch"])
        assert b"resourceClaims" in patch
        assert b"schedulingGates" not in patch
        stop.set()
        await serving


@in_loop
async def test_a_process_without_rights_serves_nothing_and_can_be_stopped(port: int) -> None:
    stop = asyncio.Event()
    options = WebhookOptions(host="127.0.0.1", port=port)
    async with StrategicApi() as api, transport_to(api) as transport:
        api.refuse_until_told("POST", Refusal(403, "secrets is forbidden", "Forbidden"))
        serving = asyncio.create_task(serve(Client(transport), load_catalog(), options, stop))
        await until(lambda: api.answered["POST"] > 0)
        with socket.socket() as tried:
            assert tried.connect_ex((options.host, options.port)) != 0
        stop.set()
        await serving
