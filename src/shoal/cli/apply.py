"""`shoal apply`: pools and queues of files, to a running `shoal up`, all at once."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shoal.cli.client import Api, ApiError, Json
from shoal.cli.errors import UsageError
from shoal.cli.output import plain
from shoal.cli.where import DEFAULT_WHERE, Where, socket_of
from shoal.texts.screens import screen_text


def apply(
    *files: Path,
    file: Annotated[list[Path] | None, Parameter(name=["--filename", "-f"], negative="")] = None,
    dry_run: Annotated[bool, Parameter(name="--dry-run", negative="")] = False,
    where: Where = DEFAULT_WHERE,
) -> None:
    """Have a running shoal up keep to the pools and queues of these files, and no others.

    They are read strictly and count all at once, or not at all. Says what they mean: what is
    granted to whom, which queues close, and the debts that come of it.

    Parameters
    ----------
    files
        Files or folders with all pools and queues that there are to be.
    file
        The same, as kubectl takes it.
    dry_run
        Only say what they would mean.
    """
    paths = [*files, *(file or ())]
    if not paths:
        raise UsageError("nothing to apply; write files or folders with pools and queues.")
    apply_files(paths, where, dry_run=dry_run)


def apply_files(paths: Sequence[Path], where: Where, *, dry_run: bool) -> None:
    """Send files to a platform, and print what they mean to it."""
    path = socket_of(where, "change the files that shoal scheduler --queues reads")
    body: Json = {
        "files": [{"name": name, "text": text} for name, text in texts_of(paths)],
        "dry_run": dry_run,
    }
    try:
        answer = Api(path, where.language.value).post("/objects", body)
    except ApiError as error:
        if error.parts:
            raise failed([part["message"] for part in error.parts]) from None
        raise error.as_command_error() from None
    for each in answer["meanings"]:
        print(plain(each["text"]))
    if not answer["meanings"]:
        print(screen_text("nothing-changes", where.language))
    counts = {key: answer[key] for key in ("queues", "pools")}
    print(screen_text("would-apply" if dry_run else "applied", where.language, **counts))


def texts_of(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """The texts of files and folders, each with its name. Raises UsageError."""
    from shoal.objects.files import BadObjectsError, object_texts

    try:
        raw = object_texts(paths)
    except BadObjectsError as error:
        raise failed(error.problems) from None
    texts = []
    for name, data in raw:
        try:
            texts.append((name, data.decode()))
        except UnicodeDecodeError:
            raise UsageError(f"{name} is not UTF-8; save it as UTF-8.") from None
    return texts


def failed(problems: Sequence[str]) -> UsageError:
    """Print each problem, and return what the command ends with."""
    for problem in problems:
        print(plain(problem), file=sys.stderr)
    count = len(problems)
    return UsageError(f"{count} problem{'s' * (count != 1)} in the files.")
