"""Every guard lets the good pass and stops the bad: one that stops nothing guards nothing."""

import pytest

from tests.tidy import guards, purity

LONG_FUNCTION = "def step() -> None:\n" + "    x = 1\n" * 60
DOCUMENTED = 'def step() -> None:\n    """Says much.\n' + "    more\n" * 60 + '    """\n'


def test_a_long_module_is_stopped_and_a_long_table_is_not() -> None:
    assert guards.module_size("m.py", "x = 1\n" * 500 + "\ndef f(): ...\n")
    assert not guards.module_size("m.py", "x = 1\n" * 499 + "def f(): ...\n")
    assert not guards.module_size("m.py", '"""Prices."""\nimport x\n' + "y: int = 1\n" * 900)


def test_a_long_function_is_stopped_and_a_long_docstring_is_not() -> None:
    assert guards.function_size("m.py", LONG_FUNCTION)
    assert guards.function_size(
        "m.py", "class C:\n    async " + LONG_FUNCTION.replace("\n", "\n    ")
    )
    assert not guards.function_size("m.py", LONG_FUNCTION.replace("    x = 1\n", "", 1))
    assert not guards.function_size("m.py", DOCUMENTED)


def test_a_long_line_is_stopped() -> None:
    assert guards.line_length("m.py", "x" * 101)
    assert not guards.line_length("m.py", "x" * 100 + "\n" + "y" * 100)


@pytest.mark.parametrize("mark", ["TO-DO", "FIX-ME", "X-XX", "HA-CK"])
def test_unfinished_work_is_stopped(mark: str) -> None:
    mark = mark.replace("-", "")
    assert guards.finished("m.py", f"x = 1  # {mark}: later")
    assert not guards.finished(
        "m.py", f"# a word like un{mark}, or {mark.lower()}, is another word"
    )


def test_the_code_for_no_currency_passes() -> None:
    assert not guards.finished("prices.yaml", "currency: X" + "XX, valid_from: 2026-01-01")


@pytest.mark.parametrize("folder", ["work", "root", "home"])
def test_paths_of_one_machine_are_stopped(folder: str) -> None:
    assert guards.machine_path("m.py", f"open('/{folder}/somebody/data')")
    assert not guards.machine_path(
        "m.py", f"a relative {folder}/x, src/{folder}/y, https://x.test/{folder}/z"
    )


@pytest.mark.parametrize(
    "host",
    [
        ("pypi", "org"),
        ("files.pythonhosted", "org"),
        ("static.crates", "io"),
        ("registry.npmjs", "org"),
    ],
)
def test_registry_hosts_are_stopped(host: tuple[str, str]) -> None:
    assert guards.registry_host("m.txt", "--index-url https://" + ".".join(host) + "/simple")
    assert not guards.registry_host("m.txt", "numpy==2.4.6")


@pytest.mark.parametrize("comment", ["type: ignore", "type:ignore", "noqa", "NOQA  "])
def test_blanket_silence_is_stopped(comment: str) -> None:
    assert guards.ignored_with_reason("m.py", f"x = 1  # {comment}")


@pytest.mark.parametrize("comment", ["# type: ignore[arg-type]", "# noqa: S101"])
def test_named_silence_passes(comment: str) -> None:
    assert not guards.ignored_with_reason("m.py", f"x = 1  {comment}")


@pytest.mark.parametrize("role", ["class", "meth", "py:func"])
def test_docstrings_in_another_markup_are_stopped(role: str) -> None:
    assert guards.markdown_docstrings("m.py", f'"""See :{role}:`World`."""')
    assert not guards.markdown_docstrings("m.py", '"""See `World` and ``apply``: `x`."""')


def test_a_link_that_leads_nowhere_is_stopped() -> None:
    known = frozenset({"docs/a.md", "examples/openb/README.md"})
    assert guards.links("README.md", "see [a](docs/b.md)", known)
    assert guards.links("docs/a.md", "see [a](docs/a.md)", known)
    assert not guards.links("README.md", "[a](docs/a.md#words) and [b](examples/openb)", known)
    assert not guards.links(
        "docs/a.md", "[b](../examples/openb/README.md) [w](https://x.test)", known
    )


def test_a_mode_that_contradicts_the_first_line_is_stopped() -> None:
    assert guards.file_mode("scripts/x", b"#!/bin/sh", executable=False)
    assert guards.file_mode("x.py", b'"""Words."""', executable=True)
    assert not guards.file_mode("scripts/x", b"#!/bin/sh", executable=True)
    assert not guards.file_mode("x.py", b'"""Words."""', executable=False)


def test_a_large_file_is_stopped_unless_it_is_listed() -> None:
    assert guards.file_size("a.csv", 400_001, frozenset())
    assert not guards.file_size("a.csv", 400_000, frozenset())
    assert not guards.file_size("a.csv", 400_001, frozenset({"a.csv"}))


