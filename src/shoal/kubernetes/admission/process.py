"""The webhook as a process: its certificate kept, its server up, until it is told to stop.

Replicas share nothing but the Secret with the certificate, so any number may run.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from shoal.catalog.catalog import Catalog
from shoal.kubernetes.admission.certificates import Pair, server_context, service_names, use
from shoal.kubernetes.admission.keeper import Keeper
from shoal.kubernetes.admission.names import MUTATING_POLICY_SINCE
from shoal.kubernetes.admission.review import DEFAULT_JUDGING, Judging
from shoal.kubernetes.admission.server import Server, application
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.files import Files
from shoal.objects.files import Written
from shoal.texts.language import Language

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Where it answers and as whom.

    Attributes:
        namespace: Shoal's own, where the Secret with the certificate is.
        service: the name of its Service, for which the certificate is.
        names: further names or addresses that the certificate is for.
        host: the address to listen on; empty: all.
        port: the port to listen on.
        language: of refusals and hints.
        judging: the queues that work can wait in, and whose objects are others'.
        files: where those queues are written; they are read again when they change.
    """

    namespace: str = "shoal"
    service: str = "shoal-webhook"
    names: tuple[str, ...] = ()
    host: str = ""
    port: int = 8443
    language: Language = Language.ENGLISH
    judging: Judging = DEFAULT_JUDGING
    files: tuple[Path, ...] = ()


async def serve(
    client: Client, catalog: Catalog, options: WebhookOptions, stop: asyncio.Event
) -> None:
    """Serve until `stop` is set. Raises KubernetesError while no API server answers."""
    gates = await client.server_version() < MUTATING_POLICY_SINCE
    names = (*service_names(options.service, options.namespace), *options.names)
    keeper = Keeper(client, options.namespace, names)
    context = server_context()
    ready = asyncio.Event()
    judging = options.judging

    def judge_by(written: Written) -> None:
        nonlocal judging
        judging = Judging.by(written.tree, judging.stamping.controllers)
        _log.info("queues are taken in", queues=len(written.tree.queues))

    def take(pair: Pair) -> None:
        use(context, pair)
        ready.set()
        _log.info("certificate taken", renew_at=pair.renew_at.isoformat())

    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(keeper.run(take))
        following = group.create_task(Files(options.files, catalog).follow(judge_by))
        stopped = group.create_task(stop.wait())
        taken = group.create_task(ready.wait())
        await asyncio.wait((taken, stopped), return_when=asyncio.FIRST_COMPLETED)
        if ready.is_set():
            app = application(
                catalog, gates=gates, judging=lambda: judging, language=options.language
            )
            async with Server(app, context, options.host, options.port) as server:
                _log.info("serving", port=server.port, gates=gates)
                await stopped
        for task in (keeping, following, taken):
            task.cancel()
