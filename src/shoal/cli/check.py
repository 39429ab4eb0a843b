"""`shoal check`: whether files are well, and whether Shoal's world agrees with the cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shoal.cli.cluster import (
    DEFAULT_ACCESS,
    Access,
    call,
    check_policy,
    read_catalog,
    read_controllers,
    read_written,
)
from shoal.cli.errors import CannotError, UsageError
from shoal.cli.output import plain
from shoal.cli.where import Where, is_socket

if TYPE_CHECKING:
    from shoal.catalog.catalog import Catalog
    from shoal.kubernetes.api.client import Client
    from shoal.model.meaning import Meaning
    from shoal.objects.files import Written


def check(
    *files: Path,
    against: Annotated[bool, Parameter(name="--against", negative="")] = False,
    socket: Annotated[Path | None, Parameter(name="--socket")] = None,
    lang: Annotated[Literal["en", "zh"] | None, Parameter(name="--lang")] = None,
    consistency: Annotated[bool, Parameter(name="--consistency", negative="")] = False,
    scheduler: Annotated[str | None, Parameter(name="--scheduler")] = None,
    access: Access = DEFAULT_ACCESS,
) -> None:
    """Check files with pools and queues, or compare Shoal's world with the API server.

    Files are read as shoal apply reads them, and what is wrong is said. The comparison is of who
    holds which device and who waits: one sentence for each difference; it fails if there is any.

    Parameters
    ----------
    files
        Files or folders with pools and queues.
    against
        Say what the files would mean to a running shoal up, or to a cluster whose scheduler keeps
        to the files of --queues.
    socket
        The socket of that shoal up; otherwise SHOAL_SOCKET, or the one of this user.
    lang
        The language of the answer; otherwise that of the environment.
    consistency
        Make the world anew from the API server and compare it.
    scheduler
        Compare the world of a running scheduler as well: where it serves its metrics, such as
        http://127.0.0.1:9464.
    """
    if files or against:
        if consistency or scheduler is not None:
            raise UsageError("check files, or a cluster; write two commands for both.")
        where = Where(
            socket=socket, kubeconfig=access.kubeconfig, context=access.context, lang=lang
        )
        _files(files, access, where, against=against)
        return
    if not consistency and scheduler is None:
        raise UsageError("say what to check: write files, --consistency, or --scheduler URL.")
    found = []
    if consistency:
        check_policy(access)
        found += [f"rebuilt: {each}" for each in _rebuilt(access)]
    if scheduler is not None:
        found += [f"running: {each}" for each in _running(scheduler)]
    for sentence in found:
        print(sentence)
    if found:
        raise CannotError(f"{len(found)} differences between Shoal's world and the API server.")
    print("Shoal's world and the API server agree.")


def _files(files: tuple[Path, ...], access: Access, where: Where, *, against: bool) -> None:
    """Say what is wrong with files with pools and queues, or what they would mean."""
    from shoal.cli.apply import apply_files, failed
    from shoal.objects.files import BadObjectsError, read_objects
    from shoal.texts.meanings import meaning_text
    from shoal.texts.screens import screen_text

    if not files:
        raise UsageError("say what to check; write files or folders with pools and queues.")
    if against and is_socket(where):
        apply_files(files, where, dry_run=True)
        return
    catalog = read_catalog(access)
    try:
        written = read_objects(files, catalog)
        said = _meanings(written, catalog, access) if against else ()
    except BadObjectsError as error:
        raise failed(error.problems) from None
    for each in said:
        print(plain(meaning_text(each, where.language)))
    counts = {"queues": len(written.tree.queues), "pools": len(written.pools)}
    if against and not said:
        print(screen_text("nothing-changes", where.language))
    print(screen_text("would-apply" if against else "well", where.language, **counts))


def _meanings(written: "Written", catalog: "Catalog", access: Access) -> "tuple[Meaning, ...]":
    """What the files mean to a cluster. Raises BadObjectsError."""
    from shoal.kubernetes.picture import look_ahead

    if not access.queues:
        raise UsageError("say what the scheduler keeps to: write its --queues as well.")
    old, accounts = read_written(access.queues, catalog), read_controllers(access.controllers)

    async def ask(client: "Client") -> "tuple[Meaning, ...]":
        return await look_ahead(client, catalog, old, written, accounts)

    return call(access, ask)


def _rebuilt(access: Access) -> list[str]:
    from shoal.kubernetes.picture import compare_once

    catalog = read_catalog(access)

    async def compare(client: "Client") -> list[str]:
        return await compare_once(client, catalog)

    return call(access, compare)


def _running(url: str) -> list[str]:
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--scheduler expects such as http://127.0.0.1:9464, found {url!r}.")
    import msgspec

    try:
        place = f"{url.rstrip('/')}/consistency"
        with urllib.request.urlopen(place, timeout=60) as answer:  # noqa: S310 (checked above)
            return msgspec.json.decode(answer.read(), type=list[str])
    except (urllib.error.URLError, OSError, msgspec.MsgspecError) as error:
        raise CannotError(f"the scheduler at {url} did not answer: {error}.") from None
