"""The catalogue's loader: everything that is read and checked before the first decision."""

import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from benchmarks.frame import Result, bench

RUNS = 7
_PROGRAM = """
import time
import shoal.catalog.load as load
begin = time.perf_counter()
load.load_catalog()
print(time.perf_counter() - begin)
"""


@bench
def catalogue() -> Iterator[Result]:
    """Loading the whole catalogue in a fresh process: YAML, checks and values; nothing is kept."""
    times = [
        float(
            subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True).stdout
        )
        for _ in range(RUNS)
    ]
    yield Result("the catalogue's loader, cold", 1000 * median(times), "ms", at_most=100)
