from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.quantities import parse_quantity, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("3000m", 3),
        ("1.5Gi", 3 * 2**29),
        ("5G", 5 * 10**9),
        ("3k", 3000),
        ("1e10", 10**10),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("+2", 2),
        ("-1Ki", -1024),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("100n", Fraction(1, 10**7)),
        ("1e-3", Fraction(1, 1000)),
    ],
)
def test_quantities_are_read_exactly(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", "1K", "1gi", "Gi", "1e", "0x10", "1_000", "٣", "NaN", "inf", "1.2.3", "--1",
     "1mi", "1" * 41, "1e9999", "\n1", "1\n"],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["9223372036854775807Gi", "9e18E", "1e300", "9223372036854775808"])
def test_more_than_kubernetes_can_store_is_refused_and_does_not_overflow(text: str) -> None:
    with pytest.raises(ValueError, match=r"more than Kubernetes can store|is not a quantity"):
        parse_quantity(text)


def test_the_largest_quantity_is_read() -> None:
    assert parse_quantity("9223372036854775807") == 2**63 - 1


@given(st.decimals(min_value=-(10**6), max_value=10**6, places=3))
def test_decimals_keep_their_value(value: Decimal) -> None:
    assert parse_quantity(f"{value:f}") == Fraction(value)


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    with suppress(ValueError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["0", "1.5", "-1", "1500m", "0.5"])
def test_a_count_is_a_whole_number_from_one(text: str) -> None:
    with pytest.raises(ValueError, match="write a whole number from 1"):
        whole(text, "devices")
