"""Kubernetes quantities (`4Gi`, `500m`, `1.5e3`) read exactly.

The grammar and its bounds are those of `k8s.io/apimachinery/pkg/api/resource`: a decimal number,
then a binary suffix (Ki to Ei), a decimal suffix (n, u, m, none, k to E) or an exponent (e3, E-2).
What is smaller than a nano is rounded away from zero to a nano, and a number with a binary suffix
ends at 2^63 - 1, as the API server does it. No float is involved anywhere.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

ONE: Final = Fraction(1)
MILLI: Final = Fraction(1, 1000)
KIB: Final = Fraction(1 << 10)
MIB: Final = Fraction(1 << 20)
GIB: Final = Fraction(1 << 30)

MAX_BINARY: Final = (1 << 63) - 1
"""Where a number with a binary suffix ends."""

MAX_EXPONENT: Final = 36
"""The largest exponent that is read, either way: 10^18 of 10^18, more than a cluster can have."""

MAX_LENGTH: Final = 64
"""The longest text that is read as a quantity."""

_NANO: Final = 10**9
_BINARY: Final = {
    suffix: 10 * (i + 1) for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)


class QuantityError(ValueError):
    """A text is not a Kubernetes quantity; the message says what to write instead."""


@lru_cache(maxsize=4096)
def exact(text: str) -> Fraction:
    """The value of a quantity in units (bytes, cores, devices).

    Raises QuantityError.
    """
    found = _GRAMMAR.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None or not (found["whole"] or found["part"]):
        raise QuantityError(
            f"{text[:MAX_LENGTH]!r} is not a quantity; write a number with one of the suffixes "
            "Ki Mi Gi Ti Pi Ei, n u m k M G T P E, or an exponent such as e3"
        )
    part = found["part"] or ""
    number = Fraction(int(found["whole"] + part), 10 ** len(part))
    suffix = found["suffix"] or ""
    if suffix in _BINARY:
        number *= 1 << _BINARY[suffix]
    else:
        exponent = _exponent(text, found["exponent"]) if found["exponent"] else _DECIMAL[suffix]
        number *= Fraction(10) ** exponent
    number = Fraction(-(-number.numerator * _NANO // number.denominator), _NANO)
    if suffix in _BINARY:
        number = min(number, Fraction(MAX_BINARY))
    return -number if found["sign"] == "-" else number


def _exponent(text: str, digits: str) -> int:
    exponent = int(digits)
    if abs(exponent) > MAX_EXPONENT:
        raise QuantityError(
            f"{text!r} has an exponent beyond {MAX_EXPONENT}; write a number that hardware can have"
        )
    return exponent


def ceiling(text: str, unit: Fraction = ONE) -> int:
    """The smallest whole number of units that covers the quantity: for what is asked or used.

    Raises QuantityError.
    """
    value = exact(text) / unit
    return -(-value.numerator // value.denominator)


def floor(text: str, unit: Fraction = ONE) -> int:
    """The largest whole number of units inside the quantity: for what is offered.

    Raises QuantityError.
    """
    value = exact(text) / unit
    return value.numerator // value.denominator
