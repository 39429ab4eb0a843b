"""Files as a stranger might write them."""

from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.load.reader import LARGEST_FILE, CatalogError, read_bytes, read_file


def refused(text: str | bytes) -> str:
    raw = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(CatalogError) as error:
        read_bytes(raw, "x.yaml")
    return str(error.value)


def test_plain_data_is_read_with_its_lines() -> None:
    document = read_bytes(b"a: 1\nb:\n  - {c: true, d: 2026-11-29}\n  - text\nn: null\n", "x.yaml")
    assert document.data == {
        "a": 1,
        "b": [{"c": True, "d": date(2026, 11, 29)}, "text"],
        "n": None,
    }
    assert document.line(("a",)) == 1
    assert document.line(("b", 0, "d")) == 3
    assert document.line(("b", 1)) == 4
    assert document.line(("b", 0, "missing")) == 3
    assert document.problem(("b", 0, "c"), "is wrong") == "x.yaml:3: b.1.c: is wrong"


def test_an_entry_of_a_list_is_called_by_its_name() -> None:
    document = read_bytes(b"cards:\n  - name: T4\n    size: 1\n", "x.yaml")
    assert document.problem(("cards", 0, "size"), "is odd") == "x.yaml:3: cards.T4.size: is odd"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.yaml: is empty"),
        ("# nothing\n", "x.yaml: is empty"),
        ("a: [1\nb: 2", "x.yaml:2: is not YAML"),
        ("a: 1\na: 2", "x.yaml:2: 'a' is written twice"),
        ("a: {b: 1, b: 1}", "'b' is written twice"),
        ("1: a", "a key must be text"),
        ("yes: a", "means true or false in YAML"),
        ("[a, b]: c", "a key must be text"),
        ("{a: {<<: {b: 1}}}", "x.yaml:1: merge keys (<<) are not accepted; write it out"),
        ("a: &x [1]\nb: *x", "x.yaml:1: anchors and aliases are not accepted"),
        ("a: !!python/object/apply:os.system ['true']", "is not accepted"),
        ("a: !!python/name:os.system", "is not accepted"),
        ("a: !!binary aGk=", "is not accepted"),
        ("a: !!set {b}", "is not accepted"),
        ("a: 1.5", "has a fraction"),
        ("a: .inf", "'.inf' is not a whole number; write one"),
        ("a: -.Inf", "'-.Inf' is not a whole number"),
        ("a: .NaN", "'.NaN' is not a whole number"),
        ("a: 0x10", "is not a plain whole number"),
        ("a: 1_000", "is not a plain whole number"),
        ("a: 0o7\nb: 010", "x.yaml:2: '010' is not a plain whole number"),
        ("a: 190:20:30", "is not a plain whole number"),
        ("a: " + "9" * 400, "is too large; write at most 18 digits"),
        ("a: -1234567890123456789", "is too large; write at most 18 digits"),
        ("a: no", "'no' means true or false in YAML; write true or false, or put it in quotes"),
        ("a: 2026-13-45", "is not a day"),
        ("a: 2026-11-29 10:00:00", "is not a day"),
        ("a: \x07", "is not YAML"),
        ("a: b: c", "is not YAML"),
        ("---\na: 1\n---\nb: 2", "is not YAML"),
        ("\tb: 1", "is not YAML"),
    ],
)
def test_what_is_not_plain_data_is_refused_with_its_line(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 30):
        members = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{members}]")
    assert "anchors and aliases are not accepted" in refused("\n".join(lines))


def test_a_structure_that_holds_itself_is_refused() -> None:
    assert "anchors and aliases are not accepted" in refused("a: &a [*a]")


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000, "? " * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert "is not YAML" in refused(text)


def test_nesting_beyond_what_a_catalogue_has_is_refused() -> None:
    assert "nested more than" in refused("a: " + "[" * 100 + "]" * 100)


def test_a_large_file_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(50 * LARGEST_FILE)
    with pytest.raises(CatalogError, match="is larger than"):
        read_file(path)


def test_a_file_that_is_not_utf8_is_refused_with_its_line() -> None:
    assert refused(b"a: 1\nb: \xff\xfe") == "x.yaml:2: is not UTF-8; save it as UTF-8"
    assert "is not UTF-8" in refused("a: ü".encode("utf-16"))


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"cannot be read: No such file"):
        read_file(tmp_path / "none.yaml")
    with pytest.raises(CatalogError, match=r"cannot be read: Is a directory"):
        read_file(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with suppress(CatalogError):
        read_bytes(raw, "x.yaml")


@given(st.text(alphabet="ab:-[]{}&*!?|>'\"#\n 01", max_size=80))
def test_any_text_of_yaml_marks_is_read_or_refused(text: str) -> None:
    with suppress(CatalogError):
        read_bytes(text.encode(), "x.yaml")
