"""The socket of a user: nobody else's, never taken from somebody."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.server.address import AddressError, bind, check, connect, default_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shoal" / "shoal.sock"


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    made = bind(path)
    yield made
    made.close()


def somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)


def test_only_the_user_may_use_it(path: Path, listening: socket.socket) -> None:
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.lstat().st_mode) == 0o700
    check(path)
    connect(path, 1).close()


def test_a_socket_that_is_in_use_is_not_taken_away(path: Path, listening: socket.socket) -> None:
    with pytest.raises(AddressError, match="already; stop it"):
        bind(path)
    connect(path, 1).close()


def test_a_socket_that_was_left_behind_is_replaced(path: Path, listening: socket.socket) -> None:
    listening.close()
    assert path.exists()
    bind(path).close()


def test_nobody_binds_in_a_folder_of_somebody_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.parent.mkdir(mode=0o700)
    somebody_else(monkeypatch)
    with pytest.raises(AddressError, match="belongs to somebody else"):
        bind(path)


def test_nobody_binds_where_others_may_write(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(AddressError, match="others may write in"):
        bind(path)


def test_nobody_talks_to_a_socket_of_somebody_else(
    path: Path, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    somebody_else(monkeypatch)
    with pytest.raises(AddressError, match="belongs to somebody else"):
        connect(path, 1)


def test_a_link_to_another_socket_is_not_followed(tmp_path: Path, path: Path) -> None:
    other = bind(path)
    link = tmp_path / "link.sock"
    link.symlink_to(path)
    with pytest.raises(AddressError, match="is no socket"):
        connect(link, 1)
    with pytest.raises(AddressError, match="is no socket"):
        bind(link)
    assert link.is_symlink()
    other.close()


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_what_is_no_socket_is_left_alone(path: Path, make: object) -> None:
    path.parent.mkdir(mode=0o700)
    make(path)  # type: ignore[operator]
    with pytest.raises(AddressError, match="is no socket"):
        bind(path)
    assert path.exists()


def test_what_is_missing_says_how_to_start(path: Path) -> None:
    with pytest.raises(AddressError, match="Start one: shoal up"):
        connect(path, 1)
    with pytest.raises(AddressError, match="too long for a socket"):
        bind(path.with_name("x" * 120))


def test_the_default_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SHOAL_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_path() == tmp_path / "shoal" / "shoal.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_path().parent.name == f"shoal-{os.geteuid()}"
    monkeypatch.setenv("SHOAL_SOCKET", "/elsewhere")
    assert default_path() == Path("/elsewhere")
