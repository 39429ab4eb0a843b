"""The command line against a running platform: how long a person waits for an answer."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.frame import Result, bench

SHOAL = str(Path(sys.executable).with_name("shoal"))
TIMES = 21
BEGIN_S = 60.0


@bench
def cli_start() -> Iterator[Result]:
    """From `shoal get nodes` to its answer from a running platform; medians of 21."""
    with _platform() as environment:
        command = [SHOAL, "get", "nodes"]
        walls, processors = [], []
        for _ in range(TIMES):
            before, began = os.times(), time.perf_counter()
            subprocess.run(command, env=environment, check=True, capture_output=True)
            after = os.times()
            walls.append(time.perf_counter() - began)
            used = after.children_user + after.children_system
            processors.append(used - before.children_user - before.children_system)
    yield Result("shoal get, until it has answered", median(walls), "s", at_most=0.25)
    yield Result("shoal get, processor time", median(processors), "s")


@contextmanager
def _platform() -> Iterator[dict[str, str]]:
    """A running platform; yields the environment in which commands find it."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        socket = Path(folder) / "run" / "shoal.sock"
        environment = {**os.environ, "SHOAL_SOCKET": str(socket)}
        command = [SHOAL, "up", "--no-screen", "--state", f"{folder}/state"]
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                until = time.monotonic() + BEGIN_S
                while not socket.exists() and time.monotonic() < until:
                    time.sleep(0.05)
                yield environment
            finally:
                process.terminate()
