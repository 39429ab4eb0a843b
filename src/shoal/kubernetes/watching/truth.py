"""The live copies that decisions rest on, and what one object in them means.

The stores are fed by watches in a scheduler, and by lists for a command that looks once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeVar

from shoal.kubernetes.admission.names import CHANNEL, GATE, MANAGE, MODE
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.store import Indexer, Store
from shoal.kubernetes.watching.cache import WatchCache
from shoal.kubernetes.wire.cluster import DisruptionBudget, ResourceQuota
from shoal.kubernetes.wire.kinds import (
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    STATEFUL_SETS,
    Kind,
)
from shoal.kubernetes.wire.meta import Object, ObjectMeta
from shoal.kubernetes.wire.node import Namespace, Node
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import DeviceClass, ResourceClaim, ResourceSlice
from shoal.kubernetes.wire.workload import Job, ReplicaSet, StatefulSet
from shoal.model.modes import Channel
from shoal.objects.annotations import PLAN

T = TypeVar("T", bound=Object)

OWNER, NODE, CLAIM, NAMESPACE = "owner", "node", "claim", "namespace"
"""Names of indexes."""

Name = tuple[str, str]
"""Namespace and name."""


class Stage(Enum):
    """How far a pod is, as far as devices go."""

    GONE = "gone"
    """It is not there, its containers have ended, or it was deleted before it was bound."""
    HELD_BACK = "held back"
    """A gate of somebody else holds it, or ours where Shoal does not act."""
    GATED = "gated"
    """Only our gate holds it, in a managed namespace."""
    PENDING = "pending"
    """No gate holds it and no plan was made for it: kube-scheduler places it."""
    RELEASED = "released"
    """It was let go with a plan, and is not bound yet."""
    BOUND = "bound"
    """It is on a node and uses what it was given until it has ended."""


@dataclass(frozen=True)
class Truth:
    """One store per kind."""

    nodes: Store[Node]
    slices: Store[ResourceSlice]
    pods: Store[Pod]
    claims: Store[ResourceClaim]
    classes: Store[DeviceClass]
    namespaces: Store[Namespace]
    quotas: Store[ResourceQuota]
    jobs: Store[Job]
    replica_sets: Store[ReplicaSet]
    stateful_sets: Store[StatefulSet]
    budgets: Store[DisruptionBudget]
    as_if_managed: bool = False
    """Whether to see every namespace as if Shoal acted there, to say what it would decide."""

    @property
    def stores(self) -> tuple[Store[Any], ...]:
        """All of them."""
        return (
            *(self.nodes, self.slices, self.pods, self.claims, self.classes),
            *(self.namespaces, self.quotas, self.jobs, self.replica_sets),
            *(self.stateful_sets, self.budgets),
        )

    def namespace(self, name: str) -> "Managed":
        """How Shoal treats a namespace."""
        found = self.namespaces.get(name)
        known = managed(found.metadata) if found is not None else OBSERVED
        return replace(known, acts=True) if self.as_if_managed else known

    def stage(self, pod: Pod | None) -> Stage:
        """How far a pod is."""
        if pod is None or pod.is_ended:
            return Stage.GONE
        if pod.spec.node_name:
            return Stage.BOUND
        if pod.is_terminating:
            return Stage.GONE
        gates = pod.spec.scheduling_gates
        if gates:
            ours = len(gates) == 1 and gates[0].name == GATE
            acts = ours and self.namespace(pod.metadata.namespace).acts
            return Stage.GATED if acts else Stage.HELD_BACK
        if PLAN in pod.metadata.annotations and self.namespace(pod.metadata.namespace).acts:
            return Stage.RELEASED
        return Stage.GATED if self.as_if_managed and _asks(pod) else Stage.PENDING

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """The claims of a pod that exist."""
        found = (self.claims.get(name, namespace) for namespace, name in claim_names(pod))
        return [claim for claim in found if claim is not None]


@dataclass(frozen=True, slots=True)
class Managed:
    """How Shoal treats a namespace: whether it acts there, and over which channel."""

    acts: bool
    channel: Channel


OBSERVED: Final = Managed(acts=False, channel=Channel.DEVICE_PLUGIN)


def managed(namespace: ObjectMeta) -> Managed:
    """What a namespace's labels say; a channel that is none counts as the default."""
    dra = namespace.labels.get(CHANNEL) == Channel.DRA.word
    channel = Channel.DRA if dra else Channel.DEVICE_PLUGIN
    return Managed(namespace.labels.get(MODE) == MANAGE, channel)


