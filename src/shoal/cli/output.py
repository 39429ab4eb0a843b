"""What commands print: tables, JSON, YAML, names; once, or again whenever something changes.

Colours and cutting to the width are for terminals only; a file or another program gets plain text.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from shoal.cli.errors import UsageError
from shoal.texts.language import Language
from shoal.texts.screens import number_text, word

Form = Literal["table", "wide", "json", "yaml", "name"]
Row = dict[str, Any]

WATCH_S = 1.0

_COLOURS = {
    "running": "green",
    "ready": "green",
    "free": "green",
    "waiting": "yellow",
    "starting": "yellow",
    "stopping": "yellow",
    "evicting": "yellow",
    "kept": "yellow",
    "cordoned": "yellow",
    "lost": "red",
    "failed": "red",
    "evicted": "red",
    "gone": "red",
    "not ready": "red",
}


@Parameter(name="*")
@dataclass(frozen=True)
class View:
    """How something is shown."""

    output: Annotated[Form, Parameter(name=["--output", "-o"])] = "table"
    """A table, a wide one, JSON, YAML, or names alone."""
    watch: Annotated[bool, Parameter(name=["--watch", "-w"], negative="")] = False
    """Go on, and print what changes."""


DEFAULT_VIEW = View()


@dataclass(frozen=True)
class Column:
    """One column: its heading, how a row's cell is made, and whether only wide tables have it."""

    heading: str
    cell: Callable[[Row], object]
    wide: bool = False
    right: bool = False


@dataclass(frozen=True)
class Listing:
    """Rows as the platform gave them, and how a table shows them; `name` tells rows apart."""

    rows: Sequence[Row]
    columns: Sequence[Column]
    name: Callable[[Row], str] = field(default=lambda row: str(row["name"]))


def show(look: Callable[[], Listing], view: View, language: Language) -> None:
    """Print what `look` finds, and with `watch` again what changes, until interrupted."""
    listing = look()
    printer = _Printer(view, language, listing)
    printer.first()
    while view.watch:
        sys.stdout.flush()
        time.sleep(WATCH_S)
        printer.changes(look())


def show_object(value: object, output: Form) -> bool:
    """Print one thing as JSON or YAML; returns whether that was asked for."""
    if output == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    elif output == "yaml":
        print(_yaml(value), end="")
    return output in ("json", "yaml")


class _Printer:
    """Prints a listing, and later what became different."""

    def __init__(self, view: View, language: Language, listing: Listing) -> None:
        self._view = view
        self._language = language
        self._listing = listing
        wide = view.output == "wide"
        self._columns = [each for each in listing.columns if wide or not each.wide]
        self._widths: list[int] = []
        self._known = {listing.name(row): row for row in listing.rows}

    def first(self) -> None:
        """Print everything."""
        rows = self._listing.rows
        if show_object(list(rows), self._view.output):
            return
        if self._view.output == "name":
            for row in rows:
                print(self._listing.name(row))
            return
        self._table(rows)

    def changes(self, listing: Listing) -> None:
        """Print rows that are new or different, and those that are gone."""
        now = {listing.name(row): row for row in listing.rows}
        changed = [row for name, row in now.items() if self._known.get(name) != row]
        gone = [{**row, "state": "gone"} for name, row in self._known.items() if name not in now]
        self._known = now
        for row in (*changed, *gone):
            if self._view.output == "json":
                print(json.dumps(row, ensure_ascii=False))
            elif self._view.output == "yaml":
                print(f"---\n{_yaml(row)}", end="")
            elif self._view.output == "name":
                print(self._listing.name(row))
            else:
                print(_line(self._cells(row), self._widths, self._rights))

    @property
    def _rights(self) -> list[bool]:
        return [each.right for each in self._columns]

    def _cells(self, row: Row) -> list[str]:
        return [self._cell(each, row) for each in self._columns]

    def _cell(self, column: Column, row: Row) -> str:
        value = column.cell(row)
        if column.heading in ("STATE", "TYPE"):
            return word(str(value), self._language)
        return cell(value)

    def _table(self, rows: Sequence[Row]) -> None:
        heads = [word(each.heading, self._language) for each in self._columns]
        lines = [self._cells(row) for row in rows]
        self._widths = [max(map(cells_wide, column)) for column in zip(heads, *lines, strict=True)]
        if sys.stdout.isatty():
            self._in_colour(heads, rows, lines)
            return
        for line in (heads, *lines):
            print(_line(line, self._widths, self._rights))

    def _in_colour(
        self, heads: Sequence[str], rows: Sequence[Row], lines: Sequence[Sequence[str]]
    ) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        # Where the window is narrow the last column is cut short, and then the edge of the window.
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        console = Console()
        widths = list(self._widths)
        room = console.width - sum(widths[:-1]) - 2 * (len(widths) - 1)
        widths[-1] = max(min(widths[-1], room), cells_wide(heads[-1]))
        for column, head, width in zip(self._columns, heads, widths, strict=True):
            table.add_column(
                head,
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                min_width=width,
                max_width=width,
            )
        for row, line in zip(rows, lines, strict=True):
            cells = zip(self._columns, line, strict=True)
            table.add_row(*(Text(text, style=_style(column, row)) for column, text in cells))
        console.print(table)


def _style(column: Column, row: Row) -> str:
    return _COLOURS.get(str(column.cell(row)), "") if column.heading == "STATE" else ""


def _line(cells: Iterable[str], widths: Sequence[int], rights: Sequence[bool]) -> str:
    parts = []
    for text, width, right in zip(cells, widths, rights, strict=True):
        room = " " * max(0, width - cells_wide(text))
        parts.append(room + text if right else text + room)
    return "   ".join(parts).rstrip()


def cell(value: object) -> str:
    """A value as a table shows it: nothing is a dash, several are joined by commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value) or "-"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, int):
        return f"{value:,}"
    return plain(str(value)) if value not in (None, "") else "-"


def plain(text: str) -> str:
    """Text of others without what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)


def cells_wide(text: str) -> int:
    """How many cells of a terminal a text takes: Chinese characters take two (Unicode UAX 11)."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _yaml(value: object) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text


def only_tables(view: View, command: str) -> None:
    """Raise UsageError where a command has one form for people and no rows."""
    if view.output in ("wide", "name"):
        raise UsageError(f"{command} has no -o {view.output}; write table, json or yaml.")
