"""Writes docs/reference: one page for each room of src/shoal, made from its docstrings."""

import ast
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "shoal"
PAGES = ROOT / "docs" / "reference"


def summary(module: Path) -> str:
    """The first sentence of a module's docstring."""
    return (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n")[0]


def modules(room: Path) -> list[str]:
    """The full names of a room's public modules that say something, the room itself first."""
    names = []
    for path in sorted(room.rglob("*.py"), key=lambda path: path.with_suffix("").parts):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        generated = parts[-1].endswith("_pb2")
        if not generated and not any(part.startswith("_") for part in parts):
            names.append(".".join(parts))
    return sorted(names)


def page(room: Path) -> str:
    """The Markdown of a room's page; mkdocstrings fills in the docstrings."""
    entries = (f"::: {name}\n" for name in modules(room))
    return "\n".join([f"# shoal.{room.name}\n", *entries])


def main() -> None:
    """Write every page anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir()
    rooms = sorted(path.parent for path in SOURCE.glob("*/__init__.py"))
    rows = []
    for room in rooms:
        (PAGES / f"{room.name}.md").write_text(page(room))
        rows.append(f"| [{room.name}]({room.name}.md) | {summary(room / '__init__.py')} |")
    (PAGES / "index.md").write_text(
        "\n".join(
            [
                "# Reference\n",
                "The rooms of the source, each described by its own docstrings.\n",
                "| room | what it does |",
                "| --- | --- |",
                *rows,
                "",
            ]
        )
    )


if __name__ == "__main__":
    main()
