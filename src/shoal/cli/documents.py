"""Files of manifests as people have them: YAML of several documents, each part with its line."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from shoal.cli.errors import UsageError

LARGEST: Final = 4 << 20
"""Bytes in one file, and of all documents together when they are written out."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Written:
    """One document: its file, which of the file it is (from 1), its first line, its data."""

    name: str
    number: int
    line: int
    root: yaml.Node | None
    data: dict[str, Any]

    def place(self, field: str) -> str:
        """Where a field of it stands, as `file:line`; empty for what stands in no file."""
        if not self.name:
            return ""
        found = _key_line(self.root, field) or _key_line(self.root, field.rpartition(".")[2])
        return f"{self.name}:{found or self.line}"


def read_all(paths: Iterable[Path]) -> list[Written]:
    """The documents of some files; `-` is standard input. Raises UsageError."""
    written = [document for path in paths for document in _read(path)]
    _check_size(written)
    return written


def _read(path: Path) -> list[Written]:
    name = "standard input" if str(path) == "-" else str(path)
    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(LARGEST + 1)
        text = raw.decode()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8; save it as UTF-8.") from None
    if len(raw) > LARGEST:
        raise UsageError(f"{name} has more than {LARGEST >> 20} MiB; split it.")
    try:
        return list(_documents(name, text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise UsageError(f"{place} is not YAML: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not YAML: {str(error).splitlines()[0]}.") from None


def _documents(name: str, text: str) -> Iterable[Written]:
    loader = _LOADER(text)
    try:
        number = 0
        while loader.check_node():
            root = loader.get_node()
            number += 1
            line = root.start_mark.line + 1 if root is not None else 1
            data = loader.construct_document(root)
            if data is None:
                continue
            if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
                raise UsageError(f"{name}:{line} is no manifest; write apiVersion, kind, metadata.")
            yield Written(name, number, line, root, data)
    finally:
        loader.dispose()


def _check_size(written: list[Written]) -> None:
    """Refuse documents that are small as written and huge when their aliases are written out."""
    size = 0
    for document in written:
        try:
            for part in json.JSONEncoder(allow_nan=False, default=str).iterencode(document.data):
                size += len(part)
                if size > LARGEST:
                    said = f"is more than {LARGEST >> 20} MiB when it is written out"
                    raise UsageError(f"{document.name}:{document.line} {said}; submit less.")
        except (ValueError, RecursionError):
            raise UsageError(
                f"{document.name}:{document.line} cannot be written as JSON; write plain data."
            ) from None
        plain = json.loads(json.dumps(document.data, default=str))
        document.data.clear()
        document.data.update(plain)


def _key_line(node: yaml.Node | None, key: str) -> int | None:
    """The line of the first key of that name."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value in node.value:
            if key_node.value == key:
                return int(key_node.start_mark.line) + 1
            if found := _key_line(value, key):
                return found
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            if found := _key_line(child, key):
                return found
    return None
