from dataclasses import replace
from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.accelerators import Accelerator
from shoal.catalog.catalog import Catalog
from shoal.catalog.rates import Price, RateOverride, derived_rate

DAY = date(2026, 11, 29)


def test_the_reference_is_worth_a_thousand(catalog: Catalog) -> None:
    rate = catalog.rate(catalog.reference, DAY)
    assert rate is not None
    assert rate.milli == 1000


def test_a_derived_rate_follows_the_stated_rule(catalog: Catalog) -> None:
    card, reference = catalog.accelerator("H100-SXM5-80GB"), catalog.accelerator("A100-SXM4-80GB")
    ratio = Fraction(80, 80) * Fraction(3350, 2039) * Fraction(989_500, 312_000)
    assert derived_rate(card, reference) == round(1000 * float(ratio) ** (1 / 3)) == 1734
    found = catalog.rate("H100-SXM5-80GB", DAY)
    assert found is not None
    assert "geometric mean" in found.basis
    assert "A100-SXM4-80GB" in found.basis


@pytest.mark.parametrize("lacking", ["memory_gb", "bandwidth_gbytes_per_s", "fp16_gflops"])
def test_no_rate_is_derived_where_a_fact_lacks(catalog: Catalog, lacking: str) -> None:
    card = replace(catalog.accelerator("T4"))
    object.__setattr__(card, lacking, None)
    assert derived_rate(card, catalog.accelerator("A100-SXM4-80GB")) is None
    assert catalog.rate("Ascend910A", DAY) is None


SIZES = st.integers(1, 10**7)


@given(SIZES, SIZES, SIZES)
def test_the_rate_is_the_nearest_whole_cube_root(memory: int, bandwidth: int, flops: int) -> None:
    card = Accelerator(
        "x", "v", memory_gb=memory, bandwidth_gbytes_per_s=bandwidth, fp16_gflops=flops
    )
    one = Accelerator("y", "v", memory_gb=7, bandwidth_gbytes_per_s=11, fp16_gflops=13)
    rate = derived_rate(card, one)
    assert rate is not None
    exact = Fraction(10**9 * memory * bandwidth * flops, 7 * 11 * 13)
    assert Fraction(2 * rate + 1, 2) ** 3 > exact
    assert Fraction(2 * rate - 1, 2) ** 3 <= exact or rate == 1


def with_rates(catalog: Catalog, *overrides: RateOverride) -> Catalog:
    return replace(catalog, rates=overrides)


def test_an_own_rate_holds_from_its_day_on(catalog: Catalog) -> None:
    own = with_rates(
        catalog,
        RateOverride("H100", 1500, date(2026, 1, 1), "agreed"),
        RateOverride("H100", 1700, date(2026, 7, 1), "agreed again"),
        RateOverride("H100-PCIE-80GB", 1200, date(2026, 3, 1), "slower"),
    )

    def milli(name: str, *day: int) -> int:
        rate = own.rate(name, date(*day))
        assert rate is not None
        return rate.milli

    assert milli("H100-SXM5-80GB", 2025, 12, 31) == 1734
    assert milli("H100-SXM5-80GB", 2026, 1, 1) == 1500
    assert milli("H100-SXM5-80GB", 2026, 6, 30) == 1500
    assert milli("H100-SXM5-80GB", 2026, 7, 1) == 1700
    assert milli("H100-PCIE-80GB", 2026, 2, 28) == 1500
    assert milli("H100-PCIE-80GB", 2026, 12, 1) == 1200
    named = own.rate("H100-PCIE-80GB", DAY)
    assert named is not None
    assert named.basis == "set from 2026-03-01: slower"


def test_prices_hold_on_their_days_for_their_pools(catalog: Catalog) -> None:
    own = replace(
        catalog,
        prices=(
            Price("H100", 3_000_000, "EUR", date(2026, 1, 1), date(2026, 7, 1)),
            Price("H100", 2_500_000, "EUR", date(2026, 7, 1)),
            Price("H100", 4_000_000, "EUR", date(2026, 1, 1), pool="urgent"),
            Price("H100-PCIE-80GB", 2_000_000, "EUR", date(2026, 1, 1)),
        ),
    )

    def price(name: str, day: date, pool: str = "") -> int | None:
        found = own.price(name, day, pool)
        return found.micro_per_hour if found else None

    assert price("H100-SXM5-80GB", date(2025, 12, 31)) is None
    assert price("H100-SXM5-80GB", date(2026, 6, 30)) == 3_000_000
    assert price("H100-SXM5-80GB", date(2026, 7, 1)) == 2_500_000
    assert price("H100-SXM5-80GB", date(2026, 7, 1), "urgent") == 4_000_000
    assert price("H100-SXM5-80GB", date(2026, 7, 1), "other") == 2_500_000
    assert price("H100-PCIE-80GB", date(2026, 7, 1)) == 2_000_000
    assert price("T4", date(2026, 7, 1)) is None


def test_the_catalogue_ships_no_prices_and_no_own_rates(catalog: Catalog) -> None:
    assert catalog.prices == ()
    assert catalog.rates == ()
