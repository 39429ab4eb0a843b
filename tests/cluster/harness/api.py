"""A small client of the API server: the harness's hands, and the tests' independent eye on truth.

`Api` is asynchronous; `Client` does the same from plain test functions. Kinds are named as
"v1/Pod", "batch/v1/Job", "shoal.dev/v1alpha1/AcceleratorQueue"; objects are plain dictionaries.
"""

import asyncio
import itertools
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import msgspec

from tests.cluster.harness.loops import LoopThread
from tests.cluster.harness.processes import Failed

T = TypeVar("T")
Object = dict[str, Any]
Objects = list[Object]  # named here, as both classes have a method `list`

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

RETRIES = 10  # as many as client-go makes


class ApiError(Exception):
    """What the API server answered instead of doing it."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


def credentials(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """The server's address and our client certificate, from a kubeconfig that the harness wrote."""
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    return cluster["server"], context


class Api:
    """Calls the API server as one user. Use it as `async with Api(kubeconfig) as api`."""

    def __init__(self, kubeconfig: Path, connections: int = 64) -> None:
        self.server, self._context = credentials(kubeconfig)
        self._connections = connections
        self._open: aiohttp.ClientSession | None = None
        self._plurals: dict[str, tuple[str, bool]] = {}

    async def __aenter__(self) -> Self:
        self._open = aiohttp.ClientSession(
            self.server,
            connector=aiohttp.TCPConnector(ssl=self._context, limit=0),
            timeout=aiohttp.ClientTimeout(total=60),
        )
        self._slots = asyncio.Semaphore(self._connections)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._open is not None:
            await self._open.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session, for calls that this class has no method for."""
        if self._open is None:
            raise RuntimeError("use it as `async with Api(...) as api`")
        return self._open

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """One call; the answer's bytes. Raises ApiError if it is refused.

        An API server that is too busy for now says when to come back (429 with Retry-After): that
        is done, up to RETRIES times.
        """
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        for attempt in itertools.count():
            async with (
                self._slots,
                self.session.request(
                    method, path, data=data, headers=headers, params=params
                ) as answer,
            ):
                content = await answer.read()
                if answer.status < 400:
                    return content
                later = answer.headers.get("Retry-After")
                if answer.status != 429 or later is None or attempt == RETRIES:
                    raise _refusal(answer.status, content)
            await asyncio.sleep(float(later))
        raise AssertionError("itertools.count does not end")

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """One call; the answer as an object."""
        answer: Object = msgspec.json.decode(
            await self.send(method, path, body, content_type, params)
        )
        return answer

    async def path(self, kind: str, namespace: str | None = None, name: str | None = None) -> str:
        """Where objects of a kind live; the plural is asked of the API server once."""
        version, _, short = kind.rpartition("/")
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._plurals:
            for resource in (await self.call("GET", root))["resources"]:
                if "/" not in resource["name"]:
                    known = (resource["name"], resource["namespaced"])
                    self._plurals[f"{version}/{resource['kind']}"] = known
            if kind not in self._plurals:
                raise Failed(f"the API server serves no {short} in {version}")
        plural, namespaced = self._plurals[kind]
        inside = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{root}{inside}/{plural}" + (f"/{name}" if name else "")

    async def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        """Read one object."""
        return await self.call("GET", await self.path(kind, namespace, name))

    async def list(
        self, kind: str, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> Objects:
        """Read all objects of a kind, in one namespace or in all, that the selectors match."""
        params = {
            key: value
            for key, value in (("labelSelector", labels), ("fieldSelector", fields))
            if value
        }
        path = await self.path(kind, namespace)
        items: Objects = (await self.call("GET", path, params=params))["items"]
        return items

    async def create(self, body: Object) -> Object:
        """Create an object, in the namespace that it names (else `default`)."""
        namespace = body["metadata"].get("namespace", "default")
        return await self.call("POST", await self.path(_kind(body), namespace), body)

    async def create_all(self, bodies: Iterable[Object]) -> Objects:
        """Create many at once."""
        return [*await self.every(self.create(body) for body in bodies)]

    async def patch(
        self,
        kind: str,
        name: str,
        body: object,
        namespace: str = "default",
        *,
        content_type: str = MERGE,
        subresource: str = "",
    ) -> Object:
        """Patch an object, or its subresource ("status", "scale", ...)."""
        path = await self.path(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return await self.call("PATCH", path, body, content_type)

    async def apply(self, body: Object, manager: str = "tests") -> Object:
        """Create it or make it so (server-side apply)."""
        meta = body["metadata"]
        path = await self.path(_kind(body), meta.get("namespace", "default"), meta["name"])
        params = {"fieldManager": manager, "force": "true"}
        return await self.call("PATCH", path, body, "application/apply-patch+yaml", params)

    async def delete(
        self, kind: str, name: str, namespace: str = "default", grace_s: int | None = None
    ) -> None:
        """Delete an object; it is no error if it is gone already."""
        body = None if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            await self.call("DELETE", await self.path(kind, namespace, name), body)
        except ApiError as error:
            if error.code != 404:
                raise

    async def evict(self, name: str, namespace: str = "default", uid: str | None = None) -> None:
        """Ask for a pod's eviction. Raises ApiError: 429 if a budget forbids it, 409: other uid."""
        options = {"preconditions": {"uid": uid}} if uid else {}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        await self.call("POST", await self.path("v1/Pod", namespace, name) + "/eviction", body)

    async def every(self, calls: Iterable[Coroutine[Any, Any, T]]) -> Sequence[T]:
        """Await many at once, at most as many as there are connections; the first error ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(call) for call in calls]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a watch, until the API server ends it."""
        async with self.session.get(
            path,
            params={**params, "watch": "true"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            read_bufsize=4 << 20,
        ) as answer:
            if answer.status >= 400:
                raise _refusal(answer.status, await answer.read())
            async for line in answer.content:
                yield line


def _kind(body: Object) -> str:
    return f"{body['apiVersion']}/{body['kind']}"


def _refusal(code: int, content: bytes) -> ApiError:
    try:
        status = msgspec.json.decode(content)
        return ApiError(code, status.get("reason", ""), status.get("message", ""))
    except (msgspec.DecodeError, AttributeError):
        return ApiError(code, "", content.decode(errors="replace"))


def _shown(body: Object | None) -> str:
    if body is None:
        return "not there"
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return json.dumps({**body, "metadata": meta}, indent=1)


class Client:
    """The same calls for test functions that are not asynchronous, from any thread."""

    def __init__(self, kubeconfig: Path) -> None:
        self._loop = LoopThread()
        self._api = Api(kubeconfig)
        self.run(self._api.__aenter__())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this client's loop and wait for it."""
        return self._loop.run(work)

    def close(self) -> None:
        """Close the connections and end the thread."""
        self.run(self._api.__aexit__())
        self._loop.close()

    def get(self, kind: str, name: str, namespace: str = "default") -> Object:
        """Read one object."""
        return self.run(self._api.get(kind, name, namespace))

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """Read one object; None if there is none of that name."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def list(
        self, kind: str, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> Objects:
        """Read all objects of a kind, in one namespace or in all, that the selectors match."""
        return self.run(self._api.list(kind, namespace, labels, fields))

    def create(self, body: Object) -> Object:
        """Create an object, in the namespace that it names (else `default`)."""
        return self.run(self._api.create(body))

    def create_all(self, bodies: Iterable[Object]) -> Objects:
        """Create many at once."""
        return self.run(self._api.create_all(bodies))

    def apply(self, body: Object, manager: str = "tests") -> Object:
        """Create it or make it so (server-side apply)."""
        return self.run(self._api.apply(body, manager))

    def patch(
        self,
        kind: str,
        name: str,
        body: object,
        namespace: str = "default",
        *,
        content_type: str = MERGE,
        subresource: str = "",
    ) -> Object:
        """Patch an object, or its subresource ("status", "scale", ...)."""
        return self.run(
            self._api.patch(
                kind, name, body, namespace, content_type=content_type, subresource=subresource
            )
        )

    def delete(
        self, kind: str, name: str, namespace: str = "default", grace_s: int | None = None
    ) -> None:
        """Delete an object; it is no error if it is gone already."""
        self.run(self._api.delete(kind, name, namespace, grace_s))

    def evict(self, name: str, namespace: str = "default", uid: str | None = None) -> None:
        """Ask for a pod's eviction. Raises ApiError: 429 if a budget forbids it, 409: other uid."""
        self.run(self._api.evict(name, namespace, uid))

    def call(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Object:
        """Any other call, by its path."""
        return self.run(self._api.call(method, path, body, content_type))

    def wait(
        self,
        kind: str,
        name: str,
        namespace: str = "default",
        *,
        until: Callable[[Object], object],
        seconds: float = 30,
    ) -> Object:
        """Wait until an object is there and `until` holds for it; returns it as it then is."""
        last: Object | None = None

        def holds() -> Object | None:
            nonlocal last
            last = self.find(kind, name, namespace)
            return last if last is not None and until(last) else None

        return eventually(
            holds, seconds, lambda: f"{kind} {namespace}/{name} is {json.dumps(last, indent=1)}"
        )

    def wait_gone(
        self, kind: str, name: str, namespace: str = "default", seconds: float = 30
    ) -> None:
        """Wait until there is no object of that name."""
        eventually(
            lambda: self.find(kind, name, namespace) is None,
            seconds,
            lambda: f"{kind} {namespace}/{name} is still there",
        )


def eventually(
    check: Callable[[], T | None], seconds: float, otherwise: Callable[[], str] | str
) -> T:
    """Ask again and again until the answer is true (or non-empty), and return it.

    The time is a bound for a machine that is busy, never what is tested. Raises AssertionError
    with the sentence `otherwise`.
    """
    deadline = time.monotonic() + seconds
    while True:
        if answer := check():
            return answer
        if time.monotonic() > deadline:
            said = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"after {seconds:g} s: {said}")
        time.sleep(0.05)
