"""What a time on a platform came to, as a page of text."""

from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from shoal.cli.screen import duration
from shoal.core.world import State, World
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, WorkloadType
from shoal.simulation.platform import BegunWith
from shoal.simulation.tally import Tally, capacities, quantile
from shoal.texts.evictions import hours_text

WIDTH = 100


def summary(tally: Tally, world: World, what: BegunWith, begin_us: int, end_us: int) -> str:
    """Return the page."""
    devices = sum(len(node.devices) for node in what.nodes)
    page = StringIO()
    console = Console(file=page, width=WIDTH, highlight=False, markup=False)
    console.print(
        f"{duration(end_us - begin_us)} of {len(what.nodes):,} nodes with {devices:,} devices,"
        f" seed {what.seed}"
    )
    console.print(_work(tally, world))
    console.print(_devices(tally, world))
    reclaimed, preempted = tally.evicted[Reason.RECLAIM], tally.evicted[Reason.PREEMPTION]
    console.print(
        f"evicted: {reclaimed:,} for guarantees, {preempted:,} for higher priority;"
        f" at most {hours_text(tally.lost_device_us)} device hours of work were lost"
    )
    console.print(
        f"failed on the way: {_counted(tally.failures['device'], 'device')} and"
        f" {_counted(tally.failures['node'], 'node')}; the work on them was sent again"
    )
    return page.getvalue().rstrip()


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _work(tally: Tally, world: World) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("type")
    for heading in (
        "came",
        "completed",
        "failed",
        "running",
        "waiting",
        "median wait",
        "90 % wait at most",
    ):
        table.add_column(heading, justify="right")
    for kind in WorkloadType:
        entries = [each for each in world.entries.values() if each.workload.type is kind]
        waiting = sum(each.state is State.WAITING for each in entries)
        waits_us = tally.waits_us[kind]
        table.add_row(
            kind.value,
            f"{tally.came[kind]:,}",
            f"{tally.ended[kind, Outcome.COMPLETED]:,}",
            f"{tally.ended[kind, Outcome.FAILED]:,}",
            f"{len(entries) - waiting:,}",
            f"{waiting:,}",
            duration(quantile(waits_us, 0.5)),
            duration(quantile(waits_us, 0.9)),
        )
    return table


def _devices(tally: Tally, world: World) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("accelerator")
    for heading in ("devices held, mean", "busy, mean"):
        table.add_column(heading, justify="right")
    for accelerator in sorted({name for name, _, _ in capacities(world)}):
        held, used = tally.held(accelerator), tally.used(accelerator)
        table.add_row(accelerator, f"{100 * held:.1f} %", f"{100 * used:.1f} %")
    return table
