"""Kubernetes quantities, read exactly.

The grammar is that of ``resource.Quantity``: a decimal number with a suffix (``k``, ``M``, ``Ki``,
``m``, ...) or an exponent. Nothing is turned into a float, and no input can make a number so large
that computing with it is slow.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

_FORM: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40}))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_POWERS: Final = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
_LARGEST: Final = 2**63 - 1


def parse_quantity(text: str) -> Fraction:
    """The exact value of a Kubernetes quantity.

    Raises:
        ValueError: with the form to write; also for more than Kubernetes can store (2**63 - 1).
    """
    match = _FORM.fullmatch(text) if text.isascii() else None
    if match is None:
        raise ValueError(
            f"{text!r} is not a quantity; write a number, with a suffix such as Gi or k if needed"
        )
    value = Fraction(Decimal(match["number"]))
    if match["suffix"]:
        value *= _POWERS[match["suffix"]]
    elif match["exponent"]:
        value *= Fraction(10) ** int(match["exponent"])
    if abs(value) > _LARGEST:
        raise ValueError(f"{text!r} is more than Kubernetes can store; write a smaller number")
    return value


def whole(text: str, what: str) -> int:
    """A quantity that must be a whole number of at least 1.

    Args:
        text: the quantity as written; ``3000m`` is 3.
        what: what it counts, for the error.

    Raises:
        ValueError: with a sentence that says what to write.
    """
    value = parse_quantity(text)
    if value.denominator != 1 or value < 1:
        raise ValueError(f"{text!r} is not a number of {what}; write a whole number from 1")
    return int(value)
