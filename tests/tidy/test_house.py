"""The house is tidy: each test holds one habit over every file of the repository."""

import os
import re
from collections.abc import Callable, Iterable

import pytest

from tests.tidy import guards, purity
from tests.tidy.files import ROOT, listed, pure, python, text

# Real data that a test or an example needs whole.
LARGE_DATA = frozenset({"examples/openb/pods.csv"})
# Others' words, kept as they are.
OTHERS = ("LICENSE", "examples/openb/", "requirements/")


def report(complaints: Iterable[str]) -> None:
    found = list(complaints)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def over(guard: Callable[[str, str], list[str]], names: Iterable[str]) -> None:
    contents = ((name, text(name)) for name in names)
    report(
        line for name, content in contents if content is not None for line in guard(name, content)
    )


def ours() -> list[str]:
    return [name for name in listed() if not name.startswith(OTHERS)]


def test_modules_are_short() -> None:
    over(guards.module_size, python())


def test_functions_are_short() -> None:
    over(guards.function_size, python())


def test_lines_are_short() -> None:
    over(guards.line_length, python())


def test_nothing_is_left_for_later() -> None:
    over(guards.finished, (name for name in ours() if not name.endswith((".json", ".sum"))))


def test_no_file_names_a_folder_of_one_machine() -> None:
    over(guards.machine_path, listed())


def test_no_file_names_a_registry() -> None:
    over(guards.registry_host, listed())


def test_whoever_silences_a_checker_says_which_rule() -> None:
    over(guards.ignored_with_reason, python())


def test_docstrings_are_markdown() -> None:
    over(guards.markdown_docstrings, python())


def test_links_lead_somewhere() -> None:
    known = frozenset(listed())
    pages = [name for name in listed() if name.endswith(".md")]
    # The reference is made when the pages are built.
    known |= {"docs/reference/index.md"}
    over(lambda name, content: guards.links(name, content, known), pages)


def test_programs_are_executable_and_other_files_are_not() -> None:
    report(
        line
        for name in listed()
        for line in guards.file_mode(
            name, (ROOT / name).read_bytes()[:2], executable=os.access(ROOT / name, os.X_OK)
        )
    )


def test_no_file_is_large() -> None:
    report(
        line
        for name in listed()
        for line in guards.file_size(name, (ROOT / name).stat().st_size, LARGE_DATA)
    )


def test_every_package_states_its_rule() -> None:
    packages = {name.rsplit("/", 1)[0] for name in python() if name.startswith("src/shoal/")}
    names = [f"{package}/__init__.py" for package in sorted(packages)]
    missing = [f"{name} is missing; a folder of modules is a package" for name in names]
    report(line for line, name in zip(missing, names, strict=True) if name not in listed())
    over(guards.package_docstring, names)


def test_changelog_fragments_are_named_and_written_as_agreed() -> None:
    folder = "changelog.d/"
    names = (name for name in listed() if name.startswith(folder) and name != f"{folder}.gitignore")
    over(lambda name, content: guards.changelog_fragment(name.removeprefix(folder), content), names)


def test_locks_pin_every_package_and_name_no_host() -> None:
    locks = [name for name in listed() if name.startswith("requirements/")]
    assert locks, "requirements/ is empty; write the locks with make lock"
    over(guards.lock, locks)


def test_what_decides_imports_nothing_impure() -> None:
    over(
        lambda name, source: purity.imports(name, source, numpy=name.startswith("src/shoal/core/")),
        pure(),
    )


def test_what_decides_calls_nothing_impure() -> None:
    over(purity.calls, pure())


def test_what_decides_knows_its_types() -> None:
    over(purity.no_any, pure())


def test_what_decides_never_depends_on_the_order_of_a_set() -> None:
    over(purity.no_set_order, pure())


def test_the_map_of_the_house_shows_every_room() -> None:
    rooms = {name.split("/")[2] for name in listed() if re.match(r"src/shoal/\w+/", name)}
    shown = set(re.findall(r"^\| `(\w+)/?` ", text("CONTRIBUTING.md") or "", re.MULTILINE))
    missing = sorted(rooms - shown)
    assert not missing, f"the map in CONTRIBUTING.md lacks {', '.join(missing)}"
