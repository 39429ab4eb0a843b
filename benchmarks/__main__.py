"""Run measurements: all of them, or those named on the command line."""

import argparse
import json
import sys
from collections import defaultdict

from benchmarks import table
from benchmarks.frame import RESULTS, NoDataError, commit, data, number, record, registered


def main(arguments: list[str]) -> int:
    """Run, print every result as it comes, and after a full run write them down.

    Returns:
        0, also where a target is missed: a miss is a result. 2 where nothing could be measured.
    """
    benches = registered()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure Shoal. A run of everything rewrites benchmarks/results.jsonl; with "
        "--record a run of some measurements replaces their lines there.",
        epilog="\n".join(f"{name}: {run.__doc__}" for name, run in benches.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="what to measure; everything where none is named")
    parser.add_argument("--record", action="store_true", help="write down what is measured")
    asked = parser.parse_args(arguments)
    names = list(dict.fromkeys(asked.names)) or list(benches)
    unknown = [name for name in names if name not in benches]
    if unknown:
        known = ", ".join(benches) or "none yet"
        print(f"no measurement is named {', '.join(unknown)}; there are: {known}", file=sys.stderr)
        return 2
    try:
        data()
    except NoDataError as error:
        print(error, file=sys.stderr)
        return 2
    measured = commit()
    lines = kept_lines(set(benches) - set(names))
    for name in names:
        for result in benches[name]():
            lines[name].append(json.dumps(record(result, name, measured), ensure_ascii=False))
            verdict = {True: "met", False: "MISSED", None: "no target"}[result.met]
            aim = f"{verdict}: {result.target}" if result.target else verdict
            print(
                f"{name}  {result.name}: {number(result.value)} {result.unit}  ({aim})", flush=True
            )
    if asked.record or set(names) == set(benches):
        RESULTS.write_text("".join(f"{line}\n" for name in benches for line in lines[name]))
        table.write()
        print(f"wrote {RESULTS.name} and the table in the README")
    return 0


def kept_lines(names: set[str]) -> dict[str, list[str]]:
    """What was recorded of these measurements, by name; every other name has no lines."""
    lines: dict[str, list[str]] = defaultdict(list)
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            name = json.loads(line)["how"].rpartition(" ")[2]
            if name in names:
                lines[name].append(line)
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
