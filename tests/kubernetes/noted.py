"""Objects as admission leaves them: with a note of who created them."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec

from shoal.kubernetes.admission.names import STAMPS_POLICY
from shoal.kubernetes.api.errors import ForbiddenError, NotFoundError, Status
from shoal.kubernetes.watching.askers import Asker
from shoal.kubernetes.wire.kinds import Kind
from tests.kubernetes.manifests import Body, namespace
from tests.kubernetes.rig import START

INSTALLED = START - timedelta(hours=1)
CONTROLLERS = "system:serviceaccount:kube-system:"
ANN = Asker("ann", ("leads",))
BOB = Asker("bob")


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def guarded(labelled: datetime = INSTALLED, created: datetime = INSTALLED, **more: Any) -> Body:
    """A managed namespace, with when its label was written."""
    fields: Body = {"f:metadata": {"f:labels": {"f:shoal.dev/mode": {}}}}
    body = namespace()
    body["metadata"] |= {
        "creationTimestamp": stamp(created),
        "managedFields": [
            {"manager": "admin", "time": stamp(labelled), "fieldsV1": fields},
            {"manager": "other", "time": stamp(START + timedelta(days=9)), "fieldsV1": {"f:x": {}}},
        ],
    } | more
    return body


def by(body: Body, user: str, groups: str = "", prefix: str = "") -> Body:
    """An object that a user created, as admission leaves it."""
    notes = body["metadata"].setdefault("annotations", {})
    notes[f"shoal.dev/{prefix}user"] = user
    if groups:
        notes[f"shoal.dev/{prefix}groups"] = groups
    return body


def made(body: Body, controller: str, prefix: str = "") -> Body:
    """An object that a controller created for its owner."""
    by(body, f"{CONTROLLERS}{controller}", prefix=prefix)
    (owner,) = [each for each in body["metadata"]["ownerReferences"] if each.get("controller")]
    body["metadata"]["annotations"][f"shoal.dev/{prefix}owner"] = owner["uid"]
    return body


def owned(body: Body, api_version: str, kind: str, name: str, uid: str = "") -> Body:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid or f"uid-{name}"}
    body["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    return body


class Api:
    """Owners that are not watched, and the policy; counts what is read."""

    def __init__(self, *objects: Body, installed: datetime | None = INSTALLED) -> None:
        self.objects = {each["metadata"]["name"]: each for each in objects}
        self.installed = installed
        self.reads: list[str] = []
        self.refuses = False

    async def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        await asyncio.sleep(0)
        if name == STAMPS_POLICY:
            if self.installed is None:
                raise NotFoundError(Status(404))
            body: Body = {"metadata": {"creationTimestamp": stamp(self.installed)}}
            return kind.read(msgspec.json.encode(body))
        self.reads.append(f"{kind.plural} {namespace}/{name}")
        if self.refuses:
            raise ForbiddenError(Status(403, "Forbidden", "no"))
        if name not in self.objects:
            raise NotFoundError(Status(404))
        return kind.read(msgspec.json.encode(self.objects[name]))


def owner(name: str, **metadata: Any) -> Body:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": {}}
    return {"metadata": meta | {"creationTimestamp": stamp(START)} | metadata}
