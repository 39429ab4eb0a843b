"""The reference has a page for every room and an entry for every public module."""

from pathlib import Path

import pytest

from scripts import reference


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree with one room, and a folder for its pages."""
    room = tmp_path / "src" / "shoal" / "core"
    (room / "policies").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (room / "__init__.py").write_text('"""Decides.\n\nAnd more.\n"""\n')
    for module in ("cycle", "_private", "kubelet_pb2", "policies/__init__", "policies/fgd"):
        (room / f"{module}.py").touch()
    monkeypatch.setattr(reference, "SOURCE", tmp_path / "src" / "shoal")
    monkeypatch.setattr(reference, "PAGES", tmp_path / "docs" / "reference")
    return tmp_path


def test_a_room_has_a_page_with_its_public_modules(source: Path) -> None:
    reference.main()
    page = (source / "docs/reference/core.md").read_text()
    assert [line for line in page.splitlines() if line] == [
        "# shoal.core",
        "::: shoal.core",
        "::: shoal.core.cycle",
        "::: shoal.core.policies",
        "::: shoal.core.policies.fgd",
    ]


def test_the_index_says_what_each_room_does(source: Path) -> None:
    reference.main()
    assert "| [core](core.md) | Decides. |" in (source / "docs/reference/index.md").read_text()


def test_pages_of_rooms_that_are_gone_go_too(source: Path) -> None:
    reference.main()
    (source / "docs/reference/gone.md").touch()
    reference.main()
    assert sorted(path.name for path in (source / "docs/reference").iterdir()) == [
        "core.md",
        "index.md",
    ]
