"""What a device is worth: exchange rates between accelerators, and prices, both dated.

Exchange rates put quota of different accelerators on one scale. Unless an organisation sets its
own, the rate of an accelerator is derived from its published specifications by
`derived_rate`. Prices are always the organisation's own; the catalogue ships none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final

from shoal.catalog.accelerators import Accelerator
from shoal.model.fractions import RATE_ONE

RATE_RULE: Final = (
    "the geometric mean of memory (GB), memory bandwidth (GB/s) and dense FP16 throughput "
    "(GFLOPS), each relative to the reference accelerator, in thousandths, rounded to the nearest"
)
"""The stated rule of derived exchange rates."""

RATE_FACTS: Final = ("memory_gb", "bandwidth_gbytes_per_s", "fp16_gflops")
"""The facts that the rule needs; where a source lacks one, there is no derived rate."""


@dataclass(frozen=True, slots=True)
class RateOverride:
    """An organisation's own rate of an accelerator or group, valid from a day on."""

    accelerator: str
    milli: int
    valid_from: date
    reason: str


@dataclass(frozen=True, slots=True)
class Rate:
    """An exchange rate in thousandths of the reference accelerator, and where it comes from."""

    milli: int
    basis: str


@dataclass(frozen=True, slots=True)
class Price:
    """What one device costs per hour, in millionths of the currency.

    ``pool`` narrows it to one pool (empty: any). Valid from ``valid_from`` until the day before
    ``valid_until`` (``None``: open). ``example`` marks figures that are made up to show the form.
    """

    accelerator: str
    micro_per_hour: int
    currency: str
    valid_from: date
    valid_until: date | None = None
    pool: str = ""
    example: bool = False

    def valid_on(self, day: date) -> bool:
        """Whether the price holds on ``day``."""
        return self.valid_from <= day and (self.valid_until is None or day < self.valid_until)


def derived_rate(accelerator: Accelerator, reference: Accelerator) -> int | None:
    """The rate of ``accelerator`` by `RATE_RULE`, in thousandths; ``None`` if a fact lacks.

    Computed in integers, so that it is the same on every machine.
    """
    numerator, denominator = RATE_ONE**3, 1
    for fact in RATE_FACTS:
        own, theirs = getattr(accelerator, fact), getattr(reference, fact)
        if not own or not theirs:
            return None
        numerator *= own
        denominator *= theirs
    return max(1, _nearest_cube_root(numerator, denominator))


def _nearest_cube_root(numerator: int, denominator: int) -> int:
    """The whole number nearest to the cube root of a positive fraction."""
    low, high = 0, 1
    while high**3 * denominator <= numerator:
        high *= 2
    while low + 1 < high:
        middle = (low + high) // 2
        if middle**3 * denominator <= numerator:
            low = middle
        else:
            high = middle
    # low <= root < low + 1; round up if root is at least low + 1/2.
    return low + (8 * numerator >= (2 * low + 1) ** 3 * denominator)


def override_on(
    overrides: Iterable[RateOverride], names: tuple[str, ...], day: date
) -> Rate | None:
    """The override that holds on ``day`` for the first of ``names`` that has one.

    ``names`` runs from the accelerator's own name to its widest group; of several overrides of one
    name, the one with the latest start that is not after ``day`` holds.
    """
    known = tuple(overrides)
    for name in names:
        held = [o for o in known if o.accelerator == name and o.valid_from <= day]
        if held:
            latest = max(held, key=lambda override: override.valid_from)
            return Rate(latest.milli, f"set from {latest.valid_from}: {latest.reason}")
    return None


def price_on(
    prices: Iterable[Price], names: tuple[str, ...], day: date, pool: str = ""
) -> Price | None:
    """The price that holds on ``day``: of the pool before any pool, of the narrower name first."""
    held = [price for price in prices if price.accelerator in names and price.valid_on(day)]
    held = [price for price in held if price.pool in ("", pool)]
    return max(
        held,
        key=lambda p: (p.pool == pool and bool(pool), -names.index(p.accelerator), p.valid_from),
        default=None,
    )
