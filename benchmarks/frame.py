"""What a measurement is, how it is registered, and what a record of it says."""

import importlib
import os
import pkgutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import benchmarks

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results.jsonl"


class NoDataError(Exception):
    """SHOAL_DATA does not name the folder with the published traces."""


@dataclass(frozen=True)
class Result:
    """One measured value.

    Attributes:
        name: what was measured, in a few words; unique among all results.
        value: the measured number, in `unit`.
        unit: of value and target, such as "s", "%", "1/s", "MiB"; empty for a plain number.
        at_most: the target is met when value is not above this.
        at_least: the target is met when value is not below this.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def target(self) -> str | None:
        """The target in words, None where there is none."""
        words = []
        if self.at_least is not None:
            words.append(f"at least {number(self.at_least)}")
        if self.at_most is not None:
            words.append(f"at most {number(self.at_most)}")
        return " and ".join(words) or None

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None where there is none."""
        if self.target is None:
            return None
        low = self.at_least is None or self.value >= self.at_least
        high = self.at_most is None or self.value <= self.at_most
        return low and high


Bench = Callable[[], Iterator[Result]]
_benches: dict[str, Bench] = {}


def bench(function: Bench) -> Bench:
    """Register a measurement under its function's name."""
    name = function.__name__.replace("_", "-")
    if name in _benches:
        raise ValueError(f"two measurements are named {name}; rename one")
    if not function.__doc__:
        raise ValueError(f"the measurement {name} has no docstring; say what it measures")
    _benches[name] = function
    return function


def registered() -> dict[str, Bench]:
    """Every measurement of this package by name, in the order of the names."""
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name != "__main__":
            importlib.import_module(f"benchmarks.{module.name}")
    return dict(sorted(_benches.items()))


def data() -> Path:
    """The folder with the published traces.

    Raises:
        NoDataError: SHOAL_DATA is not set or names no folder.
    """
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        raise NoDataError(
            "set SHOAL_DATA to the folder with the published traces; nothing is measured without it"
        )
    if not Path(folder).is_dir():
        raise NoDataError(f"SHOAL_DATA names {folder}, which is not a folder")
    return Path(folder)


def record(result: Result, name: str, commit: str) -> dict[str, object]:
    """What is written about a result of the measurement `name`, made at `commit`."""
    return {
        "name": result.name,
        "value": result.value,
        "unit": result.unit,
        "target": result.target,
        "met": result.met,
        "how": f"python -m benchmarks {name}",
        "cores": len(os.sched_getaffinity(0)),
        "commit": commit,
    }


def commit() -> str:
    """The commit that is measured, with a plus sign where files of the package differ from it."""
    named = _git("rev-parse", "--short=12", "HEAD").strip()
    changed = _git("status", "--porcelain", "--", "src", "benchmarks", "pyproject.toml")
    ours = [line for line in changed.splitlines() if not line.endswith(RESULTS.name)]
    return f"{named}+" if ours else named


def number(value: float) -> str:
    """A number for people: thousands set apart, four figures kept of a fraction."""
    if value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def peak_mib(pid: int | str = "self") -> float:
    """The most resident memory that a process has had as the program that it runs, in MiB.

    What `getrusage` calls the peak of a process counts from before its program began, and so is
    never below that of the process which started it.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def _git(*arguments: str) -> str:
    answer = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return answer.stdout
