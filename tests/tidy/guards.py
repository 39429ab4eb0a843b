"""What every file must keep: each guard takes a text and returns sentences, none if all is well."""

import ast
import posixpath
import re
from pathlib import PurePosixPath

MODULE_LINES = 500
FUNCTION_LINES = 60
LINE_LENGTH = 100
FILE_BYTES = 400_000

# Written so that it does not find itself. Three X are also the code for no currency (ISO 4217).
_UNFINISHED = re.compile(r"\b(?:T[O]DO|F[I]XME|H[A]CK|X[X]X:)|(?:#|//) *X[X]X\b")
_MACHINE_PATH = re.compile(r"(?<![\w.:-])/(?:work|root|home)/\w")
_REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|crates\.io|npmjs\.(?:org|com)|(?:proxy|sum)\.golang\.org"
    r"|maven\.org|(?:deb|security)\.debian\.org"
)
_BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[)|#\s*noqa(?!:)", re.IGNORECASE)
_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj|py:\w+|ref):`")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
_FRAGMENT = re.compile(r"(?:\d+|\+[a-z0-9-]+)\.(?:added|changed|removed|fixed|security)\.md")
_LOCKED = re.compile(r"[a-z0-9._-]+(?:\[[a-z0-9,._-]+\])?==\S+(?: ; [^\\]+)? \\")
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


def module_size(name: str, source: str) -> list[str]:
    """A module has at most MODULE_LINES lines, unless it is a table: nothing but assignments."""
    lines = source.count("\n")
    if lines <= MODULE_LINES:
        return []
    tables = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    if all(isinstance(statement, tables) for statement in ast.parse(source).body):
        return []
    return [f"{name} has {lines} lines; split it where its parts talk least ({MODULE_LINES} max)"]


def function_size(name: str, source: str) -> list[str]:
    """A function has at most FUNCTION_LINES lines, its docstring not counted."""
    complaints = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
        if lines > FUNCTION_LINES:
            complaints.append(
                f"{name}:{node.lineno}: {node.name} has {lines} lines; name its steps and make "
                f"each a function ({FUNCTION_LINES} max)"
            )
    return complaints


def line_length(name: str, source: str) -> list[str]:
    """A line of code has at most LINE_LENGTH characters."""
    return [
        f"{name}:{number}: the line has {len(line)} characters; break it ({LINE_LENGTH} max)"
        for number, line in enumerate(source.splitlines(), 1)
        if len(line) > LINE_LENGTH
    ]


def _lines_with(pattern: re.Pattern[str], name: str, text: str, complaint: str) -> list[str]:
    """The complaint about every line in which the pattern is found; `{}` stands for the finding."""
    return [
        f"{name}:{number}: {complaint.format(found[0].strip())}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := pattern.search(line))
    ]


def finished(name: str, content: str) -> list[str]:
    """Nothing is left for later in the text: an issue is the place for that."""
    return _lines_with(
        _UNFINISHED, name, content, "'{}' marks unfinished work; finish it or take it to an issue"
    )


def machine_path(name: str, content: str) -> list[str]:
    """No text names a folder that exists on one machine only."""
    return _lines_with(
        _MACHINE_PATH,
        name,
        content,
        (
            "'{}...' is a path of one machine; find it from the repository or from an environment "
            "variable"
        ),
    )


def registry_host(name: str, content: str) -> list[str]:
    """No text names the host of a package registry: whoever installs chooses a mirror."""
    return _lines_with(
        _REGISTRY, name, content, ("'{}' is a registry's host; leave the choice to the installer")
    )


def ignored_with_reason(name: str, source: str) -> list[str]:
    """Whoever silences a checker says which of its rules."""
    return _lines_with(
        _BARE_IGNORE,
        name,
        source,
        ("'{}' silences everything; name the rule, as in 'type: ignore[arg-type]'"),
    )


def markdown_docstrings(name: str, source: str) -> list[str]:
    """Docstrings are Markdown, which is what the reference shows."""
    return _lines_with(_ROLE, name, source, ("'{}' is not Markdown; write the name in backticks"))


def links(name: str, content: str, known: frozenset[str]) -> list[str]:
    """A link of a Markdown page leads to a file or folder of the repository."""
    folder = PurePosixPath(name).parent
    complaints = []
    for number, line in enumerate(content.splitlines(), 1):
        for target in _LINK.findall(line):
            path = posixpath.normpath(folder / target)
            if path not in known and not any(other.startswith(f"{path}/") for other in known):
                complaints.append(f"{name}:{number}: the link to '{target}' leads nowhere")
    return complaints


def file_mode(name: str, start: bytes, *, executable: bool) -> list[str]:
    """A file is executable exactly when its first line says what runs it."""
    program = start.startswith(b"#!")
    if program and not executable:
        return [f"{name} starts with #! but is not executable; run chmod +x on it"]
    if executable and not program:
        return [f"{name} is executable but does not start with #!; run chmod -x on it"]
    return []


def file_size(name: str, size_bytes: int, exempt: frozenset[str]) -> list[str]:
    """No file is large, but for the data listed by name."""
    if size_bytes <= FILE_BYTES or name in exempt:
        return []
    return [f"{name} has {size_bytes:,} bytes; make it at build time or leave it out"]


def package_docstring(name: str, source: str) -> list[str]:
    """A package says in its docstring what belongs into it."""
    if ast.get_docstring(ast.parse(source)):
        return []
    return [f"{name} has no docstring; state the rule of this package in it"]


def changelog_fragment(name: str, content: str) -> list[str]:
    """A fragment is named `+name.kind.md` or `123.kind.md` and holds whole sentences."""
    if not _FRAGMENT.fullmatch(name):
        kinds = "added, changed, removed, fixed or security"
        return [f"changelog.d/{name} is not named like '+short-name.added.md' ({kinds})"]
    if not content.strip().endswith("."):
        return [f"changelog.d/{name} does not end with a full sentence"]
    return []


def lock(name: str, content: str) -> list[str]:
    """A lock pins every package to one version with hashes and says nothing else."""
    complaints = []
    for number, line in enumerate(content.splitlines(), 1):
        if not (_LOCKED.fullmatch(line) or _HASH.fullmatch(line)):
            complaints.append(
                f"{name}:{number}: '{line[:60]}' is neither a pinned package nor a hash; "
                "write locks with make lock"
            )
    return complaints
