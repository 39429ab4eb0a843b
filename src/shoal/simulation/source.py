"""Rows of named columns, read from CSV or YAML so that every mistake can be pointed at.

Everything a person can get wrong in a file raises `BadInputError`, whose text is one sentence with
the file, the line, the column and what was expected there.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

LARGEST_CSV_MIB = 256
LARGEST_YAML_MIB = 4
"""YAML takes hundreds of bytes of memory for each of the file; whoever has more writes CSV."""
LARGEST_ROWS = 1_000_000

_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
_SHOWN_CHARACTERS = 40


class BadInputError(Exception):
    """A file that cannot be used, and why, in one sentence."""

    def __init__(
        self, file: Path, problem: str, *, line: int | None = None, column: str | None = None
    ) -> None:
        place = str(file)
        if line is not None:
            place += f", line {line}"
        if column is not None:
            place += f", column {column}"
        super().__init__(f"{place}: {problem}")
        self.file = file
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of one kind of file: those it must have, and those it may have besides.

    `title` names the form in sentences.
    """

    title: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, in the order in which they are documented."""
        return self.required + self.optional


@dataclass(frozen=True, slots=True)
class Row:
    """The values of one row as they are written, by column, and where it stands.

    `lines` says where a value stands that is not on `line`, the first one of the row.
    """

    file: Path
    line: int
    values: Mapping[str, str]
    lines: Mapping[str, int] = field(default_factory=dict)

    def bad(self, column: str, problem: str) -> BadInputError:
        """Return the error that points at `column` of this row."""
        line = self.lines.get(column, self.line)
        return BadInputError(self.file, problem, line=line, column=column)

    def has(self, column: str) -> bool:
        """Say whether something is written in `column`."""
        return bool(self.values.get(column))

    def text(self, column: str) -> str:
        """Return what is written in `column`; nothing is an error."""
        value = self.values.get(column, "")
        if not value:
            raise self.bad(column, "expected a name, found nothing.")
        if not value.isprintable():
            raise self.bad(column, f"expected printable characters, found {shown(value)}.")
        return value

    def whole_number(self, column: str, least: int, most: int, *, empty: int | None = None) -> int:
        """Return the whole number in `column`, from `least` to `most`; `empty` if left empty."""
        value = self.values.get(column, "")
        if not value and empty is not None:
            return empty
        if not _WHOLE_NUMBER.fullmatch(value) or not least <= int(value) <= most:
            raise self.bad(
                column, f"expected a whole number from {least} to {most}, found {shown(value)}."
            )
        return int(value)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file and the form that its columns have."""

    file: Path
    form: Form
    rows: tuple[Row, ...]


def read_table(file: Path, forms: Sequence[Form]) -> Table:
    """Read `file` as whichever of `forms` its columns come closest to.

    A name that ends in `.yaml` or `.yml` is read as YAML (a list of mappings), any other as CSV
    with a header line. The last line must end, because a file that was cut off in the middle of a
    value cannot be told from a whole one otherwise.

    Raises BadInputError, also if the file cannot be read.
    """
    if file.suffix.lower() in {".yaml", ".yml"}:
        return _yaml_table(file, _text(file, LARGEST_YAML_MIB), forms)
    return _csv_table(file, _text(file, LARGEST_CSV_MIB), forms)


def shown(value: str) -> str:
    """Return `value` in quotes for a sentence, escaped, and shortened if it is long."""
    if not value:
        return "nothing"
    if len(value) > _SHOWN_CHARACTERS:
        value = value[:_SHOWN_CHARACTERS] + "…"
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in value) + '"'


def listed(names: Iterable[str]) -> str:
    """Return `names` as an enumeration for a sentence."""
    return ", ".join(names)


