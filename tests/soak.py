"""What takes hours: runs the suites below and keeps what each of them last came to.

    python -m tests.soak [SUITE...] [--examples N] [-k EXPRESSION]

The last result of each suite stands in `tests/soak.jsonl`, one line a suite, to be committed: what
ran, how it was called, what passed and failed, examples that hypothesis tried, seconds, cores, and
the commit, with a plus sign where files of the package differed from it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.frame import commit

RESULTS = Path(__file__).with_name("soak.jsonl")
ROOT = RESULTS.parent.parent

SUITES = {
    "crashes": (
        "a day of the living platform, ended about 200 times, against one that is not",
        ["tests/simulation/test_crashes.py", "-m", "slow"],
    ),
    "stateful": (
        "up to 200 random steps an example, every invariant checked after each",
        ["tests/core/test_stateful.py"],
    ),
    "adversary": (
        "ten days of a team that tries everything, whose own waits and losses are its own affair",
        ["tests/benchmarks/test_tenancy.py", "-m", "slow"],
    ),
    "properties": (
        "every other test of what is quick, with thousands of examples of each property",
        ["--ignore", "tests/core/test_stateful.py", "-m", "not long and not slow and not cluster"],
    ),
}


def main(arguments: list[str]) -> int:
    """Run the suites that are named, or all; return 1 where something failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--examples", type=int, help="examples of each property; 5,000 if not said")
    parser.add_argument("-k", dest="only", help="only the tests that pytest chooses by this")
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.suites) - set(SUITES))
    if unknown:
        parser.error(f"no suite is named {', '.join(unknown)}; there are: {', '.join(SUITES)}")
    lines = [run(name, asked.examples, asked.only) for name in asked.suites or SUITES]
    return int(any(line["failed"] or not line["passed"] for line in lines))


def run(name: str, examples: int | None, only: str | None) -> dict[str, object]:
    """Run a suite and write down what it came to."""
    what, chosen = SUITES[name]
    bounds = [f"--examples {examples}"] if examples else []
    bounds += [f"-k '{only}'"] if only else []
    environment = os.environ | {"SHOAL_PROFILE": "soak"}
    if examples:
        environment["SHOAL_EXAMPLES"] = str(examples)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--timeout", "0", *chosen]
    command += ["--hypothesis-show-statistics", *(["-k", only] if only else [])]
    began_s = time.monotonic()
    ran = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert ran.stdout is not None
    printed: list[str] = []
    shown = True
    for each in ran.stdout:
        shown = shown and "Hypothesis Statistics" not in each
        if shown:
            sys.stdout.write(each)
            sys.stdout.flush()
        printed.append(each)
    ran.wait()
    sys.stdout.write(printed[-1])
    line: dict[str, object] = {
        "suite": name,
        "what": what,
        "how": " ".join(["python -m tests.soak", name, *bounds]),
        **counts(printed),
        "seconds": round(time.monotonic() - began_s),
        "cores": len(os.sched_getaffinity(0)),
        "commit": commit(),
    }
    keep(line)
    return line


def counts(printed: list[str]) -> dict[str, int]:
    """What pytest's output says of tests, and of the examples that hypothesis tried."""
    found: Counter[str] = Counter()
    for line in printed:
        examples = re.match(r" +- (\d+) passing, \d+ failing", line)
        found["examples"] += int(examples[1]) if examples else 0
    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", printed[-1]):
        found["failed" if word == "error" else word] += int(number)
    return {word: found[word] for word in ("passed", "failed", "skipped", "examples")}


def keep(line: dict[str, object]) -> None:
    """Put a suite's line in the place of its last one."""
    kept = {}
    if RESULTS.exists():
        kept = {json.loads(each)["suite"]: each for each in RESULTS.read_text().splitlines()}
    kept[str(line["suite"])] = json.dumps(line, ensure_ascii=False)
    RESULTS.write_text("".join(f"{kept[name]}\n" for name in SUITES if name in kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
