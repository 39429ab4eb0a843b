"""Fractions of a device as whole numbers, so that sums of money and quota are exact.

A whole device is 840,000 units, a number divisible by 7, 8, 12, 20, 24 and 1,000: slices of every
partition geometry, and thousandths, are whole numbers of units. A fraction is rounded up, so that
what is charged never falls short of what is held.
"""

from __future__ import annotations

from typing import Final

UNIT: Final = 840_000
"""Units in one whole device."""

RATE_ONE: Final = 1_000
"""Exchange rates are whole thousandths of the reference accelerator."""


def fraction_up(part: int, whole: int) -> int:
    """``part`` of ``whole`` in units of 1/840,000, rounded up.

    Raises:
        ValueError: if ``whole`` is not positive or ``part`` is not within 0 and ``whole``.
    """
    if whole <= 0:
        msg = f"a fraction needs a positive whole, not {whole}"
        raise ValueError(msg)
    if not 0 <= part <= whole:
        msg = f"{part} is not a part of {whole}; write a number from 0 to {whole}"
        raise ValueError(msg)
    return -(-part * UNIT // whole)


def percent_units(percent: int) -> int:
    """A whole percentage of a device in units: exact, as 840,000 is divisible by 100.

    Raises:
        ValueError: if ``percent`` is not within 0 and 100.
    """
    return fraction_up(percent, 100)


def charge_units(memory_units: int, compute_units: int) -> int:
    """What an allocation is charged, in units of a device: the larger of its two fractions.

    Raises:
        ValueError: if a fraction is not within 0 and 840,000.
    """
    for axis, units in (("memory", memory_units), ("compute", compute_units)):
        if not 0 <= units <= UNIT:
            msg = f"the {axis} fraction {units} is not within 0 and {UNIT} units"
            raise ValueError(msg)
    return max(memory_units, compute_units)


def rated_units(charge: int, rate_milli: int) -> int:
    """A charge in units of the reference accelerator, rounded up.

    Args:
        charge: units of 1/840,000 of the device itself.
        rate_milli: the device's exchange rate, in thousandths of the reference accelerator.

    Raises:
        ValueError: for a negative charge or a rate that is not positive.
    """
    if charge < 0 or rate_milli <= 0:
        msg = f"a charge is at least 0 and a rate more than 0, not {charge} and {rate_milli}"
        raise ValueError(msg)
    return -(-charge * rate_milli // RATE_ONE)
