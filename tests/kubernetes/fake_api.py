"""A small API server in the test's own loop, with every fault that a real one can have.

It keeps objects as documents and counts versions like etcd: one number for all. Lists, pages,
watches, streaming lists, bookmarks, compaction, preconditions and Status answers behave as the API
documents them. Faults are queued by the test.
"""

import asyncio
import functools
import json
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, Self

from aiohttp import web

from shoal.kubernetes.api.identity import Credentials
from shoal.kubernetes.api.listening import listening
from shoal.kubernetes.api.transport import Limits, Transport

Document = dict[str, Any]
P = ParamSpec("P")

BOUND_S = 200.0
"""Ends what hangs; nothing waits so long on a machine that is only busy."""


def patient(limits: Limits) -> Limits:
    """The same limits, but for a server that shares its loop and its processor with its clients."""
    return replace(limits, connect_s=BOUND_S, answer_s=BOUND_S)


PATIENT = patient(Limits())


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in a loop of its own; the limit only ends what hangs."""

    @functools.wraps(test)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(BOUND_S):
                await test(*args, **kwargs)

        asyncio.run(limited())

    return call


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about."""
    while not condition():  # noqa: ASYNC110  (whatever changes has no event of its own)
        await asyncio.sleep(0.001)


@dataclass
class Pauses:
    """A sleep that takes no time and remembers what it was asked for."""

    asked_s: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Refusal:
    """An answer instead of the real one. `arrives`: the call is carried out all the same."""

    code: int
    message: str = "not now"
    reason: str = ""
    retry_after: int | None = None
    causes: tuple[Document, ...] = ()
    cut: bool = False
    arrives: bool = False


@dataclass
class _Watcher:
    resource: str
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    cut: bool = False


