"""Run measurements: all of them, or those named on the command line."""

import argparse
import json
import sys

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
        description="Measure Shoal. A run of everything rewrites benchmarks/results.jsonl.",
        epilog="\n".join(f"{name}: {run.__doc__}" for name, run in benches.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="what to measure; everything where none is named")
    names = list(dict.fromkeys(parser.parse_args(arguments).names)) or list(benches)
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
    lines = []
    for name in names:
        for result in benches[name]():
            lines.append(json.dumps(record(result, name, measured), ensure_ascii=False))
            verdict = {True: "met", False: "MISSED", None: "no target"}[result.met]
            aim = f"{verdict}: {result.target}" if result.target else verdict
            print(
                f"{name}  {result.name}: {number(result.value)} {result.unit}  ({aim})", flush=True
            )
    if set(names) == set(benches):
        RESULTS.write_text("".join(f"{line}\n" for line in lines))
        table.write()
        print(f"wrote {RESULTS.name} and the table in the README")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
