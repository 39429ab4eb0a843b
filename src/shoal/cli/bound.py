"""`shoal bound`: how much of a fleet any scheduler could allocate."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shoal.cli.errors import UsageError
from shoal.cli.simulate import PIPED_WIDTH

if TYPE_CHECKING:
    from rich.console import Console

    from shoal.bounds.upper import Bounds


def bound(
    *,
    nodes: Annotated[Path, Parameter(name="--nodes")],
    pods: Annotated[list[Path], Parameter(name="--pods", consume_multiple=True)],
    loads: Annotated[str, Parameter(name="--loads")] = "100,130",
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
) -> None:
    """Say how much of a fleet any scheduler could allocate, by linear programming.

    The bounds hold for every scheduler, one that moves running pods included. Values are in percent
    of all devices.

    Parameters
    ----------
    nodes
        List of nodes, as `simulate` takes it.
    pods
        Lists of pods, one for each workload; how often a request occurs in it is the demand.
    loads
        Devices asked for, in percent of all, joined by commas.
    output
        A table for people, or one JSON object for each workload.
    """
    from shoal.bounds.upper import upper_bounds
    from shoal.core.demand import TaskClass, merged
    from shoal.simulation.readers import read_trace
    from shoal.simulation.source import BadInputError

    wanted = parse_loads(loads)
    rows = []
    for path in pods:
        try:
            trace = read_trace(nodes, path)
        except BadInputError as error:
            raise UsageError(str(error)) from None
        classes = merged(TaskClass(pod.request, 1) for pod in trace.pods)
        try:
            found = upper_bounds(trace.nodes, classes, wanted)
        except ValueError as error:
            raise UsageError(str(error)) from None
        rows.append((trace.workload, found))
    for workload, found in rows if output == "json" else ():
        print(as_json(workload, found))
    if output == "table":
        _print_table(wanted, rows)


def parse_loads(text: str) -> list[int]:
    """Return the loads that `text` lists, in percent. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 4 and int(part) > 0 for part in parts):
        raise UsageError(
            "--loads expects whole numbers from 1 to 9999 joined by commas, such as 100,130,"
            f' found "{text}".'
        )
    return list(dict.fromkeys(int(part) for part in parts))


def as_json(workload: str, found: "Bounds") -> str:
    """Return the bounds of a workload as one JSON object on one line; loads are keys."""
    return json.dumps(
        {
            "workload": workload,
            "allocated_pct": _rounded(found.allocated_pct),
            "host_pods_forced_pct": _rounded(found.host_pods_forced_pct),
            "no_failure_pct": round(found.no_failure_pct, 4),
        },
        ensure_ascii=False,
    )


def _rounded(values: Mapping[int, float | None]) -> dict[str, float | None]:
    return {str(load): None if x is None else round(x, 4) for load, x in values.items()}


def _print_table(loads: Sequence[int], rows: "Sequence[tuple[str, Bounds]]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("workload")
    for load in loads:
        table.add_column(f"at {load} %", justify="right")
        table.add_column("host pods forced", justify="right")
    table.add_column("without failure up to", justify="right")
    for workload, found in rows:
        cells = []
        for load in loads:
            forced = found.host_pods_forced_pct[load]
            cells.append(f"{found.allocated_pct[load]:.2f}")
            cells.append("do not fit" if forced is None else f"{forced:.2f}")
        table.add_row(workload, *cells, f"{found.no_failure_pct:.2f}")
    console().print(table)


def console() -> "Console":
    """Return where tables go: the terminal, or a wide page for a file or another program."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)
