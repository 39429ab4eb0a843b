"""Evicting pods: written down on all of them first, then asked of the Eviction API, one by one.

What is written is why and for whom, and which places are kept for whoever that is; so a new leader
goes on with it instead of choosing other victims. A Job does not count what is evicted as a
failure: its pods lose their tracking finalizer in the same patch, and get it back if a disruption
budget refuses.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol

import structlog

from shoal.kubernetes.api.errors import (
    ConflictError,
    DisruptionBlockedError,
    NotFoundError,
    StatusError,
    TooManyRequestsError,
)
from shoal.kubernetes.executing.plans import eviction_patch, read_note
from shoal.kubernetes.executing.writes import MOST_TRIES, PAUSE_S, StartError, Writes
from shoal.kubernetes.watching.flights import Flight
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.watching.truth import Stage
from shoal.kubernetes.wire.meta import ObjectMeta
from shoal.kubernetes.wire.pod import Pod

_log = structlog.get_logger(__name__)


class Teller(Protocol):
    """Whom it tells what happens."""

    def blocked(self, flight: Flight, number: int, why: str) -> None:
        """A pod cannot be evicted now."""
        ...


class Evicting:
    """Carries evictions out."""

    def __init__(self, source: Source, writes: Writes, teller: Teller) -> None:
        self._source = source
        self._writes = writes
        self._teller = teller

    async def evict(self, flights: Sequence[Flight]) -> None:
        """Evict the pods of starts that are to be evicted, once that is written on all of them."""
        seats = [(flight, number) for flight in flights for number in sorted(flight.evicting)]
        await asyncio.gather(*(self._note(*seat) for seat in seats))
        await asyncio.gather(*(self._call_all(flight) for flight in flights))

    async def _call_all(self, flight: Flight) -> None:
        numbers = sorted(flight.evicting)
        calls: list[Awaitable[None]] = [self._call(flight, number) for number in numbers]
        if self._source.world.evictions.budgets_of(flight.uid):
            # A budget that refuses one of them then has let go as few as possible.
            for call in calls:
                await call
        else:
            await asyncio.gather(*calls)

    async def _note(self, flight: Flight, number: int) -> None:
        """Write on a pod that it is evicted, or that it is not after all."""
        pod = self._pod_in(flight, number)
        for _ in range(MOST_TRIES):
            if pod is None or pod.is_terminating or pod.is_ended:
                return
            note = flight.note(number)
            if read_note(pod) == note:
                return
            try:
                if await self._writes.patch(pod, eviction_patch(pod, note)) is not None:
                    return
            except StartError as refused:
                self._blocked(flight, number, str(refused))
                return
            pod = await self._writes.look(pod)
        self._blocked(flight, number, "others keep changing the pod")

    async def _call(self, flight: Flight, number: int) -> None:
        while number in flight.evicting:
            pod = self._pod_in(flight, number)
            if pod is None or pod.is_terminating:
                return
            try:
                await self._ask(pod.metadata, flight.evicting[number].grace_s)
            except (NotFoundError, ConflictError):
                return
            except StatusError as refused:
                blocked = isinstance(refused, DisruptionBlockedError)
                if blocked or not isinstance(refused, TooManyRequestsError):
                    self._blocked(flight, number, str(refused))
                    return
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _ask(self, meta: ObjectMeta, grace_s: int) -> None:
        evict = self._writes.client.evict
        await self._writes.write(
            lambda: evict(meta.name, meta.namespace, uid=meta.uid, grace_s=grace_s)
        )

    def _pod_in(self, flight: Flight, number: int) -> Pod | None:
        seat = flight.seats.get(number)
        if seat is None or self._source.flights.get(flight.uid) is not flight:
            return None
        pod = self._source.pods.get(seat.pod)
        return None if self._source.truth.stage(pod) is Stage.GONE else pod

    def _blocked(self, flight: Flight, number: int, why: str) -> None:
        if number not in flight.evicting:
            return
        _log.info("eviction refused", workload=flight.uid, pod=number, why=why)
        self._teller.blocked(flight, number, why)

    async def undo(self, flight: Flight) -> None:
        """Take back what was written on the pods of a start that are not evicted after all."""
        await asyncio.gather(*(self._note(flight, number) for number in sorted(flight.seats)))
