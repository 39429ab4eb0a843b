"""The files of the repository: tracked ones and new ones that git does not ignore."""

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

CODE_FOLDERS = ("src", "benchmarks", "tests", "scripts")
PURE_ROOMS = ("src/shoal/model/", "src/shoal/core/", "src/shoal/catalog/")
LOADER = "src/shoal/catalog/load"


@functools.cache
def listed() -> tuple[str, ...]:
    """Every file's path from the root, sorted; those deleted from the working tree left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    names = {name for name in answer.stdout.decode().split("\0") if name}
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


@functools.cache
def text(name: str) -> str | None:
    """What is in the file, or None where it is not text."""
    content = (ROOT / name).read_bytes()
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def python() -> list[str]:
    """Every Python module of ours, but for what a protocol compiler generated."""
    return [
        name
        for name in listed()
        if name.endswith(".py")
        and name.split("/", 1)[0] in CODE_FOLDERS
        and not name.endswith("_pb2.py")
    ]


def pure() -> list[str]:
    """The modules that decide or only say what things are: model, core, the catalogue's values."""
    return [
        name
        for name in python()
        if name.startswith(PURE_ROOMS) and not name.startswith((LOADER + "/", LOADER + ".py"))
    ]
