"""Give the cluster back: every gate lifted, every policy and webhook gone, nothing managed.

`release` can be run at any time, by whoever has the rights (`admission.installation.RIGHTS`), with
Shoal running or not, and again if it broke off. Pods that run are not touched. Pods that waited go
to kube-scheduler as they are; those on the DRA channel get the claim that they name, without a pin.

The order matters: first managed namespaces become observed ones, which ends all that Shoal's
processes and policies do there; then the guards go, which would refuse anyone but Shoal's account;
then gates are lifted until none is left. API servers act on removed policies some seconds longer,
so a refusal in that time is answered by trying again, and the last look comes after it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shoal.catalog.catalog import Catalog
from shoal.kubernetes.admission.installation import uninstall
from shoal.kubernetes.admission.names import GATE, MANAGE, MODE, OBSERVE
from shoal.kubernetes.api.client import Client, PatchForm, Selection
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
)
from shoal.kubernetes.executing.claims import claim_body, class_for, requests_of
from shoal.kubernetes.watching.asks import NOTES, without
from shoal.kubernetes.wire.kinds import DEVICE_CLASSES, NAMESPACES, PODS, RESOURCE_CLAIMS
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import DeviceClass
from shoal.model.modes import Channel
from shoal.model.refusal import Refusal
from shoal.objects.annotations import QUEUE
from shoal.objects.devices import claimed_of
from shoal.objects.pods import Rules, reading_of
from shoal.texts.refusals import refusal_text

CONCURRENCY: Final = 48
"""Pods at once: what a transport sends at once."""

SETTLE_S: Final = 15.0
"""How long after their removal API servers may still act on policies."""

_TRY_AGAIN_S: Final = 0.5


@dataclass(slots=True)
class Released:
    """What was done.

    Attributes:
        namespaces: those that are managed no longer.
        objects: policies and webhook configurations that were removed.
        pods: gates that were lifted.
        claims: claims that were made for pods on the DRA channel.
        claimless: pods, by namespace and name, for which none could be made, and why.
        left: pods whose gate could not be lifted, and why.
    """

    namespaces: list[str] = field(default_factory=list)
    objects: int = 0
    pods: int = 0
    claims: int = 0
    claimless: dict[tuple[str, str], str] = field(default_factory=dict)
    left: dict[tuple[str, str], str] = field(default_factory=dict)


async def release(
    client: Client,
    catalog: Catalog,
    *,
    progress: Callable[[Released], None] = lambda _: None,
    settle_s: float = SETTLE_S,
    monotonic_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Released:
    """Give the cluster back, and say what was done. Raises KubernetesError; then run it again.

    Args:
        client: with the rights of `RIGHTS`; at most 48 pods are written at once.
        catalog: to read what pods on the DRA channel ask for.
        progress: told after every step.
        settle_s: how long removed policies may still act.
        monotonic_s: a clock that never goes back.
        sleep: waits so many seconds.
    """
    done = Released()
    for each in await client.list_all(NAMESPACES, Selection(labels=f"{MODE}={MANAGE}")):
        name = each.metadata.name
        await client.patch(NAMESPACES, name, {"metadata": {"labels": {MODE: OBSERVE}}})
        done.namespaces.append(name)
        progress(done)
    done.objects = await uninstall(client)
    progress(done)
    settled_at_s = monotonic_s() + settle_s
    lifter = _Lifter(client, catalog, done, progress)
    while True:
        now_s = monotonic_s()
        gated = await lifter.lift_all()
        if gated:
            # Whatever still refuses when removed policies no longer act is not ours to overcome.
            if done.left and now_s >= settled_at_s + settle_s:
                return done
            await sleep(_TRY_AGAIN_S)
        elif now_s >= settled_at_s:
            return done
        else:
            await sleep(settled_at_s - now_s)


class _Lifter:
    """Lifts the gates of all pods, some at once."""

    def __init__(
        self,
        client: Client,
        catalog: Catalog,
        done: Released,
        progress: Callable[[Released], None],
    ) -> None:
        self._client = client
        self._catalog = catalog
        self._done = done
        self._progress = progress
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._classes: Sequence[DeviceClass] | None = None

    async def lift_all(self) -> int:
        """One pass over all pods; returns how many had the gate."""
        gated = 0
        self._done.left.clear()
        async for page in self._client.pages(PODS, Selection(fields="spec.nodeName=")):
            held = [pod for pod in page.items if pod.has_gate(GATE) and not pod.is_terminating]
            gated += len(held)
            async with asyncio.TaskGroup() as group:
                for pod in held:
                    group.create_task(self._lift(pod))
            self._progress(self._done)
        return gated

    async def _lift(self, pod: Pod) -> None:
        meta = pod.metadata
        async with self._slots:
            try:
                await self._give_claim(pod)
                body = {
                    "metadata": {"uid": meta.uid},
                    "spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]},
                }
                await self._client.patch(
                    PODS, meta.name, body, meta.namespace, form=PatchForm.STRATEGIC
                )
            except ForbiddenError as error:
                self._done.left[pod.key] = str(error)
            except (NotFoundError, ConflictError):
                pass  # another pod of that name, or none
            else:
                self._done.pods += 1

    async def _give_claim(self, pod: Pod) -> None:
        """Make the claim that the pod names, for whatever devices are free."""
        claimed = claimed_of(pod)
        if claimed is None:
            return
        # Which queue it named no longer matters.
        plain = without(pod, NOTES | {QUEUE})
        reading = reading_of(plain, self._catalog, Rules(Channel.DRA))
        if isinstance(reading, Refusal):
            self._done.claimless[pod.key] = refusal_text(reading)
            return
        if self._classes is None:
            self._classes = await self._client.list_all(DEVICE_CLASSES)
        resource = reading.resources[0][0] if reading.resources else ""
        device_class = class_for(self._classes, self._catalog, resource, reading.vendor)
        if device_class is None:
            self._done.claimless[pod.key] = f"no DeviceClass stands for {resource or 'its devices'}"
            return
        requests = requests_of(reading.spans)
        body = claim_body(claimed.name, pod.metadata, requests, device_class)
        try:
            await self._client.create(RESOURCE_CLAIMS, body, pod.metadata.namespace)
        except AlreadyExistsError:
            return
        self._done.claims += 1
