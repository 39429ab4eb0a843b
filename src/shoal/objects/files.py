"""Files with pools and queues; the same serve a cluster and the embedded fleet."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

from shoal.catalog.catalog import Catalog
from shoal.catalog.load.reader import CatalogError, Document, raw_bytes, read_documents
from shoal.model.pool import Pool
from shoal.model.queue import Queue, QueueTree
from shoal.objects import pools as pool_form
from shoal.objects import queues as queue_form
from shoal.objects.budgets import prices_on
from shoal.objects.forms import API_VERSION, Source
from shoal.objects.tree import grow

MOST_FILES: Final = 500
MOST_PROBLEMS: Final = 50

LAST_DAY: Final = date.max
"""Where no day is meant, the rates and prices hold that are the last known, without an end."""


class BadObjectsError(ValueError):
    """What is wrong in files with objects: one line each, with file, line and field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class Written:
    """What people wrote: the pools, in order of their names, and the tenant tree."""

    pools: tuple[Pool, ...] = ()
    tree: QueueTree = field(default_factory=QueueTree)


def read_objects(paths: Iterable[Path], catalog: Catalog, day: date = LAST_DAY) -> Written:
    """Read pools and queues from files, or folders whose `*.yaml` files are read.

    Exchange rates and prices are those of `day`. Raises `BadObjectsError` with every problem found.
    """
    return read_object_texts(object_texts(paths), catalog, day)


def object_texts(paths: Iterable[Path]) -> list[tuple[str, bytes]]:
    """The files, or those of folders, each with its name. Raises `BadObjectsError`."""
    try:
        return [
            (str(file), raw_bytes(file, str(file))) for path in paths for file in files_of(path)
        ]
    except CatalogError as error:
        raise BadObjectsError(error.problems) from None


def read_object_texts(
    texts: Iterable[tuple[str, bytes]], catalog: Catalog, day: date = LAST_DAY
) -> Written:
    """Read pools and queues from texts, each with a name; see `read_objects`."""
    try:
        documents = [each for name, text in texts for each in read_documents(text, name)]
    except CatalogError as error:
        raise BadObjectsError(error.problems) from None
    return read_object_documents(documents, catalog, day)


def read_object_documents(
    documents: Iterable[Document], catalog: Catalog, day: date = LAST_DAY
) -> Written:
    """Read pools and queues from documents; see `read_objects`."""
    problems: list[str] = []
    pools: dict[str, Pool] = {}
    queues: list[tuple[Source, Queue]] = []
    all_read = True
    prices = prices_on(catalog, day)
    for document in documents:
        source = Source(document, problems)
        kind = _kind(source)
        if kind == pool_form.KIND:
            pool = pool_form.read_pool(source)
            if pool is not None and pool.name in pools:
                said = f"the pool {pool.name} is written twice; rename one"
                source.complain(("metadata", "name"), said)
            elif pool is not None:
                pools[pool.name] = pool
        elif kind == queue_form.KIND:
            queue = queue_form.read_queue(source, catalog, prices)
            if queue is not None:
                queues.append((source, queue))
            all_read = all_read and queue is not None
    # A queue that could not be read would make its children orphans; that says nothing new.
    tree = grow(queues, catalog, prices, day) if all_read else QueueTree()
    if problems:
        raise BadObjectsError(_first(problems))
    return Written(tuple(pools[name] for name in sorted(pools)), tree)


def _kind(source: Source) -> str | None:
    data = source.document.data
    kinds = f"{pool_form.KIND} or {queue_form.KIND}"
    if not isinstance(data, dict):
        source.complain((), f"must be an object: write apiVersion, kind ({kinds}), metadata, spec")
        return None
    if data.get("apiVersion") != API_VERSION:
        source.complain(("apiVersion",), f"must be {API_VERSION}")
        return None
    kind = data.get("kind")
    if kind not in (pool_form.KIND, queue_form.KIND):
        source.complain(("kind",), f"must be {kinds}")
        return None
    return str(kind)


def files_of(path: Path) -> list[Path]:
    """A file, or those that are read of a folder. Raises `BadObjectsError`."""
    if not path.is_dir():
        return [path]
    found = sorted((*path.glob("*.yaml"), *path.glob("*.yml")))
    if len(found) > MOST_FILES:
        raise BadObjectsError([f"{path}: has more than {MOST_FILES} files; give fewer"])
    if not found:
        raise BadObjectsError([f"{path}: has no *.yaml file"])
    return found


def _first(problems: list[str]) -> list[str]:
    shown = problems[:MOST_PROBLEMS]
    if len(problems) > MOST_PROBLEMS:
        shown.append(f"... and {len(problems) - MOST_PROBLEMS} more")
    return shown
