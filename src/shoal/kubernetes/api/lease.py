"""Leader election with a Lease, judged by the local passing of time alone.

A candidate never compares its clock with another machine's stamps: a lease counts as abandoned
when this process has watched it unchanged for its whole duration, by its own clock. A leader
counts itself as leader for `renew_deadline_s` from the moment *before* it sent its last successful
renewal. That is shorter than `duration_s`, which others wait from the moment after they saw the
renewal; so two candidates never both hold the lease, as long as clocks run at about the same
speed. Writes carry the lease's version, so a renewal that was stuck on its way loses to a
successor.

`LeaderLease` renews in a thread with a loop of its own, because the scheduler's loop may be busy
with a long cycle when a renewal is due.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
    UnreachableError,
)
from shoal.kubernetes.api.identity import Identity
from shoal.kubernetes.api.transport import Limits, Transport
from shoal.kubernetes.wire.cluster import Lease
from shoal.kubernetes.wire.kinds import LEASES

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class LeaseTerms:
    """The terms of an election; client-go's defaults."""

    duration_s: int = 15
    """How long others wait for a renewal before they take over."""
    renew_deadline_s: float = 10.0
    """How long a renewal lets its sender count itself as leader."""
    retry_s: float = 2.0
    """The pause between attempts, plus a jitter of up to a fifth."""

    def __post_init__(self) -> None:
        """Refuse terms under which there could be two leaders, or none for long."""
        if not 0 < self.retry_s * 1.2 < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                f"{self}: write terms with retry_s * 1.2 < renew_deadline_s < duration_s"
            )


DEFAULT_TERMS: Final = LeaseTerms()

LEASE_LIMITS: Final = Limits(concurrency=2, connect_s=3.0, answer_s=4.0, patience_s=0.0)
"""Of the transport of an election: an attempt fails early, so that the next one still counts."""


def boot_time_s() -> float:
    """Seconds since the machine started, with the time it was suspended.

    CLOCK_MONOTONIC stands still in a suspended machine, which would wake up as a second leader.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Candidate:
    """One candidate's view of a lease and its next step. Without a thread or a loop of its own."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        holder: str,
        terms: LeaseTerms = DEFAULT_TERMS,
        *,
        clock_s: Callable[[], float] = boot_time_s,
    ) -> None:
        """Stand for the lease `namespace`/`name` as `holder`, which no other process ever uses."""
        self.holder = holder
        self.terms = terms
        self.leader = ""
        """Who was last seen to hold the lease."""
        self.term = 0
        """How often the lease has changed hands: no two leaders have the same while it exists."""
        self._client = client
        self._name = name
        self._namespace = namespace
        self._clock_s = clock_s
        self._held_until_s = float("-inf")
        self._seen: Lease | None = None
        self._seen_at_s = float("-inf")

    def remaining_s(self) -> float:
        """How long this candidate surely leads from now on; not positive when it does not."""
        return self._held_until_s - self._clock_s()

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads now."""
        return self.remaining_s() > 0

    async def attempt(self) -> bool:
        """Renew, or take the lease if it is free; whether this candidate leads now.

        Raises UnreachableError and StatusError; a lost race is no error.
        """
        if self._seen is None or self.leader != self.holder:
            await self._look()
        if self._seen is None:
            if self._is_forsaken():
                await self._create()
        elif self._is_free(self._seen):
            await self._write(self._seen)
        return self.is_leader

    async def release(self) -> None:
        """Stop leading at once, and let a successor take over without waiting."""
        was_leader, self._held_until_s = self.is_leader, float("-inf")
        seen, self._seen = self._seen, None
        if not was_leader or seen is None:
            return
        spec: dict[str, object] = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": _stamp(),
        }
        try:
            await self._patch(seen, spec)
        except (ConflictError, NotFoundError):
            return

    async def _look(self) -> None:
        try:
            found = await self._client.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            self._seen = None
            return
        known = self._seen
        if known is None or known.metadata.resource_version != found.metadata.resource_version:
            self._take_note(found)

    def _is_free(self, seen: Lease) -> bool:
        """Whether the lease is ours, nobody's, or has stood still for its whole duration."""
        return self.leader == self.holder or self._is_forsaken(seen.spec.lease_duration_seconds)

    def _is_forsaken(self, duration_s: int | None = None) -> bool:
        """Whether whoever led has been still for long enough, even if his lease was deleted."""
        if self.leader in ("", self.holder):
            return True
        limit_s = self.terms.duration_s if duration_s is None else max(duration_s, 1)
        return self._clock_s() - self._seen_at_s >= limit_s

    async def _create(self) -> None:
        started_s = self._clock_s()
        spec = self._spec(transitions=0, taken=True)
        body = {"metadata": {"name": self._name}, "spec": spec}
        try:
            created = await self._client.create(LEASES, body, self._namespace)
        except AlreadyExistsError:
            return
        self._lead(created, started_s)

    async def _write(self, seen: Lease) -> None:
        started_s = self._clock_s()
        taken = self.leader != self.holder
        spec = self._spec(transitions=seen.spec.lease_transitions + taken, taken=taken)
        try:
            written = await self._patch(seen, spec)
        except ConflictError:
            # Somebody else was faster, or only a label changed: the next attempt knows which.
            self._seen = None
            await self._look()
            return
        except NotFoundError:
            # Without the lease nothing keeps others from making one.
            self._seen, self._held_until_s = None, float("-inf")
            return
        self._lead(written, started_s)

    async def _patch(self, seen: Lease, spec: dict[str, object]) -> Lease:
        version = {"resourceVersion": seen.metadata.resource_version}
        body = {"metadata": version, "spec": spec}
        return await self._client.patch(LEASES, self._name, body, self._namespace)

    def _spec(self, *, transitions: int, taken: bool) -> dict[str, object]:
        now = _stamp()
        spec: dict[str, object] = {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.terms.duration_s,
            "leaseTransitions": transitions,
            "renewTime": now,
        }
        return spec | {"acquireTime": now} if taken else spec

    def _lead(self, lease: Lease, started_s: float) -> None:
        self._take_note(lease)
        self._held_until_s = started_s + self.terms.renew_deadline_s

    def _take_note(self, lease: Lease) -> None:
        self._seen = lease
        self._seen_at_s = self._clock_s()
        self.leader = lease.spec.holder_identity
        self.term = lease.spec.lease_transitions


