"""What runs of one workload came to, and how that is written for programs and for people."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from shoal.model.verdict import Reason
from shoal.simulation.curve import Curves

CSV_COLUMNS = (
    "workload",
    "policy",
    "seed",
    "arrived_pct",
    "allocated_pct",
    "fragmented_pct",
    "failed",
)

_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a workload under a policy with a seed.

    `lacked` counts the pods that failed by what stood in their way; `seconds` is wall time.
    `demand` says whether a policy that asks for it was given the demand or learned it, and `moves`
    counts running pods that were moved.
    """

    workload: str
    policy: str
    seed: int
    curves: Curves
    lacked: Mapping[Reason, int]
    seconds: float
    demand: str = "given"
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """What several seeds came to: mean, standard deviation (0 for one seed), least and most."""

    mean: float
    deviation: float
    least: float
    most: float


def as_json(run: Run) -> str:
    """Return `run` as one JSON object on one line; loads are keys in percent."""
    curves = run.curves
    return json.dumps(
        {
            "workload": run.workload,
            "policy": run.policy,
            "seed": run.seed,
            "demand": run.demand,
            "allocated_pct": _rounded(curves.allocated_pct),
            "fragmented_pct": _rounded(curves.fragmented_pct),
            "failed": {str(load): count for load, count in curves.failed.items()},
            "lacked": dict(sorted(run.lacked.items())),
            "moves": run.moves,
            "seconds": round(run.seconds, 3),
        },
        ensure_ascii=False,
    )


def csv_rows(run: Run) -> Iterator[tuple[object, ...]]:
    """Yield `run` as rows under `CSV_COLUMNS`, one for each load that arrivals came to."""
    curves = run.curves
    for load, allocated_pct in sorted(curves.allocated_pct.items()):
        yield (
            run.workload,
            run.policy,
            run.seed,
            load,
            f"{allocated_pct:.{_DECIMALS}f}",
            f"{curves.fragmented_pct[load]:.{_DECIMALS}f}",
            curves.failed[load],
        )


def latest(values: Mapping[int, float], load: int) -> float | None:
    """Return the value at `load`, or at the nearest load below it that has one."""
    return next((values[at] for at in range(load, -1, -1) if at in values), None)


def spread(curves: Sequence[Mapping[int, float]], load: int) -> Spread | None:
    """Return what `curves`, one for each seed, come to at `load`; None where one has not begun."""
    values = [value for each in curves if (value := latest(each, load)) is not None]
    if len(values) < len(curves) or not values:
        return None
    deviation = stdev(values) if len(values) > 1 else 0.0
    return Spread(fmean(values), deviation, min(values), max(values))


def by_policy(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return the runs of each policy, policies in the order of their first run."""
    policies: dict[str, list[Run]] = {}
    for run in runs:
        policies.setdefault(run.policy, []).append(run)
    return policies


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds as a person writes them: `42-51`, `1,3,7-9`."""
    spans: list[tuple[int, int]] = []
    for seed in sorted(set(seeds)):
        if spans and seed == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], seed)
        else:
            spans.append((seed, seed))
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def _rounded(values: Mapping[int, float]) -> dict[str, float]:
    return {str(load): round(value, _DECIMALS) for load, value in sorted(values.items())}
