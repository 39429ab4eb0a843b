"""The parent of all processes of one cluster, so that none of them outlives the tests.

A pytest that is killed runs no teardown. So every process of a cluster is a child of this small
program, which does nothing but start and signal children as its standard input says. When that
input ends, for whatever reason, it kills the children, waits for them, and removes the cluster's
directory. Should it be killed itself, the kernel kills the children (PR_SET_PDEATHSIG), and the
next cluster on this machine removes the directory, whose lock nobody holds any more, and what still
works in it.

One request a line, one answer a line, both JSON:

    {"do": "start", "name": N, "argv": [...], "log": PATH, "env": {...}}   -> {"pid": P}
    {"do": "signal", "name": N, "signal": NUMBER}                          -> {}
    {"do": "wait", "name": N, "seconds": S}                  -> {"code": CODE or null if it runs}
"""

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
LOCK = "lock"

_libc = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """Starts, signals and reaps the children, each in a session of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        try:
            match request["do"]:
                case "start":
                    return self._start(request)
                case "signal":
                    return self._signal(request["name"], request["signal"])
                case "wait":
                    return self._wait(request["name"], request["seconds"])
                case other:
                    return {"error": f"unknown request {other!r}"}
        except OSError as error:
            return {"error": f"{request['do']} of {request['name']}: {error}"}

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["name"]
        running = self._children.get(name)
        if running is not None and running.poll() is None:
            return {"error": f"{name} is running already, as process {running.pid}"}
        with Path(request["log"]).open("ab") as log:
            child = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **request["env"]},
                cwd=self._directory,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (this program has one thread)
            )
        self._children[name] = child
        return {"pid": child.pid}

    def _signal(self, name: str, number: int) -> dict[str, Any]:
        child = self._children[name]
        if child.poll() is None:
            # The whole group: a program that starts others is stopped with them.
            os.killpg(child.pid, number)
        return {}

    def _wait(self, name: str, seconds: float) -> dict[str, Any]:
        try:
            return {"code": self._children[name].wait(seconds)}
        except subprocess.TimeoutExpired:
            return {"code": None}

    def end(self) -> None:
        """Kill every descendant, then remove the directory."""
        for child in self._children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        # Orphans of killed children become ours (subreaper) and are reaped here, too.
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for orphan in _children_of(os.getpid()):
                os.kill(orphan, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        shutil.rmtree(self._directory, ignore_errors=True)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _children_of(pid: int) -> list[int]:
    return [
        int(each)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for each in (task / "children").read_text().split()
    ]


def hold(directory: Path) -> int | None:
    """Take the directory's lock; None if a supervisor holds it."""
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def main() -> None:
    """Serve requests from standard input until it ends or our parent is gone."""
    directory = Path(sys.argv[1])
    # The lock is held by this process alone, until it ends.
    if hold(directory) is None:
        sys.exit(f"{directory} belongs to a cluster that is running")
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Ctrl-C goes to the whole foreground group; whoever started us decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    parent = os.getppid()
    supervisor = Supervisor(directory)
    try:
        # A stray child of pytest may hold our input open after pytest is gone: look for it, too.
        while os.getppid() == parent:
            if not select.select([sys.stdin], [], [], 1)[0]:
                continue
            line = sys.stdin.buffer.readline()
            if not line:
                break
            sys.stdout.write(json.dumps(supervisor.answer(json.loads(line))) + "\n")
            sys.stdout.flush()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        supervisor.end()


if __name__ == "__main__":
    main()
