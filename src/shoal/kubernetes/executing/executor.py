"""Carries decisions out: claims, pins, gates, and taking back what did not come true.

Order of the writes of one start, which a crash may end after any of them:

1. the claims of all its pods (DRA channel only). A claim of a gated pod is never allocated; the
   next start of the pod finds it, and makes it anew if it names other devices;
2. for a start of several pods: the whole plan, on its first pods, still gated;
3. each pod: pin, plan and gate in one patch that holds for one version of the pod.

Before the first patch of step 3 nothing has happened that a new plan would not undo; after it the
pods themselves say what was planned, and whoever leads next goes on from there. Every write may be
repeated: it has a precondition, a name of its own, or the same content.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from shoal.core.decisions import (
    Decision,
    Evict,
    Freeze,
    Refuse,
    Retract,
    Start,
    Wait,
    Warn,
)
from shoal.kubernetes.api.client import Client, JsonObject
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    KubernetesError,
    NotFoundError,
    QuotaExceededError,
    StatusError,
)
from shoal.kubernetes.executing.claims import Pin, claim_body, is_claim_of, requests_of
from shoal.kubernetes.executing.evicting import Evicting
from shoal.kubernetes.executing.plans import (
    note_patch,
    read_note,
    release_patch,
)
from shoal.kubernetes.executing.taking_back import TakingBack, is_uncounted
from shoal.kubernetes.executing.writes import MOST_TRIES, NotLeadingError, StartError, Writes
from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.watching.flights import Flight
from shoal.kubernetes.watching.history import Mark
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.watching.timed_out import mark_patch, read_mark
from shoal.kubernetes.watching.truth import Stage
from shoal.kubernetes.wire.kinds import RESOURCE_CLAIMS
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import ResourceClaim

_log = structlog.get_logger(__name__)


class News(Protocol):
    """Whom the executor tells what happens."""

    def waits(self, decision: Wait) -> None:
        """Workloads wait, and why."""
        ...

    def is_released(self) -> None:
        """The patch of a pod is being sent."""
        ...

    def failed(self, flight: Flight, number: int, reason: str) -> None:
        """A start does not come true, because of the pod with this number."""
        ...

    def evicts(self, flight: Flight) -> None:
        """Pods of a start are being evicted."""
        ...

    def blocked(self, flight: Flight, number: int, why: str) -> None:
        """A pod cannot be evicted now."""
        ...

    def warns(self, decision: Freeze | Warn) -> None:
        """A person has to know: nobody is evicted any more, or a budget is used up."""
        ...

    def wake(self) -> None:
        """There may be something to do."""
        ...


class KubernetesExecutor:
    """Carries decisions out in a cluster; implements the loop's `Executor`."""

    def __init__(
        self,
        client: Client,
        source: Source,
        *,
        now_us: Callable[[], int],
        may_write: Callable[[], bool] = lambda: True,
        news: News,
    ) -> None:
        self.running: set[asyncio.Task[None]] = set()
        """What is being carried out."""
        self._client = client
        self._writes = Writes(client, source.truth, may_write)
        self._taking_back = TakingBack(source, self._writes)
        self._evicting = Evicting(source, self._writes, self)
        self._source = source
        self._now_us = now_us
        self._news = news
        self._done: set[str] = set()
        """Keys of decisions that were begun, until their workloads have moved on."""
        self._to_evict: list[Flight] = []
        """Starts whose pods are evicted together: the next task takes all of them."""
        self._written: dict[str, Pod] = {}
        """Pods as our last patch left them, where the watch may not have told yet."""

    # The loop's side --------------------------------------------------------------------------

    def carry_out(self, decision: Decision) -> None:
        """Begin to carry out a decision; a key that was begun already is not begun again."""
        if isinstance(decision, Wait):
            self._news.waits(decision)
            return
        if decision.key in self._done:
            return
        if isinstance(decision, Start):
            flight = self._source.started(decision, self._now_us())
            if flight is not None:
                self._done.add(decision.key)
                self._spawn(self._start(flight), decision.key)
        elif isinstance(decision, Retract):
            self._retract(decision)
        elif isinstance(decision, Evict):
            flight = self._source.evicted(decision, self._now_us())
            if flight is not None:
                self._news.evicts(flight)
                self._evict(flight)
        elif isinstance(decision, Refuse):
            self._source.refused(decision)
        elif isinstance(decision, Freeze | Warn):
            self._news.warns(decision)

    def _evict(self, flight: Flight) -> None:
        """Evict what a start's seats say, together with all that is decided at the same time."""
        if not self._to_evict:
            self._spawn(self._evict_together(), f"evict/{flight.uid}/{flight.attempt}")
        self._to_evict.append(flight)

    async def _evict_together(self) -> None:
        flights, self._to_evict = self._to_evict, []
        await self._evicting.evict(flights)

    def blocked(self, flight: Flight, number: int, why: str) -> None:
        """A pod cannot be evicted now, so its whole workload stays."""
        self._source.stays(flight, number, self._now_us())
        self._news.blocked(flight, number, why)
        self._spawn(self._evicting.undo(flight), f"stays/{flight.uid}/{flight.attempt}")

    def release_seats(self) -> None:
        """Let go the pods that have taken seats of starts that are under way."""
        seats, self._source.to_release = self._source.to_release, []
        for uid, number in seats:
            flight = self._source.flights.get(uid)
            if flight is not None and number in flight.seats:
                self._spawn(self._one(flight, number), f"seat/{uid}/{number}")

    def mark_held(self) -> None:
        """Write on pods why they are held back, or that they no longer are."""
        timed_out = self._source.units.timed_out
        marks, timed_out.to_mark = timed_out.to_mark, {}
        for uid, mark in marks.items():
            self._spawn(self._mark(uid, mark), f"held/{uid}")

    async def _mark(self, uid: str, mark: Mark | None) -> None:
        pod = self._source.pods.get(uid)
        for _ in range(MOST_TRIES):
            if pod is None or read_mark(pod) == mark:
                return
            if mark is not None and not pod.spec.scheduling_gates:
                return
            if await self._writes.patch(pod, mark_patch(pod, mark)) is not None:
                return
            pod = await self._writes.look(pod)

    def take_over(self) -> None:
        """Go on with what an earlier leader began."""
        for flight, whole in list(self._source.begun()):
            if whole:
                self._evict(flight)
            else:
                self.blocked(flight, min(flight.evicting), "the eviction was not written whole")
        for flight in list(self._source.flights.values()):
            for number, seat in flight.seats.items():
                pod = self._source.pods.get(seat.pod)
                stage = self._source.truth.stage(pod)
                if stage in (Stage.GATED, Stage.RELEASED):
                    self._spawn(self._one(flight, number), f"seat/{flight.uid}/{number}")
                if number in flight.evicting or stage is Stage.GONE:
                    continue
                if pod is not None and is_uncounted(pod):
                    self._spawn(self._taking_back.track_again(pod), f"track/{pod.uid}")

    def renew_claim(self, flight: Flight, number: int) -> None:
        """Make the claim of a pod again that is not bound and whose claim was deleted."""
        self._spawn(self._one(flight, number), f"seat/{flight.uid}/{number}")

    def _retract(self, decision: Retract) -> None:
        flight = self._source.flights.get(decision.workload)
        pods = list(flight.pods) if flight is not None else []
        self._source.retracted(decision, self._now_us())
        for uid in pods:
            self._spawn(self._taking_back.take_back(uid), f"{decision.key}/{uid}")

    def _spawn(self, work: Awaitable[None], key: str) -> None:
        async def run() -> None:
            try:
                await work
            except NotLeadingError:
                _log.info("not carried out: not leading", key=key)
            except KubernetesError as error:
                _log.warning("not carried out", key=key, why=str(error))
            finally:
                self._done.discard(key)
                self._news.wake()

        task = asyncio.create_task(run(), name=key)
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    # Starts -----------------------------------------------------------------------------------

    async def _start(self, flight: Flight) -> None:
        """Steps 1 to 3 of the module's text."""
        numbers = sorted(flight.seats)
        if len(numbers) == 1:
            await self._one(flight, numbers[0])
            return
        made: list[ResourceClaim] = []
        number = numbers[0]
        try:
            for number in numbers:
                made += await self._claims(flight, number)
        except QuotaExceededError as refused:
            for claim in made:
                await self._writes.delete_claim(claim)
            self._refused_by_quota(flight, refused)
            return
        except StartError as failed:
            self._news.failed(flight, number, str(failed))
            return
        bearers = flight.bearers
        for number in bearers:
            await self._write_note(flight, number)
        await asyncio.gather(*(self._one(flight, number) for number in numbers))

    async def _one(self, flight: Flight, number: int) -> None:
        """The claim and the patch of one pod; what cannot be done fails the start."""
        pod = self._pod_in(flight, number)
        try:
            if pod is not None and not pod.spec.scheduling_gates:
                # It is bound as soon as its claim is there, so its plan is noted before.
                await self._release(flight, number)
                await self._claims(flight, number)
            else:
                await self._claims(flight, number)
                await self._release(flight, number)
        except QuotaExceededError as refused:
            if len(flight.seats) == 1:
                self._refused_by_quota(flight, refused)
            else:
                self._news.failed(flight, number, str(refused))
        except StartError as failed:
            self._news.failed(flight, number, str(failed))

    def _refused_by_quota(self, flight: Flight, refused: QuotaExceededError) -> None:
        pod = self._pod_in(flight, min(flight.seats))
        namespace = pod.metadata.namespace if pod is not None else ""
        message = refused.status.message
        self._source.units.quota_refused(flight.owner, namespace, refused.quota, message)
        if not flight.failure:
            self._source.cancel(flight, self._now_us())

    def _pod_in(self, flight: Flight, number: int) -> Pod | None:
        seat = flight.seats.get(number)
        if seat is None or not seat.pod:
            return None
        written = self._written.pop(seat.pod, None)
        seen = self._source.pods.get(seat.pod)
        return written if written is not None and seen is not None else seen

    async def _release(self, flight: Flight, number: int) -> None:
        """Pin a pod, note its plan and take its gate away, in one patch."""
        pod = self._pod_in(flight, number)
        for _ in range(MOST_TRIES):
            if pod is None or not self._is_current(flight, number, pod):
                return
            note = flight.note(number)
            gated = bool(pod.spec.scheduling_gates)
            if not gated and read_note(pod) == note:
                return
            if not gated and pod.spec.node_name:
                return
            patch = release_patch(pod, note) if gated else note_patch(pod, note)
            self._news.is_released()
            if await self._writes.patch(pod, patch) is not None:
                return
            pod = await self._writes.look(pod)
        raise StartError("others keep changing the pod")

    async def _write_note(self, flight: Flight, number: int) -> None:
        """Write a part of the whole plan on a pod that is still gated."""
        pod = self._pod_in(flight, number)
        for _ in range(MOST_TRIES):
            if pod is None or not self._is_current(flight, number, pod):
                return
            note = flight.note(number)
            if read_note(pod) == note or not pod.spec.scheduling_gates:
                return
            written = await self._writes.patch(pod, note_patch(pod, note))
            if written is not None:
                self._written[written.uid] = written
                return
            pod = await self._writes.look(pod)

    def _is_current(self, flight: Flight, number: int, pod: Pod) -> bool:
        """Whether a pod still sits where it is to be started, and the start still holds."""
        seat = flight.seats.get(number)
        current = self._source.flights.get(flight.uid) is flight and not flight.failure
        return current and seat is not None and seat.pod == pod.uid

    # Claims -----------------------------------------------------------------------------------

    async def _claims(self, flight: Flight, number: int) -> list[ResourceClaim]:
        """Make the claim of a pod if it has one; returns what was made.

        Raises QuotaExceededError and StartError.
        """
        pod = self._pod_in(flight, number)
        if pod is None or not pod.spec.resource_claims or pod.spec.node_name:
            return []
        ask = self._source.ask(pod)
        if ask.claimed is None:
            return []
        body = self._claim_body(flight, number, pod, ask)
        for _ in range(MOST_TRIES):
            if not self._is_current(flight, number, pod):
                return []
            known = self._source.truth.claims.get(ask.claimed.name, pod.metadata.namespace)
            if known is None:
                try:
                    return [await self._create_claim(body, pod)]
                except AlreadyExistsError:
                    known = await self._get_claim(ask.claimed.name, pod.metadata.namespace)
            if known is None:
                continue
            if not is_claim_of(known, pod.uid):
                raise StartError(f"the claim {known.metadata.name} belongs to something else")
            if known.status.allocation is not None or _selectors(known) == _wanted(body):
                return []
            await self._writes.delete_claim(known)
            await asyncio.sleep(0)
        raise StartError(f"the claim {ask.claimed.name} could not be made")

    def _claim_body(self, flight: Flight, number: int, pod: Pod, ask: Ask) -> JsonObject:
        leaves = flight.seats[number].placement.leaves
        pins = [self._source.fleet.pin_of(leaf) for leaf in leaves]
        drivers = {pin.driver for pin in pins if pin is not None}
        if None in pins or len(drivers) != 1:
            raise StartError(f"the devices {', '.join(leaves)} cannot be named in one claim")
        chosen = self._source.fleet.class_of(ask)
        if chosen is None:
            raise StartError("there is no DeviceClass for its devices; install the DRA driver's")
        name = ask.claimed.name if ask.claimed is not None else ""
        pin = Pin(drivers.pop(), "uuid", tuple(each.uuid for each in pins if each is not None))
        return claim_body(name, pod.metadata, requests_of(ask.spans), chosen, pin=pin)

    async def _create_claim(self, body: JsonObject, pod: Pod) -> ResourceClaim:
        try:
            return await self._writes.write(
                lambda: self._client.create(RESOURCE_CLAIMS, body, pod.metadata.namespace)
            )
        except (AlreadyExistsError, QuotaExceededError):
            raise
        except StatusError as refused:
            raise StartError(str(refused)) from refused

    async def _get_claim(self, name: str, namespace: str) -> ResourceClaim | None:
        try:
            return await self._writes.write(
                lambda: self._client.get(RESOURCE_CLAIMS, name, namespace)
            )
        except NotFoundError:
            return None


def _selectors(claim: ResourceClaim) -> list[str]:
    return [
        selector.cel.expression
        for request in claim.spec.devices.requests
        if request.exactly is not None
        for selector in request.exactly.selectors
    ]


def _wanted(body: JsonObject) -> list[str]:
    spec = body["spec"]
    requests: Sequence[JsonObject] = spec["devices"]["requests"]  # type: ignore[index]
    return [
        selector["cel"]["expression"]
        for request in requests
        for selector in request["exactly"].get("selectors", ())  # type: ignore[attr-defined]
    ]
