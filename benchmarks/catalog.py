"""The catalogue's loader: everything that is read and checked before the first decision."""

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.frame import Result, bench

RUNS = 7
_PROGRAM = """
import time
begin = time.perf_counter()
import shoal.catalog.load as load
imported = time.perf_counter()
load.load_catalog()
print(imported - begin, time.perf_counter() - imported)
"""


@bench
def catalogue() -> Iterator[Result]:
    """Loading the whole catalogue in a fresh process: YAML, checks and values; nothing is kept.

    The least of seven runs counts, as whatever disturbs a run only makes it longer. Importing the
    libraries (mostly pydantic) is measured beside it.
    """
    times = []
    for _ in range(RUNS):
        run = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True)
        times.append([1000 * float(seconds) for seconds in run.stdout.split()])
    imports, loads = (min(column) for column in zip(*times, strict=True))
    yield Result("the catalogue's loader, cold", loads, "ms", at_most=100)
    yield Result("the imports of the catalogue's loader", imports, "ms")
