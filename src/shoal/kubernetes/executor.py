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
from typing import Final, Protocol, TypeVar

import structlog

from shoal.catalog.catalog import Catalog
from shoal.core.decisions import Decision, Retract, Start, Wait
from shoal.kubernetes.asks import Ask
from shoal.kubernetes.claims import Pin, claim_body, class_for, is_claim_of, requests_of
from shoal.kubernetes.client import Client, JsonObject
from shoal.kubernetes.errors import (
    AlreadyExistsError,
    ConflictError,
    DisruptionBlockedError,
    KubernetesError,
    NotFoundError,
    QuotaExceededError,
    StatusError,
    UnreachableError,
)
from shoal.kubernetes.flights import Flight
from shoal.kubernetes.plans import (
    TRACKING,
    note_patch,
    read_note,
    release_patch,
    tracked_patch,
    untracked_patch,
)
from shoal.kubernetes.source import Source
from shoal.kubernetes.truth import Stage
from shoal.kubernetes.wire.kinds import PODS, RESOURCE_CLAIMS
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import ResourceClaim

_log = structlog.get_logger(__name__)

_Answer = TypeVar("_Answer")

PAUSE_S: Final = 1.0
"""The pause before a write is tried again that the API server did not answer."""

MOST_TRIES: Final = 8
"""How often a patch is made anew for a pod that others change at the same time."""


class NotLeadingError(Exception):
    """This process leads no longer: nothing more is written."""


class StartError(Exception):
    """A pod cannot be started as planned; the text says why."""


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

    def wake(self) -> None:
        """There may be something to do."""
        ...


