"""`shoal scheduler`: the process that decides for a cluster."""

import asyncio
import logging
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shoal.cli.cluster import DEFAULT_ACCESS, Access, check_policy, read_catalog
from shoal.cli.errors import CannotError, UsageError

if TYPE_CHECKING:
    from shoal.kubernetes.identity import Identity
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
    from shoal.kubernetes.books import SourceOptions
    from shoal.kubernetes.deadlines import DeadlineOptions
    from shoal.kubernetes.identity import find_identity
    from shoal.kubernetes.process import ProcessOptions
    from shoal.kubernetes.scheduler import SchedulerOptions

    check_policy(access)
    host, port = _address(listen)
    for name, seconds in asdict(times).items():
        if not 0 <= seconds < LONGEST_S:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} expects seconds from 0, found {seconds:g}.")
    options = ProcessOptions(
        policy=access.policy,
        elects=leader_elect,
        namespace=lease_namespace,
        recording=recording,
        host=host,
        port=port,
        scheduler=SchedulerOptions(
            source=SourceOptions(slot_keep_us=round(times.keep_places * _SECOND_US)),
            deadlines=DeadlineOptions(
                refused_us=round(times.refused_after * _SECOND_US),
                silent_us=round(times.silent_after * _SECOND_US),
            ),
        ),
    )
    kubeconfig = str(access.kubeconfig) if access.kubeconfig is not None else None
    _log_json(log_level)
    _run(access, find_identity(kubeconfig, access.context), options)


def _run(access: Access, identity: "Identity", options: "ProcessOptions") -> None:
    from shoal.kubernetes.errors import KubernetesError
    from shoal.kubernetes.process import run
    from shoal.loop.disk import LockedError

    catalog = read_catalog(access)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stop.set)
        await run(identity, catalog, options, stop)

    try:
        asyncio.run(until_stopped())
    except (FileExistsError, LockedError):
        where = options.recording
        raise UsageError(f"--recording {where}: there is a recording; name a new folder.") from None
    except (KubernetesError, OSError) as error:
        raise CannotError(str(error)) from None


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen expects HOST:PORT such as 127.0.0.1:9464, found {listen!r}.")
    return host.strip("[]") or "127.0.0.1", int(port)


def _log_json(level: str) -> None:
    import structlog

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
