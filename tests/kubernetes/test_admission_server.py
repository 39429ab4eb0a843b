"""The webhook's process: over TLS, with a certificate that can be changed while it serves."""

import json
import ssl
from datetime import UTC, datetime

import aiohttp

from shoal.catalog.load import load_catalog
from shoal.kubernetes.admission.certificates import Pair, issue, server_context, use
from shoal.kubernetes.admission.server import Server, application
from tests.kubernetes.fake_api import in_loop
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
