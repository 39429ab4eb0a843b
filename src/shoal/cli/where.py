"""Which platform a command asks: a running `shoal up` by its socket, or a cluster by kubeconfig.

Both answer the same few questions (`Platform`), so that there is one command for each.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from cyclopts import Parameter

from shoal.cli.errors import NoPlatformError
from shoal.cli.output import Form, Listing
from shoal.server.address import VARIABLE, default_path
from shoal.texts.language import Language

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Which platform is asked, and in which language it answers."""

    socket: Annotated[Path | None, Parameter(name="--socket")] = None
    """The socket of a running shoal up; otherwise SHOAL_SOCKET, or the one of this user."""
    kubeconfig: Annotated[Path | None, Parameter(name="--kubeconfig")] = None
    """A cluster's kubeconfig; otherwise KUBECONFIG, the pod's own account, ~/.kube/config."""
    context: Annotated[str | None, Parameter(name="--context")] = None
    """The context of the kubeconfig."""
    lang: Annotated[Literal["en", "zh"] | None, Parameter(name="--lang")] = None
    """The language of the answer; otherwise that of the environment (LC_ALL, LC_MESSAGES, LANG)."""

    @property
    def language(self) -> Language:
        """The language of the answer."""
        return Language(self.lang) if self.lang else environment_language()


DEFAULT_WHERE = Where()


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """How a cluster is read; a running shoal up knows it by itself."""

    catalog: Annotated[tuple[Path, ...], Parameter(name="--catalog", negative="")] = ()
    """For a cluster: files or folders of your own that extend the catalogue."""
    policy: Annotated[str, Parameter(name="--policy")] = "fragmentation"
    """For a cluster: the placement policy that its scheduler runs."""
    queues: Annotated[tuple[Path, ...], Parameter(name="--queues", negative="")] = ()
    """For a cluster: files or folders with the pools and queues that its scheduler knows."""
    controllers: Annotated[tuple[str, ...], Parameter(name="--controllers", negative="")] = ()
    """For a cluster: a service account that makes objects for others, as its scheduler knows it."""


DEFAULT_READING = Reading()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are wanted; not every platform knows every word."""

    namespace: str | None = None
    name: str | None = None
    queue: str | None = None
    type: str | None = None
    state: str | None = None
    pool: str | None = None
    accelerator: str | None = None
    node: str | None = None


class Platform(Protocol):
    """What every platform answers."""

    def listing(self, kind: str, wanted: Wanted) -> Listing:
        """Rows of a kind: workloads, pods, queues, pools, nodes or devices."""
        ...

    def why(self, name: str, namespace: str | None, output: Form) -> list[str]:
        """Why something waits or where it is, in lines; printed at once if not for people."""
        ...

    def top(self) -> Listing:
        """How many devices there are, and who holds them."""
        ...

    def release(self, *, sure: bool) -> None:
        """Stop acting; says what was done."""
        ...


def environment_language() -> Language:
    """The language that the environment asks for, as POSIX orders its variables."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return Language.CHINESE if value.lower().startswith("zh") else Language.ENGLISH
    return Language.ENGLISH


def find(where: Where, reading: Reading) -> Platform:
    """The platform that is meant. Raises NoPlatformError."""
    if (path := _socket(where)) is not None:
        from shoal.cli.on_socket import SocketPlatform

        return SocketPlatform(path, where.language)
    from shoal.cli.on_cluster import ClusterPlatform

    return ClusterPlatform(where, reading)


def is_socket(where: Where) -> bool:
    """Whether a running `shoal up` is meant, and no cluster. Raises NoPlatformError."""
    return _socket(where) is not None


def socket_of(where: Where, instead: str) -> Path:
    """The socket of a running `shoal up`, for what only that can do; a cluster has `instead`."""
    if (path := _socket(where)) is not None:
        return path
    raise NoPlatformError(f"a cluster is asked, which does this otherwise: {instead}.")


def _socket(where: Where) -> Path | None:
    if where.socket is not None:
        return where.socket
    if where.kubeconfig is not None or where.context is not None:
        return None
    path = default_path()
    if os.environ.get(VARIABLE) or path.exists():
        return path
    home = Path.home() / ".kube" / "config"
    if os.environ.get("KUBECONFIG") or home.exists() or SERVICE_ACCOUNT.exists():
        return None
    raise NoPlatformError(
        f"there is no platform to ask: no socket {path} and no kubeconfig. Start one with shoal up,"
        " or write --socket FILE or --kubeconfig FILE."
    )
