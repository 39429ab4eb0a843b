"""Loads the catalogue from files: Shoal's own, then a user's, which extend or override them.

Nothing is cached: what is returned is what the files say now.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from shoal.catalog.catalog import Catalog
from shoal.catalog.load import schema
from shoal.catalog.load.build import Builder
from shoal.catalog.load.reader import CatalogError, Document, read_bytes, read_file

__all__ = ["CatalogError", "build", "in_words", "load_catalog", "own_files"]

_MOST_FILES: Final = 500
_MOST_PROBLEMS: Final = 50
_FIELDS: Final = sorted(
    {
        info.alias or name
        for part in vars(schema).values()
        if isinstance(part, type) and issubclass(part, BaseModel)
        for name, info in part.model_fields.items()
    }
)


def load_catalog(extra: Iterable[Path] = ()) -> Catalog:
    """The catalogue: Shoal's own facts, extended and overridden by the files in ``extra``.

    Args:
        extra: files, or folders whose ``*.yaml`` files are read in order of their names.

    Raises:
        CatalogError: with every problem found, each with file, line and fact.
    """
    documents = list(own_files())
    for path in extra:
        documents += [read_file(file) for file in _expand(path)]
    return build(documents)


def own_files() -> list[Document]:
    """Shoal's own files, read."""
    folder = files("shoal.catalog") / "data"
    own = sorted((entry for entry in folder.iterdir()), key=lambda entry: entry.name)
    return [
        read_bytes(entry.read_bytes(), f"catalogue/{entry.name}")
        for entry in own
        if entry.name.endswith(".yaml")
    ]


def build(documents: Sequence[Document]) -> Catalog:
    """The catalogue that these documents describe, later ones overriding earlier ones.

    Raises:
        CatalogError: with every problem found, each with file, line and fact.
    """
    builder = Builder()
    for document in documents:
        parsed = _validated(document, builder.problems)
        if parsed is not None:
            builder.add(document, parsed)
    if builder.problems:
        # What refers to a part that could not be read would only be reported as missing.
        raise CatalogError(_first(builder.problems))
    try:
        return builder.build()
    except CatalogError as error:
        raise CatalogError(_first(error.problems)) from None


def _expand(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.yaml"))
    if len(found) > _MOST_FILES:
        raise CatalogError([f"{path}: has more than {_MOST_FILES} files; give fewer"])
    if not found:
        raise CatalogError([f"{path}: has no *.yaml file"])
    odd = [entry for entry in found if entry.exists() and not entry.is_file()]
    if odd:
        raise CatalogError([f"{entry}: is not a file; move it away" for entry in odd])
    return found


def _first(problems: Sequence[str]) -> list[str]:
    shown = list(problems[:_MOST_PROBLEMS])
    if len(problems) > _MOST_PROBLEMS:
        shown.append(f"... and {len(problems) - _MOST_PROBLEMS} more")
    return shown


def _validated(document: Document, problems: list[str]) -> schema.CatalogFile | None:
    if not isinstance(document.data, dict):
        problems.append(document.problem((), "must be a mapping with a line schema: ..."))
        return None
    if document.data.get("schema") != schema.SCHEMA:
        sentence = f"the file must say 'schema: {schema.SCHEMA}'"
        problems.append(document.problem(("schema",), sentence))
        return None
    try:
        return schema.CatalogFile.model_validate(document.data)
    except ValidationError as error:
        for part in error.errors(include_url=False, include_context=True):
            path = [step for step in part["loc"] if step != "[key]"]
            problems.append(document.problem(path, in_words(part)))
        return None


_SENTENCES: Final = {
    "missing": "is missing; write it",
    "int_type": "must be a whole number without quotes and units, not {shown}",
    "string_type": 'must be text, not {shown}; put it in quotes: "..."',
    "bool_type": "must be true or false, not {shown}",
    "list_type": "must be a list, not {shown}; write [...]",
    "dict_type": "must be a mapping, not {shown}",
    "model_type": "must be a mapping, not {shown}",
    "date_type": "must be a day without quotes, such as 2026-11-29, not {shown}",
    "literal_error": "must be {expected}, not {shown}",
    "string_pattern_mismatch": "{shown} does not have the form {pattern}",
    "greater_than_equal": "must be {ge:,} or more, not {shown}",
    "less_than_equal": "must be {le:,} or less, not {shown}",
    "string_too_long": "has more than {max_length:,} characters: {shown}",
    "too_short": "has {actual_length:,} entries; write {min_length:,} or more",
    "too_long": "has more than {max_length:,} entries; write fewer",
}
"""What pydantic finds, by its types of errors."""


def in_words(part: Any) -> str:
    """What pydantic found, said so that the reader knows what to write."""
    if part["type"] == "extra_forbidden":
        word = str(part["loc"][-1])
        near = difflib.get_close_matches(word[:80], _FIELDS, n=1)
        return f"is not known here{f'; did you mean {near[0]}?' if near else '; remove it'}"
    shown = _shown(part.get("input"))
    sentence = _SENTENCES.get(part["type"])
    if sentence is None:
        return f"{part['msg'][0].lower()}{part['msg'][1:]}, not {shown}"
    return sentence.format(shown=shown, **part.get("ctx", {}))


def _shown(given: Any) -> str:
    """A value as people wrote it, or what Python calls it."""
    if isinstance(given, bool):
        return "true" if given else "false"
    return str(given) if isinstance(given, date) else repr(given)[:60]
