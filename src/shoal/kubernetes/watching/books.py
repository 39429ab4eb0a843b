"""What the source keeps, and how pods and claims that are no part of a start are booked.

Uids in the world: `pod/UID` is a pod that is taken as it is (somebody else's, or one on its way
out); `claim/UID` a claim that holds devices without such a pod; everything else is ours (`units`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shoal.core import events as ev
from shoal.core.world import Entry, World
from shoal.kubernetes.executing.plans import Kept, PlanNote, read_note
from shoal.kubernetes.watching.asks import Ask, AskReader, Place
from shoal.kubernetes.watching.controllers import KUBERNETES_OWN, Controllers
from shoal.kubernetes.watching.fleet import FleetView
from shoal.kubernetes.watching.flights import Flight, created_us, since_us
from shoal.kubernetes.watching.inventory import synthetic_leaf
from shoal.kubernetes.watching.truth import CLAIM, Stage, Truth, owner_uid
from shoal.kubernetes.wire.node import Namespace
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import ResourceClaim
from shoal.kubernetes.wire.workload import Job, ReplicaSet, StatefulSet
from shoal.model.hold import Hold
from shoal.model.pool import Pool
from shoal.model.queue import QueueTree
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Outcome, Placement, PodSet, Workload
from shoal.objects.annotations import DEFAULT_QUEUE


@dataclass(frozen=True)
class SourceOptions:
    """Times of a source."""

    slot_keep_us: int = 60_000_000
    """How long the place of a deleted pod is kept for the pod that replaces it."""
    controllers: Controllers = KUBERNETES_OWN
    """Whose objects are asked for by who asked for the objects' owners."""


DEFAULT_OPTIONS = SourceOptions()


