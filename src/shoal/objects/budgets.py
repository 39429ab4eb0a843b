"""The budget of a queue as people write it: device hours or money in a period of the calendar."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any, Final, Literal
from zoneinfo import available_timezones

from pydantic import BeforeValidator, Field, StringConstraints

from shoal.catalog.catalog import Catalog
from shoal.model.queue import Budget, Period, WhenSpent
from shoal.objects.annotations import nearest
from shoal.objects.forms import Source, Strict

PATH: Final = ("spec", "budget")

_AMOUNT: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,6}))?(?: ([A-Z]{3}))?", re.ASCII)
_OF_THE_MACHINE: Final = frozenset({"localtime", "Factory"})
_SHOWN: Final = 4


def _as_text(value: Any) -> Any:
    """A whole number as its text; with decimals, an amount is text in YAML already."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Amount = Annotated[str, BeforeValidator(_as_text), StringConstraints(max_length=40)]


class BudgetModel(Strict):
    """What may be used in a period."""

    period: Literal["day", "week", "month", "quarter", "year"]
    time_zone: Annotated[str, StringConstraints(max_length=80)] = "UTC"
    device_hours: Annotated[int, Field(ge=0, le=10**9)] | None = None
    money: Amount | None = None
    when_spent: Literal["warn", "lower-weight", "no-borrowing", "no-new-starts"] = "no-borrowing"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one day by accelerator, in millionths for a whole device and hour."""

    micro: Mapping[str, int]
    currencies: tuple[str, ...]

    @property
    def currency(self) -> str:
        """The currency of all prices; empty where there is none, or more than one."""
        return self.currencies[0] if len(self.currencies) == 1 else ""


def prices_on(catalog: Catalog, day: date) -> Prices:
    """What the catalogue's price book says of a day, for devices that are in any pool."""
    found = {name: catalog.price(name, day) for name in catalog.accelerators}
    held = {name: price for name, price in found.items() if price is not None}
    return Prices(
        {name: price.micro_per_hour for name, price in held.items()},
        tuple(sorted({price.currency for price in held.values()})),
    )


def read_budget(source: Source, model: BudgetModel | None, prices: Prices) -> Budget | None:
    """The budget of a queue; what is wrong is noted in `source`."""
    if model is None:
        return None
    if (model.device_hours is None) == (model.money is None):
        source.complain(
            PATH, "is written in deviceHours or in money, one of the two; write one of them"
        )
    if model.time_zone not in _time_zones():
        near = ", ".join(nearest(model.time_zone, _time_zones())) or "UTC, Europe/Berlin"
        source.complain(
            (*PATH, "timeZone"),
            f"{model.time_zone!r} is no time zone of the IANA database; nearest: {near}",
        )
    return Budget(
        period=Period(model.period),
        device_hours=model.device_hours,
        when_spent=WhenSpent(model.when_spent),
        money_micro=None if model.money is None else _money_micro(source, model.money, prices),
        time_zone=model.time_zone,
    )


def check_prices(source: Source, accelerators: Collection[str], prices: Prices) -> None:
    """Note accelerators of a queue whose work would cost nothing, as they have no price."""
    missing = sorted(set(accelerators) - set(prices.micro))
    if not prices.micro:
        missing = missing or ["its accelerators"]
    if not missing:
        return
    more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
    names = ", ".join(missing[:_SHOWN])
    example = missing[0] if missing[0] in accelerators else "H100"
    source.complain(
        (*PATH, "money"),
        f"no price is known of {names}{more}; write one in a catalogue file, prices:"
        f" [{{accelerator: {example}, micro_per_hour: ..., currency: {prices.currency or '...'},"
        " valid_from: ...}], and give that file with --catalog; or write deviceHours",
    )


def _money_micro(source: Source, text: str, prices: Prices) -> int:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        source.complain(
            (*PATH, "money"),
            f'{text!r} is no amount of money; write such as 12000, "12000.50" or "12000.50 EUR"',
        )
        return 0
    whole, part, currency = found.groups()
    if len(prices.currencies) > 1:
        source.complain(
            (*PATH, "money"),
            f"the price book is in {' and '.join(prices.currencies)}, and a budget counts one"
            " currency; write all prices in one",
        )
    elif currency and prices.currency and currency != prices.currency:
        source.complain(
            (*PATH, "money"),
            f"is in {currency}, and the price book in {prices.currency}; write the amount in"
            f" {prices.currency}",
        )
    return int(whole) * 1_000_000 + int((part or "").ljust(6, "0"))


@cache
def _time_zones() -> frozenset[str]:
    """Every time zone, but those that mean another one on another machine."""
    return frozenset(available_timezones()) - _OF_THE_MACHINE