def _stamp() -> str:
    """Now, for people who read the lease."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaderLease:
    """A candidate that stands in a thread of its own; its properties may be read from any other."""

    def __init__(
        self,
        identity: Identity,
        name: str,
        namespace: str,
        holder: str,
        terms: LeaseTerms = DEFAULT_TERMS,
        *,
        on_change: Callable[[bool], None] | None = None,
        clock_s: Callable[[], float] = boot_time_s,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Prepare; `on_change` is told in the lease's thread whether this process leads."""
        self.trouble: str | None = None
        """Why the last attempt failed; None when it did not."""
        self._identity = identity
        self._place = (name, namespace, holder, terms)
        self._clock_s = clock_s
        self._chance = chance
        self._on_change = on_change
        self._led = False
        self._candidate: Candidate | None = None
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"lease {name}", daemon=True)

    def start(self) -> None:
        """Begin to stand for the lease."""
        self._thread.start()
        self._ready.wait()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Give the lease up and end the thread; waits for at most `timeout_s`."""
        if not self._thread.is_alive():
            return
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout_s)

    @property
    def is_leader(self) -> bool:
        """Whether this process leads now; false by itself when renewals fail."""
        return self.remaining_s() > 0

    def remaining_s(self) -> float:
        """How long this process surely leads from now on; not positive when it does not."""
        return self._candidate.remaining_s() if self._candidate is not None else float("-inf")

    @property
    def leader(self) -> str:
        """Who was last seen to hold the lease."""
        return self._candidate.leader if self._candidate is not None else ""

    @property
    def term(self) -> int:
        """The number of the current leadership."""
        return self._candidate.term if self._candidate is not None else 0

    @property
    def is_standing(self) -> bool:
        """Whether the thread lives; one that died of an error of ours never leads again."""
        return self._thread.is_alive()

    def _main(self) -> None:
        try:
            asyncio.run(self._stand())
        except Exception as error:  # noqa: BLE001  (nobody else sees what ends a thread)
            self.trouble = f"the election has ended: {error!r}"
            _log.exception("election ended")
        finally:
            self._ready.set()

    async def _stand(self) -> None:
        name, namespace, holder, terms = self._place
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with Transport(self._identity, LEASE_LIMITS) as transport:
            candidate = Candidate(
                Client(transport), name, namespace, holder, terms, clock_s=self._clock_s
            )
            self._candidate = candidate
            self._ready.set()
            try:
                await self._attempts(candidate, self._stopping)
            finally:
                try:
                    await candidate.release()
                except KubernetesError as error:
                    _log.warning("lease not given up", why=str(error))
                self._tell(candidate)

    async def _attempts(self, candidate: Candidate, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await self._attempt(candidate)
            self._tell(candidate)
            await _wait(stopping, candidate.terms.retry_s * (1.0 + 0.2 * self._chance()))
            self._tell(candidate)

    async def _attempt(self, candidate: Candidate) -> None:
        """One attempt, given up when the leadership it should prolong has run out."""
        left_s = candidate.remaining_s()
        limit_s = left_s if left_s > 0 else candidate.terms.renew_deadline_s
        try:
            async with asyncio.timeout(limit_s):
                await candidate.attempt()
            self.trouble = None
        except TimeoutError:
            self.trouble = "the API server did not answer in time"
        except UnreachableError as error:
            self.trouble = str(error)
        except KubernetesError as error:
            self.trouble = str(error)
            _log.warning("lease refused", why=str(error))

    def _tell(self, candidate: Candidate) -> None:
        leads = candidate.is_leader
        if leads != self._led:
            self._led = leads
            _log.info("leading" if leads else "not leading", term=candidate.term)
            if self._on_change is not None:
                self._on_change(leads)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
