"""The calls that Shoal makes to an API server, typed.

Reading: `get`, `pages`, `list_all`. Writing: `create`, `patch`, `apply`, `delete`, `evict`, `bind`;
there is no PUT. Bodies are small documents that hold only what is to change. Every call may raise
UnreachableError, IdentityError and the StatusError of its code (`errors`).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import Enum
from typing import Final, TypeVar

import msgspec

from shoal.kubernetes.api.errors import NotFoundError, WireError
from shoal.kubernetes.api.transport import Call, Transport
from shoal.kubernetes.wire.kinds import PODS, Kind, Page
from shoal.kubernetes.wire.meta import Object

T = TypeVar("T", bound=Object)

JsonObject = Mapping[str, object]
"""A JSON document as Python values."""

PAGE_SIZE: Final = 500
"""Objects per page of a list: what client-go asks for, and what one answer decodes in 50 ms."""

FIELD_MANAGER: Final = "shoal"
"""The name under which Shoal's fields are managed."""


class PatchForm(Enum):
    """How a patch's body is meant; the value is its content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a kind: of one namespace or all, by label and field selector."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        """The selectors as query parameters."""
        wanted = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in wanted.items() if value}


ALL: Final = Selection()
"""Every object of a kind."""


class _Version(msgspec.Struct):
    """The answer of `/version`."""

    major: str = ""
    minor: str = ""


class _ApiResource(msgspec.Struct):
    """One line of what a group and version serves."""

    name: str = ""


class _ApiResources(msgspec.Struct):
    """What a group and version serves."""

    resources: list[_ApiResource] = []


class Client:
    """Typed calls over a transport."""

    def __init__(self, transport: Transport) -> None:
        """Use `transport`, which whoever made it opens and closes."""
        self.transport = transport

    async def server_version(self) -> tuple[int, int]:
        """Major and minor version of the server, such as (1, 37). Raises WireError."""
        body = await self.transport.call(Call("GET", "/version", "version"))
        try:
            version = msgspec.json.decode(body, type=_Version)
            return int(version.major), int(version.minor.rstrip("+"))
        except ValueError as error:
            raise WireError(f"cannot read the server's version {body[:200]!r}") from error

    async def serves(self, kind: Kind[T]) -> bool:
        """Whether the server has this kind in this version."""
        try:
            body = await self.transport.call(Call("GET", kind.api_path, "discovery"))
        except NotFoundError:
            return False
        served = msgspec.json.decode(body, type=_ApiResources)
        return any(each.name == kind.plural for each in served.resources)

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """One object. Raises NotFoundError."""
        path = kind.path(namespace, name)
        return kind.read(await self.transport.call(Call("GET", path, kind.resource)))

    async def pages(
        self, kind: Kind[T], selection: Selection = ALL, page_size: int = PAGE_SIZE
    ) -> AsyncIterator[Page[T]]:
        """All objects as of one moment, page by page.

        The last page's `metadata.resource_version` is where a watch goes on. Raises GoneError when
        the moment has been compacted away before the last page: begin again.
        """
        query = selection.query() | {"limit": str(page_size)}
        path = kind.path(selection.namespace)
        while True:
            body = await self.transport.call(Call("LIST", path, kind.resource, query))
            page = kind.read_page(body)
            yield page
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def list_all(self, kind: Kind[T], selection: Selection = ALL) -> list[T]:
        """All objects as of one moment. Raises GoneError as `pages` does."""
        return [item async for page in self.pages(kind, selection) for item in page.items]

    async def create(
        self,
        kind: Kind[T],
        body: JsonObject,
        namespace: str = "",
        *,
        dry_run: bool = False,
        patience_s: float | None = None,
    ) -> T:
        """The object as created. `apiVersion` and `kind` are filled in.

        Raises AlreadyExistsError (with `maybe_done` where an earlier try of this call may be what
        created it), QuotaExceededError and InvalidError.
        """
        document = {"apiVersion": kind.api_version, "kind": kind.name} | dict(body)
        call = Call(
            "POST",
            kind.path(namespace),
            kind.resource,
            {"fieldManager": FIELD_MANAGER} | _dry(dry_run),
            msgspec.json.encode(document),
        )
        return kind.read(await self.transport.call(call, patience_s))

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: JsonObject | Sequence[JsonObject],
        namespace: str = "",
        *,
        form: PatchForm = PatchForm.MERGE,
        subresource: str = "",
        dry_run: bool = False,
        patience_s: float | None = None,
    ) -> T:
        """The object as patched.

        `metadata.uid` and `metadata.resourceVersion` in a merge or strategic body, and `test`
        operations in a JSON patch, are preconditions. Raises ConflictError when one does not hold
        (a failed `test` is an InvalidError), NotFoundError, InvalidError and ForbiddenError.
        """
        call = Call(
            "PATCH",
            kind.path(namespace, name, subresource),
            kind.resource,
            {"fieldManager": FIELD_MANAGER} | _dry(dry_run),
            msgspec.json.encode(body),
            form.value,
        )
        return kind.read(await self.transport.call(call, patience_s))

    async def apply(
        self,
        kind: Kind[T],
        name: str,
        body: JsonObject,
        namespace: str = "",
        *,
        subresource: str = "",
        manager: str = FIELD_MANAGER,
        force: bool = False,
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: the object with `manager`'s fields as in `body`, created if missing.

        Fields of `manager` that `body` no longer names are removed. Raises ConflictError for
        fields that others manage, unless `force` takes them over.
        """
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        given = body.get("metadata")
        document = {"apiVersion": kind.api_version, "kind": kind.name} | dict(body)
        document["metadata"] = (dict(given) if isinstance(given, Mapping) else {}) | metadata
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        call = Call(
            "PATCH",
            kind.path(namespace, name, subresource),
            kind.resource,
            query | _dry(dry_run),
            msgspec.json.encode(document),
            "application/apply-patch+yaml",
        )
        return kind.read(await self.transport.call(call))

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        *,
        uid: str,
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete this very object, never a successor of the same name.

        Raises ConflictError when the object of this name has another uid or version, and
        NotFoundError when there is none.
        """
        options = _delete_options(uid, resource_version, grace_s)
        if propagation:
            options["propagationPolicy"] = propagation
        call = Call(
            "DELETE",
            kind.path(namespace, name),
            kind.resource,
            _dry(dry_run),
            msgspec.json.encode(options),
        )
        await self.transport.call(call)

    async def evict(
        self,
        name: str,
        namespace: str,
        *,
        uid: str,
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """End a pod by the Eviction API.

        It heeds disruption budgets and sets the pod's condition `DisruptionTarget`. Raises
        DisruptionBlockedError while a budget forbids it, ConflictError for another uid (after 10 s,
        in which the API server repeats its own try: compare uids before) and NotFoundError.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, "", grace_s),
        }
        path = PODS.path(namespace, name, "eviction")
        encoded = msgspec.json.encode(body)
        await self.transport.call(Call("POST", path, "pods/eviction", _dry(dry_run), encoded))

    async def bind(self, name: str, namespace: str, *, uid: str, node: str) -> None:
        """Bind a pod to a node, as a scheduler does. Raises ConflictError and NotFoundError."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(namespace, name, "binding")
        encoded = msgspec.json.encode(body)
        await self.transport.call(Call("POST", path, "pods/binding", {}, encoded))


def _dry(dry_run: bool) -> dict[str, str]:  # noqa: FBT001  (private)
    return {"dryRun": "All"} if dry_run else {}


def _delete_options(uid: str, resource_version: str, grace_s: int | None) -> dict[str, object]:
    if not uid:
        raise ValueError("give the uid of what is to be deleted")
    preconditions = {"uid": uid}
    if resource_version:
        preconditions["resourceVersion"] = resource_version
    options: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": preconditions,
    }
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options
