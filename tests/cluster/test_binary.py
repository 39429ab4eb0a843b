"""Where the control-plane binary comes from, without building one."""

import platform
import shutil
from pathlib import Path

import pytest

from tests.cluster.harness import binary
from tests.cluster.harness.processes import Failed


def fake_go(folder: Path, version: str) -> Path:
    go = folder / "go"
    go.write_text(f"#!/bin/sh\necho go version {version} linux/amd64\n")
    go.chmod(0o755)
    return go


def test_the_binary_is_kept_outside_the_work_tree_by_what_it_is_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(binary.MODULE, tmp_path / "module")
    first = binary.path()
    monkeypatch.setattr(binary, "MODULE", tmp_path / "module")
    assert binary.path() == first
    assert first.is_relative_to(tmp_path / "cache" / "shoal")
    (tmp_path / "module" / "main.go").write_text("package main")
    assert binary.path() != first


def test_a_go_that_is_new_enough_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    go = fake_go(tmp_path, "go1.26.0")
    assert binary._go() == str(go)


def test_without_go_on_a_machine_that_no_package_serves_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    fake_go(tmp_path, "go1.19.8")
    with pytest.raises(Failed, match=r"needs Go 1\.26 or newer, and this machine has Go 1\.19\."):
        binary._go()


def test_a_build_that_fails_tells_what_go_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    go = fake_go(tmp_path, "go1.26.0")
    go.write_text(go.read_text() + '[ "$1" = version ] || { echo no network >&2; exit 1; }\n')
    with pytest.raises(Failed, match=r"could not download its modules: .*said\nno network"):
        binary._build(tmp_path / "control-plane")
