"""What a scheduler tells over HTTP: whether it lives, its metrics, and whether it sees right.

`/healthz` it runs; `/readyz` everything has been listed; `/metrics` Prometheus' text;
`/consistency` its world compared with a fresh list of the API server, as a JSON list of sentences.
`POST /evictions/resume?by=NAME` lets frozen evictions go on.
Loopback by default: nothing here asks who is there.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.listening import listening
from shoal.kubernetes.consistency import differences
from shoal.kubernetes.metrics import SchedulerMetrics
from shoal.kubernetes.scheduler import Scheduler
from shoal.kubernetes.watching.truth import listed

LOOKS = 20
"""How often the comparison is repeated while it finds anything: what is on its way is no fault."""

PAUSE_S = 0.25


@asynccontextmanager
async def served(scheduler: Scheduler, client: Client, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port, which is chosen where 0 was asked for."""
    registry = CollectorRegistry()
    registry.register(SchedulerMetrics(scheduler, client.transport))

    async def metrics(_: web.Request) -> web.Response:
        body = generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        good = scheduler.is_ready
        return web.Response(text="ok\n" if good else "listing\n", status=200 if good else 503)

    async def consistency(_: web.Request) -> web.Response:
        found = await look(scheduler, client)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def resume(request: web.Request) -> web.Response:
        if scheduler.resume(request.query.get("by", "")):
            return web.Response(text="ok\n")
        return web.Response(text="this process does not lead; ask the one that does\n", status=409)

    app = web.Application()
    app.router.add_post("/evictions/resume", resume)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/consistency", consistency)
    async with listening(web.AppRunner(app, access_log=None), host, port) as bound:
        yield bound


async def look(scheduler: Scheduler, client: Client) -> list[str]:
    """Differences between a scheduler's world and the API server that do not pass by themselves."""
    found: list[str] = []
    for _ in range(LOOKS):
        found = differences(scheduler.source, await listed(client))
        if not found:
            break
        await asyncio.sleep(PAUSE_S)
    return found
