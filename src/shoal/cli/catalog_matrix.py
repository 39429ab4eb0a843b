"""The compatibility matrix as Markdown, as a page and as JSON."""

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from shoal.catalog.catalog import Catalog
from shoal.catalog.matrix import Cell, Change, Row
from shoal.catalog.realisation import Promise, Realisation

_HEADS: Final = ("mode", "offered", "memory", "compute", "fault", "tenants", "idle to switch", "by")
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --yes: #1a7f37; --some: #9a6700;
  --no: #666 }
@media (prefers-color-scheme: dark) { :root { --yes: #3fb950; --some: #d29922; --no: #999 } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 2rem }
th, td { border: 1px solid var(--line); padding: .4rem .6rem; text-align: left;
  vertical-align: top }
th { font-weight: 600 } th[scope=row] { white-space: nowrap }
div { overflow-x: auto } table { min-width: 56rem }
.guaranteed { color: var(--yes); font-weight: 600 } .best-effort { color: var(--some) }
.none, .reason { color: var(--no) } .reason { font-size: 13px }
"""


def as_markdown(
    catalog: Catalog, rows: Sequence[Row], changes: Sequence[str], found: Sequence[Change] | None
) -> str:
    """The matrix with a section for each group of nodes."""
    out = ["# What this fleet can offer", ""]
    for row in rows:
        out += [f"## {_text(row.group.name)}", "", _text(_summary(row)), ""]
        out += [f"| {' | '.join(_HEADS)} |", "|" + " --- |" * len(_HEADS)]
        for cell in row.cells:
            for cells in _cells(row, cell):
                out.append("| " + " | ".join(_text(part) for part in cells) + " |")
        out.append("")
    if found is not None:
        out += [f"## With {_text(', '.join(changes))}", ""]
        out += [f"- {_text(line)}" for line in _differences(found)]
        out.append("")
    out += ["## What is not planned", ""]
    out += [f"- {_text(thing.what)}. {_text(thing.reason)}" for thing in catalog.unsupported]
    return "\n".join(out)


def as_html(
    catalog: Catalog, rows: Sequence[Row], changes: Sequence[str], found: Sequence[Change] | None
) -> str:
    """The matrix as one page that needs no network and runs no script."""
    out = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>What this fleet can offer</title><style>{_STYLE}</style></head><body>",
        "<h1>What this fleet can offer</h1>",
    ]
    for row in rows:
        out.append(f"<h2>{escape(row.group.name)}</h2><p>{escape(_summary(row))}</p>")
        out.append("<div><table><thead><tr>")
        out += [f'<th scope="col">{head}</th>' for head in _HEADS]
        out.append("</tr></thead><tbody>")
        for cell in row.cells:
            out += [_html_row(cells) for cells in _cells(row, cell)]
        out.append("</tbody></table></div>")
    if found is not None:
        out.append(f"<h2>With {escape(', '.join(changes))}</h2><ul>")
        out += [f"<li>{escape(line)}</li>" for line in _differences(found)]
        out.append("</ul>")
    out.append("<h2>What is not planned</h2>")
    out += [
        f"<p><b>{escape(thing.what)}.</b> {escape(thing.reason)}</p>"
        for thing in catalog.unsupported
    ]
    out.append("</body></html>")
    return "\n".join(out)


def as_json(
    rows: Sequence[Row], changes: Sequence[str], found: Sequence[Change] | None
) -> dict[str, Any]:
    """The matrix as plain data."""
    result: dict[str, Any] = {
        "groups": [
            {
                "name": row.group.name,
                "nodes": row.group.nodes,
                "devices": row.group.devices,
                "accelerator": row.group.accelerator.name,
                "modes": {
                    cell.mode.name: {
                        "realisable": bool(cell.working),
                        "ways": [_json_answer(answer) for answer in cell.answers],
                    }
                    for cell in row.cells
                },
            }
            for row in rows
        ]
    }
    if found is not None:
        result["with"] = list(changes)
        result["changes"] = [
            {
                "group": change.group,
                "mode": change.mode.name,
                "before": _json_answer(change.before) if change.before else None,
                "after": _json_answer(change.after) if change.after else None,
            }
            for change in found
        ]
    return result


def _json_answer(answer: Realisation) -> dict[str, Any]:
    way = answer.way
    return {
        "way": way.name,
        "channel": way.channel.word,
        "realisable": answer.realisable,
        "never": answer.never,
        "obstacles": list(answer.obstacles),
        "unknown": list(answer.unknown),
        "memory": _json_promise(way.memory),
        "compute": _json_promise(way.compute),
        "fault": _json_promise(way.fault),
        "tenants": answer.tenants,
        "share": (
            {
                "memory_mib": answer.share.memory_mib,
                "compute_percent": answer.share.compute_percent,
            }
            if answer.share
            else None
        ),
        "one_share_per_pod": way.single,
        "cap_per_process": way.per_process,
        "idle_to_switch": way.idle.name.lower(),
        "cautions": list(way.cautions),
        "sources": list(way.sources),
    }


def _json_promise(promise: Promise) -> dict[str, str]:
    return {"level": promise.level.word, "strength": promise.strength.word}


def _summary(row: Row) -> str:
    group = row.group
    site = group.site
    software = [
        f"{label} {value}"
        for label, value in (
            ("driver", site.driver),
            ("kernel", site.kernel),
            ("Kubernetes", site.kubernetes),
            ("cgroup", site.cgroup),
        )
        if value is not None
    ]
    software += [
        f"{name} {part.version}" if part.version else name for name, part in site.components.items()
    ]
    doubt = "" if group.certain else " (by labels alone, so not certain)"
    return (
        f"{group.nodes} nodes, each with {group.devices} {group.accelerator.name}{doubt}; "
        f"{', '.join(software) or 'nothing known of the software'}"
    )


def _cells(row: Row, cell: Cell) -> list[tuple[str, ...]]:
    """The lines of one mode: one for each way that works, or one that says why none does."""
    lines: list[tuple[str, ...]] = []
    for answer in cell.working:
        way = answer.way
        tenants = "any number" if answer.tenants is None else f"up to {answer.tenants}"
        if answer.share is not None:
            memory = answer.share.memory_mib
            part = "" if memory is None else f"{memory} MiB and "
            tenants += f", {part}{answer.share.compute_percent} % each"
        lines.append(
            (
                cell.mode.name,
                "yes",
                str(way.memory),
                str(way.compute),
                str(way.fault),
                tenants,
                way.idle.value,
                f"{way.name}{_only(row, answer)}",
            )
        )
    if lines:
        return lines
    nearest = cell.nearest
    reason = "no way for this vendor" if nearest is None else _reason(nearest)
    by = "" if nearest is None or nearest.never else f"nearest: {nearest.way.name}"
    return [(cell.mode.name, f"no: {reason}", *[""] * (len(_HEADS) - 3), by)]


def _only(row: Row, answer: Realisation) -> str:
    """The profiles that a way speaks about, where it does not speak about all."""
    way = answer.way
    if not way.profile_attribute:
        return ""
    return f" ({', '.join(profile.name for profile in way.profiles(row.group.accelerator))})"


def _reason(answer: Realisation) -> str:
    return "; ".join((*answer.obstacles, *answer.unknown))


def _differences(found: Sequence[Change]) -> list[str]:
    if not found:
        return ["nothing changes"]
    lines = []
    for change in found:
        if change.before is None and change.after is not None:
            way = change.after.way
            gain = f"memory {way.memory}, compute {way.compute}, fault {way.fault}"
            lines.append(f"{change.group}: {change.mode.name} becomes possible ({gain})")
        elif change.after is None:
            lines.append(f"{change.group}: {change.mode.name} is no longer possible")
        elif change.before is not None:
            lines.append(
                f"{change.group}: {change.mode.name} changes from "
                f"{_brief(change.before)} to {_brief(change.after)}"
            )
    return lines


def _brief(answer: Realisation) -> str:
    way = answer.way
    tenants = "any number of" if answer.tenants is None else f"up to {answer.tenants}"
    return f"memory {way.memory}, compute {way.compute}, fault {way.fault}, {tenants} tenants"


def _html_row(cells: tuple[str, ...]) -> str:
    mode, offered, *promises, tenants, idle, way = cells
    parts = [f'<th scope="row">{escape(mode)}</th>']
    if offered != "yes":
        parts.append(f'<td class="reason" colspan="{len(cells) - 2}">{escape(offered)}</td>')
        return f"<tr>{''.join(parts)}<td>{escape(way)}</td></tr>"
    parts.append(f'<td class="guaranteed">{escape(offered)}</td>')
    for promise in promises:
        word = promise.partition(" (")[0].replace(" ", "-")
        parts.append(f'<td class="{escape(word) or "none"}">{escape(promise)}</td>')
    parts += [f"<td>{escape(text)}</td>" for text in (tenants, idle, way)]
    return f"<tr>{''.join(parts)}</tr>"


def _text(text: str) -> str:
    """Text for a cell of a Markdown table: nothing in it is markup."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}") if mark != "\\" else text.replace("\\", "\\\\")
    return " ".join(text.split())
