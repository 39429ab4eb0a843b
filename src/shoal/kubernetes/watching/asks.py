"""What pods ask for, read once for all pods of one template."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import msgspec

from shoal.catalog.catalog import Catalog
from shoal.kubernetes.watching.askers import Asker, Askers
from shoal.kubernetes.watching.inventory import device_counts, dra_offer
from shoal.kubernetes.watching.owners import group_of
from shoal.kubernetes.wire.meta import OwnerReference
from shoal.kubernetes.wire.pod import Pod
from shoal.model.modes import Channel
from shoal.model.queue import QueueTree
from shoal.model.refusal import Refusal
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import WorkloadType
from shoal.objects.annotations import (
    DEFAULT_QUEUE,
    HELD,
    PLAN,
    QUEUE,
    SAID_WHILE_RUNNING,
    STAMPS,
    Annotations,
)
from shoal.objects.devices import Claimed, Span, claimed_of, read_names
from shoal.objects.hosts import host_request
from shoal.objects.pods import Rules, reading_of
from shoal.objects.quantity import QuantityError
from shoal.objects.rights import priority_in, queue_for, type_in

REMEMBERED: Final = 4096
"""So many owners' last pods are remembered."""

SERVICES: Final = (("apps", "ReplicaSet"), ("apps", "StatefulSet"))
"""Group and kind of controllers that keep equal pods; those of Deployments are ReplicaSets."""

