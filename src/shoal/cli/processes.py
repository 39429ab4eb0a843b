"""What the commands that start a long-lived process have in common."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable

from shoal.cli.errors import UsageError


def address(listen: str) -> tuple[str, int]:
    """Host and port of `--listen`. Raises UsageError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen expects HOST:PORT such as 127.0.0.1:9464, found {listen!r}.")
    return host.strip("[]") or "127.0.0.1", int(port)


def log_json(level: str) -> None:
    """Log JSON lines on standard error."""
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


def run_until_stopped(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` in a loop; SIGTERM and SIGINT set the event that it is given."""

    async def until_stopped() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stop.set)
        await work(stop)

    asyncio.run(until_stopped())
