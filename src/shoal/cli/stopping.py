"""How a program that draws on a terminal is stopped: between two frames, and without a trace."""

import os
import select
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_LOCAL = 3
"""Where in the attributes of a terminal its local modes are; see termios(3)."""


class Stopped:
    """Made by `stopped_by_signals`: whether a signal has come, for the main thread to ask."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._has_come = False

    def within(self, seconds: float) -> bool:
        """Wait until a signal comes, but not longer; return whether one has come."""
        if not self._has_come:
            ready, _, _ = select.select([self._pipe], [], [], seconds)
            self._has_come = bool(ready)
        return self._has_come


@contextmanager
def stopped_by_signals() -> Iterator[Stopped]:
    """Let SIGINT and SIGTERM interrupt nothing but the waiting for them.

    A handler that took a lock could find it held by what it interrupts; so there is none.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    waked = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    before = {each: signal.signal(each, lambda *_: None) for each in SIGNALS}
    try:
        yield Stopped(reading)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(waked)
        os.close(reading)
        os.close(writing)


@contextmanager
def quiet_terminal(terminal: int) -> Iterator[None]:
    """Keep keys off the screen, and all that is drawn on it, as long as a program draws there.

    A terminal shows what is typed, Ctrl-C too, and throws away at Ctrl-C what it was sent and has
    not shown. Where the program is in the background, or this is no terminal, nothing is changed.
    """
    try:
        is_ours = os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        is_ours = False
    if not is_ours:
        yield
        return
    before = termios.tcgetattr(terminal)
    modes = termios.tcgetattr(terminal)
    modes[_LOCAL] = modes[_LOCAL] & ~termios.ECHO | termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
