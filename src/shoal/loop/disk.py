"""The few things that a recording does to a disk, in one place, so that tests can break each."""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO


class LockedError(Exception):
    """Another process writes this recording."""


class Disk:
    """Files that are only ever appended to, and that appear whole under their names."""

    def lock(self, path: Path) -> BinaryIO:
        """Take a lock that lasts until the file is closed or the process ends.

        Raises `LockedError` where another process has it.
        """
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise LockedError(str(path)) from None
        return file

    def create(self, path: Path) -> BinaryIO:
        """Make an empty file, in the place of one that may be there."""
        return path.open("wb", buffering=0)

    def append(self, file: BinaryIO, data: bytes) -> None:
        """Write all of `data` at the end of a file."""
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]

    def sync(self, file: BinaryIO) -> None:
        """Return when what was appended survives the end of the machine's power."""
        os.fsync(file.fileno())

    def publish(self, path: Path, name: str) -> None:
        """Give a synced file its name, so that it is there whole or not at all."""
        final = path.with_name(name)
        path.replace(final)
        folder = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, path: Path) -> None:
        """Remove a file that may be gone already."""
        path.unlink(missing_ok=True)


class FastDisk(Disk):
    """For runs whose recording need not survive the end of the machine's power."""

    def sync(self, file: BinaryIO) -> None:
        """Return at once."""
