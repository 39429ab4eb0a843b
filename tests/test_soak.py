"""What a soak came to is kept as it was."""

import json
from pathlib import Path

import pytest

from tests import soak

PRINTED = """\
..F                                                                      [100%]
============================ Hypothesis Statistics =============================
tests/core/test_stateful.py::TestCore::runTest:

  - during generate phase (4.40 seconds):
    - 5000 passing, 0 failing, and 17 invalid test cases

tests/loop/test_recording.py::test_junk_is_no_segment:

  - during reuse phase (0.10 seconds):
    - 3 passing, 1 failing, and 0 invalid test cases
=================== 1 failed, 2 passed, 4 skipped in 75.21s ====================
"""


def test_tests_and_examples_are_counted() -> None:
    counted = soak.counts(PRINTED.splitlines())
    assert counted == {"passed": 2, "failed": 1, "skipped": 4, "examples": 5003}
    assert soak.counts(["=== 1 passed, 2 errors in 3.00s ==="])["failed"] == 2
    assert soak.counts(["Traceback (most recent call last):"])["passed"] == 0


def test_the_last_line_of_each_suite_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "RESULTS", tmp_path / "soak.jsonl")
    for suite, passed in (("stateful", 1), ("crashes", 12), ("stateful", 2)):
        soak.keep({"suite": suite, "passed": passed})
    lines = [json.loads(line) for line in soak.RESULTS.read_text().splitlines()]
    assert lines == [{"suite": "crashes", "passed": 12}, {"suite": "stateful", "passed": 2}]


def test_an_unknown_suite_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["crash"])
    assert "there are: crashes, stateful, adversary, properties" in capsys.readouterr().err


def test_what_is_kept_is_whole() -> None:
    """Every suite that was run says what it came to, and of which commit."""
    for line in map(json.loads, soak.RESULTS.read_text().splitlines()):
        assert line["suite"] in soak.SUITES
        assert line["commit"]
        assert line["cores"] > 0
        assert line["failed"] == 0
        assert line["passed"] > 0
