"""`shoal webhook`: the process that API servers ask about new pods."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from shoal.cli.cluster import Access, read_catalog, read_controllers, read_written
from shoal.cli.errors import CannotError
from shoal.cli.processes import address, log_json, run_until_stopped


@Parameter(name="*")
@dataclass(frozen=True)
class Serving:
    """Where it answers, and as whom."""

    listen: Annotated[str, Parameter(name="--listen")] = "0.0.0.0:8443"
    """Where it answers, over TLS; port 0 takes any free one."""
    namespace: Annotated[str, Parameter(name="--namespace")] = "shoal"
    """Shoal's own namespace, where the Secret with the certificate is kept."""
    service: Annotated[str, Parameter(name="--service")] = "shoal-webhook"
    """The Service by which API servers reach it."""
    also_known_as: Annotated[tuple[str, ...], Parameter(name="--also-known-as", negative="")] = ()
    """A further name or address that the certificate is for."""
    language: Annotated[Literal["en", "zh"], Parameter(name="--language")] = "en"
    """In which it says why a pod is refused."""
    queues: Annotated[tuple[Path, ...], Parameter(name="--queues", negative="")] = ()
    """Files or folders with the pools and queues that the scheduler knows."""
    controllers: Annotated[tuple[str, ...], Parameter(name="--controllers", negative="")] = ()
    """A service account that makes objects for others, as the scheduler knows it."""


DEFAULT_SERVING = Serving()


def webhook(
    *,
    kubeconfig: Annotated[Path | None, Parameter(name="--kubeconfig")] = None,
    context: Annotated[str | None, Parameter(name="--context")] = None,
    catalog: Annotated[tuple[Path, ...], Parameter(name="--catalog", negative="")] = (),
    serving: Serving = DEFAULT_SERVING,
    log_level: Annotated[
        Literal["debug", "info", "warning"], Parameter(name="--log-level")
    ] = "info",
) -> None:
    """Answer API servers about new pods until it is told to stop (SIGTERM or SIGINT).

    Any number may run. Logs are JSON lines on standard error.

    Parameters
    ----------
    kubeconfig
        The kubeconfig; otherwise KUBECONFIG, the pod's own account, or ~/.kube/config.
    context
        The context of the kubeconfig.
    catalog
        Files or folders of your own that extend the catalogue.
    log_level
        What is logged.
    """
    from shoal.kubernetes.admission.process import WebhookOptions, serve
    from shoal.kubernetes.admission.review import Judging
    from shoal.kubernetes.api.client import Client
    from shoal.kubernetes.api.errors import KubernetesError
    from shoal.kubernetes.api.identity import find_identity
    from shoal.kubernetes.api.transport import Transport
    from shoal.texts.language import Language

    host, port = address(serving.listen)
    known = read_catalog(Access(catalog=catalog))
    tree = read_written(serving.queues, known).tree
    options = WebhookOptions(
        judging=Judging.by(tree, read_controllers(serving.controllers)),
        files=serving.queues,
        namespace=serving.namespace,
        service=serving.service,
        names=serving.also_known_as,
        host=host,
        port=port,
        language=Language(serving.language),
    )
    identity = find_identity(str(kubeconfig) if kubeconfig is not None else None, context)
    log_json(log_level)

    async def work(stop: asyncio.Event) -> None:
        async with Transport(identity, user_agent="shoal-webhook") as transport:
            await serve(Client(transport), known, options, stop)

    try:
        run_until_stopped(work)
    except (KubernetesError, OSError) as error:
        raise CannotError(str(error)) from None
