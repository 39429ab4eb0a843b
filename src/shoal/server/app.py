"""The routes of `/api/v1`.

Handlers are plain functions that run in threads: each reads the replica under its lock, or asks the
writer and waits for its answer. Nothing is served that loads anything from elsewhere.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from threading import Event as Flag
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from shoal.core.decisions import Evict, workloads_of
from shoal.loop.story import Life, Noted
from shoal.server import models as m
from shoal.server import problems
from shoal.server.changing import Changes
from shoal.server.desk import Desk
from shoal.server.explain import explanation
from shoal.server.limits import BodyLimit
from shoal.server.metrics import CONTENT_TYPE, metrics_text
from shoal.server.object_models import ObjectFiles, ObjectsView
from shoal.server.paging import LimitQuery, NoQuery, PageQuery, cut
from shoal.server.problems import RESPONSES, Kind, ProblemError
from shoal.server.queues import queue_views
from shoal.server.standing import Look, Standing, id_of, uid_of
from shoal.server.submission import NotTakenError, Reader
from shoal.server.views import (
    decision_view,
    device_view,
    is_in,
    node_view,
    pool_views,
    present_nodes,
    status_view,
    workload_view,
)
from shoal.texts.language import Language

PREFIX = "/api/v1"
POLL_S = 0.2
HEARTBEATS = 75
"""Polls without news after which a line is sent that keeps the connection open."""

State = Literal["live", "waiting", "starting", "running", "evicting", "stopping", "ended", "all"]
Word = Annotated[str, Field(max_length=300)]


class WorkloadQuery(PageQuery):
    """Which workloads to list; `live` are those that have not ended."""

    namespace: Word | None = None
    name: Word | None = None
    queue: Word | None = None
    type: Literal["training", "inference", "notebook", "batch"] | None = None
    state: State = "live"


class NodeQuery(PageQuery):
    """Which nodes or devices to list."""

    pool: Word | None = None
    accelerator: Word | None = None


class DeviceQuery(NodeQuery):
    """Which devices to list."""

    node: Word | None = None
    state: Literal["free", "kept", "held", "lost"] | None = None


class DecisionQuery(LimitQuery):
    """Which decisions to list: those after an id, or without one the last."""

    after: Annotated[int, Field(ge=0)] | None = None
    workload: Word | None = None


class StreamQuery(NoQuery):
    """Where a stream begins."""

    after: Annotated[int, Field(ge=0)] | None = None


def _language(
    accept_language: Annotated[str | None, Header(max_length=200)] = None,
) -> Language:
    first = (accept_language or "").split(",")[0].strip().lower()
    return Language.CHINESE if first.startswith("zh") else Language.ENGLISH


def _standing(request: Request) -> Standing:
    standing: Standing = request.app.state.standing
    return standing


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def _changes(request: Request) -> Changes:
    changes: Changes = request.app.state.changes
    return changes


Here = Annotated[Standing, Depends(_standing)]
AtDesk = Annotated[Desk, Depends(_desk)]
AtChanges = Annotated[Changes, Depends(_changes)]
In = Annotated[Language, Depends(_language)]
Identity = Annotated[str, Path(max_length=600)]


def _unasked(_: Annotated[NoQuery, Query()]) -> None:
    """Refuse parameters where a route knows none, such as a dry_run beside a body."""


BARE = [Depends(_unasked)]

api = APIRouter(prefix=PREFIX, responses=RESPONSES)


def make_app(standing: Standing) -> FastAPI:
    """The application for a platform. Its streams end when `app.state.closing` is set."""
    app = FastAPI(
        title="Shoal",
        version=standing.version,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.standing = standing
    app.state.desk = Desk(standing)
    app.state.changes = Changes(standing, app.state.desk)
    app.state.closing = Flag()
    problems.install(app)
    app.include_router(api)
    app.add_middleware(BodyLimit)
    return app


# Workloads ------------------------------------------------------------------------------------


@api.post("/workloads", status_code=201, tags=["workloads"], dependencies=BARE)
def submit_workloads(sent: m.Submission, standing: Here, desk: AtDesk, language: In) -> m.Submitted:
    """Take in manifests, all or none. What is wrong is said for each document and field."""
    with standing.reading(language) as look:
        tree = look.tree
    reader = Reader(standing.catalog, tree, sent.namespace, sent.queue, language)
    try:
        taken = reader.read(sent.manifests)
    except NotTakenError as error:
        raise ProblemError(Kind.REFUSED, str(error), error.parts) from None
    if sent.dry_run:
        desk.check_names(taken.workloads)
    else:
        desk.submit(taken.workloads)
    names = [
        m.WorkloadName(id=id_of(each.uid), namespace=each.namespace, name=each.name)
        for each in taken.workloads
    ]
    return m.Submitted(workloads=names, hints=list(taken.hints))


@api.get("/workloads", tags=["workloads"])
def list_workloads(
    query: Annotated[WorkloadQuery, Query()], standing: Here, language: In
) -> m.WorkloadPage:
    """List workloads, the oldest first."""
    with standing.reading(language) as look:
        chosen = [life for life in look.lives() if _chosen(look, life, query)]
        page, following = cut(chosen, lambda life: (life.submitted_us, life.workload.uid), query)
        return m.WorkloadPage(
            items=[workload_view(look, life) for life in page], next=following, now=standing.now()
        )


def _chosen(look: Look, life: Life, query: WorkloadQuery) -> bool:
    workload = life.workload
    if query.namespace not in (None, workload.namespace):
        return False
    if query.name is not None and not _is_named(life, query.name):
        return False
    if query.type not in (None, workload.type.value):
        return False
    tree = look.tree
    if query.queue is not None and query.queue not in tree.path(workload.queue):
        return False
    if query.state == "all":
        return True
    if query.state == "live":
        return life.ended_us is None
    return look.state(life) == query.state


def _is_named(life: Life, name: str) -> bool:
    """Whether a workload has this name or id, or is a replica of what has this name."""
    workload = life.workload
    return name in (workload.name, id_of(workload.uid)) or workload.name.startswith(f"{name}/")


@api.get("/workloads/{identity}", tags=["workloads"], dependencies=BARE)
def get_workload(identity: Identity, standing: Here, language: In) -> m.WorkloadView:
    """One workload, also for a while after it has ended."""
    with standing.reading(language) as look:
        return workload_view(look, _life(look, identity))


@api.get("/workloads/{identity}/why", tags=["workloads"], dependencies=BARE)
def explain_workload(identity: Identity, standing: Here, language: In) -> m.ExplanationView:
    """Why it waits, where it is, or how it ended."""
    with standing.reading(language) as look:
        return explanation(look, _life(look, identity))


@api.delete("/workloads/{identity}", tags=["workloads"], dependencies=BARE)
def cancel_workload(identity: Identity, standing: Here, desk: AtDesk) -> m.Cancelled:
    """End a workload, whether it waits or runs."""
    with standing.reading() as look:
        life = _life(look, identity)
        workload = life.workload
        if life.ended_us is not None:
            raise ProblemError(Kind.NOT_FOUND, f"{workload.name} has ended already")
    desk.cancel(workload.uid)
    named = m.WorkloadName(id=identity, namespace=workload.namespace, name=workload.name)
    return m.Cancelled(workloads=[named])


def _life(look: Look, identity: str) -> Life:
    life = look.story.life(uid_of(identity))
    if life is None:
        raise ProblemError(
            Kind.NOT_FOUND,
            f"there is no workload with the id {identity[:80]}; list them, or look for a name with"
            " ?name=",
        )
    return life


# Queues, pools, nodes, devices ----------------------------------------------------------------


@api.post("/objects", tags=["queues"], dependencies=BARE)
def take_objects(sent: ObjectFiles, changes: AtChanges, language: In) -> ObjectsView:
    """Have these be all pools and queues, at once, and say what that means."""
    return changes.take(sent.files, language, dry_run=sent.dry_run)


@api.get("/queues", tags=["queues"])
def list_queues(query: Annotated[PageQuery, Query()], standing: Here, language: In) -> m.QueuePage:
    """List queues: the tree from the root down, then those that only workloads name."""
    with standing.reading(language) as look:
        views = list(enumerate(queue_views(look)))
    page, following = cut(views, lambda pair: (pair[0],), query)
    return m.QueuePage(items=[view for _, view in page], next=following, now=standing.now())


@api.get("/pools", tags=["fleet"])
def list_pools(query: Annotated[PageQuery, Query()], standing: Here) -> m.PoolPage:
    """List pools, and the rest of the nodes as one that is not written."""
    with standing.reading() as look:
        views = list(enumerate(pool_views(look)))
    page, following = cut(views, lambda pair: (pair[0],), query)
    return m.PoolPage(items=[view for _, view in page], next=following, now=standing.now())


@api.get("/nodes", tags=["fleet"])
def list_nodes(query: Annotated[NodeQuery, Query()], standing: Here) -> m.NodePage:
    """List nodes by name."""
    with standing.reading() as look:
        chosen = [
            node
            for node in present_nodes(look)
            if is_in(look, node, query.pool)
            and (
                query.accelerator is None
                or any(_is_of(standing, device.accelerator, query) for device in node.devices)
            )
        ]
        page, following = cut(chosen, lambda node: (node.name,), query)
        return m.NodePage(
            items=[node_view(look, node) for node in page],
            next=following,
            now=standing.now(),
        )


@api.get("/devices", tags=["fleet"])
def list_devices(query: Annotated[DeviceQuery, Query()], standing: Here) -> m.DevicePage:
    """List devices by node, with who holds them."""
    with standing.reading() as look:
        chosen = [
            (node, device)
            for node in present_nodes(look)
            if query.node in (None, node.name) and is_in(look, node, query.pool)
            for device in node.devices
            if _is_of(standing, device.accelerator, query)
        ]
        if query.state is not None:
            chosen = [
                (node, device)
                for node, device in chosen
                if device_view(look, node, device).state == query.state
            ]
        page, following = cut(chosen, lambda pair: (pair[0].name, pair[1].name), query)
        return m.DevicePage(
            items=[device_view(look, node, device) for node, device in page],
            next=following,
            now=standing.now(),
        )


def _is_of(standing: Standing, accelerator: str, query: NodeQuery) -> bool:
    """Whether an accelerator is the one that is asked for, or of that group."""
    asked = query.accelerator
    return asked in (None, accelerator) or accelerator in standing.names.get(asked, ())


# Decisions ------------------------------------------------------------------------------------


@api.get("/decisions", tags=["decisions"])
def list_decisions(
    query: Annotated[DecisionQuery, Query()], standing: Here, language: In
) -> m.DecisionPage:
    """List decisions, oldest first; `next` is the `after` with which to ask for later ones."""
    with standing.reading(language) as look:
        found: Iterable[Noted] = look.story.noted_after(query.after or 0)
        if query.workload is not None:
            uid = uid_of(query.workload)
            found = [each for each in found if uid in _uids(each)]
        kept = list(found)
        kept = kept[-query.limit :] if query.after is None else kept[: query.limit]
        last = kept[-1].offset if kept else (query.after or 0)
        return m.DecisionPage(
            items=[decision_view(look, each) for each in kept], next=str(last), now=standing.now()
        )


def _uids(noted: Noted) -> tuple[str, ...]:
    """Whom a decision is about; an eviction also about whoever it is for."""
    decision = noted.decision
    return workloads_of(decision) + (decision.for_ if isinstance(decision, Evict) else ())


@api.get(
    "/decisions/stream",
    tags=["decisions"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
def stream_decisions(
    request: Request,
    query: Annotated[StreamQuery, Query()],
    standing: Here,
    language: In,
    last_event_id: Annotated[str | None, Header(max_length=30)] = None,
) -> StreamingResponse:
    """Send decisions as they are taken (server-sent events), after an id or from now on.

    Every event has its id, so that a client that comes back goes on where it was. An event `gap`
    says that decisions in between are no longer remembered.
    """
    after = query.after
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdecimal():
        after = int(last_event_id)
    if after is None:
        with standing.reading() as look:
            after = look.offset
    events = _events(request, standing, language, after)
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _events(
    request: Request, standing: Standing, language: Language, after: int
) -> AsyncIterator[str]:
    quiet = 0
    yield "retry: 1000\n\n"
    closing: Flag = request.app.state.closing
    while not closing.is_set() and not await request.is_disconnected():
        after, lines = await asyncio.to_thread(_news, standing, language, after)
        for line in lines:
            yield line
        quiet = 0 if lines else quiet + 1
        if quiet >= HEARTBEATS:
            yield ": still here\n\n"
            quiet = 0
        await asyncio.sleep(POLL_S)


def _news(standing: Standing, language: Language, after: int) -> tuple[int, list[str]]:
    """What was decided after an offset, as events, and the offset that they reach."""
    with standing.reading(language) as look:
        noted = look.story.noted
        lines = []
        full = noted.maxlen is not None and len(noted) >= noted.maxlen
        if full and noted[0].offset > after + 1:
            lines.append(f"event: gap\ndata: {json.dumps({'after': after})}\n\n")
        for each in look.story.noted_after(after):
            after = each.offset
            data = decision_view(look, each).model_dump_json()
            lines.append(f"id: {after}\nevent: decision\ndata: {data}\n\n")
        return after, lines


# The platform ---------------------------------------------------------------------------------


@api.get("/status", tags=["platform"], dependencies=BARE)
def get_status(standing: Here, language: In) -> m.StatusView:
    """How the platform is."""
    with standing.reading(language) as look:
        return status_view(look)


@api.post("/release", tags=["platform"], dependencies=BARE)
def release(desk: AtDesk, _: m.Nothing | None = None) -> m.ActingView:
    """Have Shoal decide nothing any more; what runs goes on."""
    desk.act(acts=False)
    return m.ActingView(acting=False)


@api.post("/resume", tags=["platform"], dependencies=BARE)
def resume(desk: AtDesk, _: m.Nothing | None = None) -> m.ActingView:
    """Have Shoal decide again, and evict again where that is frozen."""
    resumed = desk.act(acts=True)
    return m.ActingView(acting=True, evictions_resumed=resumed)


@api.get(
    "/metrics",
    tags=["platform"],
    dependencies=BARE,
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_metrics(standing: Here) -> Response:
    """Prometheus' text."""
    return Response(metrics_text(standing), media_type=CONTENT_TYPE)
