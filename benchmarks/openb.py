"""The published packing results on openb, reproduced: every workload, six policies, ten seeds.

Published are means over ten seeds of the allocation when as much had arrived as the cluster has
(Weng et al., USENIX ATC 2023). Their random numbers cannot be replayed, so means are compared.
"""

import csv
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.frame import ROOT, Result, bench, data
from shoal.simulation.parallel import Job, run_all
from shoal.simulation.readers import read_trace
from shoal.simulation.results import Run
from shoal.simulation.run import run
from shoal.simulation.trace import Trace

SEEDS = range(42, 52)
ARRIVED_PCT = 100
TABLE = ROOT / "benchmarks" / "openb.csv"

PUBLISHED_NAMES = {
    "random": "Random",
    "dot-product": "DotProd",
    "clustering": "GpuClustering",
    "packing": "GpuPacking",
    "best-fit": "BestFit",
    "fgd": "FGD",
}
NOISY = frozenset({"random", "clustering", "packing"})
"""Policies whose published means vary more than the others' between sets of seeds."""


@dataclass(frozen=True)
class Published:
    """Mean and standard deviation over ten seeds, in percent of all devices."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Comparison:
    """Our mean beside the published one, in percent of all devices."""

    workload: str
    policy: str
    published: float
    measured: float
    tolerance: float

    @property
    def difference(self) -> float:
        """Measured less published, in points."""
        return self.measured - self.published

    @property
    def met(self) -> bool:
        """Whether the means agree within the tolerance."""
        return abs(self.difference) <= self.tolerance


def published(folder: Path) -> dict[tuple[str, str], Published]:
    """The published means by workload and published name of the policy."""
    with (folder / "fgd_published_summary.csv").open(newline="") as stream:
        return {
            (row["workload"], row["policy"]): Published(float(row["mean"]), float(row["sd"]))
            for row in csv.DictReader(stream)
            if row["metric"] == "alloc_pct" and int(row["arrived_pct"]) == ARRIVED_PCT
        }


def compared(policy: str, runs: list[Run], theirs: Published) -> Comparison:
    """Our runs of a workload under a policy beside the published mean.

    They agree within 0.3 points (0.6 for the noisy policies), or within three standard errors of
    the difference where that is more.
    """
    values = [each.curves.allocated_pct[ARRIVED_PCT] for each in runs]
    error = sqrt((stdev(values) ** 2 + theirs.deviation**2) / len(values))
    tolerance = max(0.6 if policy in NOISY else 0.3, 3 * error)
    return Comparison(runs[0].workload, policy, theirs.mean, fmean(values), tolerance)


@bench
def openb() -> Iterator[Result]:
    """The published packing results on openb, reproduced, and the time of one run of fgd."""
    folder = data() / "openb"
    theirs = published(folder)
    workloads = sorted({workload for workload, _ in theirs})
    default = _trace(folder, "default")
    seconds = min(run(default, "fgd", 42).seconds for _ in range(3))
    yield Result("openb default, one fgd run, best of 3", round(seconds, 2), "s", at_most=4)
    comparisons = []
    for workload in workloads:
        for comparison in _workload(_trace(folder, workload), theirs):
            comparisons.append(comparison)
            _show(comparison)
    _write(comparisons)
    for policy in PUBLISHED_NAMES:
        own = [each for each in comparisons if each.policy == policy]
        within = sum(each.met for each in own)
        mean = round(fmean(each.difference for each in own), 3)
        limit = 0.3 if policy in NOISY else 0.15
        yield Result(
            f"openb {policy}, workloads whose mean allocation is the published one",
            within,
            f"of {len(own)}",
            at_least=len(own),
        )
        yield Result(
            f"openb {policy}, mean difference from the published means",
            mean,
            "points",
            at_least=-limit,
            at_most=limit,
        )


def _trace(folder: Path, workload: str) -> Trace:
    nodes = folder / "nodes" / "openb_node_list_gpu_node.csv"
    return read_trace(nodes, folder / "pods" / f"openb_pod_list_{workload}.csv")


def _workload(trace: Trace, theirs: dict[tuple[str, str], Published]) -> Iterator[Comparison]:
    jobs = [Job(policy, seed) for policy in PUBLISHED_NAMES for seed in SEEDS]
    runs = run_all(trace, jobs, len(os.sched_getaffinity(0)), lambda: None)
    for policy, name in PUBLISHED_NAMES.items():
        own = [each for each in runs if each.policy == policy]
        yield compared(policy, own, theirs[trace.workload, name])


def _show(each: Comparison) -> None:
    print(
        f"openb  {each.workload:12} {each.policy:12} published {each.published:6.2f}"
        f"  measured {each.measured:6.2f}  difference {each.difference:+.2f}"
        f"  ({'met' if each.met else 'MISSED'}: within {each.tolerance:.2f})",
        flush=True,
    )


def _write(comparisons: list[Comparison]) -> None:
    with TABLE.open("w", newline="") as stream:
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(["workload", "policy", "published", "measured", "difference", "tolerance"])
        for each in comparisons:
            numbers = (each.published, each.measured, each.difference, each.tolerance)
            out.writerow([each.workload, each.policy, *(f"{value:.3f}" for value in numbers)])
    print(f"wrote {TABLE.name}", file=sys.stderr)
