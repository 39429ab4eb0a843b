"""Signals are taken between two things, whatever is going on when they come."""

import os
import signal
import termios
import threading

from shoal.cli.stopping import SIGNALS, quiet_terminal, stopped_by_signals


def test_a_signal_ends_the_waiting_and_interrupts_nothing_else() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    for each in SIGNALS:
        with stopped_by_signals() as stopped:
            assert not stopped.within(0)
            signal.raise_signal(each)
            signal.raise_signal(each)
            assert stopped.within(200)
            assert stopped.within(200)
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_signal_from_elsewhere_wakes_who_waits() -> None:
    with stopped_by_signals() as stopped:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        assert stopped.within(200)
        timer.join()


def test_what_is_no_terminal_is_left_alone() -> None:
    reading, writing = os.pipe()
    with quiet_terminal(writing):
        pass
    os.close(reading)
    os.close(writing)


def test_a_terminal_that_belongs_to_somebody_else_is_left_alone() -> None:
    master, slave = os.openpty()
    before = termios.tcgetattr(slave)
    with quiet_terminal(slave):
        assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)
