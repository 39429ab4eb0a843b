"""The tests' side of the supervisor: processes that can be stopped, frozen, killed, restarted."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.harness import supervisor

PREFIX = "shoal-cluster-"
ROOT = Path(__file__).parents[3]
LOGS = "SHOAL_CLUSTER_LOGS"


class Failed(Exception):
    """Something that a test cluster needs did not work; the message says what and why."""


class Process:
    """One process of a cluster. Signals go to it and to all that it started."""

    def __init__(
        self,
        processes: "Processes",
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.env = dict(env)
        self.log = processes.directory / "logs" / f"{name}.log"
        self.pid = 0
        self._processes = processes

    def start(self) -> None:
        """Start it, with the arguments it was made with; its output is added to its log."""
        answer = self._processes.ask(
            do="start", name=self.name, argv=self.argv, env=self.env, log=str(self.log)
        )
        self.pid = answer["pid"]

    def signal(self, number: int) -> None:
        """Send a signal; nothing happens if it has ended already."""
        self._processes.ask(do="signal", name=self.name, signal=number)

    def wait(self, seconds: float) -> int | None:
        """Wait until it has ended: its exit code (negative: the signal), None if it still runs."""
        code: int | None = self._processes.ask(do="wait", name=self.name, seconds=seconds)["code"]
        return code

    def kill(self) -> None:
        """End it without warning (kill -9) and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(10)

    def stop(self, seconds: float = 15) -> int:
        """Ask it to end (SIGTERM) and wait; returns its exit code."""
        self.signal(signal.SIGTERM)
        code = self.wait(seconds)
        if code is None:
            self.kill()
            raise Failed(f"{self.name} did not end within {seconds:g} s of SIGTERM.\n{self.tail()}")
        return code

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open and nothing is answered."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self.signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.pid != 0 and self.wait(0) is None

    def tail(self, lines: int = 15) -> str:
        """The end of its log, to be shown beside an error."""
        if not self.log.exists():
            return f"({self.name} has written no log)"
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"The end of {self.name}'s log:", *text])


class Processes:
    """A directory and a supervisor; everything in both is gone after `close`."""

    def __init__(self) -> None:
        sweep()
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        (self.directory / "logs").mkdir()
        self._lock = threading.Lock()
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", supervisor.__name__, str(self.directory)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def make(
        self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> Process:
        """A process that is not started yet. Names are unique in a cluster."""
        return Process(self, name, [str(each) for each in argv], env or {})

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request to the supervisor (its module lists them) and return the answer."""
        with self._lock:
            pipe_in, pipe_out = self._supervisor.stdin, self._supervisor.stdout
            if pipe_in is None or pipe_out is None or pipe_in.closed:
                raise Failed(f"the cluster in {self.directory} has been stopped already")
            try:
                pipe_in.write(json.dumps(request).encode() + b"\n")
                pipe_in.flush()
                line = pipe_out.readline()
            except BrokenPipeError:
                line = b""
        if not line:
            raise Failed(
                f"the supervisor of {self.directory} has ended, and the cluster with it; "
                "somebody outside the tests killed it"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def close(self) -> None:
        """Kill everything and remove the directory."""
        keep_logs(self.directory)
        with self._lock:
            for pipe in (self._supervisor.stdin, self._supervisor.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self._supervisor.wait()


def keep_logs(directory: Path) -> None:
    """Copy the logs to where the environment variable SHOAL_CLUSTER_LOGS says, if it is set."""
    if LOGS in os.environ:
        target = Path(os.environ[LOGS]) / directory.name
        shutil.copytree(directory / "logs", target, dirs_exist_ok=True)


def sweep() -> None:
    """Remove what clusters left whose supervisor was killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Without a lock file it is a cluster that is just being made.
        if not (directory / supervisor.LOCK).exists():
            continue
        with contextlib.suppress(FileNotFoundError, PermissionError):
            lock = supervisor.hold(directory)
            if lock is not None:
                _kill_in(directory)
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)


def _kill_in(directory: Path) -> None:
    """Kill processes that work in a directory: what children of a cluster's processes were."""
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if (each / "cwd").readlink().is_relative_to(directory):
                os.kill(int(each.name), signal.SIGKILL)
