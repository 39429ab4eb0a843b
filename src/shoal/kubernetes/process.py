"""The scheduler as a process: identity, connections, lease, scheduler, until it is stopped."""

import asyncio
import contextlib
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from shoal.catalog.catalog import Catalog
from shoal.core.policies import Policy
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.events import EventRecorder
from shoal.kubernetes.api.identity import Identity
from shoal.kubernetes.api.lease import DEFAULT_TERMS, LeaderLease, LeaseTerms
from shoal.kubernetes.api.transport import Transport
from shoal.kubernetes.memory import Memory
from shoal.kubernetes.picture import cluster_seed
from shoal.kubernetes.probe import served
from shoal.kubernetes.scheduler import DEFAULT_OPTIONS, Reach, Scheduler, SchedulerOptions
from shoal.kubernetes.watching.cache import WatchCache
from shoal.kubernetes.watching.truth import watched
from shoal.loop.recording import FolderRecorder
from shoal.loop.records import Header

_log = structlog.get_logger(__name__)

CONTROLLER: Final = "shoal.dev/scheduler"
"""The name under which Kubernetes events are told."""


@dataclass(frozen=True)
class ProcessOptions:
    """How a scheduler process runs.

    Attributes:
        policy: the placement policy.
        elects: whether replicas agree by a lease on who leads.
        lease: the lease's name.
        namespace: of the lease; empty: that of the context, or of the pod.
        recording: a new folder for what happens and is decided, if it is to be kept.
        host, port: where metrics and probes are served; port 0: any.
    """

    policy: str = "fragmentation"
    elects: bool = True
    lease: str = "shoal-scheduler"
    namespace: str = ""
    recording: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    terms: LeaseTerms = DEFAULT_TERMS
    scheduler: SchedulerOptions = DEFAULT_OPTIONS


async def run(
    identity: Identity,
    catalog: Catalog,
    options: ProcessOptions,
    stop: asyncio.Event,
) -> None:
    """Run a scheduler until `stop` is set, then give the lease up and end.

    Raises KubernetesError, and FileExistsError, LockedError and OSError for the recording.
    """
    holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    async with Transport(identity) as transport:
        client = Client(transport)
        cache = WatchCache(client)
        truth = await watched(cache, client)
        seed = await cluster_seed(client)
        namespace = options.namespace or await transport.namespace()
        recorder = None
        if options.recording is not None:
            header = Header(str(seed), Policy(options.policy))
            recorder = FolderRecorder(options.recording, header)
        loop = asyncio.get_running_loop()
        lease = LeaderLease(
            identity,
            options.lease,
            namespace,
            holder,
            options.terms,
            on_change=lambda _: _ring(loop, wake),
        )
        scheduler = Scheduler(
            Reach(client, cache, truth, Memory(client, f"{options.lease}-memory", namespace)),
            catalog,
            Policy(options.policy),
            seed,
            leadership=lease if options.elects else None,
            recorder=recorder,
            tell=EventRecorder(client, CONTROLLER, holder),
            options=options.scheduler,
        )
        wake = scheduler.wake
        async with (
            served(scheduler, client, options.host, options.port) as port,
            _standing(lease, elects=options.elects),
        ):
            _log.info("serving", host=options.host, port=port, holder=holder)
            working = asyncio.create_task(scheduler.run(), name="scheduler")
            stopping = asyncio.create_task(stop.wait(), name="stop")
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not working.done():
                working.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
            if recorder is not None:
                recorder.close()
            if not working.cancelled() and working.exception() is not None:
                raise working.exception()  # type: ignore[misc]
    _log.info("stopped")


def _ring(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    """Wake the scheduler from the lease's thread; its loop may have ended already."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(wake)


@asynccontextmanager
async def _standing(lease: LeaderLease, *, elects: bool) -> AsyncIterator[None]:
    """Stand for the lease while the context lasts; giving it up lets a successor start at once."""
    if not elects:
        yield
        return
    await asyncio.to_thread(lease.start)
    try:
        yield
    finally:
        await asyncio.to_thread(lease.stop)
