"""YAML files as plain data, read as if a stranger had written them.

Only plain data is accepted: no tags, no anchors or aliases (a few lines of them can stand for
gigabytes), no key twice (YAML would keep the last one silently), no file above a megabyte. What is
wrong is said with the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import yaml

LARGEST_FILE: Final = 1 << 20
"""Bytes in one file."""

_DEEPEST: Final = 24
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_TOO_LARGE: Final = re.compile(r"[+-]?[1-9][0-9]{18,}")
_NO_NUMBER: Final = re.compile(r"[+-]?\.(inf|nan)", re.IGNORECASE)


class CatalogError(ValueError):
    """What is wrong in files of the catalogue: one line each, with file, line and fact."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(slots=True)
class Document:
    """One file: its data, and where each part of it stands.

    ``name`` is what errors call it: the path as given.
    """

    name: str
    data: Any
    root: yaml.Node | None = field(repr=False, default=None)

    def line(self, path: Sequence[int | str]) -> int:
        """The line on which the part at ``path`` stands; of its parent where it is missing."""
        node = self.root
        line = 1 if node is None else node.start_mark.line + 1
        for step in path:
            child = _child(node, step)
            if child is None:
                break
            node = child
            line = node.start_mark.line + 1
        return line

    def problem(self, path: Sequence[int | str], sentence: str) -> str:
        """A line of an error about the part at ``path``."""
        fact = ".".join(_label(self.data, path))
        return (
            f"{self.name}:{self.line(path)}: {fact}: {sentence}"
            if fact
            else (f"{self.name}:{self.line(path)}: {sentence}")
        )


def read_file(path: Path, name: str = "") -> Document:
    """Read one file.

    Raises:
        CatalogError: if it cannot be read, is too large, is not UTF-8 or is not plain YAML data.
    """
    label = name or str(path)
    return read_bytes(raw_bytes(path, label), label)


def raw_bytes(path: Path, name: str) -> bytes:
    """The bytes of a file, at most one more than a file may have.

    Raises:
        CatalogError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise CatalogError([f"{name}: cannot be read: {error.strerror}"]) from None


def read_bytes(raw: bytes, name: str) -> Document:
    """Read the bytes of one file; see `read_file`."""
    documents = read_documents(raw, name)
    if not documents:
        raise CatalogError([f"{name}: is empty"])
    if len(documents) > 1:
        line = documents[1].line(())
        raise CatalogError([f"{name}:{line}: is not YAML of one document; split it here"])
    return documents[0]


def read_documents(raw: bytes, name: str) -> list[Document]:
    """Read the bytes of one file that may hold several documents; empty ones are left out.

    Raises:
        CatalogError: if it is too large, is not UTF-8 or is not plain YAML data.
    """
    if len(raw) > LARGEST_FILE:
        raise CatalogError([f"{name}: is larger than {LARGEST_FILE} bytes; split it"])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise CatalogError([f"{name}:{line}: is not UTF-8; save it as UTF-8"]) from None
    try:
        roots = list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = error.problem or error.context or "not YAML"
        raise CatalogError([f"{name}:{line}: is not YAML: {reason}"]) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise CatalogError([f"{name}: is not YAML: {str(error).splitlines()[0]}"]) from None
    documents = (Document(name, _Converter(name).value(root, 0), root) for root in roots)
    return [document for document in documents if document.data is not None]


class _Converter:
    """Turns nodes into plain data; keeps the ids of nodes to notice those that are used twice."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: set[int] = set()

    def value(self, node: yaml.Node, depth: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node)
        if id(node) in self.seen:
            raise self.refused(node, "anchors and aliases are not accepted; write it out")
        self.seen.add(id(node))
        if depth > _DEEPEST:
            raise self.refused(node, f"is nested more than {_DEEPEST} deep")
        if isinstance(node, yaml.SequenceNode):
            self.plain(node, "tag:yaml.org,2002:seq")
            return [self.value(item, depth + 1) for item in node.value]
        self.plain(node, "tag:yaml.org,2002:map")
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise self.refused(key_node, 'a key must be text; put it in quotes: "..."')
            if key in mapping:
                raise self.refused(key_node, f"{key!r} is written twice; keep one")
            mapping[key] = self.value(value_node, depth + 1)
        return mapping

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        match node.tag:
            case "tag:yaml.org,2002:str":
                return text
            case "tag:yaml.org,2002:int" if _INT.fullmatch(text):
                return int(text)
            case "tag:yaml.org,2002:int":
                raise self.refused(node, _no_integer(text))
            case "tag:yaml.org,2002:bool" if text in ("true", "false"):
                return text == "true"
            case "tag:yaml.org,2002:bool":
                raise self.refused(
                    node,
                    f"{text!r} means true or false in YAML; write true or false, or put it in"
                    " quotes",
                )
            case "tag:yaml.org,2002:null":
                return None
            case "tag:yaml.org,2002:timestamp":
                try:
                    return date.fromisoformat(text)
                except ValueError:
                    sentence = f"{text[:40]!r} is not a day; write YYYY-MM-DD"
                    raise self.refused(node, sentence) from None
            case "tag:yaml.org,2002:float":
                raise self.refused(node, _no_integer(text))
            case "tag:yaml.org,2002:merge":
                raise self.refused(node, "merge keys (<<) are not accepted; write it out")
        raise self.refused(node, f"the tag {node.tag[:60]!r} is not accepted; write plain data")

    def plain(self, node: yaml.Node, tag: str) -> None:
        if node.tag != tag:
            raise self.refused(node, f"the tag {node.tag[:60]!r} is not accepted; write plain data")

    def refused(self, node: yaml.Node, sentence: str) -> CatalogError:
        return CatalogError([f"{self.name}:{node.start_mark.line + 1}: {sentence}"])


def _no_integer(text: str) -> str:
    """Why what YAML takes for a number is none that is accepted."""
    shown = f"{text[:40]!r}"
    if _TOO_LARGE.fullmatch(text):
        return f"{shown} is too large; write at most 18 digits"
    if _NO_NUMBER.fullmatch(text):
        return f"{shown} is not a whole number; write one"
    if "." in text:
        return f"{shown} has a fraction; write a whole number, or quote a version"
    return f"{shown} is not a plain whole number; use 0-9 only"


def _child(node: yaml.Node | None, step: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child: yaml.Node = node.value[step]
        return child
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                found: yaml.Node = value if isinstance(value, yaml.CollectionNode) else key
                return found
    return None


def _label(data: Any, path: Sequence[int | str]) -> list[str]:
    """The path as people read it: an entry of a list by its name where it has one."""
    label: list[str] = []
    for step in path:
        if isinstance(data, dict) and isinstance(step, str):
            label.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
            name = data.get("name") if isinstance(data, dict) else None
            label.append(str(name)[:80] if isinstance(name, str) else str(step + 1))
        else:
            label.append(str(step)[:80])
            data = None
    return label