def test_a_package_without_docstring_is_stopped() -> None:
    assert guards.package_docstring("src/shoal/x/__init__.py", "import os\n")
    assert not guards.package_docstring("src/shoal/x/__init__.py", '"""Decides."""\n')


@pytest.mark.parametrize("name", ["fgd.md", "+fgd.feature.md", "+FGD.added.md", "12.added.txt"])
def test_a_misnamed_fragment_is_stopped(name: str) -> None:
    assert guards.changelog_fragment(name, "A policy was added.")


def test_a_fragment_without_a_sentence_is_stopped() -> None:
    assert guards.changelog_fragment("+fgd.added.md", "fgd")
    assert not guards.changelog_fragment("+fgd.added.md", "The policy `fgd`.\n")
    assert not guards.changelog_fragment("12.fixed.md", "The policy `fgd` breaks ties.\n")


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://mirror.test/simple",
        "--find-links wheels",
        "numpy>=2",
        "numpy==2.4.6",
        "numpy @ file:///tmp/numpy.whl",
        "    --hash=md5:00",
        "# via pandas",
    ],
)
def test_a_loose_lock_is_stopped(line: str) -> None:
    assert guards.lock("requirements/x.txt", line)


def test_a_pinned_lock_passes() -> None:
    assert not guards.lock(
        "requirements/x.txt",
        "\n".join(
            [
                "numpy==2.4.6 \\",
                f"    --hash=sha256:{'0' * 64} \\",
                f"    --hash=sha256:{'a' * 64}",
                "yarl[x]==1.0 ; python_version < '3.12' \\",
                f"    --hash=sha256:{'a' * 64}",
            ]
        ),
    )


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from random import Random",
        "import logging",
        "def f():\n    import asyncio",
        "import msgspec",
        "from . import x",
    ],
)
def test_impure_imports_are_stopped(source: str) -> None:
    assert purity.imports("m.py", source, numpy=True)


def test_pure_imports_pass() -> None:
    assert not purity.imports("m.py", "import heapq\nfrom shoal.model import x", numpy=False)
    assert not purity.imports("m.py", "import numpy as np", numpy=True)
    assert purity.imports("m.py", "import numpy as np", numpy=False)


@pytest.mark.parametrize(
    "source",
    [
        "print(1)",
        "open('x')",
        "def f(self): return hash('a')",
        "key = id(node)",
        "datetime.now()",
        "datetime.datetime.utcnow()",
        "dt.date.today()",
        "np.random.default_rng(1)",
        "np.random.Generator(np.random.Philox(1))",
        "numpy.random.shuffle(x)",
    ],
)
def test_impure_calls_are_stopped(source: str) -> None:
    assert purity.calls("m.py", source)


@pytest.mark.parametrize(
    "source",
    [
        "np.random.Philox(key=seed).random_raw(1)",
        "def __hash__(self): return hash(self.key)",
        "world.now",
        "node.open()",
    ],
)
def test_pure_calls_pass(source: str) -> None:
    assert not purity.calls("m.py", source)


@pytest.mark.parametrize("source", ["from typing import Any\nx: Any = 1", "x: typing.Any"])
def test_any_is_stopped(source: str) -> None:
    assert purity.no_any("m.py", source)


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "a = set()\nfor x in a: pass",
        "def f(a: frozenset[int]) -> None:\n    b = [x for x in a]",
        "def f(a: set[int], b: set[int]) -> None:\n    return list(a - b)",
        "class C:\n    dirty: set[int]\n    def f(self):\n        for x in self.dirty: pass",
        "def f(self):\n    self.dirty = set()\ndef g(self):\n    return tuple(self.dirty)",
        "def g() -> set[int]: ...\nfor x in g(): pass",
        "a = {1}\nb = next(iter(a))",
        "a = {1}\nb = a.pop()",
        "a = {1}\nb = {x: 1 for x in a}",
        "a = {1}\nb = sorted(a, key=f)",
        "a = {1}\nb = [*a]",
        "a = {'x'}\nb = ','.join(a)",
        "a = {1}\nf(x for x in a.union(b))",
        "def f():\n    a: set[int] = set()\n    for x in a: pass",
    ],
)
def test_what_depends_on_the_order_of_a_set_is_stopped(source: str) -> None:
    assert purity.no_set_order("m.py", source)


@pytest.mark.parametrize(
    "source",
    [
        "a = {1}\nfor x in sorted(a): pass",
        "a = {1}\nb = x in a, len(a), a | {2}",
        "a = {1}\nb = {x + 1 for x in a}",
        "a = {1}\nb = any(x > 0 for x in a)",
        "a = {1: 2}\nfor x in a: pass",
        "def f():\n    a = {1}\ndef g(a: list[int]):\n    for x in a: pass",
        "for x in b - a: pass",
        "class A:\n    d: set[int]\nclass B:\n    d: list[int]\nfor x in b.d: pass",
    ],
)
def test_what_does_not_depend_on_the_order_of_a_set_passes(source: str) -> None:
    assert not purity.no_set_order("m.py", source)