class FakeApi:
    """An identity of itself, so that a transport can be pointed at it."""

    def __init__(self, *, streaming: bool = True, piece_bytes: int = 0) -> None:
        self.streaming = streaming
        self.piece_bytes = piece_bytes
        self.version = 0
        self.compacted = 0
        self.objects: dict[str, dict[tuple[str, str], Document]] = {}
        self.history: list[tuple[int, str, str, Document]] = []
        self.refusals: list[tuple[str, Refusal]] = []
        self._refused_until_told: dict[str, Refusal] = {}
        self.tokens = {"": "admin"}
        self.token = ""
        self.lifetime_s: float | None = None
        self.requests: list[web.Request] = []
        self.answered: Counter[str] = Counter()
        self.credentials_given = 0
        self.peak = 0
        self.hold: asyncio.Event | None = None
        self.ends_lists = True
        self._active = 0
        self._watchers: list[_Watcher] = []
        self._listening = AsyncExitStack()
        self._place: socket.socket | None = None
        """Keeps its port for it while it does not listen there."""
        self._port = 0

    # An identity

    async def credentials(self) -> Credentials:
        self.credentials_given += 1
        return Credentials(
            server=f"http://127.0.0.1:{self._port}",
            tls=None,
            authorization=f"Bearer {self.token}" if self.token else "",
            lifetime_s=self.lifetime_s,
        )

    # Life

    async def __aenter__(self) -> Self:
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self._port = self._place.getsockname()[1]
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self._place is not None:
            self._place.close()

    async def start(self) -> None:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01)
        await self._listening.enter_async_context(listening(runner, "127.0.0.1", self._port))

    async def stop(self) -> None:
        self.end_watches()
        await self._listening.aclose()

    # What the test does to it

    def put(self, resource: str, body: Document) -> Document:
        """Create or change an object, as some other client would."""
        metadata = body["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        known = self.objects.setdefault(resource, {}).get(key)
        self.version += 1
        stored: Document = json.loads(json.dumps(body))
        stored["metadata"]["resourceVersion"] = str(self.version)
        stored["metadata"].setdefault(
            "uid", known["metadata"]["uid"] if known else f"u{self.version}"
        )
        if known is not None and known["metadata"]["uid"] != stored["metadata"]["uid"]:
            raise AssertionError("another uid under a name that is taken")
        self.objects[resource][key] = stored
        self._publish("MODIFIED" if known else "ADDED", resource, stored)
        return stored

    def remove(self, resource: str, name: str, namespace: str = "") -> None:
        gone = self.objects[resource].pop((namespace, name))
        self.version += 1
        gone = json.loads(json.dumps(gone))
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._publish("DELETED", resource, gone)

    def bookmark(self) -> None:
        for watcher in self._watchers:
            watcher.queue.put_nowait(self._bookmark(watcher.resource))

    def send(self, resource: str, line: bytes) -> None:
        """Send raw bytes to the watches of a resource."""
        for watcher in self._watchers:
            if watcher.resource == resource:
                watcher.queue.put_nowait(line)

    def compact(self) -> None:
        """Forget all versions so far."""
        self.compacted = self.version
        self.history.clear()

    def refuse(self, verb: str, refusal: Refusal, times: int = 1) -> None:
        """Answer the next calls of a verb so."""
        self.refusals += [(verb, refusal)] * times

    def refuse_until_told(self, verb: str, refusal: Refusal) -> None:
        """Answer all calls of a verb so, however fast they come, until `accept`."""
        self._refused_until_told[verb] = refusal

    def accept(self) -> None:
        """Refuse nothing any more."""
        self.refusals.clear()
        self._refused_until_told.clear()

    def end_watches(self, *, cut: bool = False) -> None:
        """End all watches, in good order or by breaking their connections."""
        ending, self._watchers = self._watchers, []
        for watcher in ending:
            watcher.cut = cut
            watcher.queue.put_nowait(None)

    @property
    def watching(self) -> int:
        return len(self._watchers)

    # How it answers

    def _publish(self, type_: str, resource: str, stored: Document) -> None:
        self.history.append((self.version, type_, resource, stored))
        for watcher in self._watchers:
            if watcher.resource == resource:
                watcher.queue.put_nowait(_line(type_, stored))

    def _bookmark(self, resource: str, *, ends_list: bool = False) -> bytes:
        metadata: Document = {"resourceVersion": str(self.version), "creationTimestamp": None}
        if ends_list:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        spec = {"containers": None} if resource == "pods" else {}
        return _line("BOOKMARK", {"metadata": metadata, "spec": spec, "status": {}})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self._active += 1
        self.peak = max(self.peak, self._active)
        try:
            return await self._route(request)
        finally:
            self._active -= 1

    async def _route(self, request: web.Request) -> web.StreamResponse:
        verb = _verb(request)
        self.answered[verb] += 1
        if self.hold is not None and verb != "WATCH":
            await self.hold.wait()
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _status(401, "Unauthorized", "who are you")
        body = await request.read()
        refusal = next((r for v, r in self.refusals if v == verb), None)
        if refusal is not None:
            self.refusals.remove((verb, refusal))
        refusal = refusal or self._refused_until_told.get(verb)
        if refusal is not None:
            if refusal.arrives:
                self._carry_out(verb, request, body)
            if refusal.cut and request.transport is not None:
                request.transport.abort()
            return _refused(refusal)
        if verb == "WATCH":
            return await self._watch(request)
        return self._carry_out(verb, request, body)

    def _carry_out(self, verb: str, request: web.Request, body: bytes) -> web.Response:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "37+"})
        parts = request.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if not parts:
            names = [{"name": name} for name in self.objects]
            return web.json_response({"resources": names})
        namespace = parts[1] if parts[0] == "namespaces" and len(parts) > 2 else ""
        parts = parts[2:] if namespace else parts
        resource, name = parts[0], parts[1] if len(parts) > 1 else ""
        known = self.objects.setdefault(resource, {}).get((namespace, name))
        if verb == "LIST":
            return self._list(request, resource, namespace)
        if verb == "POST" and len(parts) == 1:
            return self._create(resource, namespace, json.loads(body))
        if known is None:
            return _status(404, "NotFound", f"{resource} {name!r} not found")
        if verb == "GET":
            return web.json_response(known)
        if verb == "POST":
            document = json.loads(body)
            options = document.get("deleteOptions", {})
            if len(parts) > 2 and parts[2] == "binding":
                return web.json_response({"kind": "Status"}, status=201)
            return self._delete(resource, known, options)
        if verb == "DELETE":
            return self._delete(resource, known, json.loads(body) if body else {})
        return self._patch(resource, known, json.loads(body))

    def _list(self, request: web.Request, resource: str, namespace: str) -> web.Response:
        start = 0
        version = self.version
        if token := request.query.get("continue"):
            asked, start = (int(each) for each in token.split("."))
            if asked < self.compacted:
                return _status(410, "Expired", "the continue token has expired")
            version = asked
        found = [
            each for (where, _), each in sorted(self.objects[resource].items())
            if not namespace or where == namespace
        ]  # fmt: skip
        limit = int(request.query.get("limit", "0")) or len(found) + 1
        metadata = {"resourceVersion": str(version)}
        if start + limit < len(found):
            metadata["continue"] = f"{version}.{start + limit}"
        return web.json_response({"metadata": metadata, "items": found[start : start + limit]})

    def _create(self, resource: str, namespace: str, document: Document) -> web.Response:
        document["metadata"]["namespace"] = namespace
        if (namespace, document["metadata"]["name"]) in self.objects[resource]:
            return _status(409, "AlreadyExists", "there is one already")
        return web.json_response(self.put(resource, document), status=201)

    def _patch(self, resource: str, known: Document, patch: Document) -> web.Response:
        metadata, given = known["metadata"], patch.get("metadata", {})
        if given.get("resourceVersion", metadata["resourceVersion"]) != metadata["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        if given.get("uid", metadata["uid"]) != metadata["uid"]:
            cause = {"reason": "FieldValueInvalid", "field": "metadata.uid"}
            return _refused(Refusal(422, "field is immutable", "Invalid", causes=(cause,)))
        return web.json_response(self.put(resource, _merged(known, patch)))

    def _delete(self, resource: str, known: Document, options: Document) -> web.Response:
        for name, wanted in options.get("preconditions", {}).items():
            if known["metadata"][name] != wanted:
                return _status(409, "Conflict", f"the {name} in the precondition is another")
        self.remove(resource, known["metadata"]["name"], known["metadata"].get("namespace", ""))
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        resource = request.path.rsplit("/", 1)[1]
        if "sendInitialEvents" in request.query and not self.streaming:
            return _status(422, "Invalid", "sendInitialEvents is forbidden")
        watcher = _Watcher(resource)
        for line in self._first_lines(resource, request.query.get("resourceVersion")):
            watcher.queue.put_nowait(line)
        response = web.StreamResponse()
        await response.prepare(request)
        self._watchers.append(watcher)
        try:
            while (line := await watcher.queue.get()) is not None:
                size = self.piece_bytes or len(line)
                for start in range(0, len(line), size):
                    await response.write(line[start : start + size])
            if watcher.cut and request.transport is not None:
                request.transport.abort()
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
        return response

    def _first_lines(self, resource: str, since: str | None) -> Iterator[bytes | None]:
        """What a watch begins with: everything there is, or everything since a version."""
        if since is None:
            for stored in self.objects.get(resource, {}).values():
                yield _line("ADDED", stored)
            if self.ends_lists:
                yield self._bookmark(resource, ends_list=True)
        elif int(since) < self.compacted:
            gone = {"status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
            yield _line("ERROR", {"kind": "Status", "metadata": {}} | gone)
            yield None
        else:
            for version, type_, name, stored in self.history:
                if name == resource and version > int(since):
                    yield _line(type_, stored)


def _verb(request: web.Request) -> str:
    if request.method != "GET":
        return request.method
    if request.query.get("watch") == "true":
        return "WATCH"
    return "LIST" if "limit" in request.query else "GET"


def _line(type_: str, body: Document) -> bytes:
    return json.dumps({"type": type_, "object": body}).encode() + b"\n"


def _status(code: int, reason: str, message: str) -> web.Response:
    return _refused(Refusal(code, message, reason))


def _refused(refusal: Refusal) -> web.Response:
    details: Document = {"causes": list(refusal.causes)}
    status = {
        "kind": "Status",
        "status": "Failure",
        "code": refusal.code,
        "reason": refusal.reason,
        "message": refusal.message,
        "details": details,
    }
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    return web.json_response(status, status=refusal.code, headers=headers)


def _merged(known: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(known) if isinstance(known, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def pod(name: str, namespace: str = "ns", node: str = "", **metadata: Any) -> Document:
    """A pod as a document."""
    return {
        "metadata": {"name": name, "namespace": namespace} | metadata,
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
    }


def transport_to(api: FakeApi, pauses: Pauses | None = None, limits: Limits = PATIENT) -> Transport:
    """A transport to it that does not wait between tries.

    Of its patience it spends what it would have waited, however long the tries themselves take.
    """
    pauses = pauses or Pauses()
    return Transport(api, limits, monotonic_s=lambda: sum(pauses.asked_s), sleep=pauses)