class Books:
    """Stores, world, and who is where; the base of the source."""

    def __init__(
        self,
        truth: Truth,
        world: World,
        reader: AskReader,
        fleet: FleetView,
        options: SourceOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.truth = truth
        self.world = world
        self.fleet = fleet
        self.options = options
        self.flights: dict[str, Flight] = {}
        """By workload uid."""
        self.flights_of: dict[str, set[str]] = defaultdict(set)
        """Uids of an owner's flights."""
        self.replans: set[str] = set()
        """Bare pods that were let go and wait for another device of their node."""
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, Job] = {}
        self.replica_sets: dict[str, ReplicaSet] = {}
        self.stateful_sets: dict[str, StatefulSet] = {}
        self.to_release: list[tuple[str, int]] = []
        """Seats (workload, number) whose pods are to be let go: what the executor takes over."""
        self.acts = False
        """Whether this process leads: only then are empty seats filled."""
        self._reader = reader
        self._seats: dict[str, tuple[str, int]] = {}
        self._places: dict[str, tuple[QueueTree, Namespace | None, Place]] = {}
        self._retracted: set[tuple[str, int]] = set()
        self._pods_dirty: dict[str, None] = {}
        self._owners_dirty: dict[str, None] = {}
        self._claims_dirty: dict[str, None] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._empty: dict[tuple[str, int], int] = {}
        """Seats that are empty while their workload runs, and until when they are kept (us)."""
        self._vacant: dict[str, set[tuple[str, int]]] = defaultdict(set)
        """All seats (workload, number) that nobody sits in, by owner."""
        self._wanted_by: dict[str, int] = {}
        """How many empty seats each owner can fill; forgotten with every look at the changes."""
        self._stuck: dict[str, Hold] = {}
        """Bare pods that are pinned to a node where they do not start."""
        self._queued: list[ev.Event] = []
        self._settled = False
        self._kept_to: tuple[tuple[Pool, ...], QueueTree] = ((), QueueTree())
        self.kept: dict[str, Kept] = {}
        """Places that an earlier leader kept for workloads that have not been seen yet."""

    def queue(self, event: ev.Event) -> None:
        """Have an event yielded by the next `changes`."""
        self._queued.append(event)

    def keep_to(self, pools: tuple[Pool, ...], queues: QueueTree, now_us: int) -> None:
        """Have the world keep to these pools and queues from now on; pods are looked at again."""
        known = self._kept_to
        if pools != known[0]:
            self.queue(ev.PoolsSet(now_us, pools))
        if queues != known[1]:
            self.queue(ev.QueuesSet(now_us, queues))
        if (pools, queues) != known:
            self._kept_to = pools, queues
            self._pods_dirty.update(dict.fromkeys(self.pods))

    def settle(self) -> None:
        """Have running work charged where it belongs now whose queue there is not any more.

        Before that it may be that a queue closes which an earlier leader kept to.
        """
        self._settled = True
        self._pods_dirty.update(dict.fromkeys(self.pods))

    def mark_owner(self, owner: str) -> None:
        """Have the pods of an owner looked at again."""
        self._owners_dirty[owner] = None

    def look_at(self, pod: str) -> None:
        """Have a pod looked at again."""
        self._pods_dirty[pod] = None

    def ask(self, pod: Pod) -> Ask:
        """What a pod asks for."""
        ask = self._reader.read(pod, self._place(pod.metadata.namespace))
        self.fleet.want_mask(ask.request.mask)
        return ask

    def _place(self, namespace: str) -> Place:
        """Where pods of a namespace are created; without queues all share the default one."""
        tree = self.world.tenants.tree
        found = self.truth.namespaces.get(namespace)
        known = self._places.get(namespace)
        if known is not None and known[0] is tree and known[1] is found:
            return known[2]
        labels = found.metadata.labels if found is not None else {}
        place = Place(self.truth.namespace(namespace).channel, tree, namespace, labels)
        self._places[namespace] = tree, found, place
        return place

    def _home_of(self, workload: Workload, pod: Pod) -> str:
        """The queue of running work: where it started, or its pod's where there is none such."""
        tree = self.world.tenants.tree
        if not self._settled or not tree.queues or tree.get(workload.queue) is not None:
            return workload.queue
        now = self.ask(pod).queue
        return now if tree.get(now) is not None else workload.queue

    def wishes_known(self, owner: str) -> bool:
        """Whether it is known how many pods a controller wants, as of Kubernetes' own."""
        return any(owner in each for each in (self.jobs, self.replica_sets, self.stateful_sets))

    def is_strange(self, pod: Pod) -> bool:
        """Whether a pod that names a Job or ReplicaSet as its controller was not made for it.

        What is started in the name of an owner, or takes the place of a pod of his, is what whoever
        asked for the owner asked for.
        """
        uid = owner_uid(pod)
        owner = self.jobs.get(uid) or self.replica_sets.get(uid)
        if owner is None:
            return False
        askers = self._reader.askers
        wanted, made = askers.of_owner(owner), askers.of(pod)
        return wanted is not None and made is not None and wanted.user != made.user

    def truth_of(self, uid: str) -> Pod | None:
        """The pod with this uid as it was last seen."""
        return self.pods.get(uid)

    def is_seated(self, pod: str) -> bool:
        """Whether a pod has its place in a start."""
        return pod in self._seats

    def is_ours(self, pod: Pod, note: PlanNote) -> bool:
        """Whether a note is one that Shoal made for this pod, and still holds."""
        acts = self.truth.namespace(pod.metadata.namespace).acts
        mine = acts and note.workload.startswith(f"{owner_uid(pod)}/")
        return mine and note.start not in self._retracted and pod.uid not in self.replans

    def _as_it_is(self, uid: str, pod: Pod | None, stage: Stage, now_us: int) -> Iterator[ev.Event]:
        """Take a pod that is no part of a start as it is."""
        name = f"pod/{uid}"
        entry = self.world.entries.get(name)
        if pod is None or stage not in (Stage.BOUND, Stage.RELEASED) or uid in self.replans:
            self._stuck.pop(uid, None)
            if entry is not None:
                yield ev.WorkloadEnded(now_us, name, _outcome(pod))
            return
        if stage is Stage.RELEASED:
            note = read_note(pod)
            if note is None:
                return
            node, leaves = note.own.node, note.own.leaves
        else:
            self._stuck.pop(uid, None)
            node = pod.spec.node_name
            leaves = self._leaves_of(pod, entry)
        yield from self._adopt(name, pod, node, leaves, now_us)

    def _adopt(
        self, name: str, pod: Pod, node: str, leaves: tuple[str, ...], now_us: int
    ) -> Iterator[ev.Event]:
        entry = self.world.entries.get(name)
        placement = Placement(0, node, leaves)
        if entry is not None:
            is_home = self._home_of(entry.workload, pod) == entry.workload.queue
            if entry.held.get(0) == placement and is_home:
                return
            yield ev.WorkloadEnded(now_us, name, Outcome.CANCELLED)
        ask = self.ask(pod)
        acts = self.truth.namespace(pod.metadata.namespace).acts
        held = Request(ask.request.cpu_milli, ask.request.memory_mib, _whole(len(leaves)))
        yield ev.WorkloadAdopted(
            now_us,
            Workload(
                uid=name,
                pod_sets=(PodSet("pod", 1, held),),
                queue=ask.queue if acts else DEFAULT_QUEUE,
                type=ask.type,
                created_us=created_us([pod]),
                name=pod.metadata.name,
                namespace=pod.metadata.namespace,
                user=ask.user or "",
                recreated=False,
            ),
            (placement,),
            since_us(pod),
        )

    def _leaves_of(self, pod: Pod, entry: Entry | None) -> tuple[str, ...]:
        """The devices of a bound pod: of its claims, else some of the node's, as counted."""
        claims = self.truth.claims_of(pod)
        if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
            mine = [claim for claim in claims if self._books(claim) == pod.uid]
            return tuple(leaf for claim in mine for leaf in self.fleet.leaves_of(claim))
        ask = self.ask(pod)
        known = entry.held[0].leaves if entry is not None and 0 in entry.held else ()
        note = read_note(pod)
        if not known and note is not None and note.own.node == pod.spec.node_name:
            known = note.own.leaves
        return self.settled_leaves(pod.spec.node_name, ask, known, entry)

    def settled_leaves(
        self, node: str, ask: Ask, known: Sequence[str], entry: Entry | None
    ) -> tuple[str, ...]:
        """`known` leaves as far as the node has them, and others in the place of those it lacks.

        Device plugins do not say which device is which, so one that is no longer counted is not the
        one that the pod has. While a node counts none at all, its plugin restarts: nothing changes.
        """
        count = ask.devices
        listed = self.fleet.leaves_on(node)
        if len(known) == count and (not listed or all(leaf in listed for leaf in known)):
            return tuple(known)
        mine = set(entry.held[0].leaves) if entry is not None and 0 in entry.held else set()
        free = [leaf for leaf in listed if leaf in mine or self.fleet.is_free(node, leaf)]
        kept = [leaf for leaf in known if leaf in listed][:count]
        chosen = kept + [leaf for leaf in free if leaf not in kept]
        if len(chosen) < count:
            spare = [leaf for leaf in (*known, *listed) if leaf not in chosen]
            resource = ask.request.mask.partition("+")[0] or "device"
            number = 0
            while len(chosen) + len(spare) < count:
                made_up = synthetic_leaf(node, resource, number)
                number += 1
                if made_up not in chosen and made_up not in spare:
                    spare.append(made_up)
            chosen += spare
        return tuple(chosen[:count])

    def _books(self, claim: ResourceClaim) -> str:
        """The uid of the pod that a claim's devices are booked for; empty: for the claim itself."""
        for consumer in claim.status.reserved_for:
            if consumer.resource == "pods" and self._uses(consumer.uid):
                return consumer.uid
        for pod in self.truth.pods.by(CLAIM, "/".join(claim.key)):
            if self._uses(pod.uid):
                return pod.uid
        return ""

    def _uses(self, uid: str) -> bool:
        return self.truth.stage(self.pods.get(uid)) is Stage.BOUND or uid in self._seats

    def _claim(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        """Book an allocated claim by itself where no pod stands for it."""
        name = f"claim/{uid}"
        claim = self._claims.get(uid)
        leaves = self.fleet.leaves_of(claim) if claim is not None else ()
        node = self.fleet.node_of(leaves[0]) if leaves else ""
        entry = self.world.entries.get(name)
        if claim is None or not node or self._books(claim):
            if entry is not None:
                yield ev.WorkloadEnded(now_us, name, Outcome.COMPLETED)
            return
        placement = Placement(0, node, leaves)
        if entry is not None:
            if entry.held.get(0) == placement:
                return
            yield ev.WorkloadEnded(now_us, name, Outcome.CANCELLED)
        held = PodSet("claim", 1, Request(devices=_whole(len(leaves))))
        meta = claim.metadata
        workload = Workload(
            name, (held,), name=meta.name, namespace=meta.namespace, recreated=False
        )
        yield ev.WorkloadAdopted(now_us, workload, (placement,))


def _whole(count: int) -> DeviceRequest:
    return DeviceRequest(count)


def _outcome(pod: Pod | None) -> Outcome:
    if pod is None:
        return Outcome.CANCELLED
    phases = {"Succeeded": Outcome.COMPLETED, "Failed": Outcome.FAILED}
    return phases.get(pod.status.phase, Outcome.CANCELLED)
