"""`shoal bound` and `shoal compare` on small files."""

import json
from pathlib import Path

import pytest

from shoal.cli.app import ASKED_WRONGLY, DONE, run
from shoal.cli.compare import Pair, compared

Capture = pytest.CaptureFixture[str]

NODES = "name,cpu_milli,memory_mib,devices,accelerator,count\nn,64000,262144,4,L4,5\n"
PODS = (
    "name,cpu_milli,memory_mib,devices,compute_milli,count\n"
    "one,4000,8192,1,,6\nhalf,2000,4096,1,600,8\nplain,1000,2048,0,,4\n"
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "mixed.csv").write_text(PODS)
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "mixed.csv")]


def written(path: Path, *runs: tuple[str, int, float], policy: str = "fgd") -> str:
    lines = [
        json.dumps({"workload": w, "policy": policy, "seed": s, "allocated_pct": {"100": value}})
        for w, s, value in runs
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_bounds_say_how_much_any_scheduler_could_allocate(
    files: list[str], capsys: Capture
) -> None:
    """Six whole devices and eight shares of 0.6 are 10.8 of 14 leaves taken: 77.1 % at full load,
    as no two shares fit on one device.
    """
    assert run("shoal", ["bound", *files, "-o", "json", "--loads", "50,100"]) == DONE
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["workload"] == "mixed"
    assert found["allocated_pct"]["50"] == 50
    assert 77 < found["allocated_pct"]["100"] < 90
    assert found["host_pods_forced_pct"] == found["allocated_pct"]
    assert found["no_failure_pct"] == pytest.approx(100 * 10.8 / 14, abs=1e-3)


def test_bounds_come_as_a_table(files: list[str], capsys: Capture) -> None:
    assert run("shoal", ["bound", *files]) == DONE
    out = capsys.readouterr().out
    assert "mixed" in out
    assert "77.14" in out


@pytest.mark.parametrize("loads", ["", "0", "100,x", "-5", "12345"])
def test_loads_are_whole_numbers(files: list[str], capsys: Capture, loads: str) -> None:
    assert run("shoal", ["bound", *files, f"--loads={loads}"]) == ASKED_WRONGLY
    assert "--loads expects whole numbers" in capsys.readouterr().err


def test_pods_that_ask_for_no_device_have_no_bound(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "plain.csv").write_text("name,cpu_milli,memory_mib,devices\np,1000,1024,0\n")
    paths = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "plain.csv")]
    assert run("shoal", ["bound", *paths]) == ASKED_WRONGLY
    assert "plain.csv" in capsys.readouterr().err


def test_means_errors_and_differences_are_paired_by_seed() -> None:
    pairs = [Pair(1, 90.0, 92.0), Pair(2, 94.0, 95.0)]
    found = compared("w", pairs, 97.5)
    assert (found.first_pct, found.second_pct, found.difference) == (92.0, 93.5, 1.5)
    assert found.first_error == pytest.approx(2.0)
    assert found.difference_error == pytest.approx(0.5)
    assert found.gap_closed_pct == pytest.approx(100 * 1.5 / 5.5)


def test_files_are_compared_on_what_they_share(tmp_path: Path, capsys: Capture) -> None:
    first = written(tmp_path / "a.jsonl", ("w", 1, 90.0), ("w", 2, 94.0), ("v", 1, 50.0))
    second = written(
        tmp_path / "b.jsonl", ("w", 2, 95.0), ("w", 1, 92.0), ("w", 3, 0.0), policy="pack"
    )
    bounds = tmp_path / "bounds.jsonl"
    bounds.write_text(
        '{"workload": "w", "allocated_pct": {"100": 98}, "host_pods_forced_pct": {"100": 97.5}}\n'
    )
    arguments = ["compare", first, second, "--bounds", str(bounds)]
    assert run("shoal", [*arguments, "-o", "json"]) == DONE
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["gap_closed_pct"] == pytest.approx(100 * 1.5 / 5.5)
    assert run("shoal", arguments) == DONE
    assert "+1.50 ± 0.50" in capsys.readouterr().out


def test_of_files_with_several_policies_one_has_to_be_chosen(
    tmp_path: Path, capsys: Capture
) -> None:
    both = tmp_path / "both.jsonl"
    first = written(tmp_path / "a.jsonl", ("w", 1, 90.0))
    written(both, ("w", 1, 92.0), policy="pack")
    both.write_text(both.read_text() + Path(first).read_text())
    assert run("shoal", ["compare", str(both), str(both)]) == ASKED_WRONGLY
    assert "--policy FIRST,SECOND" in capsys.readouterr().err
    arguments = ["compare", str(both), str(both), "--policy", "fgd,pack", "-o", "json"]
    assert run("shoal", arguments) == DONE
    assert json.loads(capsys.readouterr().out)["difference"] == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no run"),
        ("not json\n", "line 1: expected a JSON object"),
        ('{"policy": "fgd"}\n', "line 1: expected a run"),
        ("[1]\n", "line 1: expected a JSON object"),
    ],
)
def test_files_that_are_no_runs_are_refused(
    tmp_path: Path, capsys: Capture, text: str, complaint: str
) -> None:
    good = written(tmp_path / "a.jsonl", ("w", 1, 90.0))
    (tmp_path / "b.jsonl").write_text(text)
    assert run("shoal", ["compare", good, str(tmp_path / "b.jsonl")]) == ASKED_WRONGLY
    assert complaint in capsys.readouterr().err


def test_files_without_a_common_run_are_refused(tmp_path: Path, capsys: Capture) -> None:
    first = written(tmp_path / "a.jsonl", ("w", 1, 90.0))
    second = written(tmp_path / "b.jsonl", ("w", 2, 90.0))
    assert run("shoal", ["compare", first, second]) == ASKED_WRONGLY
    assert "no run of the same workload and seed" in capsys.readouterr().err
