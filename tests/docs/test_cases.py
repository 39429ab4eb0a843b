"""Every case has tests by its id, and the table of what they do not assert names cases only."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CASES = (
    *(f"Q{n:02}" for n in range(1, 9)),
    *(f"E{n:02}" for n in range(1, 7)),
    *("M04", "M07", "O03", "O04"),
)
NAMES = {
    name.lower()
    for path in TESTS.rglob("test_*.py")
    for name in re.findall(r"def test_([A-Za-z][0-9]{2})_", path.read_text())
}
TABLE = re.findall(
    r"^\| ([A-Z][0-9]{2}) \| .+ \| .+ \|$", (TESTS / "README.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_lived_through_by_tests_of_its_id(case: str) -> None:
    assert case.lower() in NAMES


def test_what_is_missing_is_listed_of_cases_that_are_lived_through() -> None:
    assert len(TABLE) > 10
    assert {case.lower() for case in TABLE} <= NAMES
