"""Runs by the core of production, on fleets small enough to follow by hand and on openb."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.decisions import Start, Wait
from shoal.core.events import PodStarted, WorkloadEnded, WorkloadSubmitted
from shoal.core.policies import POLICIES, Policy
from shoal.core.world import State
from shoal.model.node import Device, Leaf, Node
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, PodSet, Workload
from shoal.simulation.demand import task_classes
from shoal.simulation.parallel import Job, WorkerLostError, run_all
from shoal.simulation.readers import read_trace
from shoal.simulation.results import as_json
from shoal.simulation.run import run
from shoal.simulation.trace import Trace
from shoal.simulation.virtual import VirtualTime
from tests.simulation.small import NODES, PODS, share, trace, whole


def node(name: str, devices: int, cpu_milli: int = 64_000) -> Node:
    cards = tuple(
        Device(f"{name}/{i}", "L4", (Leaf(f"{name}/{i}", 0, tenants=1000),)) for i in range(devices)
    )
    return Node(name, cpu_milli, 10**6, 1000, cards)


def workload(uid: str, devices: int) -> Workload:
    return Workload(uid, (PodSet("pod", 1, whole(devices)),))


def virtual(*nodes: Node) -> VirtualTime:
    return VirtualTime(nodes, Policy("best-fit"), 42)


def test_what_starts_in_virtual_time_runs() -> None:
    time = virtual(node("n", 2))
    time.feed(WorkloadSubmitted(5, workload("a", 2)))
    (decision,) = time.turn()
    assert isinstance(decision, Start)
    time.feed(WorkloadSubmitted(6, workload("b", 1)))
    assert time.world.entries["a"].state is State.RUNNING
    (decision,) = time.turn()
    assert isinstance(decision, Wait)
    assert decision.reason is Reason.WHOLE_DEVICES
    time.feed(WorkloadEnded(7, "a", Outcome.COMPLETED))
    (decision,) = time.turn()
    assert isinstance(decision, Start)
    assert decision.workload == "b"


def test_events_come_when_they_are_due_and_before_what_is_fed_then() -> None:
    time = virtual(node("n", 1))
    time.schedule(WorkloadSubmitted(10, workload("late", 1)))
    time.schedule(WorkloadEnded(20, "late", Outcome.COMPLETED))
    time.feed(WorkloadSubmitted(5, workload("early", 1)))
    assert set(time.world.entries) == {"early"}
    time.feed(WorkloadEnded(15, "early", Outcome.COMPLETED))
    assert set(time.world.entries) == {"late"}
    time.feed(PodStarted(20, "nobody", 0))
    assert not time.world.entries
    assert time.now_us == 20


def test_carrying_out_a_start_twice_is_harmless() -> None:
    time = virtual(node("n", 2))
    time.feed(WorkloadSubmitted(1, workload("a", 1)))
    (decision,) = time.turn()
    time.carry_out(decision)
    time.feed(WorkloadSubmitted(2, workload("b", 1)))
    (decision,) = time.turn()
    assert isinstance(decision, Start)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_pods_fill_a_fleet_to_the_last_device(policy: str) -> None:
    result = run(trace((node("a", 4), node("b", 4)), *[whole(1)] * 8), policy, 1)
    assert result.curves.allocated_pct[100] == 100
    assert result.curves.allocated_pct[50] == 50
    assert result.curves.failed[100] == 0
    assert result.curves.failed[130] == result.curves.arrived[130] - 8 == 2
    assert result.lacked == {Reason.WHOLE_DEVICES: 2}


def test_a_run_may_end_early_and_is_the_same_until_then() -> None:
    small = trace((node("a", 8), node("b", 2)), *[whole(1)] * 6, *[share(300)] * 6)
    whole_run, part = run(small, "best-fit", 1), run(small, "best-fit", 1, until_pct=60)
    assert 60 < max(part.curves.allocated_pct) < max(whole_run.curves.allocated_pct)
    for pct in range(61):
        assert part.curves.allocated_pct.get(pct) == whole_run.curves.allocated_pct.get(pct)
        assert part.curves.failed[pct] == whole_run.curves.failed[pct]


def test_moves_make_room_and_stay_under_their_share_of_what_runs() -> None:
    """Shares are spread over devices that whole pods ask for; brought together they leave some."""
    nodes = tuple(node(f"n{i}", 1) for i in range(20))
    small = trace(nodes, *[share(400)] * 10, *[whole(1)] * 12)
    for seed in range(5):
        still, few, many = (run(small, "spread", seed, moves_pct=pct) for pct in (0, 10, 100))
        assert still.moves == 0 < few.moves <= many.moves
        assert few.moves <= 2, "a tenth of the 22 pods that may run at once"
        curves = [each.curves.allocated_pct for each in (still, few, many)]
        allocated = [curve[max(curve)] for curve in curves]
        assert allocated[0] < allocated[1] <= allocated[2]


def test_the_default_policy_is_given_demand_or_learns_it() -> None:
    small = trace((node("a", 4), node("b", 4)), *[share(300)] * 8, *[whole(1)] * 4)
    told, taught = (run(small, "fragmentation", 1, learned=learned) for learned in (False, True))
    assert (told.demand, taught.demand) == ("given", "learned")
    assert told.curves.arrived == taught.curves.arrived
    assert run(small, "fgd", 1, learned=True).demand == "given"


def test_a_pod_that_fails_is_not_tried_again() -> None:
    result = run(trace((node("a", 4),), whole(3), whole(2)), "best-fit", 0)
    assert result.curves.arrived[130] == 2
    assert result.curves.failed[130] == 1
    assert list(result.curves.allocated_pct.values())[-1] in {75, 50}


def test_failures_tell_what_was_lacking() -> None:
    fleet = (node("a", 4, cpu_milli=2_000),)
    result = run(trace(fleet, *[whole(1, cpu_milli=1_000)] * 4), "pack", 0)
    assert result.lacked == {Reason.CPU: 3}
    assert result.curves.allocated_pct[100] == 50


def test_free_parts_that_no_class_can_use_are_fragments() -> None:
    # Each pod takes 600 milli, so the 400 left of a device are of no use to the only class.
    result = run(trace((node("a", 2),), share(600), share(600)), "best-fit", 0)
    assert result.curves.fragmented_pct[30] == pytest.approx(20)
    assert result.curves.fragmented_pct[60] == pytest.approx(40)
    assert result.lacked == {Reason.LEAF_ROOM: 2}


def examples(repository: Path) -> Trace:
    folder = repository / "examples" / "openb"
    return read_trace(folder / "nodes.csv", folder / "pods.csv")


def test_runs_in_processes_are_the_runs_of_one() -> None:
    small = trace((node("a", 4), node("b", 4)), *[share(300)] * 5, *[whole(1)] * 3, whole(4))
    jobs = [Job(policy, seed) for policy in ("fgd", "random") for seed in (3, 4)]
    ended: list[None] = []

    def lines(processes: int) -> list[str]:
        runs = run_all(small, jobs, processes, lambda: ended.append(None))
        return [as_json(each).rsplit(', "seconds"', 1)[0] for each in runs]

    alone = lines(1)
    assert lines(2) == alone
    assert len(ended) == 2 * len(jobs)
    assert [
        (line["policy"], line["seed"]) for line in map(json.loads, (x + "}" for x in alone))
    ] == [(job.policy, job.seed) for job in jobs]


def test_a_failure_in_a_process_is_not_hidden() -> None:
    small = trace((node("a", 1),), whole(1))
    with pytest.raises(ValueError, match="no placement policy named 'nonesuch'"):
        run_all(small, [Job("nonesuch", 1), Job("nonesuch", 2)], 2, lambda: None)


def test_a_process_that_dies_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.simulation.parallel._prepare", int)  # fails as it starts
    small = trace((node("a", 1),), whole(1))
    with pytest.raises(WorkerLostError, match="try again with fewer --processes"):
        run_all(small, [Job("pack", 1), Job("pack", 2)], 2, lambda: None)


@pytest.mark.long
def test_another_hash_seed_gives_the_same_run(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES + "".join(f"n{i},64000,262144,8,L4\n" for i in range(30)))
    sizes = ["1,", "1,300", "1,500", "2,", "4,"]
    pods.write_text(PODS + "".join(f"p{i},2000,4096,{sizes[i % 5]}\n" for i in range(50)))
    program = (
        "import sys; from pathlib import Path; from shoal.simulation.readers import read_trace;"
        "from shoal.simulation.results import as_json; from shoal.simulation.run import run;"
        "trace = read_trace(Path(sys.argv[1]), Path(sys.argv[2]));"
        "[print(as_json(run(trace, policy, 44)).rsplit(', \"seconds\"', 1)[0])"
        " for policy in ('random', 'clustering', 'fgd')]"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program, nodes, pods],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(answers) == 1
    assert len(answers.pop().splitlines()) == 3


# Weng et al., USENIX ATC 2023: means of ten seeds on the default workload at 100 % arrived. Single
# seeds lie within four standard deviations of them.
PUBLISHED = {
    "random": (86.30, 0.33),
    "dot-product": (90.62, 0.19),
    "clustering": (91.65, 0.61),
    "packing": (91.78, 0.53),
    "best-fit": (92.86, 0.14),
    "fgd": (95.23, 0.11),
}


@pytest.mark.long
@pytest.mark.parametrize("policy", PUBLISHED)
def test_openb_comes_to_what_was_published(repository: Path, policy: str) -> None:
    mean, deviation = PUBLISHED[policy]
    trace_ = examples(repository)
    allocated_pct = run(trace_, policy, 42).curves.allocated_pct[100]
    assert allocated_pct == pytest.approx(mean, abs=4 * deviation)


@pytest.mark.long
@pytest.mark.parametrize("learned", [False, True])
def test_the_default_policy_reaches_its_aim_on_openb(repository: Path, *, learned: bool) -> None:
    """The aim is a mean of 95.95; seeds differ by hundredths. Nothing fails before 95 %."""
    curves = run(examples(repository), "fragmentation", 45, learned=learned, until_pct=100).curves
    assert curves.allocated_pct[100] >= 95.95
    assert curves.failed[95] == 0


def test_openb_has_the_classes_that_were_published(repository: Path) -> None:
    assert len(task_classes(examples(repository))) == 35
