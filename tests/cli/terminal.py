"""A terminal for tests: a program runs in it, and what it has drawn can be read."""

import codecs
import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b.|([\r\n])|([^\x1b\r\n])", re.DOTALL)
_TIMEOUT_S = 200
"""For a program that hangs; no test waits for it otherwise."""

_IN_ITS_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal that of the session, then becomes the program.

A test may have threads, and no Python of it may run between its fork and the start of another.
"""

ALTERNATE = "?1049"


class Screen:
    """As much of a terminal as a full-screen program of ours needs (ECMA-48)."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.is_alternate = False
        self.cursor_shown = True
        self.last = ""
        """What stood on the alternate screen when it was left."""
        self.overflowed = False
        """Whether a line was wider than the screen, or ran over its end."""
        self._clear()
        self._x = self._y = 0
        self._rest = ""

    def write(self, text: str) -> None:
        """Draw what a program has written."""
        text = self._rest + text
        cut = text.rfind("\x1b")
        complete = cut < 0 or re.match(r"\x1b\[[?0-9;]*[A-Za-z]|\x1b[^\[]", text[cut:])
        self._rest = "" if complete else text[cut:]
        for parameters, command, line, sign in _TOKEN.findall(text if complete else text[:cut]):
            if command:
                self._obey(parameters, command)
            elif line == "\r":
                self._x = 0
            elif line == "\n":
                self.overflowed |= self._y + 1 >= self.rows
                self._y = min(self.rows - 1, self._y + 1)
            elif sign:
                self._draw(sign)

    def text(self) -> str:
        """What stands on the screen, without blanks at the ends of lines."""
        return "\n".join("".join(line).rstrip() for line in self._cells)

    def _draw(self, sign: str) -> None:
        if self._x < self.columns:
            self._cells[self._y][self._x] = sign
        elif sign != " ":
            self.overflowed = True
        self._x += 1

    def _obey(self, parameters: str, command: str) -> None:
        number = int(parameters) if parameters.isdecimal() else 1
        if command == "H":
            self._x = self._y = 0
        elif command == "A":
            self._y = max(0, self._y - number)
        elif command == "J":
            self._clear()
        elif command == "K":
            self._cells[self._y] = [" "] * self.columns
        elif command in "hl" and parameters == ALTERNATE:
            if self.is_alternate:
                self.last = self.text()
            self.is_alternate = command == "h"
            self._clear()
            self._x = self._y = 0
        elif command in "hl" and parameters == "?25":
            self.cursor_shown = command == "h"

    def _clear(self) -> None:
        self._cells = [[" "] * self.columns for _ in range(self.rows)]


class Terminal:
    """A program in a terminal. It is killed at the end if it still runs."""

    def __init__(
        self, command: Sequence[str | Path], columns: int, rows: int, environment: dict[str, str]
    ) -> None:
        self.screen = Screen(columns, rows)
        self._master, programs = pty.openpty()
        fcntl.ioctl(programs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._before = termios.tcgetattr(self._master)
        # What runs the tests may say how large another terminal is.
        inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self._program = subprocess.Popen(
            [sys.executable, "-IS", "-c", _IN_ITS_TERMINAL, *command],
            env=inherited | {"TERM": "xterm-256color"} | environment,
            stdin=programs,
            stdout=programs,
            stderr=programs,
            start_new_session=True,
        )
        # Only the program has its side open now, so that what it writes has an end.
        os.close(programs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.wait()
        os.close(self._master)

    def until(self, seen: Callable[[str], object]) -> str:
        """Read until `seen` is true of the screen's text; return that."""
        until_s = time.monotonic() + _TIMEOUT_S
        while not seen(self.screen.text()):
            if time.monotonic() > until_s or not self._read():
                raise AssertionError(f"not seen:\n{self.screen.text()}")
        return self.screen.text()

    def type(self, keys: bytes) -> None:
        """Press keys; Ctrl-C is 3."""
        os.write(self._master, keys)

    def interrupt(self) -> int:
        """Press Ctrl-C, read to the end, and return the exit status."""
        self.type(b"\x03")
        while self._read():
            pass
        return self._program.wait()

    @property
    def is_restored(self) -> bool:
        """Whether the terminal behaves as it did before the program."""
        return termios.tcgetattr(self._master) == self._before

    def _read(self) -> bool:
        """Wait for what is drawn next and draw it; False where that was the end."""
        ready, _, _ = select.select([self._master], [], [], _TIMEOUT_S)
        try:
            data = os.read(self._master, 65_536) if ready else b""
        except OSError as error:
            if error.errno != errno.EIO:  # what is left once the program has closed its side
                raise
            data = b""
        self.screen.write(self._decoder.decode(data))
        return bool(data)
