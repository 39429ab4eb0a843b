import json

from shoal.model.verdict import Reason
from shoal.simulation.curve import Curves
from shoal.simulation.results import (
    CSV_COLUMNS,
    Run,
    as_json,
    by_policy,
    csv_rows,
    latest,
    seeds_text,
    spread,
)

CURVES = Curves(
    {0: 0.25, 100: 95.123456, 99: 94.0},
    {0: 1.0, 99: 4.0, 100: 5.0},
    {0: 0, 99: 6, 100: 7},
    {0: 1, 99: 8, 100: 9},
)


def result(policy: str = "fgd", seed: int = 42, workload: str = "default") -> Run:
    return Run(workload, policy, seed, CURVES, {Reason.CPU: 3}, 1.23456)


def test_a_run_is_one_line_of_json() -> None:
    line = as_json(result())
    assert "\n" not in line
    assert json.loads(line) == {
        "workload": "default",
        "policy": "fgd",
        "seed": 42,
        "demand": "given",
        "allocated_pct": {"0": 0.25, "99": 94.0, "100": 95.1235},
        "fragmented_pct": {"0": 1.0, "99": 4.0, "100": 5.0},
        "failed": {"0": 0, "99": 6, "100": 7},
        "lacked": {"cpu": 3},
        "moves": 0,
        "seconds": 1.235,
    }


def test_a_run_is_csv_by_load() -> None:
    rows = [dict(zip(CSV_COLUMNS, map(str, row), strict=True)) for row in csv_rows(result())]
    assert [row["arrived_pct"] for row in rows] == ["0", "99", "100"]
    assert rows[2]["allocated_pct"] == "95.1235"
    assert rows[2]["failed"] == "7"


def test_a_load_that_no_arrival_came_to_shows_the_one_before() -> None:
    assert latest({3: 1.0, 5: 2.0}, 4) == 1.0
    assert latest({3: 1.0}, 2) is None


def test_seeds_are_summed_up() -> None:
    point = spread([{1: 2.0}, {1: 4.0}, {0: 6.0}], 1)
    assert point is not None
    assert (point.mean, point.deviation, point.least, point.most) == (4.0, 2.0, 2.0, 6.0)
    assert spread([{1: 2.0}, {2: 4.0}], 1) is None
    assert spread([], 1) is None
    alone = spread([{1: 2.0}], 1)
    assert alone is not None
    assert alone.deviation == 0


def test_policies_keep_their_order() -> None:
    runs = [result("b"), result("a"), result("b", 43)]
    assert {name: len(own) for name, own in by_policy(runs).items()} == {"b": 2, "a": 1}
    assert list(by_policy(runs)) == ["b", "a"]


def test_a_range_of_seeds_is_short() -> None:
    assert seeds_text([44, 42, 43, 7]) == "7,42-44"
