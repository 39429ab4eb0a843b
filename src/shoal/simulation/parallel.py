"""Runs in parallel processes; their results do not depend on how many there are."""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from shoal.simulation.results import Run
from shoal.simulation.run import run
from shoal.simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class Job:
    """A run to be made."""

    policy: str
    seed: int


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
            runs.append(run(trace, job.policy, job.seed))
            advance()
        return runs
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_prepare, initargs=(trace,))
    try:
        futures = [pool.submit(_work, job) for job in jobs]
        for future in futures:
            future.add_done_callback(lambda done: _count(done, advance))
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise WorkerLostError(
            "a process that made runs was ended, perhaps for want of memory;"
            " try again with fewer --processes."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _count(done: "Future[Run]", advance: Callable[[], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        advance()


_trace: list[Trace] = []
"""The trace that this process makes runs of, sent once and not with every job."""


def _prepare(trace: Trace) -> None:
    # An interrupt ends a process at once: there is nothing to save.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _trace[:] = [trace]


def _work(job: Job) -> Run:
    return run(_trace[0], job.policy, job.seed)