NOTES: Final = frozenset((PLAN, HELD, *SAID_WHILE_RUNNING, *STAMPS))
"""Annotations that come to a pod from others, or later, and say nothing about what it asks for."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where a pod is created: its namespace with channel and labels, and the queues there are.

    Two places are equal only if they are one: whoever asks for the same namespace keeps its place
    until something about it changes.
    """

    channel: Channel = Channel.DEVICE_PLUGIN
    tree: QueueTree = field(default_factory=QueueTree)
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def rules(self) -> Rules:
        """What a pod's annotations are read by; which queues it may use is judged after that."""
        if not self.tree.queues:
            return Rules(self.channel)
        return Rules(self.channel, tuple(queue.name for queue in self.tree.leaves()))


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod asks for.

    Attributes:
        request: in the model's words; its mask names what a node must offer.
        refusal: why the pod cannot be planned; the request is then only what it would hold.
        claimed: what the webhook replaced by a claim, on the DRA channel.
        vendor: whose devices; empty: any.
        resource: the extended resource that they are asked for by, if they are.
        driver: the DRA driver of the vendor.
        spans: which of its devices each container uses.
        recreate: whether somebody makes it again if it is evicted, although it has no controller.
        priority, priority_name: as its queue grants it.
        user: who asked for it; empty: nobody knows; None: it is not known yet.
        run_us: how long it runs at most, as it declares.
        minimum: how many pods of its gang have to run; None: all.
        floor: how many replicas its service cannot do without; None: all.
    """

    request: Request
    refusal: Refusal | None = None
    queue: str = DEFAULT_QUEUE
    type: WorkloadType = WorkloadType.BATCH
    claimed: Claimed | None = None
    vendor: str = ""
    resource: str = ""
    driver: str = ""
    spans: tuple[Span, ...] = ()
    recreate: bool = False
    priority: int = 0
    priority_name: str = ""
    run_us: int | None = None
    minimum: int | None = None
    floor: int | None = None
    user: str | None = ""

    @property
    def devices(self) -> int:
        """How many devices."""
        return self.request.devices.count


class AskReader:
    """Reads pods. What a template asks for is remembered with the last pod that was made of it."""

    def __init__(self, catalog: Catalog, askers: Askers) -> None:
        self.askers = askers
        self._catalog = catalog
        self._drivers: dict[str, str] = {}
        for clue in catalog.clues:
            if clue.driver:
                self._drivers.setdefault(clue.vendor, clue.driver)
        self._last: OrderedDict[tuple[str, Place, Asker | None], tuple[Pod, Ask]] = OrderedDict()
        self._equal: dict[Ask, Ask] = {}

    def read(self, pod: Pod, place: Place) -> Ask:
        """What the pod asks for; equal asks are one object."""
        owner, asker = pod.metadata.controller, self.askers.of(pod)
        key = (owner.uid if owner is not None else "", place, asker)
        known = self._last.get(key)
        if known is not None and _same_template(known[0], pod):
            return known[1]
        user = asker.user if asker is not None else None
        ask = replace(self._read(pod, place, asker), user=user)
        ask = self._equal.setdefault(ask, ask) if ask.claimed is None else ask
        if len(self._equal) > REMEMBERED:
            self._equal.clear()
        self._last[key] = (pod, ask)
        self._last.move_to_end(key)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        return ask

    def _read(self, pod: Pod, place: Place, asker: Asker | None) -> Ask:
        plain = without(pod, NOTES)
        channel = place.channel
        reading = reading_of(plain, self._catalog, place.rules)
        if isinstance(reading, Refusal):
            return Ask(self._held_by(plain), reading)
        written = reading.annotations
        queue, priority = written.queue, 0
        if place.tree.queues:
            # What has been let go was granted its priority when it was planned.
            gated = bool(pod.spec.scheduling_gates)
            subjects = asker.subjects if asker is not None and gated else None
            granted = _granted(place, written, plain, subjects)
            if not isinstance(granted, Refusal):
                queue, priority = granted
            elif gated:
                return Ask(self._held_by(plain), granted)
        claimed = claimed_of(plain)
        driver = ""
        mask = "+".join(resource for resource, _ in reading.resources)
        if channel is Channel.DRA and reading.request.devices.count:
            driver = self._drivers.get(reading.vendor) or next(iter(self._drivers.values()), "")
            mask = dra_offer(driver)
        devices, owner = reading.request.devices, plain.metadata.controller
        is_replica = _is_replica(owner, written.type)
        if written.type is WorkloadType.INFERENCE and devices.count and owner is not None:
            devices = replace(devices, apart=owner.uid)
        return Ask(
            replace(reading.request, mask=mask, devices=devices),
            queue=queue,
            type=written.type,
            priority=priority,
            priority_name=written.priority,
            run_us=written.run_us,
            minimum=None if is_replica else written.minimum,
            floor=written.minimum if is_replica else None,
            claimed=claimed,
            vendor=reading.vendor,
            resource=next((resource for resource, _ in reading.resources), ""),
            driver=driver,
            spans=reading.spans,
            recreate=written.recreate,
        )

    def _held_by(self, pod: Pod) -> Request:
        """What a pod holds that cannot be planned: host resources, and devices by their counts."""
        try:
            cpu_milli, memory_mib = host_request(pod.spec)
        except QuantityError:
            cpu_milli = memory_mib = 0
        named = read_names(pod, self._catalog.names)
        if not isinstance(named, Refusal):
            count = named.total
        else:
            counts: dict[str, int] = {}
            for container in pod.spec.containers:
                for resource, n in device_counts(container.resources.limits, self._catalog).items():
                    counts[resource] = counts.get(resource, 0) + n
            count = sum(counts.values())
        return Request(cpu_milli, memory_mib, DeviceRequest(count))


def _is_replica(owner: OwnerReference | None, type_: WorkloadType) -> bool:
    """Whether a pod is one of the equal pods that its controller keeps of a service."""
    known = owner is not None and (group_of(owner), owner.kind) in SERVICES
    return known and type_ is WorkloadType.INFERENCE


def _granted(
    place: Place, written: Annotations, pod: Pod, subjects: Collection[str] | None
) -> tuple[str, int] | Refusal:
    """The queue of a pod, and the value of its priority there for whoever asks."""
    named = written.queue if QUEUE in pod.metadata.annotations else None
    name = queue_for(place.tree, place.namespace, place.labels, named)
    queue = place.tree.get(name) if isinstance(name, str) else None
    if isinstance(name, Refusal) or queue is None:
        return name if isinstance(name, Refusal) else (written.queue, 0)
    wrong = type_in(queue, written.type)
    if wrong is not None:
        return wrong
    priority = priority_in(queue, written.priority, subjects)
    return priority if isinstance(priority, Refusal) else (name, priority)


def _same_template(one: Pod, other: Pod) -> bool:
    """Whether two pods of one owner ask for the same, whatever became of them since."""
    if one.uid == other.uid and one.metadata.resource_version == other.metadata.resource_version:
        return True
    return one.spec == other.spec and _ours(one) == _ours(other)


def _ours(pod: Pod) -> dict[str, str]:
    return {k: v for k, v in pod.metadata.annotations.items() if k not in NOTES}


def without(pod: Pod, keys: frozenset[str]) -> Pod:
    """A pod without some of its annotations."""
    annotations = pod.metadata.annotations
    if annotations.keys().isdisjoint(keys):
        return pod
    kept = {key: value for key, value in annotations.items() if key not in keys}
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept)
    )
