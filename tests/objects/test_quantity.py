"""Quantities are read exactly as Kubernetes reads them.

`quantity.tsv` was made with apimachinery 0.37.2 itself (`resource.ParseQuantity` and `AsDec`).
"""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.objects import quantity
from shoal.objects.quantity import GIB, KIB, MIB, MILLI, ONE, QuantityError

KUBERNETES = [
    line.split("\t")
    for line in Path(__file__).with_name("quantity.tsv").read_text(encoding="utf-8").splitlines()
]
SUFFIXES = {
    "": ONE,
    "m": MILLI,
    "k": Fraction(1000),
    "Ki": KIB,
    "Mi": MIB,
    "Gi": GIB,
    "E": Fraction(10**18),
}


@pytest.mark.parametrize(("text", "value"), KUBERNETES)
def test_a_text_means_what_kubernetes_takes_it_for(text: str, value: str) -> None:
    if value == "ERROR":
        with pytest.raises(QuantityError):
            quantity.exact(text)
    else:
        assert quantity.exact(text) == Fraction(Decimal(value))


@pytest.mark.parametrize("text", ["", ".", "-", "+Gi", "e3", " 1", "1 Gi", "1Gi ", "1e999999999"])
def test_what_is_no_number_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(QuantityError, match="write a number"):
        quantity.exact(text)


def test_a_very_long_text_is_refused_and_not_repeated_whole() -> None:
    with pytest.raises(QuantityError) as caught:
        quantity.exact("1" * 100_000)
    assert len(str(caught.value)) < 300


@given(st.integers(0, 10**9), st.sampled_from(sorted(SUFFIXES)))
def test_whole_numbers_scale_by_their_suffix(number: int, suffix: str) -> None:
    assert quantity.exact(f"{number}{suffix}") == number * SUFFIXES[suffix]


@given(st.decimals(min_value=0, max_value=10**6, places=9))
def test_nothing_down_to_a_nano_is_lost(number: Decimal) -> None:
    assert quantity.exact(f"{number:f}") == Fraction(number)
    assert quantity.exact(f"-{number:f}") == -Fraction(number)


@given(
    st.integers(0, 10**12),
    st.integers(0, 12),
    st.sampled_from(sorted(SUFFIXES)),
    st.sampled_from([ONE, MILLI, MIB, GIB]),
)
def test_ceiling_covers_and_floor_fits(
    number: int, places: int, suffix: str, unit: Fraction
) -> None:
    text = f"{Decimal(number).scaleb(-places):f}{suffix}"
    low, high = quantity.floor(text, unit), quantity.ceiling(text, unit)
    assert low * unit <= quantity.exact(text) <= high * unit
    assert 0 <= high - low <= 1
    assert (high == low) == (low * unit == quantity.exact(text))
