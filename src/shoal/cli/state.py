"""Where `shoal up` keeps what it knows, and where it can be asked."""

import os
from pathlib import Path

SOCKET = "shoal.sock"
"""The name of the socket in the state folder."""


def state_folder(given: Path | None) -> Path:
    """Return the folder of a platform's state: the one given, or that of this user.

    `SHOAL_STATE` names it; else it lies where the XDG base directory specification has state.
    """
    named = given or os.environ.get("SHOAL_STATE")
    if named:
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_STATE_HOME", "")
    # The specification has relative paths ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return base / "shoal"
