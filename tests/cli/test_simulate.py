import codecs
import contextlib
import csv
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.app import ASKED_WRONGLY, DONE, FAILED, INTERRUPTED, run
from shoal.cli.errors import UsageError
from shoal.cli.simulate import parse_policies, parse_seeds
from shoal.core.policies import POLICIES
from shoal.simulation.results import seeds_text

SHOAL = str(Path(sys.executable).with_name("shoal"))

Capture = pytest.CaptureFixture[str]

NODES = "name,cpu_milli,memory_mib,devices,accelerator,count\nn,64000,262144,4,L4,5\n"
PODS = (
    "name,cpu_milli,memory_mib,devices,compute_milli,count\n"
    "one,4000,8192,1,,6\nhalf,2000,4096,1,500,8\npair,8000,16384,2,,2\nplain,1000,2048,0,,4\n"
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "mixed.csv").write_text(PODS)
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "mixed.csv")]


def test_json_is_one_object_a_line_in_the_order_asked_for(
    files: list[str], capsys: Capture
) -> None:
    arguments = ["--policy", "fgd,best-fit", "--seeds", "42-43", "-o", "json", "--processes", "2"]
    assert run("shoal", ["simulate", *files, *arguments]) == DONE
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["policy"], line["seed"]) for line in lines] == [
        ("fgd", 42),
        ("fgd", 43),
        ("best-fit", 42),
        ("best-fit", 43),
    ]
    for line in lines:
        assert line["workload"] == "mixed"
        assert 0 < line["allocated_pct"]["100"] <= 100
        assert line["failed"]["0"] == 0
        assert line["failed"]["130"] > 0
        assert line["seconds"] > 0
    assert not err


def test_demand_may_be_learned_and_running_pods_moved(files: list[str], capsys: Capture) -> None:
    arguments = ["--policy", "fragmentation", "--demand", "learned", "--moves", "20", "-o", "json"]
    assert run("shoal", ["simulate", *files, *arguments, "--seeds", "42"]) == DONE
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert line["demand"] == "learned"
    assert line["moves"] >= 0


def test_csv_has_a_header_and_a_row_for_each_load(files: list[str], capsys: Capture) -> None:
    assert run("shoal", ["simulate", *files, "--policy", "pack", "--output", "csv"]) == DONE
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {row["policy"] for row in rows} == {"pack"}
    assert [int(row["arrived_pct"]) for row in rows] == sorted(int(r["arrived_pct"]) for r in rows)


def test_the_table_is_plain_text_when_piped(files: list[str], capsys: Capture) -> None:
    assert run("shoal", ["simulate", *files, "--policy", "pack,spread", "--seeds", "1,2"]) == DONE
    out, err = capsys.readouterr()
    assert out.startswith("mixed: 5 nodes, 20 devices, mean of seeds 1-2\n")
    assert "±" in out
    assert "\x1b" not in out
    assert not err


def test_a_report_is_written_where_it_is_asked_for(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "build" / "report"
    assert run("shoal", ["simulate", *files, "--policy", "pack", "--report", str(folder)]) == DONE
    assert {file.name for file in folder.iterdir()} == {
        "allocation.svg",
        "failures.svg",
        "fragmentation.svg",
        "index.html",
    }
    assert capsys.readouterr().err == f"report: {folder}/index.html\n"


def test_bad_input_is_one_sentence_status_2_and_nothing_written(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    bad = tmp_path / "mixed.csv"
    bad.write_text(PODS + "bad,-1,1,1,,\n")
    folder = tmp_path / "report"
    arguments = ["--policy", "pack", "--report", str(folder), "-o", "json"]
    assert run("shoal", ["simulate", *files, *arguments]) == ASKED_WRONGLY
    out, err = capsys.readouterr()
    assert not out
    assert err == (
        f"shoal: {bad}, line 6, column cpu_milli: expected a whole number from 0 to 1000000000,"
        ' found "-1".\n'
    )
    assert not folder.exists()


def test_a_report_that_cannot_be_written_is_said_before_the_work(
    files: list[str], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["--policy", "pack", "--report", str(tmp_path / "file")]
    assert run("shoal", ["simulate", *files, *arguments]) == ASKED_WRONGLY
    out, err = capsys.readouterr()
    assert not out
    assert err == f"shoal: --report {tmp_path}/file: File exists.\n"


def test_a_disk_that_fills_up_is_status_1(
    files: list[str], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shoal.simulation.report.write_report", full)
    arguments = ["--policy", "pack", "--report", str(tmp_path / "r")]
    assert run("shoal", ["simulate", *files, *arguments]) == FAILED
    assert capsys.readouterr().err == f"shoal: --report {tmp_path}/r: No space left on device.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "fdg"], f'--policy expects names out of {", ".join(POLICIES)}, found "fdg".'),
        (
            ["--policy", "pack,,fgd"],
            f'--policy expects names out of {", ".join(POLICIES)}, found "".',
        ),
        (["--policy", "fgd,pack,fgd"], '--policy names "fgd" twice.'),
        (
            ["--policy", "fgd", "--seeds", "51-42"],
            (
                "--seeds expects whole numbers and ranges joined by commas, such as 42-51 or 1,2,7,"
                ' found "51-42".'
            ),
        ),
        (["--policy", "fgd", "--seeds", "1,1-3"], '--seeds lists a seed twice, found "1,1-3".'),
        (
            ["--policy", "fgd,pack", "--seeds", "0-9999"],
            "--policy and --seeds ask for 20000 runs; 10000 is the most.",
        ),
        (
            ["--policy", "fgd", "--processes", "0"],
            "--processes expects a whole number from 1, found 0.",
        ),
        (
            ["--policy", "fgd", "--moves", "101"],
            "--moves expects a whole number from 0 to 100, found 101.",
        ),
    ],
)
def test_a_wrong_argument_is_one_sentence(
    files: list[str], arguments: list[str], sentence: str, capsys: Capture
) -> None:
    assert run("shoal", ["simulate", *files, *arguments]) == ASKED_WRONGLY
    assert capsys.readouterr().err == f"shoal: {sentence}\n"


@given(st.sets(st.integers(0, 60), min_size=1))
def test_seeds_are_read_as_they_are_written(seeds: set[int]) -> None:
    assert parse_seeds(seeds_text(seeds)) == sorted(seeds)


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "1;2", "1-2-3", "9" * 19, "\uff11", "0-10000"]
)
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_seeds(text)


