"""The first screen of `shoal up`: fleet, queues and the last decisions, drawn from the replica."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shoal.core.decisions import (
    Decision,
    Evict,
    Freeze,
    GiveUp,
    Refuse,
    Reserve,
    Resize,
    Retract,
    Start,
    Wait,
    Warn,
    workloads_of,
)
from shoal.core.world import State, World
from shoal.loop.doors import Doors
from shoal.loop.story import Noted
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.request import DeviceRequest
from shoal.texts.evictions import hours_text, kept_label
from shoal.texts.language import Language
from shoal.texts.screens import screen_text
from shoal.texts.verdicts import reason_label

LEVELS = "▁▂▃▄▅▆▇█"
"""How busy a device that is held is, from idle to full."""

FREE, LOST = "·", "x"
MOST_NODES = 96
"""Nodes drawn; a larger fleet is summed up by accelerator."""

_HEAD_ROWS = 4
_LEAST_QUEUES, _LEAST_DECISIONS = 4, 4


@dataclass(slots=True)
class QueueRow:
    """What a queue has at this moment."""

    running: int = 0
    waiting: int = 0
    devices: float = 0.0
    oldest_us: int | None = None


@dataclass(slots=True)
class View:
    """What is drawn, taken from the replica in one go."""

    now_us: int
    acts: bool
    frozen: Freeze | None = None
    """Why evictions are frozen, if they are."""
    nodes: list[tuple[str, str]] = field(default_factory=list)
    """Name of a node, and a sign for each of its devices."""
    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By accelerator: devices that are held by somebody, and all in working order."""
    queues: dict[str, QueueRow] = field(default_factory=dict)
    decisions: list[Noted] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Namespace and name of the workloads that they name, by uid; of those still known."""


def view_of(doors: Doors) -> View:
    """Take everything that is drawn from the replica."""
    with doors.replica.lock:
        world, story = doors.replica.world, doors.replica.story
        view = View(doors.now_us(), story.acts, story.guard.frozen)
        busy: defaultdict[str, float] = defaultdict(float)
        for use in doors.uses():
            for leaf in use.leaves:
                busy[leaf] += use.compute_pct
        _take_fleet(view, world, busy)
        _take_queues(view, world)
        view.decisions = list(story.noted)[-60:]
        view.names = {
            uid: f"{life.workload.namespace}/{life.workload.name}"
            for noted in view.decisions
            for uid in _uids(noted.decision)
            if (life := story.life(uid)) is not None
        }
        return view


def _uids(decision: Decision) -> tuple[str, ...]:
    """Return the workloads that a line about a decision names."""
    for_ = decision.for_[:1] if isinstance(decision, Evict) else ()
    return workloads_of(decision)[:1] + for_


def _take_fleet(view: View, world: World, busy: dict[str, float]) -> None:
    holders = {
        leaf
        for entry in world.entries.values()
        for held in entry.held.values()
        for leaf in held.leaves
    }
    held: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for node in sorted((each for each in world.fleet.nodes if each), key=lambda each: each.name):
        lost = world.fleet.lost_devices.get(node.name, frozenset())
        signs = ""
        for device in node.devices:
            leaves = [leaf.name for leaf in device.leaves]
            if device.name in lost:
                signs += LOST
                continue
            is_held = any(leaf in holders for leaf in leaves)
            held[device.accelerator][0] += is_held
            held[device.accelerator][1] += 1
            part = sum(busy[leaf] for leaf in leaves) / len(leaves) / 100
            signs += LEVELS[min(len(LEVELS) - 1, int(part * len(LEVELS)))] if is_held else FREE
        if node.devices:
            view.nodes.append((node.name, signs))
    view.held = {name: (some, every) for name, (some, every) in sorted(held.items())}


def _take_queues(view: View, world: World) -> None:
    for entry in world.entries.values():
        row = view.queues.setdefault(entry.workload.queue, QueueRow())
        if entry.state is not State.WAITING:
            row.running += 1
            row.devices += sum(_devices(entry.request_of(pod).devices) for pod in entry.held)
            continue
        row.waiting += 1
        since_us = entry.waits_since_us
        row.oldest_us = min(since_us, row.oldest_us or since_us)
    view.queues = dict(sorted(view.queues.items()))


def _devices(asked: DeviceRequest) -> float:
    """Return how many devices a pod holds; of a share its compute counts."""
    return asked.count * (1.0 if asked.whole else asked.compute_milli / WHOLE_COMPUTE_MILLI)


# Drawing ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """What does not change while the screen is shown."""

    state: str
    speed: str
    language: Language = Language.ENGLISH


def frame(view: View, place: Place, width: int, height: int) -> RenderableType:
    """Draw a view for a terminal of so many columns and rows; nothing is cut off in the middle."""
    fleet, fleet_rows = _fleet(view, width)
    left = height - _HEAD_ROWS - fleet_rows - 4
    queue_rows = min(len(view.queues), max(_LEAST_QUEUES, left - _LEAST_DECISIONS))
    decision_rows = max(1, left - queue_rows - 1)
    return Group(
        _head(view, place, width),
        fleet,
        Text(),
        _queues(view, queue_rows),
        Text(),
        _decisions(view, decision_rows, place.language, width),
    )


def _head(view: View, place: Place, width: int) -> RenderableType:
    held = "   ".join(f"{name} {some}/{every}" for name, (some, every) in view.held.items())
    state = "" if view.acts else "   released: nothing is decided until shoal resume"
    if view.acts and view.frozen is not None:
        why = reason_label(view.frozen.reason, place.language)
        state = f"   {screen_text('frozen', place.language, reason=why)}"
    lines = (
        Text.assemble(
            ("Shoal ", "bold"), f"{clock(view.now_us)}   {place.speed}", (state, "bold red")
        ),
        Text(f"{held} held"),
        Text(f"{place.state}   shoal get workloads, shoal why NAME; Ctrl-C stops", style="dim"),
        Text(),
    )
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Group(*lines)


def _fleet(view: View, width: int) -> tuple[RenderableType, int]:
    """Draw nodes side by side, a sign for each device; return that and how many rows it takes."""
    if not view.nodes or len(view.nodes) > MOST_NODES:
        return Text(f"{len(view.nodes):,} nodes"), 1
    wide = max(len(name) + 1 + len(signs) for name, signs in view.nodes)
    columns = max(1, (width + 3) // (wide + 3))
    rows = -(-len(view.nodes) // columns)
    grid = Table.grid(padding=(0, 3, 0, 0))
    for _ in range(columns):
        grid.add_column(width=wide, no_wrap=True)
    for row in range(rows):
        grid.add_row(*(_node(*each) for each in view.nodes[row::rows]))
    return grid, rows


def _node(name: str, signs: str) -> Text:
    drawn = Text(f"{name} ")
    for sign in signs:
        style = {FREE: "dim", LOST: "bold red"}.get(sign, "green")
        drawn.append(sign, "yellow" if sign == LEVELS[0] else style)
    return drawn


def _queues(view: View, rows: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("QUEUE", no_wrap=True)
    for heading in ("RUNNING", "DEVICES", "WAITING", "LONGEST WAIT"):
        table.add_column(heading, justify="right", no_wrap=True)
    # Where not all fit, those in which somebody waits come first.
    shown = sorted(view.queues.items(), key=lambda item: (-item[1].waiting, item[0]))[:rows]
    for name, row in sorted(shown):
        longest = "-" if row.oldest_us is None else duration(view.now_us - row.oldest_us)
        waiting = Text(str(row.waiting), "yellow" if row.waiting else "")
        table.add_row(name, str(row.running), f"{row.devices:.1f}", waiting, longest)
    return table


def _decisions(view: View, rows: int, language: Language, width: int) -> RenderableType:
    lines = [Text("DECISIONS", "bold")]
    for noted in view.decisions[-rows:][::-1]:
        line = Text(f"{clock(noted.at_us, seconds_only=True)}  ")
        line.append_text(_decision(noted, view.names, language))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return Group(*lines)


def _decision(noted: Noted, names: Mapping[str, str], language: Language) -> Text:
    decision = noted.decision
    named = [names.get(uid, uid) for uid in _uids(decision)]
    match decision:
        case Start():
            nodes = list(dict.fromkeys(each.node for each in decision.placements))
            more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
            return Text.assemble(
                ("start    ", "green"), f"{named[0]}  on {', '.join(nodes[:3])}{more}"
            )
        case Resize():
            nodes = list(dict.fromkeys(each.node for each in decision.placements))
            pods = f"{len(decision.placements)} more pod{'s' * (len(decision.placements) != 1)}"
            return Text.assemble(
                ("grow     ", "green"), f"{named[0]}  {pods} on {', '.join(nodes[:3])}"
            )
        case Retract():
            return Text.assemble(
                ("retract  ", "red"), f"{named[0]}  {decision.node} did not start it"
            )
        case Wait():
            more = f" and {noted.workloads - 1} more" if noted.workloads > 1 else ""
            why = reason_label(decision.reason, language)
            return Text.assemble(("wait     ", "yellow"), f"{named[0]}{more}  {why}")
        case Evict():
            for_ = f"  for {named[1]}" if decision.for_ else ""
            lost = hours_text(decision.lost_device_us)
            why = reason_label(decision.reason, language)
            said = f"{named[0]}{for_}  {why}, at most {lost} device hours lost"
            return Text.assemble(("evict    ", "red"), said)
        case Reserve():
            nodes = list(dict.fromkeys(each.node for each in decision.placements))
            why = kept_label(decision.reason, language)
            said = f"{named[0]}  on {', '.join(nodes[:3])}  {why}"
            return Text.assemble(("keep     ", "yellow"), said)
        case GiveUp():
            why = reason_label(decision.reason, language)
            return Text.assemble(("give up  ", "red"), f"{named[0]}  {why}")
        case Freeze():
            why = reason_label(decision.reason, language)
            return Text.assemble(("freeze   ", "bold red"), f"{why}: shoal resume")
        case Refuse():
            why = reason_label(decision.reason, language)
            return Text.assemble(("refuse   ", "red"), f"{named[0]}  {why}")
        case Warn():
            why = reason_label(decision.reason, language)
            return Text.assemble(("warn     ", "yellow"), f"{decision.queue}  {why}")


def clock(at_us: int, *, seconds_only: bool = False) -> str:
    """Return a time in the zone of whoever looks, with the day of the week unless it is plain."""
    local = datetime.fromtimestamp(at_us // 1_000_000, UTC).astimezone()
    return local.strftime("%H:%M:%S" if seconds_only else "%A %H:%M:%S %Z")


def duration(length_us: int) -> str:
    """Return a length of time in its two largest units."""
    seconds = max(0, length_us // 1_000_000)
    for unit_s, name, lower_s, lower in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {name} {seconds % unit_s // lower_s} {lower}"
    return f"{seconds // 60} m {seconds % 60} s" if seconds >= 60 else f"{seconds} s"
