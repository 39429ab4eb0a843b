"""Starts that do not come true in time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shoal.core.world import State
from shoal.kubernetes.watching.flights import Flight, Seat
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.watching.truth import Stage
from shoal.kubernetes.wire.pod import Pod


@dataclass(frozen=True)
class DeadlineOptions:
    """How long a start may take. Times are in microseconds."""

    refused_us: int = 30_000_000
    """How long kube-scheduler may refuse a pod: a device plugin restarts in less."""
    silent_us: int = 300_000_000
    """How long kube-scheduler may say nothing at all, because it is busy or away."""
    claim_us: int = 2_000_000
    """How long after it was let go a pod may be without its claim."""


DEFAULT_OPTIONS: Final = DeadlineOptions()


@dataclass(frozen=True, slots=True)
class Overdue:
    """A seat whose pod did not start, and why; without a reason only its claim is missing."""

    flight: Flight
    number: int
    reason: str


class Deadlines:
    """Looks for seats that are overdue. Times begin anew with the process that measures them."""

    def __init__(self, source: Source, options: DeadlineOptions = DEFAULT_OPTIONS) -> None:
        self._source = source
        self._options = options
        self._refused: dict[str, int] = {}
        """Since when kube-scheduler refuses a pod (us)."""
        self._released: dict[str, int] = {}
        """Since when a pod is known to be let go (us)."""

    def overdue(self, now_us: int) -> Iterator[Overdue]:
        """Seats whose pods are late, at most one of each start."""
        refused, released = self._refused, self._released
        self._refused, self._released = {}, {}
        for flight in list(self._source.flights.values()):
            entry = self._source.world.entries.get(flight.uid)
            if flight.failure or entry is None or entry.state is not State.STARTING:
                continue
            for number, seat in sorted(flight.seats.items()):
                if number in entry.started:
                    continue
                pod = self._source.pods.get(seat.pod)
                if pod is not None and self._source.truth.stage(pod) is Stage.RELEASED:
                    self._released[pod.uid] = released.get(pod.uid, now_us)
                    if self._says_no(pod):
                        self._refused[pod.uid] = refused.get(pod.uid, now_us)
                reason = self._reason(seat, pod, now_us)
                if reason is not None:
                    yield Overdue(flight, number, reason)
                    break

    def _reason(self, seat: Seat, pod: Pod | None, now_us: int) -> str | None:
        """Why a seat is overdue; empty where only the claim is missing, None if it is not."""
        options = self._options
        if not seat.pod or pod is None:
            late = now_us - seat.since_us >= options.refused_us
            return "its pod was deleted and no new one came in time" if late else None
        since = self._released.get(pod.uid)
        if since is None:
            return None
        if seat.placement.node not in self._source.fleet.inventories:
            return f"node {seat.placement.node} is gone"
        refused = self._refused.get(pod.uid)
        if refused is not None and now_us - refused >= options.refused_us:
            return self._words(pod)
        if now_us - since >= options.silent_us:
            return self._words(pod) or "kube-scheduler has not looked at it in time"
        if now_us - since >= options.claim_us and self._lacks_claim(pod):
            return ""
        return None

    def _lacks_claim(self, pod: Pod) -> bool:
        claimed = self._source.ask(pod).claimed if pod.spec.resource_claims else None
        if claimed is None:
            return False
        return self._source.truth.claims.get(claimed.name, pod.metadata.namespace) is None

    @staticmethod
    def _says_no(pod: Pod) -> bool:
        said = pod.status.condition("PodScheduled")
        return said is not None and said.status == "False" and said.reason == "Unschedulable"

    @staticmethod
    def _words(pod: Pod) -> str:
        said = pod.status.condition("PodScheduled")
        return said.message if said is not None else ""
