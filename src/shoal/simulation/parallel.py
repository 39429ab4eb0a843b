"""Runs in parallel processes; their results do not depend on how many there are."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass

from shoal.simulation.inflation import LOAD_PCT
from shoal.simulation.results import Run
from shoal.simulation.run import run
from shoal.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be made."""

    policy: str
    seed: int
    learned: bool = False
    moves_pct: int = 0
    until_pct: int = LOAD_PCT

    def run(self, trace: Trace) -> Run:
        """Make the run."""
        return run(
            trace,
            self.policy,
            self.seed,
            learned=self.learned,
            moves_pct=self.moves_pct,
            until_pct=self.until_pct,
        )


class WorkerLostError(Exception):
    """A process that made runs has gone."""


def run_all(
    trace: Trace, jobs: Sequence[Job], processes: int, advance: Callable[[], None]
) -> list[Run]:
    """Make all runs, at most `processes` at a time, and return them in the order of `jobs`.

    `advance` is called as each of them ends.

    Raises WorkerLostError.
    """
    processes = min(processes, len(jobs))
    if processes <= 1:
        runs = []
        for job in jobs:
            runs.append(job.run(trace))
            advance()
        return runs
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_prepare, initargs=(trace,))
    try:
        with _interrupts_kept_from_children():
            futures = [pool.submit(_work, job) for job in jobs]
        for future in futures:
            future.add_done_callback(lambda done: _count(done, advance))
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise WorkerLostError(
            "a process that made runs was ended, perhaps for want of memory;"
            " try again with fewer --processes."
        ) from None
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()  # what it was at is of no use any more
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_kept_from_children() -> Iterator[None]:
    """Let processes that start meanwhile be deaf to interrupts; who started them ends them.

    A terminal interrupts all of them at once, and each would complain. Only the main thread of a
    process is interrupted, and only it can say so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _count(done: "Future[Run]", advance: Callable[[], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        advance()


_trace: list[Trace] = []
"""The trace that this process makes runs of, sent once and not with every job."""


def _prepare(trace: Trace) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _trace[:] = [trace]


def _end_with_parent() -> None:
    """End this process when the one that started it has gone, for whatever reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(job: Job) -> Run:
    return job.run(_trace[0])
