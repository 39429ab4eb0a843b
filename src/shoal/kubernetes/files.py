"""Files with pools and queues, read again when they change.

Kubernetes swaps the files of a mounted ConfigMap all at once; other files are read once they have
been left alone for a moment.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from shoal.catalog.catalog import Catalog
from shoal.objects.files import BadObjectsError, Written, files_of, read_objects

_log = structlog.get_logger(__name__)

EVERY_S: Final = 2.0
"""How often the files are looked at. They are read when two looks find the same."""

State = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of change (ns) of each file."""


class Files:
    """Files and folders, and whether what they say now could be taken in."""

    def __init__(self, paths: tuple[Path, ...], catalog: Catalog) -> None:
        """Note how they are now: whoever makes this has read them, or reads them next."""
        self._paths = paths
        self._catalog = catalog
        self._read = self._state()
        self.refused: tuple[str, ...] = ()
        """What is wrong with them; meanwhile what was taken in before holds."""
        self._do_not_suit = False
        """Whether they are well, and were not taken in all the same."""

    async def follow(self, take: Callable[[Written], None]) -> None:
        """Hand over what they say whenever they changed, until cancelled.

        `take` raises `BadObjectsError` where they do not suit the cluster. As that may change
        while they do not, they are handed over again then.
        """
        seen = self._read
        while True:
            await asyncio.sleep(EVERY_S)
            before, seen = seen, await asyncio.to_thread(self._state)
            if seen == before and (seen != self._read or self._do_not_suit):
                self._read = seen
                await self._take(take)

    async def _take(self, take: Callable[[Written], None]) -> None:
        self._do_not_suit = False
        try:
            written = await asyncio.to_thread(read_objects, self._paths, self._catalog)
            self._do_not_suit = True
            take(written)
        except BadObjectsError as error:
            if self.refused != error.problems:
                said = "files are not taken in; what was before holds"
                _log.error(said, problems=error.problems)
            self.refused = error.problems
        else:
            self.refused, self._do_not_suit = (), False

    def _state(self) -> State:
        found = []
        try:
            for path in self._paths:
                for file in files_of(path):
                    status = file.stat()
                    found.append((str(file), status.st_ino, status.st_size, status.st_mtime_ns))
        except (BadObjectsError, OSError):
            return ()
        return tuple(found)
