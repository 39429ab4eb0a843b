"""What people ask of the platform: handed to the writer, answered when the replica shows it."""

from collections.abc import Sequence
from concurrent.futures import TimeoutError as TooLateError
from os import getuid
from pwd import getpwuid
from threading import Lock
from time import monotonic, sleep
from typing import Final

from shoal.loop.inbox import (
    Act,
    Answer,
    Ask,
    Cancel,
    InboxClosedError,
    InboxFullError,
    KeepTo,
    Refused,
    Submit,
)
from shoal.model.pool import Pool
from shoal.model.queue import QueueTree
from shoal.model.workload import Workload
from shoal.server.models import ProblemPart
from shoal.server.problems import Kind, ProblemError
from shoal.server.standing import Standing

PATIENCE_S: Final = 30.0
"""How long the writer may take; it answers within a second unless the machine is very busy."""

SHOWN_S: Final = 30.0
"""How long an answer waits for the replica, so that who asked sees what came of it.

The replica shows it within a tenth of a second unless the machine is very busy.
"""


def _owner() -> str:
    """Who asks: the socket can only be opened by whoever began the platform."""
    try:
        return f"user:{getpwuid(getuid()).pw_name}"
    except KeyError:
        return f"user:{getuid()}"


class Desk:
    """Asks the writer, from many threads."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._names = Lock()
        self._on_their_way: set[tuple[str, str]] = set()

    def submit(self, workloads: Sequence[Workload]) -> None:
        """Have workloads taken in, all or none. Raises `ProblemError`."""
        names = {(each.namespace, each.name) for each in workloads}
        with self._names:
            self._check_names(names)
            self._on_their_way |= names
        try:
            if self._ask(Submit(tuple(workloads))).refused is Refused.KNOWN:
                raise ProblemError(Kind.CONFLICT, "the platform knows it already")
        finally:
            with self._names:
                self._on_their_way -= names

    def check_names(self, workloads: Sequence[Workload]) -> None:
        """Raise `ProblemError` where a workload of the name has not ended."""
        self._check_names({(each.namespace, each.name) for each in workloads})

    def _check_names(self, names: set[tuple[str, str]]) -> None:
        with self._standing.reading() as look:
            lives = look.story.lives.values()
            taken = names & {(life.workload.namespace, life.workload.name) for life in lives}
        taken |= names & self._on_their_way
        if taken:
            parts = tuple(
                ProblemPart(
                    field="metadata.name",
                    message=(
                        f"there is a workload {name} in namespace {namespace}; cancel it first, or"
                        " write another name"
                    ),
                )
                for namespace, name in sorted(taken)
            )
            raise ProblemError(Kind.CONFLICT, parts[0].message, parts)

    def cancel(self, uid: str) -> None:
        """Have a workload ended. Raises `ProblemError`."""
        if self._ask(Cancel(uid)).refused is Refused.UNKNOWN:
            raise ProblemError(Kind.NOT_FOUND, "it has ended already")

    def act(self, *, acts: bool) -> bool:
        """Have Shoal decide, or decide nothing any more; whether evictions go on by that."""
        with self._standing.reading() as look:
            frozen = look.world.evictions.frozen
        self._ask(Act(acts, _owner()))
        return acts and frozen

    def keep_to(self, pools: tuple[Pool, ...], queues: QueueTree) -> None:
        """Have the loop keep to these pools and queues. Raises `ProblemError`."""
        self._ask(KeepTo(pools, queues))

    def _ask(self, ask: Ask) -> Answer:
        try:
            answer = self._standing.doors.inbox.put(ask).result(PATIENCE_S)
        except InboxFullError:
            raise ProblemError(Kind.BUSY, "too many ask at once; ask again in a second") from None
        except InboxClosedError:
            raise ProblemError(
                Kind.STOPPING, "the platform is stopping; start it again with shoal up"
            ) from None
        except TooLateError:
            raise ProblemError(
                Kind.BUSY, f"there was no answer within {PATIENCE_S:g} s; see whether it was done"
            ) from None
        until = monotonic() + SHOWN_S
        while self._standing.doors.replica.offset < answer.offset and monotonic() < until:
            sleep(0.01)
        return answer
