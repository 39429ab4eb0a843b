import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.versions import Version

NUMBERS = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)


@given(NUMBERS, NUMBERS)
def test_versions_compare_by_their_numbers(left: list[int], right: list[int]) -> None:
    first, second = (Version.parse(".".join(map(str, side))) for side in (left, right))
    padded = [side + [0] * (6 - len(side)) for side in (left, right)]
    assert (first < second) == (padded[0] < padded[1])
    assert (first == second) == (padded[0] == padded[1])


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("v1.36.2-gke.1", "1.36.2"),
        ("550.90.07", "550.90.7"),
        ("13.0", "13"),
        ("0.0", "0"),
        ("6.8.0-38-generic", "6.8"),
        ("1.7.20~ds1", "1.7.20"),
        ("2.0.0+build", "2"),
    ],
)
def test_what_follows_the_numbers_is_dropped(text: str, same: str) -> None:
    assert Version.parse(text) == Version.parse(same)
    assert str(Version.parse(text)) == text


def test_ten_is_more_than_nine() -> None:
    assert Version.parse("1.10") > Version.parse("1.9")


@pytest.mark.parametrize(
    "text", ["", "latest", "v", "1.", ".1", "1..2", "1.2.3.4.5.6.7", "\u0665", "1 2", "1" * 11]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write numbers with dots"):
        Version.parse(text)
