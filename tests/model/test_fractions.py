from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.fractions import (
    RATE_ONE,
    UNIT,
    charge_units,
    fraction_up,
    percent_units,
    rated_units,
)


@pytest.mark.parametrize("parts", [7, 8, 12, 20, 24, 1000])
def test_the_unit_is_divisible_by_what_devices_are_cut_into(parts: int) -> None:
    assert UNIT % parts == 0
    assert fraction_up(1, parts) * parts == UNIT


@given(st.integers(1, 10**9), st.data())
def test_a_fraction_is_rounded_up_and_by_less_than_one_unit(
    whole: int, data: st.DataObject
) -> None:
    part = data.draw(st.integers(0, whole))
    units = fraction_up(part, whole)
    assert Fraction(units, UNIT) >= Fraction(part, whole)
    assert Fraction(units - 1, UNIT) < Fraction(part, whole) or units == 0


def test_a_whole_is_exactly_one_unit() -> None:
    assert fraction_up(81_920, 81_920) == UNIT
    assert fraction_up(0, 81_920) == 0


def test_a_percentage_is_exact() -> None:
    assert [percent_units(percent) for percent in (0, 1, 33, 100)] == [0, 8_400, 277_200, UNIT]


@pytest.mark.parametrize("part", [-1, 11])
def test_what_is_no_part_of_a_whole_is_refused(part: int) -> None:
    with pytest.raises(ValueError, match="not a part of 10"):
        fraction_up(part, 10)


@pytest.mark.parametrize("whole", [0, -5])
def test_a_whole_must_be_positive(whole: int) -> None:
    with pytest.raises(ValueError, match="positive whole"):
        fraction_up(0, whole)


def test_the_charge_is_the_larger_fraction() -> None:
    assert charge_units(UNIT // 8, UNIT // 7) == UNIT // 7
    assert charge_units(UNIT // 2, UNIT * 3 // 7) == UNIT // 2


def test_a_charge_is_never_more_than_a_device() -> None:
    with pytest.raises(ValueError, match="memory fraction"):
        charge_units(UNIT + 1, 0)


@given(st.integers(0, UNIT), st.integers(1, 100_000))
def test_a_rated_charge_is_rounded_up(charge: int, rate: int) -> None:
    rated = rated_units(charge, rate)
    assert (rated - 1) * RATE_ONE < charge * rate <= rated * RATE_ONE


def test_the_reference_is_worth_itself() -> None:
    assert rated_units(UNIT, RATE_ONE) == UNIT


@pytest.mark.parametrize(("charge", "rate"), [(-1, 1), (1, 0), (1, -3)])
def test_a_negative_charge_or_no_rate_is_refused(charge: int, rate: int) -> None:
    with pytest.raises(ValueError, match="charge is at least 0"):
        rated_units(charge, rate)
