"""The published upper bounds, reproduced, and what cannot be bounded."""

import csv
from pathlib import Path

import pytest

from shoal.bounds.upper import upper_bounds
from shoal.core.demand import TaskClass, merged
from shoal.model.request import Request
from shoal.simulation.readers import read_trace
from tests.core.build import node, whole

WORKLOADS = (
    "default cpu050 cpu100 cpu250 gpushare40 gpushare60 gpushare100 gpuspec10 gpuspec25 gpuspec33"
    " multigpu20 multigpu30 multigpu50"
).split()


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_tables_of_the_published_traces_are_reproduced(shoal_data: Path, workload: str) -> None:
    folder = shoal_data / "openb"
    with (folder / "lp_upper_bounds.csv").open(newline="") as stream:
        table = {row["workload"]: row for row in csv.DictReader(stream)}
    row = table[workload]
    nodes = folder / "nodes" / "openb_node_list_gpu_node.csv"
    trace = read_trace(nodes, folder / "pods" / f"openb_pod_list_{workload}.csv")
    classes = merged(TaskClass(pod.request, 1) for pod in trace.pods)
    found = upper_bounds(trace.nodes, classes, (100, 130))
    for load in (100, 130):
        forced = float(row[f"ub_alloc_at_{load}_cpu_pods_forced"])
        assert found.allocated_pct[load] == pytest.approx(
            float(row[f"ub_alloc_at_{load}"]), abs=0.006
        )
        assert found.host_pods_forced_pct[load] == pytest.approx(forced, abs=0.006)
    no_failure = float(row["max_no_failure_load_pct"] or 0)
    assert found.no_failure_pct == pytest.approx(no_failure, abs=0.006)


def test_pods_that_no_node_takes_leave_no_load_without_failure() -> None:
    found = upper_bounds([node("a", 2)], [TaskClass(whole(3), 1), TaskClass(whole(1), 3)], [100])
    assert found.no_failure_pct == 0
    assert found.allocated_pct[100] == pytest.approx(50)


def test_pods_without_devices_that_do_not_fit_are_told() -> None:
    classes = [TaskClass(whole(1), 1), TaskClass(Request(40_000), 1)]
    found = upper_bounds([node("a", 1)], classes, [100])
    assert found.host_pods_forced_pct == {100: None}


def test_there_is_no_bound_without_devices_or_demand() -> None:
    with pytest.raises(ValueError, match="has no devices"):
        upper_bounds([node("a")], [TaskClass(whole(1), 1)], [100])
    with pytest.raises(ValueError, match="No pod asks"):
        upper_bounds([node("a", 1)], [TaskClass(Request(1000), 1)], [100])
