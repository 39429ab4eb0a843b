"""Texts that people send: JSON can write half a character, which nothing else can."""

import json
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator

T = TypeVar("T")


def _whole(value: T) -> T:
    """The value, unless a text in it cannot be written."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("has half of a character (a surrogate); write whole ones") from None
    except RecursionError:
        raise ValueError("is nested too deep; write it flatter") from None
    return value


Text = Annotated[str, AfterValidator(_whole)]
Manifest = Annotated[dict[str, Any], AfterValidator(_whole)]
