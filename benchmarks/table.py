"""The table of what was measured in the README, made from benchmarks/results.jsonl."""

import json
import sys
from pathlib import Path
from typing import TypedDict

from benchmarks.frame import RESULTS, ROOT, number

README = ROOT / "README.md"
START = "<!-- measured: made by scripts/readme-table -->"
END = "<!-- /measured -->"


class Record(TypedDict):
    """One line of benchmarks/results.jsonl."""

    name: str
    value: float
    unit: str
    target: str | None
    met: bool | None
    how: str
    cores: int
    commit: str


def records(path: Path = RESULTS) -> list[Record]:
    """What the last full run measured; empty where there was none."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(measured: list[Record]) -> str:
    """The results as Markdown, misses marked."""
    if not measured:
        return "Nothing is recorded yet; `make bench` measures and fills this table."
    rows = ["| measured | value | target | |", "| --- | ---: | --- | --- |"]
    words = {True: "met", False: "**missed**", None: ""}
    for line in measured:
        unit = f" {line['unit']}" if line["unit"] else ""
        target = f"{line['target']}{unit}" if line["target"] else ""
        value = f"{number(line['value'])}{unit}"
        rows.append(f"| {line['name']} | {value} | {target} | {words[line['met']]} |")
    cores = ", ".join(sorted({str(line["cores"]) for line in measured}))
    commits = ", ".join(sorted({line["commit"] for line in measured}))
    note = f"Measured on {cores} cores at commit {commits}; each line's command is in"
    return "\n".join([*rows, "", f"{note} `benchmarks/results.jsonl`."])


def filled(readme: str, measured: list[Record]) -> str:
    """The README with the table between its marks.

    Raises:
        ValueError: the README lacks the marks.
    """
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"README.md needs the lines '{START}' and '{END}' around its table")
    return f"{before}{START}\n{table(measured)}\n{END}{after}"


def write() -> None:
    """Put the table of the last full run into the README."""
    README.write_text(filled(README.read_text(), records()))


def main(arguments: list[str]) -> int:
    """Check the README's table, or with --write make it."""
    if arguments == ["--write"]:
        write()
        return 0
    if arguments:
        print("usage: scripts/readme-table [--write]", file=sys.stderr)
        return 2
    if README.read_text() != filled(README.read_text(), records()):
        print("README.md's table is not that of results.jsonl; run scripts/readme-table --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
