"""Durations as people write them: `10m`, `1h30m`, `7d`."""

import re
from typing import Final

FORM: Final = "([0-9]{1,4}d)?([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,7}s)?"
"""The form of a duration, as a regular expression; it also lets the empty text pass."""

_PARTS: Final = re.compile(FORM)
_UNITS_US: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000}


def duration_us(text: str) -> int:
    """A duration in microseconds; 0 where the text is none above zero."""
    found = _PARTS.fullmatch(text)
    parts = found.groups(default="0d") if found else ()
    return sum(int(part[:-1]) * _UNITS_US[part[-1]] for part in parts)


def is_zero(text: str) -> bool:
    """Whether the text is a duration of no length, such as `0s`."""
    return bool(text) and _PARTS.fullmatch(text) is not None and not duration_us(text)


def duration_text(value_us: int) -> str:
    """Microseconds, in whole seconds, as people write them."""
    text, left = "", value_us
    for letter, unit_us in _UNITS_US.items():
        count, left = divmod(left, unit_us)
        text += f"{count}{letter}" if count else ""
    return text or "0s"
