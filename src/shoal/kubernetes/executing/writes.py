"""Writes of a leader: made for as long as it leads and the API server does not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from shoal.kubernetes.api.client import Client, JsonObject
from shoal.kubernetes.api.errors import (
    ConflictError,
    NotFoundError,
    StatusError,
    UnreachableError,
)
from shoal.kubernetes.watching.truth import Truth
from shoal.kubernetes.wire.kinds import PODS, RESOURCE_CLAIMS
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import ResourceClaim

_log = structlog.get_logger(__name__)

_Answer = TypeVar("_Answer")

PAUSE_S: Final = 1.0
"""The pause before a write is tried again that the API server did not answer."""


MOST_TRIES: Final = 8
"""How often a patch is made anew for a pod that others change at the same time."""


class NotLeadingError(Exception):
    """This process leads no longer: nothing more is written."""


class StartError(Exception):
    """A pod cannot be started as planned; the text says why."""


class Writes:
    """Calls to the API server that only a leader makes."""

    def __init__(self, client: Client, truth: Truth, may_write: Callable[[], bool]) -> None:
        self.client = client
        self._truth = truth
        self._may_write = may_write

    async def patch(self, pod: Pod, body: JsonObject) -> Pod | None:
        """The pod as patched, or None where it has changed or gone in the meantime."""
        meta = pod.metadata
        try:
            return await self.write(
                lambda: self.client.patch(PODS, meta.name, body, meta.namespace)
            )
        except (ConflictError, NotFoundError):
            return None
        except StatusError as refused:
            raise StartError(str(refused)) from refused

    async def look(self, pod: Pod) -> Pod | None:
        """The pod as it is now, or None where it is gone."""
        meta = pod.metadata
        try:
            found = await self.write(lambda: self.client.get(PODS, meta.name, meta.namespace))
        except NotFoundError:
            return None
        return found if found.uid == pod.uid else None

    async def write(self, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Make a call for as long as this process leads and the API server does not answer."""
        while True:
            if not self._may_write():
                raise NotLeadingError
            try:
                return await call()
            except UnreachableError as away:
                _log.warning("the API server is away", why=str(away))
                await asyncio.sleep(PAUSE_S)

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Delete a claim as it is known: one that was allocated since is left alone."""
        meta = claim.metadata
        try:
            await self.write(
                lambda: self.client.delete(
                    RESOURCE_CLAIMS,
                    meta.name,
                    meta.namespace,
                    uid=meta.uid,
                    resource_version=meta.resource_version,
                )
            )
        except (ConflictError, NotFoundError):
            return
        gone = self._truth.claims.get(meta.name, meta.namespace)
        for _ in range(50):
            if gone is None or gone.uid != meta.uid:
                return
            await asyncio.sleep(0.02)
            gone = self._truth.claims.get(meta.name, meta.namespace)
