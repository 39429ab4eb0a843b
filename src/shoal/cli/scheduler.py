"""`shoal scheduler`: the process that decides for a cluster."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shoal.cli.cluster import (
    DEFAULT_ACCESS,
    Access,
    check_policy,
    read_catalog,
    read_controllers,
    read_written,
)
from shoal.cli.errors import CannotError, UsageError
from shoal.cli.processes import address, log_json, run_until_stopped

if TYPE_CHECKING:
    from shoal.catalog.catalog import Catalog
    from shoal.kubernetes.api.identity import Identity
    from shoal.kubernetes.process import ProcessOptions

_SECOND_US = 1_000_000

LONGEST_S = 1e9
"""Longer than any process lives."""


@Parameter(name="*")
@dataclass(frozen=True)
class Times:
    """How long things may take, in seconds."""

    refused_after: Annotated[float, Parameter(name="--refused-after")] = 30.0
    """For so long kube-scheduler may refuse a pod before its start is taken back."""
    silent_after: Annotated[float, Parameter(name="--silent-after")] = 300.0
    """For so long kube-scheduler may say nothing about a pod."""
    keep_places: Annotated[float, Parameter(name="--keep-places")] = 60.0
    """For so long the place of a deleted pod is kept for the pod that replaces it."""


DEFAULT_TIMES = Times()


def scheduler(
    *,
    access: Access = DEFAULT_ACCESS,
    times: Times = DEFAULT_TIMES,
    listen: Annotated[str, Parameter(name="--listen")] = "127.0.0.1:9464",
    leader_elect: Annotated[bool, Parameter(name="--leader-elect")] = True,
    lease_namespace: Annotated[str, Parameter(name="--lease-namespace")] = "",
    recording: Annotated[Path | None, Parameter(name="--recording")] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning"], Parameter(name="--log-level")
    ] = "info",
) -> None:
    """Decide for a cluster until it is told to stop (SIGTERM or SIGINT).

    Several may run: one leads, the others watch. Logs are JSON lines on standard error.

    Parameters
    ----------
    listen
        Where metrics (/metrics) and probes are served; port 0 takes any free one.
    leader_elect
        Agree with other schedulers by a lease on who leads.
    lease_namespace
        The namespace of the lease; that of the context or pod if not given.
    recording
        A new folder in which everything that happens and is decided is kept.
    log_level
        What is logged.
    """
    from shoal.kubernetes.api.identity import find_identity
    from shoal.kubernetes.executing.deadlines import DeadlineOptions
    from shoal.kubernetes.process import ProcessOptions
    from shoal.kubernetes.scheduler import SchedulerOptions
    from shoal.kubernetes.watching.books import SourceOptions

    check_policy(access)
    host, port = address(listen)
    for name, seconds in asdict(times).items():
        if not 0 <= seconds < LONGEST_S:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} expects seconds from 0, found {seconds:g}.")
    catalog = read_catalog(access)
    options = ProcessOptions(
        policy=access.policy,
        elects=leader_elect,
        namespace=lease_namespace,
        recording=recording,
        host=host,
        port=port,
        scheduler=SchedulerOptions(
            written=read_written(access.queues, catalog),
            files=access.queues,
            source=SourceOptions(
                slot_keep_us=round(times.keep_places * _SECOND_US),
                controllers=read_controllers(access.controllers),
            ),
            deadlines=DeadlineOptions(
                refused_us=round(times.refused_after * _SECOND_US),
                silent_us=round(times.silent_after * _SECOND_US),
            ),
        ),
    )
    kubeconfig = str(access.kubeconfig) if access.kubeconfig is not None else None
    log_json(log_level)
    _run(catalog, find_identity(kubeconfig, access.context), options)


def _run(catalog: "Catalog", identity: "Identity", options: "ProcessOptions") -> None:
    from shoal.kubernetes.api.errors import KubernetesError
    from shoal.kubernetes.process import run
    from shoal.loop.disk import LockedError

    try:
        run_until_stopped(lambda stop: run(identity, catalog, options, stop))
    except (FileExistsError, LockedError):
        where = options.recording
        raise UsageError(f"--recording {where}: there is a recording; name a new folder.") from None
    except (KubernetesError, OSError) as error:
        raise CannotError(str(error)) from None
