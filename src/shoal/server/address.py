"""Where a platform of this user listens: a Unix socket that nobody else may use.

Clients import this too, so it imports nothing but the standard library.
"""

import os
import socket
import stat
from pathlib import Path

VARIABLE = "SHOAL_SOCKET"
"""The environment variable that names another socket."""

LONGEST = 107
"""Bytes in the path of a socket (`sockaddr_un` of Linux, without the closing zero)."""


class AddressError(Exception):
    """The socket cannot be used; the message says why and what to do."""


def default_path() -> Path:
    """The socket of this user: as the environment says, or in the folder for such things."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "shoal" if runtime else _temporary()
    return folder / "shoal.sock"


def _temporary() -> Path:
    import tempfile  # noqa: PLC0415 - slow to import, and seldom needed

    return Path(tempfile.gettempdir()) / f"shoal-{os.geteuid()}"


def bind(path: Path) -> socket.socket:
    """Listen on a socket that only this user may use, mode 0600, in a folder of this user.

    A socket on which nobody listens any more is replaced. Raises `AddressError`.
    """
    if len(os.fsencode(path)) > LONGEST:
        raise AddressError(f"{path} is too long for a socket; set SHOAL_SOCKET to a shorter path")
    _own_folder(path.parent)
    if (found := _status(path)) is not None:
        _check_own(path, found)
        if _answers(path):
            raise AddressError(
                f"a platform listens on {path} already; stop it, or set SHOAL_SOCKET to"
                " another path"
            )
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise AddressError(f"{path} cannot be made: {error.strerror}") from None
    finally:
        os.umask(before)
    listening.listen(128)
    return listening


def check(path: Path) -> None:
    """Raise `AddressError` unless a socket of this user is there, as clients do before they talk.

    Whoever listens on a socket of somebody else's could pretend to be the platform.
    """
    found = _status(path)
    if found is None:
        raise AddressError(f"no platform of yours runs: there is no {path}. Start one: shoal up")
    _check_own(path, found)


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Connect to the platform of this user. Raises `AddressError`."""
    check(path)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        connected.connect(str(path))
    except OSError as error:
        connected.close()
        raise AddressError(
            f"no platform answers on {path} ({error.strerror or error}). Start one: shoal up"
        ) from None
    return connected


def _own_folder(folder: Path) -> None:
    """Make the folder if it is not there; refuse one that others could change things in."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AddressError(f"{folder} cannot be made: {error.strerror}") from None
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise AddressError(f"{folder} is no folder; set SHOAL_SOCKET to another path")
    if status.st_uid != os.geteuid():
        raise AddressError(f"{folder} belongs to somebody else; set SHOAL_SOCKET to another path")
    if status.st_mode & 0o022:
        raise AddressError(
            f"others may write in {folder}; take that away (chmod go-w), or set SHOAL_SOCKET to"
            " another path"
        )


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AddressError(f"{path} cannot be looked at: {error.strerror}") from None


def _check_own(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise AddressError(f"{path} belongs to somebody else; set SHOAL_SOCKET to another path")
    if not stat.S_ISSOCK(status.st_mode):
        raise AddressError(f"{path} is no socket; set SHOAL_SOCKET to another path")


def _answers(path: Path) -> bool:
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    probe.settimeout(1.0)
    try:
        probe.connect(str(path))
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return True
    finally:
        probe.close()
    return True
