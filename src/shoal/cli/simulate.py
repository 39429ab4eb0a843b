"""`shoal simulate`: a trace under several policies and seeds, in virtual time."""

import csv
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shoal.cli.errors import CannotError, UsageError
from shoal.cli.numbers import whole_number

if TYPE_CHECKING:
    from shoal.simulation.results import Run, Spread
    from shoal.simulation.trace import Trace

MOST_RUNS = 10_000
LARGEST_SEED = 2**63 - 1
TABLE_LOADS = (80, 90, 95, 100, 130)
PIPED_WIDTH = 200
"""Columns of a table that goes to a file or another program, wide enough to cut nothing."""

WIDTH_WITH_DEVIATIONS = 110

_SEEDS = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")


def simulate(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    nodes: Annotated[Path, Parameter(name="--nodes")],
    pods: Annotated[Path, Parameter(name="--pods")],
    policy: Annotated[str, Parameter(name="--policy")],
    seeds: Annotated[str, Parameter(name="--seeds")] = "42",
    demand: Annotated[Literal["given", "learned"], Parameter(name="--demand")] = "given",
    moves: Annotated[int, Parameter(name="--moves", converter=whole_number)] = 0,
    output: Annotated[
        Literal["table", "json", "csv"], Parameter(name=["--output", "-o"])
    ] = "table",
    report: Annotated[Path | None, Parameter(name="--report")] = None,
    processes: Annotated[int | None, Parameter(name="--processes", converter=whole_number)] = None,
) -> None:
    """Fill a fleet with a trace's pods under several policies, and compare them.

    Pods of the trace arrive one by one, in random order, until they have asked for 130 % of all
    devices. None leaves; one that finds no place has failed and is not tried again.

    Parameters
    ----------
    nodes
        List of nodes: CSV of openb's form or of Shoal's own, or YAML.
    pods
        List of pods, likewise. Its name is the workload's.
    policy
        Placement policies, joined by commas: fragmentation, random, dot-product, clustering,
        packing, best-fit, fgd, pack, spread.
    seeds
        Seeds of the runs, such as 42-51 or 1,2,7. The same seed gives the same run anywhere.
    demand
        Whether the policy fragmentation is given the demand of the trace, as fgd always is, or
        learns it from the arrivals.
    moves
        For a pod that fits nowhere, running pods may be moved: so many in a hundred of those that
        run, at most.
    output
        A table for people, one JSON object for each run, or CSV.
    report
        Folder for pictures and a page (index.html) that need no network.
    processes
        Runs at the same time; as many as there are processors if not given.
    """
    from shoal.simulation.parallel import Job, WorkerLostError, run_all
    from shoal.simulation.readers import read_trace
    from shoal.simulation.source import BadInputError

    policies = parse_policies(policy)
    chosen = parse_seeds(seeds)
    if not 0 <= moves <= 100:
        raise UsageError(f"--moves expects a whole number from 0 to 100, found {moves}.")
    learned = demand == "learned"
    jobs = [Job(name, seed, learned, moves) for name in policies for seed in chosen]
    if len(jobs) > MOST_RUNS:
        raise UsageError(f"--policy and --seeds ask for {len(jobs)} runs; {MOST_RUNS} is the most.")
    if processes is not None and processes < 1:
        raise UsageError(f"--processes expects a whole number from 1, found {processes}.")
    try:
        trace = read_trace(nodes, pods)
    except BadInputError as error:
        raise UsageError(str(error)) from None
    _prepare(report)
    try:
        with _progress(len(jobs)) as advance:
            runs = run_all(trace, jobs, processes or _processors(), advance)
    except WorkerLostError as error:
        raise CannotError(str(error)) from None
    _write(output, trace, runs)
    _report(report, trace, runs)


def parse_policies(text: str) -> list[str]:
    """Return the policies that `text` names, joined by commas. Raises UsageError."""
    from shoal.core.policies import POLICIES

    names = [name.strip() for name in text.split(",")]
    for i, name in enumerate(names):
        if name not in POLICIES:
            known = ", ".join(POLICIES)
            raise UsageError(f'--policy expects names out of {known}, found "{name}".')
        if name in names[:i]:
            raise UsageError(f'--policy names "{name}" twice.')
    return names


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that `text` lists, such as `42-51` or `1,2,7-9`. Raises UsageError."""
    seeds: list[int] = []
    for part in text.split(","):
        match = _SEEDS.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if not first <= last <= LARGEST_SEED or last - first >= MOST_RUNS:
            raise UsageError(
                "--seeds expects whole numbers and ranges joined by commas, such as 42-51 or 1,2,7,"
                f' found "{text}".'
            )
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise UsageError(f'--seeds lists a seed twice, found "{text}".')
    return seeds


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _prepare(report: Path | None) -> None:
    """See before the long work that its result can be written."""
    from shoal.simulation.report import check_folder

    if report is not None:
        try:
            check_folder(report)
        except OSError as error:
            raise UsageError(f"--report {report}: {error.strerror or error}.") from None


def _report(report: Path | None, trace: "Trace", runs: "Sequence[Run]") -> None:
    from shoal.simulation.report import PAGE, report_files, write_report

    if report is None:
        return
    try:
        write_report(report, report_files(trace, runs))
    except OSError as error:
        raise CannotError(f"--report {report}: {error.strerror or error}.") from None
    print(f"report: {report / PAGE}", file=sys.stderr)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error while runs are made, if a person looks at it."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda: bar.advance(task)


def _write(output: str, trace: "Trace", runs: "Sequence[Run]") -> None:
    from shoal.simulation.results import CSV_COLUMNS, as_json, csv_rows

    if output == "json":
        for run in runs:
            print(as_json(run))
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for run in runs:
            writer.writerows(csv_rows(run))
    else:
        _print_table(trace, runs)


def _print_table(trace: "Trace", runs: "Sequence[Run]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from shoal.simulation.results import by_policy, seeds_text, spread

    console = Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)
    deviations = console.width >= WIDTH_WITH_DEVIATIONS
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for load in TABLE_LOADS:
        table.add_column(f"{load} %", justify="right")
    table.add_column("failed", justify="right")
    table.add_column("seconds", justify="right")
    for policy, own in by_policy(runs).items():
        points = [spread([run.curves.allocated_pct for run in own], x) for x in TABLE_LOADS]
        cells = [_cell(point, 2, deviations=deviations) for point in points]
        failed = spread([run.curves.failed for run in own], 100)
        seconds = sum(run.seconds for run in own) / len(own)
        failed_cell = _cell(failed, 0, deviations=deviations)
        table.add_row(policy, *cells, failed_cell, f"{seconds:.1f}")
    devices = sum(len(node.devices) for node in trace.nodes)
    seeds = {run.seed for run in runs}
    console.print(
        f"{trace.workload}: {len(trace.nodes):,} nodes, {devices:,} devices,"
        f" {'seed' if len(seeds) == 1 else 'mean of seeds'} {seeds_text(seeds)}\n"
        "Percent of devices allocated when so much was asked for; failed pods at 100 %",
        highlight=False,
        markup=False,
    )
    console.print(table)


def _cell(point: "Spread | None", decimals: int, *, deviations: bool) -> str:
    if point is None:
        return "-"
    shown = deviations and point.least != point.most
    deviation = f" ± {point.deviation:.{decimals}f}" if shown else ""
    return f"{point.mean:,.{decimals}f}{deviation}"
