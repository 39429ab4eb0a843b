"""Whole numbers on the command line, as they are written: `1.5` is none, and is not rounded."""

import re
from collections.abc import Sequence
from typing import Any, Final

from cyclopts import Token

_FORM: Final = re.compile(r"-?[0-9]{1,18}")


def whole_number(_: Any, tokens: Sequence[Token]) -> int:
    """The number that is written. Raises ValueError where it is not whole."""
    text = tokens[0].value
    if _FORM.fullmatch(text) is None:
        raise ValueError(f'expected a whole number, in digits 0-9, found "{text}".')
    return int(text)
