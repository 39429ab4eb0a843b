"""The report of runs: pictures and a page that need no network."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from shoal.simulation.chart import Chart, Line, nice_limit, svg
from shoal.simulation.curve import Curves
from shoal.simulation.inflation import LOAD_PCT
from shoal.simulation.results import Run, Spread, by_policy, latest, seeds_text, spread
from shoal.simulation.trace import Trace
from shoal.texts.verdicts import reason_label

PAGE = "index.html"
TABLE_LOADS = (80, 90, 95, 100, 130)

_PARTED_POINTS = 2
"""Policies have parted where their means lie this many points apart."""

Pick = Callable[[Curves], Mapping[int, float]]


def report_files(trace: Trace, runs: Sequence[Run]) -> dict[str, str]:
    """Return the files of the report by name: three pictures and the page that shows them."""
    charts = {
        "allocation.svg": svg(_allocation(runs)),
        "fragmentation.svg": svg(_fragmentation(runs)),
        "failures.svg": svg(_failures(runs)),
    }
    return {**charts, PAGE: _page(trace, runs, list(charts.values()))}


def check_folder(folder: Path) -> None:
    """See that a report can be written into `folder`, and make it with its parents.

    Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"no permission to write into {folder}")


def write_report(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` into `folder`, each of them whole or not at all, the page last.

    Raises OSError; `folder` then has no half-written file.
    """
    draft = Path(tempfile.mkdtemp(dir=folder, prefix=".report-"))
    try:
        for name, content in files.items():
            (draft / name).write_text(content, encoding="utf-8")
        for name in files:
            (draft / name).replace(folder / name)
    finally:
        shutil.rmtree(draft)


def _allocation(runs: Sequence[Run]) -> Chart:
    lines = _lines(runs, lambda curves: curves.allocated_pct)
    parted = _parted(lines)
    start = max(0, min(parted, 100) // 10 * 10 - 10)
    end = LOAD_PCT
    return Chart(
        title="Allocated",
        note=f"Percent of all devices; mean of {_seeds(runs)}, band from least to most",
        x_title="arrived demand, percent of all devices",
        lines=lines,
        x_from=start,
        x_to=end,
        y_from=start,
        y_to=100,
        unit=" %",
        ideal={load: float(min(load, 100)) for load in range(start, end + 1)},
        ideal_label="all that fits",
    )


def _fragmentation(runs: Sequence[Run]) -> Chart:
    lines = _lines(runs, lambda curves: curves.fragmented_pct)
    return Chart(
        title="Fragmented",
        note="Free, but of no use to the typical pod; percent of all devices",
        x_title="arrived demand, percent of all devices",
        lines=lines,
        x_from=0,
        x_to=LOAD_PCT,
        y_from=0,
        y_to=nice_limit(_highest(lines)),
        unit=" %",
    )


def _failures(runs: Sequence[Run]) -> Chart:
    lines = _lines(runs, lambda curves: curves.failed)
    start = max(0, min(_first_failure(lines), 100) // 10 * 10 - 10)
    return Chart(
        title="Failed pods",
        note="Pods that found no place when they arrived; they are not tried again",
        x_title="arrived demand, percent of all devices",
        lines=lines,
        x_from=start,
        x_to=LOAD_PCT,
        y_from=0,
        y_to=nice_limit(_highest(lines)),
    )


def _lines(runs: Sequence[Run], pick: Pick) -> list[Line]:
    lines = []
    for policy, own in by_policy(runs).items():
        curves = [pick(run.curves) for run in own]
        points: dict[int, Spread] = {}
        for load in range(LOAD_PCT + 1):
            point = spread(curves, load)
            if point is not None:
                points[load] = point
        lines.append(
            Line(
                policy,
                {load: point.mean for load, point in points.items()},
                {load: point.least for load, point in points.items()},
                {load: point.most for load, point in points.items()},
            )
        )
    return lines


def _parted(lines: Sequence[Line]) -> int:
    """Return the first load at which the means lie apart, or one lies below what arrived."""
    for load in range(LOAD_PCT + 1):
        means = [mean for line in lines if (mean := latest(line.values, load)) is not None]
        if means and max(*means, float(min(load, 100))) - min(means) > _PARTED_POINTS:
            return load
    return LOAD_PCT


def _first_failure(lines: Sequence[Line]) -> int:
    loads = (load for line in lines for load, count in line.highest.items() if count > 0)
    return min(loads, default=LOAD_PCT)


def _highest(lines: Sequence[Line]) -> float:
    return max((value for line in lines for value in line.highest.values()), default=0.0)


def _seeds(runs: Sequence[Run]) -> str:
    seeds = {run.seed for run in runs}
    return f"seed {seeds_text(seeds)}" if len(seeds) == 1 else f"seeds {seeds_text(seeds)}"


_PAGE_STYLE = """
  :root { color-scheme: light dark; --ink: #1b1f24; --faint: #59636e; --paper: #f6f7f9;
          --card: #ffffff; --rule: #dde1e6 }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e8ebee; --faint: #a3adb8; --paper: #0d1014; --card: #14181d; --rule: #2b323a }
  }
  body { margin: 0 auto; max-width: 880px; padding: 32px 20px 64px; background: var(--paper);
         color: var(--ink); font: 15px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif }
  h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 18px; margin: 36px 0 8px }
  p { margin: 0 0 12px; max-width: 70ch } .faint { color: var(--faint); max-width: none }
  figure { margin: 20px 0; border: 1px solid var(--rule); border-radius: 8px; overflow: hidden }
  figure svg { display: block; width: 100%; height: auto }
  .wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 8px;
          background: var(--card) }
  table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
  th, td { padding: 7px 12px; text-align: right; white-space: nowrap }
  th { color: var(--faint); font-weight: 500 } td small { color: var(--faint) }
  th:first-child, td:first-child { text-align: left } td:first-child { font-weight: 600 }
  tbody tr { border-top: 1px solid var(--rule) }
"""


def _page(trace: Trace, runs: Sequence[Run], charts: Sequence[str]) -> str:
    devices = sum(len(node.devices) for node in trace.nodes)
    title = "How much of the fleet each policy fills"
    arrived = max(run.curves.arrived[max(run.curves.arrived)] for run in runs)
    figures = "\n".join(f"<figure>\n{chart}</figure>" for chart in charts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_PAGE_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p class="faint">workload {escape(trace.workload)} · {len(trace.nodes):,} nodes ·
{devices:,} devices · {len(trace.pods):,} pods in the trace · up to {arrived:,} arrivals ·
{escape(_seeds(runs))}</p>
<p>Pods of the trace arrive one by one, in random order, until they have asked for {LOAD_PCT} % of
all devices. None leaves; one that finds no place has failed and is not tried again.</p>
{_allocation_table(runs)}
{figures}
{_lacked_table(runs)}
</body>
</html>
"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; `head` is text, the cells of `rows` are HTML."""
    cells = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "\n".join(f"<tr>{''.join(f'<td>{each}</td>' for each in row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{cells}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _allocation_table(runs: Sequence[Run]) -> str:
    rows = []
    for policy, own in by_policy(runs).items():
        row = [escape(policy)]
        for load in TABLE_LOADS:
            point = spread([run.curves.allocated_pct for run in own], load)
            row.append(_measured(point, 2))
        row.append(_measured(spread([run.curves.failed for run in own], 100), 0))
        rows.append(row)
    head = ["policy", *(f"at {load} %" for load in TABLE_LOADS), "failed pods at 100 %"]
    return "<h2>Allocated, in percent of all devices, when so much had arrived</h2>\n" + _table(
        head, rows
    )


def _measured(point: Spread | None, decimals: int) -> str:
    if point is None:
        return "-"
    several = point.least != point.most
    deviation = f" <small>± {point.deviation:,.{decimals}f}</small>" if several else ""
    return f"{point.mean:,.{decimals}f}{deviation}"


def _lacked_table(runs: Sequence[Run]) -> str:
    policies = by_policy(runs)
    reasons = sorted({reason for run in runs for reason in run.lacked})
    if not reasons:
        return "<h2>Every pod found a place</h2>"
    rows = []
    for policy, own in policies.items():
        row = [escape(policy)]
        for reason in reasons:
            mean = sum(run.lacked.get(reason, 0) for run in own) / len(own)
            row.append(f"{mean:,.0f}")
        rows.append(row)
    head = ["policy", *(reason_label(reason) for reason in reasons)]
    return (
        "<h2>What failed pods lacked on the nodes that came closest</h2>\n"
        '<p class="faint">Pods until the end of a run; mean over the seeds.</p>\n'
        + _table(head, rows)
    )
