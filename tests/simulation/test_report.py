import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shoal.model.node import Device, Leaf, Node
from shoal.model.verdict import Reason
from shoal.simulation.chart import Chart, Line, nice_limit, nice_step, svg
from shoal.simulation.curve import Curves
from shoal.simulation.report import PAGE, check_folder, report_files, write_report
from shoal.simulation.results import Run
from shoal.simulation.trace import Trace, TracePod
from tests.simulation.small import whole

SVG = "{http://www.w3.org/2000/svg}"


def trace(workload: str = "default") -> Trace:
    device = Device("n/0", "L4", (Leaf("n/0", 0),))
    return Trace(workload, (Node("n", 1, 1, 1, (device,)),), (TracePod("p", whole(1)),))


def one(policy: str, seed: int, top: int, *, lacked: bool = True) -> Run:
    allocated = {load: float(min(load, top)) for load in range(131)}
    failed = {load: max(0, load - top) for load in range(131)}
    curves = Curves(allocated, dict.fromkeys(range(131), 5.0), failed, failed)
    return Run("default", policy, seed, curves, {Reason.CPU: 2} if lacked else {}, 0.1)


RUNS = [one("fgd", 42, 95), one("fgd", 43, 94), one("random", 42, 80), one("random", 43, 82)]


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def test_the_report_is_three_pictures_and_a_page() -> None:
    files = report_files(trace(), RUNS)
    assert set(files) == {"allocation.svg", "fragmentation.svg", "failures.svg", "index.html"}
    for name in set(files) - {PAGE}:
        assert {"fgd", "random"} <= set(texts(files[name]))
    assert "94.50 <small>± 0.71</small>" in files[PAGE]
    assert "too little CPU" in files[PAGE]


def test_nothing_in_the_report_comes_from_the_network() -> None:
    for content in report_files(trace(), RUNS).values():
        assert not re.search(r"(?:src|href|url|import)\s*[=(]", content)
        assert set(re.findall(r"https?://[^\"' ]+", content)) <= {"http://www.w3.org/2000/svg"}
        assert "prefers-color-scheme: dark" in content


def test_the_allocation_picture_begins_before_the_policies_part() -> None:
    # `random` leaves the ideal at 80 %, so the picture shows 70 % and more.
    labels = texts(report_files(trace(), RUNS)["allocation.svg"])
    assert "70 %" in labels
    assert "60 %" not in labels


def test_names_that_look_like_markup_are_text() -> None:
    page = report_files(trace("<script>"), RUNS)[PAGE]
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_when_every_pod_found_a_place_the_report_says_so() -> None:
    page = report_files(trace(), [one("fgd", 1, 130, lacked=False)])[PAGE]
    assert "Every pod found a place" in page


def test_a_report_replaces_an_older_one_and_leaves_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    check_folder(folder)
    (folder / "notes.txt").write_text("mine")
    write_report(folder, {"x.svg": "old"})
    write_report(folder, {"x.svg": "new"})
    assert {file.name: file.read_text() for file in folder.iterdir()} == {
        "notes.txt": "mine",
        "x.svg": "new",
    }


def test_a_report_that_cannot_be_finished_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_report(tmp_path, {"a.svg": "whole", "b.svg": "\udcff"})
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        check_folder(tmp_path / "file")


def chart(*lines: Line) -> Chart:
    return Chart("t", "n", "x", lines, x_from=0, x_to=130, y_from=0, y_to=100)


def test_labels_do_not_overlap_and_stay_in_the_picture() -> None:
    flat = {0: 1.0, 130: 1.0}
    lines = [Line(f"line {i}", flat, flat, flat) for i in range(9)]
    root = ElementTree.fromstring(svg(chart(*lines)))
    heights = sorted(
        float(element.get("y", ""))
        for element in root.iter(f"{SVG}text")
        if (element.text or "").startswith("line")
    )
    assert len(heights) == 9
    assert all(below - above >= 16.9 for above, below in itertools.pairwise(heights))
    assert heights[0] > 60
    assert heights[-1] < 430


def test_values_outside_the_axes_are_drawn_at_their_edge() -> None:
    line = Line("l", {0: -5.0, 10: 500.0, 200: 3.0}, {0: -5.0}, {0: -5.0})
    document = svg(chart(line))
    assert "nan" not in document
    path = next(
        e
        for e in ElementTree.fromstring(document).iter(f"{SVG}path")
        if "line" in e.get("class", "")
    )
    heights = [float(point.split()[1]) for point in path.get("d", "")[1:].split("L")]
    assert len(heights) == 2
    assert all(64 <= height <= 378 for height in heights)


@pytest.mark.parametrize(
    ("value", "limit"), [(0, 1), (4.7, 5), (16.1, 20), (2760, 3000), (0.03, 0.03), (100, 100)]
)
def test_axes_end_on_round_numbers(value: float, limit: float) -> None:
    assert nice_limit(value) == pytest.approx(limit)


@pytest.mark.parametrize(("span", "step"), [(100, 20), (130, 50), (6, 1), (6.1, 2), (0.6, 0.1)])
def test_steps_are_one_two_or_five(span: float, step: float) -> None:
    assert nice_step(span, 6) == pytest.approx(step)