def test_every_policy_is_in_the_help(capsys: Capture) -> None:
    run("shoal", ["simulate", "--help"])
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"{', '.join(POLICIES)}." in out
    assert parse_policies(",".join(POLICIES)) == list(POLICIES)


class Terminal:
    """A terminal that a command writes to, read all the time so that the command never waits."""

    def __init__(self) -> None:
        self._master, self.command_side = pty.openpty()
        self.seen = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            decoder = codecs.getincrementaldecoder("utf-8")()
            while text := os.read(self._master, 10_000):
                with self._changed:
                    self.seen += decoder.decode(text)
                    self._changed.notify()
        os.close(self._master)

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.seen, timeout=200)

    def close(self) -> str:
        os.close(self.command_side)
        self._reader.join()
        return self.seen


def test_a_person_at_a_terminal_sees_a_bar_that_leaves_the_output_clean(files: list[str]) -> None:
    terminal = Terminal()
    answer = subprocess.run(
        [SHOAL, "simulate", *files, "--policy", "pack,spread", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=terminal.command_side,
        check=True,
        text=True,
    )
    assert "2/2" in terminal.close()
    assert len([json.loads(line) for line in answer.stdout.splitlines()]) == 2


def test_an_interrupt_ends_it_with_a_sentence_and_no_output(repository: Path) -> None:
    folder = repository / "examples" / "openb"
    files = ["--nodes", str(folder / "nodes.csv"), "--pods", str(folder / "pods.csv")]
    terminal = Terminal()
    with subprocess.Popen(
        [SHOAL, "simulate", *files, "--policy", "random", "--seeds", "1-99", "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=terminal.command_side,
        start_new_session=True,
    ) as process:
        try:
            terminal.wait_for("1/99")
            os.killpg(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=200)
        finally:
            process.kill()
    seen = terminal.close()
    assert process.returncode == INTERRUPTED
    assert not out
    assert "shoal: interrupted." in seen
    assert "Traceback" not in seen


def test_no_process_outlives_the_one_that_was_killed(repository: Path) -> None:
    folder = repository / "examples" / "openb"
    files = ["--nodes", str(folder / "nodes.csv"), "--pods", str(folder / "pods.csv")]
    terminal = Terminal()
    output, command_side = os.pipe()
    with subprocess.Popen(
        [SHOAL, "simulate", *files, "--policy", "random", "--seeds", "1-99", "--processes", "2"],
        stdout=command_side,
        stderr=terminal.command_side,
        start_new_session=True,
    ) as process:
        os.close(command_side)
        try:
            terminal.wait_for("1/99")
        finally:
            process.kill()
    # Every process that was left would hold the pipe open.
    assert not os.read(output, 1)
    os.close(output)
    terminal.close()


def test_the_example_of_the_documentation_runs(
    repository: Path, tmp_path: Path, capsys: Capture
) -> None:
    page = (repository / "docs" / "simulate.md").read_text()
    for name, block in zip(("nodes", "pods"), page.split("```yaml\n")[1:], strict=True):
        (tmp_path / f"{name}.yaml").write_text(block.partition("```")[0])
    files = ["--nodes", f"{tmp_path}/nodes.yaml", "--pods", f"{tmp_path}/pods.yaml"]
    assert run("shoal", ["simulate", *files, "--policy", "pack,fgd"]) == DONE
    assert "14 nodes, 72 devices" in capsys.readouterr().out
