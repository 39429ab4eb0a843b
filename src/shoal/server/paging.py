"""Lists in pages: a cursor names the last item that was sent, so that nothing is sent twice.

What is added or removed between two pages does not shift the others.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from shoal.server.problems import Kind, ProblemError

T = TypeVar("T")

Key = tuple[str | int, ...]

LARGEST_PAGE = 1000


class NoQuery(BaseModel):
    """Base of what is asked with; by itself nothing is."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitQuery(NoQuery):
    """What a list is asked with that goes on behind an id."""

    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = 200


class PageQuery(LimitQuery):
    """What a list in pages is asked with."""

    cursor: Annotated[str, Field(max_length=2000)] = ""


def cut(
    items: Iterable[T], key: Callable[[T], Key], query: PageQuery
) -> tuple[list[T], str | None]:
    """The items of one page in the order of their keys, and the cursor of the next page."""
    after = _decoded(query.cursor)
    ordered = sorted(items, key=key)
    if after is not None:
        try:
            ordered = [item for item in ordered if key(item) > after]
        except TypeError:
            raise _bad_cursor() from None
    page = ordered[: query.limit]
    following = _encoded(key(page[-1])) if len(ordered) > len(page) else None
    return page, following


def _encoded(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _decoded(cursor: str) -> Key | None:
    if not cursor:
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        parts = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        raise _bad_cursor() from None
    if not isinstance(parts, list) or not all(isinstance(part, str | int) for part in parts):
        raise _bad_cursor()
    return tuple(parts)


def _bad_cursor() -> ProblemError:
    return ProblemError(
        Kind.BAD_REQUEST, "cursor: is none that this API sent; begin again without one"
    )
