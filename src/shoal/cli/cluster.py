"""What the commands for a live cluster have in common: how it is reached, and tables."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from shoal.cli.errors import CannotError, UsageError

if TYPE_CHECKING:
    from shoal.catalog.catalog import Catalog
    from shoal.kubernetes.api.client import Client
    from shoal.kubernetes.picture import Picture
    from shoal.kubernetes.watching.controllers import Controllers
    from shoal.objects.files import Written

T = TypeVar("T")

Format = Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])]

PIPED_WIDTH = 240
"""Columns of a table that goes to a file or another program."""


@Parameter(name="*")
@dataclass(frozen=True)
class Access:
    """How a cluster is reached."""

    kubeconfig: Annotated[Path | None, Parameter(name="--kubeconfig")] = None
    """The kubeconfig; otherwise KUBECONFIG, the pod's own account, or ~/.kube/config."""
    context: Annotated[str | None, Parameter(name="--context")] = None
    """The context of the kubeconfig."""
    catalog: Annotated[tuple[Path, ...], Parameter(name="--catalog", negative="")] = ()
    """Files or folders of your own that extend the catalogue."""
    policy: Annotated[str, Parameter(name="--policy")] = "fragmentation"
    """The placement policy that the scheduler runs."""
    queues: Annotated[tuple[Path, ...], Parameter(name="--queues", negative="")] = ()
    """Files or folders with pools and queues; without them all work waits in one queue."""
    controllers: Annotated[tuple[str, ...], Parameter(name="--controllers", negative="")] = ()
    """A service account that makes objects for others (NAMESPACE:NAME, or NAMESPACE for all of it);
    those of kube-system are known."""


DEFAULT_ACCESS = Access()


def read_catalog(access: Access) -> "Catalog":
    """The catalogue with the user's own files. Raises UsageError."""
    from shoal.catalog.load import CatalogError, load_catalog

    try:
        return load_catalog(access.catalog)
    except CatalogError as error:
        raise UsageError(str(error)) from None


def read_written(files: Iterable[Path], catalog: "Catalog") -> "Written":
    """The pools and queues in files. Raises UsageError."""
    from shoal.objects.files import BadObjectsError, read_objects

    try:
        return read_objects(files, catalog)
    except BadObjectsError as error:
        raise UsageError(str(error)) from None


def read_controllers(accounts: tuple[str, ...]) -> "Controllers":
    """The accounts that make objects for others. Raises UsageError."""
    from shoal.kubernetes.watching.controllers import Controllers

    try:
        return Controllers(accounts)
    except ValueError as error:
        raise UsageError(f"--controllers: {error}.") from None


def check_policy(access: Access) -> None:
    """Raise UsageError for a policy that there is not."""
    from shoal.core.policies import POLICIES

    if access.policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise UsageError(f'--policy expects one of {known}, found "{access.policy}".')


def call(access: Access, work: "Callable[[Client], Awaitable[T]]") -> T:
    """Do some work with a connected client. Raises CannotError."""
    from shoal.kubernetes.api.client import Client
    from shoal.kubernetes.api.errors import KubernetesError
    from shoal.kubernetes.api.identity import find_identity
    from shoal.kubernetes.api.transport import Limits, Transport

    async def connected() -> T:
        kubeconfig = str(access.kubeconfig) if access.kubeconfig is not None else None
        identity = find_identity(kubeconfig, access.context)
        async with Transport(identity, Limits(patience_s=5.0), user_agent="shoal-cli") as transport:
            return await work(Client(transport))

    try:
        return asyncio.run(connected())
    except KubernetesError as error:
        raise CannotError(f"{error}") from None


def look(access: Access) -> "Picture":
    """Look at the cluster once. Raises CannotError and UsageError."""
    from shoal.core.policies import Policy
    from shoal.kubernetes.picture import take_picture

    check_policy(access)
    catalog = read_catalog(access)
    written = read_written(access.queues, catalog)
    controllers = read_controllers(access.controllers)
    policy = Policy(access.policy)
    return call(access, lambda client: take_picture(client, catalog, policy, written, controllers))


def show(rows: Sequence[Any], columns: Sequence[tuple[str, str]], output: str) -> None:
    """Print rows (dataclasses) as a table of (heading, field), or as JSON with all fields."""
    if output == "json":
        plain = [asdict(row) for row in rows if is_dataclass(row) and not isinstance(row, type)]
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading, field in columns:
        numeric = all(isinstance(getattr(row, field), int) for row in rows) and bool(rows)
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(getattr(row, field)) for _, field in columns))
    console = Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)
    console.print(table, highlight=False, markup=False)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value) or "-"
    return str(value) if value != "" else "-"