class KubernetesExecutor:
    """Carries decisions out in a cluster; implements the loop's `Executor`."""

    def __init__(
        self,
        client: Client,
        source: Source,
        catalog: Catalog,
        *,
        now_us: Callable[[], int],
        may_write: Callable[[], bool] = lambda: True,
        news: News,
    ) -> None:
        self.running: set[asyncio.Task[None]] = set()
        """What is being carried out."""
        self._client = client
        self._source = source
        self._catalog = catalog
        self._now_us = now_us
        self._may_write = may_write
        self._news = news
        self._done: set[str] = set()
        """Keys of decisions that were begun, until their workloads have moved on."""
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
        else:
            self._retract(decision)

    def release_seats(self) -> None:
        """Let go the pods that have taken seats of starts that are under way."""
        seats, self._source.to_release = self._source.to_release, []
        for uid, number in seats:
            flight = self._source.flights.get(uid)
            if flight is not None and number in flight.seats:
                self._spawn(self._one(flight, number), f"seat/{uid}/{number}")

    def take_over(self) -> None:
        """Go on with what an earlier leader began."""
        for flight in list(self._source.flights.values()):
            for number, seat in flight.seats.items():
                pod = self._source.pods.get(seat.pod)
                stage = self._source.truth.stage(pod)
                if stage in (Stage.GATED, Stage.RELEASED):
                    self._spawn(self._one(flight, number), f"seat/{flight.uid}/{number}")
                if pod is not None and _is_uncounted(pod) and stage is not Stage.GONE:
                    self._spawn(self._track_again(pod), f"track/{pod.uid}")

    def renew_claim(self, flight: Flight, number: int) -> None:
        """Make the claim of a pod again that is not bound and whose claim was deleted."""
        self._spawn(self._one(flight, number), f"seat/{flight.uid}/{number}")

    def _retract(self, decision: Retract) -> None:
        flight = self._source.flights.get(decision.workload)
        pods = list(flight.pods) if flight is not None else []
        self._source.retracted(decision, self._now_us())
        for uid in pods:
            self._spawn(self._take_back(uid), f"{decision.key}/{uid}")

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
                await self._delete_claim(claim)
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
            if await self._patch(pod, patch) is not None:
                return
            pod = await self._look(pod)
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
            written = await self._patch(pod, note_patch(pod, note))
            if written is not None:
                self._written[written.uid] = written
                return
            pod = await self._look(pod)

    def _is_current(self, flight: Flight, number: int, pod: Pod) -> bool:
        """Whether a pod still sits where it is to be started, and the start still holds."""
        seat = flight.seats.get(number)
        current = self._source.flights.get(flight.uid) is flight and not flight.failure
        return current and seat is not None and seat.pod == pod.uid

    async def _patch(self, pod: Pod, body: JsonObject) -> Pod | None:
        """The pod as patched, or None where it has changed or gone in the meantime."""
        meta = pod.metadata
        try:
            return await self._write(
                lambda: self._client.patch(PODS, meta.name, body, meta.namespace)
            )
        except (ConflictError, NotFoundError):
            return None
        except StatusError as refused:
            raise StartError(str(refused)) from refused

    async def _look(self, pod: Pod) -> Pod | None:
        """The pod as it is now, or None where it is gone."""
        meta = pod.metadata
        try:
            found = await self._write(lambda: self._client.get(PODS, meta.name, meta.namespace))
        except NotFoundError:
            return None
        return found if found.uid == pod.uid else None

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
            await self._delete_claim(known)
            await asyncio.sleep(0)
        raise StartError(f"the claim {ask.claimed.name} could not be made")

    def _claim_body(self, flight: Flight, number: int, pod: Pod, ask: Ask) -> JsonObject:
        leaves = flight.seats[number].placement.leaves
        pins = [self._source.fleet.pin_of(leaf) for leaf in leaves]
        drivers = {pin.driver for pin in pins if pin is not None}
        if None in pins or len(drivers) != 1:
            raise StartError(f"the devices {', '.join(leaves)} cannot be named in one claim")
        classes = list(self._source.truth.classes.values())
        chosen = class_for(classes, self._catalog, ask.resource, ask.vendor)
        if chosen is None:
            raise StartError("there is no DeviceClass for its devices; install the DRA driver's")
        name = ask.claimed.name if ask.claimed is not None else ""
        pin = Pin(drivers.pop(), "uuid", tuple(each.uuid for each in pins if each is not None))
        return claim_body(name, pod.metadata, requests_of(ask.spans), chosen, pin=pin)

    async def _create_claim(self, body: JsonObject, pod: Pod) -> ResourceClaim:
        try:
            return await self._write(
                lambda: self._client.create(RESOURCE_CLAIMS, body, pod.metadata.namespace)
            )
        except (AlreadyExistsError, QuotaExceededError):
            raise
        except StatusError as refused:
            raise StartError(str(refused)) from refused

    async def _get_claim(self, name: str, namespace: str) -> ResourceClaim | None:
        try:
            return await self._write(lambda: self._client.get(RESOURCE_CLAIMS, name, namespace))
        except NotFoundError:
            return None

    async def _delete_claim(self, claim: ResourceClaim) -> None:
        """Delete a claim as it is known: one that was allocated since is left alone."""
        meta = claim.metadata
        try:
            await self._write(
                lambda: self._client.delete(
                    RESOURCE_CLAIMS,
                    meta.name,
                    meta.namespace,
                    uid=meta.uid,
                    resource_version=meta.resource_version,
                )
            )
        except (ConflictError, NotFoundError):
            return
        gone = self._source.truth.claims.get(meta.name, meta.namespace)
        for _ in range(50):
            if gone is None or gone.uid != meta.uid:
                return
            await asyncio.sleep(0.02)
            gone = self._source.truth.claims.get(meta.name, meta.namespace)

    # Taking back ------------------------------------------------------------------------------

    async def _take_back(self, uid: str) -> None:
        """Take back one pod of a start that did not come true.

        A pod with a controller is deleted, so that a new one can be placed elsewhere; if it never
        ran, its Job does not count it. A pod without one keeps its node: on the DRA channel its
        claim goes, and another device of the node is planned.
        """
        while True:
            pod = self._source.pods.get(uid)
            stage = self._source.truth.stage(pod)
            if pod is None or stage not in (Stage.RELEASED, Stage.BOUND) or pod.is_terminating:
                return
            if pod.metadata.controller is None:
                await self._take_back_bare(pod, stage)
                return
            try:
                if await self._delete_pod(pod):
                    return
            except DisruptionBlockedError as blocked:
                _log.info("a disruption budget keeps a pod", pod=uid, why=str(blocked))
            await asyncio.sleep(PAUSE_S)

    async def _take_back_bare(self, pod: Pod, stage: Stage) -> None:
        if stage is Stage.BOUND or self._source.ask(pod).claimed is None:
            return
        for claim in self._source.truth.claims_of(pod):
            if claim.status.allocation is not None:
                return
            await self._delete_claim(claim)
        self._source.replans.add(pod.uid)
        self._source.look_at(pod.uid)

    async def _delete_pod(self, pod: Pod) -> bool:
        """Delete a pod as it is known, uncounted by its Job; False where it changed meanwhile."""
        meta = pod.metadata
        known = pod
        try:
            if TRACKING in meta.finalizers:
                known = await self._write(
                    lambda: self._client.patch(
                        PODS, meta.name, untracked_patch(pod), meta.namespace
                    )
                )
            if _ran(known):
                await self._write(
                    lambda: self._client.evict(meta.name, meta.namespace, uid=pod.uid)
                )
                return True
            version = known.metadata.resource_version
            await self._write(
                lambda: self._client.delete(
                    PODS, meta.name, meta.namespace, uid=pod.uid, resource_version=version
                )
            )
        except NotFoundError:
            return True
        except ConflictError:
            await self._track_again(pod)
            return False
        return True

    async def _track_again(self, pod: Pod) -> None:
        """Have a Job count a pod again whose deletion did not come about."""
        found = await self._look(pod)
        if found is not None and _is_uncounted(found):
            await self._patch(found, tracked_patch(found))

    # Writing ----------------------------------------------------------------------------------

    async def _write(self, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Make a call for as long as this process leads and the API server does not answer."""
        while True:
            if not self._may_write():
                raise NotLeadingError
            try:
                return await call()
            except UnreachableError as away:
                _log.warning("the API server is away", why=str(away))
                await asyncio.sleep(PAUSE_S)


def _ran(pod: Pod) -> bool:
    """Whether any container of a pod has been started."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any(
        each.state.running is not None
        or each.state.terminated is not None
        or each.restart_count > 0
        for each in statuses
    )


def _is_uncounted(pod: Pod) -> bool:
    """Whether a pod is alive that its Job has stopped counting, as only we make it do."""
    owner = pod.metadata.controller
    return (
        owner is not None
        and owner.kind == "Job"
        and owner.api_version == "batch/v1"
        and TRACKING not in pod.metadata.finalizers
        and not pod.is_terminating
        and not pod.is_ended
    )


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