def owner_uid(pod: Pod) -> str:
    """The uid of the pod's controller, or its own if it has none."""
    owner = pod.metadata.controller
    return owner.uid if owner is not None else pod.uid


def claim_names(pod: Pod) -> Iterator[Name]:
    """Names of the claims that a pod uses, as far as they are known."""
    namespace = pod.metadata.namespace
    if pod.spec.resource_claims:
        made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        for claim in pod.spec.resource_claims:
            name = claim.resource_claim_name or made.get(claim.name, "")
            if name:
                yield namespace, name
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        yield namespace, extended.resource_claim_name


def _asks(pod: Pod) -> bool:
    """Whether a pod asks for an extended resource or brings a claim."""
    named = any("/" in key for each in pod.spec.containers for key in each.resources.limits)
    return named or bool(pod.spec.resource_claims)


def _of_owner(pod: Pod) -> Iterable[str]:
    return (owner_uid(pod),)


def _of_node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _of_claim(pod: Pod) -> Iterable[str]:
    return tuple("/".join(name) for name in claim_names(pod))


def _of_slice_node(each: ResourceSlice) -> Iterable[str]:
    return (each.spec.node_name,) if each.spec.node_name else ()


def _of_namespace(each: Object) -> Iterable[str]:
    return (each.metadata.namespace,)


_POD_INDEXES: Final[dict[str, Indexer[Pod]]] = {
    OWNER: _of_owner,
    NODE: _of_node,
    CLAIM: _of_claim,
    NAMESPACE: _of_namespace,
}


async def watched(cache: WatchCache, client: Client) -> Truth:
    """Stores that a cache keeps equal to the cluster; to be called before the cache runs."""
    dra = await client.serves(RESOURCE_CLAIMS)
    return Truth(
        nodes=cache.watch(NODES),
        slices=cache.watch(RESOURCE_SLICES, indexes={NODE: _of_slice_node})
        if dra
        else _empty(RESOURCE_SLICES, {NODE: _of_slice_node}),
        pods=cache.watch(PODS, indexes=_POD_INDEXES),
        claims=cache.watch(RESOURCE_CLAIMS) if dra else _empty(RESOURCE_CLAIMS),
        classes=cache.watch(DEVICE_CLASSES) if dra else _empty(DEVICE_CLASSES),
        namespaces=cache.watch(NAMESPACES),
        quotas=cache.watch(RESOURCE_QUOTAS, indexes={NAMESPACE: _of_namespace}),
        jobs=cache.watch(JOBS),
        replica_sets=cache.watch(REPLICA_SETS),
        stateful_sets=cache.watch(STATEFUL_SETS),
        budgets=cache.watch(DISRUPTION_BUDGETS, indexes={NAMESPACE: _of_namespace}),
    )


def empty_truth() -> Truth:
    """Stores of a cluster without anything, to be fed by hand."""
    return Truth(
        nodes=_empty(NODES),
        slices=_empty(RESOURCE_SLICES, {NODE: _of_slice_node}),
        pods=_empty(PODS, _POD_INDEXES),
        claims=_empty(RESOURCE_CLAIMS),
        classes=_empty(DEVICE_CLASSES),
        namespaces=_empty(NAMESPACES),
        quotas=_empty(RESOURCE_QUOTAS, {NAMESPACE: _of_namespace}),
        jobs=_empty(JOBS),
        replica_sets=_empty(REPLICA_SETS),
        stateful_sets=_empty(STATEFUL_SETS),
        budgets=_empty(DISRUPTION_BUDGETS, {NAMESPACE: _of_namespace}),
    )


async def listed(client: Client, *, as_if_managed: bool = False) -> Truth:
    """Stores of what a cluster has now, listed once."""
    truth = replace(empty_truth(), as_if_managed=as_if_managed)
    dra = await client.serves(RESOURCE_CLAIMS)
    for store in truth.stores:
        if dra or store.kind.group != RESOURCE_CLAIMS.group:
            store.begin_list()
            async for page in client.pages(store.kind):
                for item in page.items:
                    store.put(item)
            store.end_list("")
    return truth


def _empty(kind: Kind[T], indexes: dict[str, Indexer[T]] | None = None) -> Store[T]:
    store = Store(kind, indexes)
    store.begin_list()
    store.end_list("")
    return store