def _text(file: Path, largest_mib: int) -> str:
    largest_bytes = largest_mib * 1024 * 1024
    try:
        if file.is_dir():
            raise BadInputError(file, "expected a file, found a directory.")
        with file.open("rb") as stream:
            content = stream.read(largest_bytes + 1)
    except OSError as error:
        raise BadInputError(file, f"cannot be read: {error.strerror or error}.") from None
    if len(content) > largest_bytes:
        raise BadInputError(file, f"is larger than {largest_mib} MiB, the most that is read.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(file, "expected UTF-8 text, found other bytes.", line=line) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadInputError(file, "expected text, found a zero byte.", line=line)
    if not text.strip():
        raise BadInputError(file, "the file is empty; expected a list of nodes or pods.", line=1)
    if not text.endswith("\n"):
        raise BadInputError(
            file,
            "the last line does not end, so the file seems to be cut off in the middle;"
            " if it is whole, end its last line with a newline.",
            line=text.count("\n") + 1,
        )
    return text


def _csv_table(file: Path, text: str, forms: Sequence[Form]) -> Table:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    header: list[str] = []
    form = forms[0]
    line = 1
    try:
        for fields in reader:
            if header:
                if fields:
                    rows.append(_csv_row(file, line, header, fields))
                if len(rows) > LARGEST_ROWS:
                    raise BadInputError(file, f"has more than {LARGEST_ROWS} rows.", line=line)
            else:
                header = [name.strip() for name in fields]
                form = _form(file, line, header, forms)
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadInputError(file, f"expected comma-separated values: {error}.", line=line) from None
    if not rows:
        raise BadInputError(file, "has a header and no rows.", line=line)
    return Table(file, form, tuple(rows))


def _csv_row(file: Path, line: int, header: Sequence[str], fields: Sequence[str]) -> Row:
    if len(fields) != len(header):
        at = header[len(fields)] if len(fields) < len(header) else f"{len(header) + 1}"
        raise BadInputError(
            file,
            f"expected {len(header)} values as in the header, found {len(fields)}.",
            line=line,
            column=at,
        )
    return Row(
        file, line, {name: value.strip() for name, value in zip(header, fields, strict=True)}
    )


def _form(file: Path, line: int, names: Sequence[str], forms: Sequence[Form]) -> Form:
    """Return the form with the most columns in common with `names`, having checked them."""
    form = max(forms, key=lambda each: len(set(each.columns) & set(names)))
    for name in names:
        if name not in form.columns:
            raise BadInputError(
                file,
                f"expected the columns of {form.title}"
                f" ({listed(form.columns)}), found {shown(name)}.",
                line=line,
                column=shown(name),
            )
        if names.count(name) > 1:
            raise BadInputError(file, "is there twice.", line=line, column=name)
    for name in form.required:
        if name not in names:
            raise BadInputError(
                file,
                f"is missing; expected the columns of {form.title} ({listed(form.required)}).",
                line=line,
                column=name,
            )
    return form


def _yaml_table(file: Path, text: str, forms: Sequence[Form]) -> Table:
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadInputError(
            file,
            f"expected YAML: {error.problem or error.context}.",
            line=mark.line + 1 if mark else None,
            column=str(mark.column + 1) if mark else None,
        ) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInputError(file, f"expected YAML: {type(error).__name__}.") from None
    if not isinstance(root, yaml.SequenceNode):
        line = root.start_mark.line + 1 if root else 1
        raise BadInputError(file, 'expected a list, each item starting with "- name:".', line=line)
    if not 0 < len(root.value) <= LARGEST_ROWS:
        raise BadInputError(file, f"expected 1 to {LARGEST_ROWS} items in the list.", line=1)
    rows = tuple(_yaml_row(file, item) for item in root.value)
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    form = _form(file, rows[0].line, names, forms)
    for row in rows:
        for name in form.required:
            if name not in row.values:
                raise row.bad(name, "is missing.")
    return Table(file, form, rows)


def _yaml_row(file: Path, item: yaml.Node) -> Row:
    line = item.start_mark.line + 1
    if not isinstance(item, yaml.MappingNode):
        raise BadInputError(
            file, 'expected an item with named values, such as "name: n1".', line=line
        )
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for key, value in item.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise BadInputError(file, "expected the name of a column.", line=at)
        if not isinstance(value, yaml.ScalarNode):
            raise BadInputError(file, "expected a single value.", line=at, column=key.value)
        if key.value in values:
            raise BadInputError(file, "is there twice.", line=at, column=key.value)
        null = value.tag == "tag:yaml.org,2002:null"
        values[key.value] = "" if null else value.value.strip()
        lines[key.value] = at
    return Row(file, line, values, lines)
