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

    async def follow(self, take: Callable[[Written], None]) -> None:
        """Hand over what they say whenever they changed, until cancelled."""
        seen = self._read
        while True:
            await asyncio.sleep(EVERY_S)
            before, seen = seen, await asyncio.to_thread(self._state)
            if seen == before and seen != self._read:
                self._read = seen
                await self._take(take)

    async def _take(self, take: Callable[[Written], None]) -> None:
        try:
            written = await asyncio.to_thread(read_objects, self._paths, self._catalog)
        except BadObjectsError as error:
            self.refused = error.problems
            _log.error("files are not taken in; what was before holds", problems=error.problems)
            return
        self.refused = ()
        take(written)

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
