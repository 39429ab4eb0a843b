"""Moments as programs write them: RFC 3339, such as `2026-11-29T21:04:05Z`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

FORM: Final = (
    "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    "T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?"
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
"""The form of a moment, as a regular expression; it also lets days pass that no month has."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment_us(text: str) -> int | None:
    """Microseconds since the epoch, rounded down; None where the text is no moment since then."""
    if re.fullmatch(FORM, text) is None:
        return None
    try:
        since = (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        return None
    return since if since >= 0 else None
