"""Lines out of a stream of pieces.

A watch event may be megabytes long, more than the line readers of HTTP libraries take.
"""

from collections.abc import AsyncIterator
from typing import Final

from shoal.kubernetes.api.errors import WireError

MAX_LINE_BYTES: Final = 64 << 20
"""Far above what etcd can store in one object (1.5 MiB by default): more is no watch event."""


async def split_lines(
    pieces: AsyncIterator[bytes], limit_bytes: int = MAX_LINE_BYTES
) -> AsyncIterator[bytes]:
    r"""The lines of a stream without their `\n`; empty ones are skipped.

    An unfinished last line is dropped: the stream broke there, and whoever resumes gets it whole.
    Takes time linear in the bytes, however small the pieces. Raises WireError for a line longer
    than `limit_bytes`.
    """
    parts: list[bytes] = []
    size = 0
    async for piece in pieces:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            line = piece[start:end]
            if parts:
                parts.append(line)
                line = b"".join(parts)
                parts.clear()
                size = 0
            if line:
                yield line
            start = end + 1
        if start < len(piece):
            parts.append(piece[start:])
            size += len(piece) - start
            if size > limit_bytes:
                raise WireError(f"a line of a watch is longer than {limit_bytes} bytes")
