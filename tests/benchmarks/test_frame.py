"""Measurements say what they measured, misses included."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import frame, table
from benchmarks.frame import Result


@pytest.mark.parametrize(
    ("result", "target", "met"),
    [
        (Result("run", 3.5, "s", at_most=4), "at most 4", True),
        (Result("run", 4.5, "s", at_most=4), "at most 4", False),
        (Result("rate", 2000, "1/s", at_least=2000), "at least 2,000", True),
        (Result("rate", 1999, "1/s", at_least=2000), "at least 2,000", False),
        (Result("gap", 0.1, "", at_least=-0.3, at_most=0.3), "at least -0.3 and at most 0.3", True),
        (Result("curve", 7, "us"), None, None),
    ],
)
def test_a_target_is_met_exactly_when_the_value_says_so(
    result: Result, target: str | None, met: bool | None
) -> None:
    assert result.target == target
    assert result.met is met


@pytest.fixture
def one_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package with two measurements, its results and README in a folder of their own."""

    def gang() -> Iterator[Result]:
        """A gang."""
        yield Result("plan a gang", 1.25, "s", at_most=1)

    def fill() -> Iterator[Result]:
        """A fill."""
        yield Result("starts", 12345.6, "1/s", at_least=2000)

    results, readme = tmp_path / "results.jsonl", tmp_path / "README.md"
    readme.write_text(f"# Shoal\n{table.START}\nold\n{table.END}\nafter\n")
    monkeypatch.setattr(program, "registered", lambda: {"fill": fill, "gang": gang})
    monkeypatch.setattr(program, "RESULTS", results)
    monkeypatch.setattr(table, "README", readme)
    monkeypatch.setattr(table, "records", lambda: json_lines(results))
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    return tmp_path


def json_lines(path: Path) -> list[table.Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_full_run_is_written_down_with_its_misses(
    one_bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([]) == 0
    fill, gang = json_lines(one_bench / "results.jsonl")
    assert (fill["name"], fill["value"], fill["met"]) == ("starts", 12345.6, True)
    assert (gang["target"], gang["met"], gang["how"]) == (
        "at most 1",
        False,
        "python -m benchmarks gang",
    )
    assert set(gang) == set(table.Record.__annotations__)
    assert "MISSED: at most 1" in capsys.readouterr().out
    readme = (one_bench / "README.md").read_text()
    assert "| plan a gang | 1.25 s | at most 1 s | **missed** |" in readme
    assert "| starts | 12,346 1/s | at least 2,000 1/s | met |" in readme
    assert readme.endswith(f"{table.END}\nafter\n")
    assert "old" not in readme


def test_a_recorded_run_of_some_replaces_their_lines(one_bench: Path) -> None:
    program.main([])
    results = one_bench / "results.jsonl"
    results.write_text(results.read_text().replace("12345.6", "1").replace("1.25", "2"))
    assert program.main(["gang", "--record"]) == 0
    assert [line["value"] for line in json_lines(results)] == [1, 1.25]


def test_a_run_of_some_writes_nothing(one_bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["gang"]) == 0
    assert "plan a gang: 1.25 s" in capsys.readouterr().out
    assert not (one_bench / "results.jsonl").exists()


@pytest.mark.usefixtures("one_bench")
def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["gnag"]) == 2
    assert capsys.readouterr().err == "no measurement is named gnag; there are: fill, gang\n"


@pytest.mark.usefixtures("one_bench")
@pytest.mark.parametrize("folder", [None, "/no/such/folder"])
def test_nothing_is_measured_without_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str | None
) -> None:
    if folder is None:
        monkeypatch.delenv("SHOAL_DATA")
    else:
        monkeypatch.setenv("SHOAL_DATA", folder)
    assert program.main([]) == 2
    assert "SHOAL_DATA" in capsys.readouterr().err


def test_two_measurements_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "_benches", {})

    def gang() -> Iterator[Result]:
        """A gang."""
        yield Result("plan a gang", 1, "s")

    frame.bench(gang)
    with pytest.raises(ValueError, match="two measurements are named gang"):
        frame.bench(gang)


def test_a_measurement_without_docstring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "_benches", {})

    def gang() -> Iterator[Result]:
        yield Result("plan a gang", 1, "s")

    with pytest.raises(ValueError, match="gang has no docstring"):
        frame.bench(gang)


def test_every_measurement_of_the_package_is_found() -> None:
    assert all(run.__doc__ for run in frame.registered().values())


def test_the_memory_of_a_process_is_its_own_and_not_that_of_who_started_it() -> None:
    """`queues-throughput`, run before, made `steady-state` say 569 MiB where it takes 284."""
    held = bytearray(b"." * (256 << 20))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(frame.peak_mib).result() < 200
    assert frame.peak_mib() > len(held) >> 20


def test_a_readme_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        table.filled("# Shoal\n", [])


def test_the_readme_says_what_was_measured() -> None:
    readme = table.README.read_text()
    assert readme == table.filled(readme, table.records()), (
        "README.md's table differs from benchmarks/results.jsonl; run scripts/readme-table --write"
    )
