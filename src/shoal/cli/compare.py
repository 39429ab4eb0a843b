"""`shoal compare`: two outputs of `simulate`, seed by seed."""

import json
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from shoal.cli.errors import UsageError
from shoal.cli.numbers import whole_number


class Pair(NamedTuple):
    """What two policies came to under one seed."""

    seed: int
    first_pct: float
    second_pct: float


class Compared(NamedTuple):
    """Two sets of runs of a workload: means, standard errors, and the paired difference.

    `gap_closed_pct` is how much of the distance from the first mean to the bound the second covers.
    """

    workload: str
    seeds: int
    first_pct: float
    first_error: float
    second_pct: float
    second_error: float
    difference: float
    difference_error: float
    bound_pct: float | None
    gap_closed_pct: float | None


def compare(
    first: Path,
    second: Path,
    /,
    *,
    load: Annotated[int, Parameter(name="--load", converter=whole_number)] = 100,
    policy: Annotated[str | None, Parameter(name="--policy")] = None,
    bounds: Annotated[Path | None, Parameter(name="--bounds")] = None,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
) -> None:
    """Compare the runs in two files that `simulate -o json` wrote, seed by seed.

    Runs are paired by workload and seed; those that only one file has are left out. A positive
    difference means that the second allocates more.

    Parameters
    ----------
    first
        Runs to compare with, one JSON object a line.
    second
        Runs that are compared.
    load
        Arrived load at which allocation is compared, in percent of all devices.
    policy
        Policy of the first file, then of the second, joined by a comma; needed where a file has
        runs of several.
    bounds
        Upper bounds, as `bound -o json` wrote them; says how much of the gap is closed.
    output
        A table for people, or one JSON object for each workload.
    """
    names = [name.strip() for name in policy.split(",")] if policy else [None, None]
    if len(names) != 2:
        raise UsageError(f'--policy expects two names joined by a comma, found "{policy}".')
    one, other = _runs(first, names[0], load), _runs(second, names[1], load)
    upper = _bounds(bounds, load) if bounds else {}
    rows = []
    for workload in dict.fromkeys(name for name, _ in one):
        pairs = [
            Pair(seed, value, other[workload, seed])
            for (name, seed), value in sorted(one.items())
            if name == workload and (workload, seed) in other
        ]
        if pairs:
            rows.append(compared(workload, pairs, upper.get(workload)))
    if not rows:
        raise UsageError(f"{first} and {second} have no run of the same workload and seed.")
    if output == "json":
        for row in rows:
            print(json.dumps(row._asdict(), ensure_ascii=False))
    else:
        _print_table(rows)


def compared(workload: str, pairs: list[Pair], bound_pct: float | None) -> Compared:
    """Return means, standard errors of the mean, and the gap closed; errors of one seed are 0."""
    first, second = [p.first_pct for p in pairs], [p.second_pct for p in pairs]
    differences = [p.second_pct - p.first_pct for p in pairs]
    gap = None
    if bound_pct is not None and bound_pct > fmean(first):
        gap = 100 * fmean(differences) / (bound_pct - fmean(first))
    return Compared(
        workload,
        len(pairs),
        fmean(first),
        _error(first),
        fmean(second),
        _error(second),
        fmean(differences),
        _error(differences),
        bound_pct,
        gap,
    )


def _error(values: list[float]) -> float:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def _runs(path: Path, policy: str | None, load: int) -> dict[tuple[str, int], float]:
    """Return allocation at the load by workload and seed."""
    runs: dict[tuple[str, int], float] = {}
    policies = set()
    for number, line in _objects(path):
        try:
            name, workload, seed = line["policy"], line["workload"], int(line["seed"])
            value = line["allocated_pct"].get(str(load))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UsageError(
                f"{path}, line {number}: expected a run with policy, workload, seed and"
                " allocated_pct, as `simulate -o json` writes it."
            ) from None
        if policy in (None, name) and value is not None:
            policies.add(name)
            if (workload, seed) in runs and len(policies) == 1:
                raise UsageError(f"{path}, line {number}: {workload} has seed {seed} twice.")
            runs[workload, seed] = float(value)
    if len(policies) > 1:
        listed = ", ".join(sorted(policies))
        raise UsageError(f"{path} has runs of {listed}; choose with --policy FIRST,SECOND.")
    if not runs:
        which = f" of {policy}" if policy else ""
        raise UsageError(f"{path} has no run{which} that came to {load} %.")
    return runs


def _bounds(path: Path, load: int) -> dict[str, float]:
    """Return by workload the lower of both bounds, where pods without devices are forced or not."""
    upper = {}
    for number, line in _objects(path):
        try:
            found = [line[key].get(str(load)) for key in ("allocated_pct", "host_pods_forced_pct")]
            upper[line["workload"]] = min(float(each) for each in found if each is not None)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UsageError(
                f"{path}, line {number}: expected bounds at {load} %, as `bound -o json` writes"
                " them."
            ) from None
    return upper


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                found = None
            if not isinstance(found, dict):
                raise UsageError(f"{path}, line {number}: expected a JSON object on one line.")
            yield number, found


def _print_table(rows: list[Compared]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from shoal.cli.bound import console

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("workload")
    for name in ("seeds", "first %", "second %", "difference", "bound", "gap closed"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row.workload,
            str(row.seeds),
            f"{row.first_pct:.2f} ± {row.first_error:.2f}",
            f"{row.second_pct:.2f} ± {row.second_error:.2f}",
            f"{row.difference:+.2f} ± {row.difference_error:.2f}",
            "-" if row.bound_pct is None else f"{row.bound_pct:.2f}",
            "-" if row.gap_closed_pct is None else f"{row.gap_closed_pct:.0f} %",
        )
    console().print(table)
