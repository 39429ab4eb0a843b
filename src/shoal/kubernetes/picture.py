"""What a cluster looks like now, and what Shoal would decide: for commands that look once.

The world is made anew from the API server, by the same code that the scheduler runs, and one cycle
is run on it; nothing is carried out. In namespaces that Shoal only observes, pods that wait for
kube-scheduler are put before the planner too.
"""

from dataclasses import dataclass, field
from typing import Final

from shoal.catalog.catalog import Catalog
from shoal.core.decisions import Decision, Start, Wait
from shoal.core.policies import Policy
from shoal.core.queueing.grouping import place_of
from shoal.core.world import State, World
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.consistency import differences
from shoal.kubernetes.executing.plans import read_note
from shoal.kubernetes.organisation import Organisation
from shoal.kubernetes.pricing import price_now
from shoal.kubernetes.scheduler import now_us
from shoal.kubernetes.watching.askers import Askers
from shoal.kubernetes.watching.asks import AskReader
from shoal.kubernetes.watching.controllers import KUBERNETES_OWN, Controllers
from shoal.kubernetes.watching.fleet import FleetView
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.watching.truth import Stage, Truth, listed
from shoal.kubernetes.wire.kinds import NAMESPACES
from shoal.kubernetes.wire.pod import Pod
from shoal.loop.engine import Loop, NoRecorder
from shoal.loop.meanings import change, several_pools
from shoal.model.hold import Hold
from shoal.model.meaning import Meaning
from shoal.model.pool import Pool, pools_of_node
from shoal.model.verdict import Verdict
from shoal.model.workload import Placement, WorkloadType
from shoal.objects.files import BadObjectsError, Written
from shoal.objects.quotas import names_of

NOTHING: Final = Written()

NO_POOL: Final = "no pool"
"""The name under which nodes are shown that no pool chooses."""

LOOKS = 5
"""How often a comparison is repeated while it finds anything."""


@dataclass
class _Collector:
    """An executor that only remembers."""

    starts: dict[str, Start] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def carry_out(self, decision: Decision) -> None:
        """Remember a decision by its workloads."""
        if isinstance(decision, Start):
            self.starts[decision.workload] = decision
        elif isinstance(decision, Wait):
            self.verdicts.update(dict.fromkeys(decision.workloads, decision.verdict))


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device: where it is, what it is, and the pods that hold it."""

    node: str
    device: str
    accelerator: str
    memory_mib: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node with its devices counted. In several pools nothing new starts."""

    node: str
    pools: tuple[str, ...]
    accelerators: tuple[str, ...]
    devices: int
    held: int
    state: str


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool with its nodes and devices counted, or the nodes that are in none.

    `shared`: whether work of different queues below the root may share a device.
    """

    pool: str
    types: tuple[str, ...]
    shared: bool
    nodes: int
    devices: int
    free: int


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload of ours, or one that waits."""

    uid: str
    namespace: str
    name: str
    state: str
    pods: int
    devices: int
    nodes: tuple[str, ...]
    acts: bool
    user: str


@dataclass(frozen=True, slots=True)
class PodRow:
    """One pod that asks for devices."""

    namespace: str
    pod: str
    stage: str
    devices: int
    node: str
    leaves: tuple[str, ...]
    workload: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Why a pod is where it is, or is not.

    Attributes:
        row: the pod.
        acts: whether Shoal acts in its namespace.
        hold: what keeps it back from being planned.
        verdict: why its workload waits.
        place: where its workload would start now.
        position: its place among those that wait, from 1, and how many there are.
        scheduler: what kube-scheduler says about it.
        user: who asked for it; empty where nobody knows.
    """

    row: PodRow
    acts: bool
    hold: Hold | None
    verdict: Verdict | None
    place: Placement | None
    position: tuple[int, int] | None
    scheduler: str
    user: str


class Picture:
    """A world made from one look at the API server, with the decisions that it leads to."""

    def __init__(
        self,
        truth: Truth,
        catalog: Catalog,
        policy: Policy,
        seed: int,
        written: Written = NOTHING,
        askers: Askers | None = None,
    ) -> None:
        self.truth = truth
        self.source = _made_anew(truth, catalog, written, askers or Askers(truth))
        self.world = self.source.world
        self.waited: list[str] = []
        """Uids of workloads that wait before the cycle, in their order."""
        self.held: dict[str, tuple[str, Placement]] = {}
        """Workload and place of each pod that holds something, before the cycle."""
        self._collector = _Collector()
        self._decide(policy, seed)

    def _decide(self, policy: Policy, seed: int) -> None:
        at_us = now_us()
        loop = Loop(self.world, policy, seed, self._collector, NoRecorder())
        for priced in price_now(self.world, policy, at_us):
            loop.feed(priced)
        waiting = [e for e in self.world.entries.values() if e.state is State.WAITING]
        waiting.sort(key=lambda entry: place_of(self.world, entry))
        self.waited = [each.workload.uid for each in waiting]
        self.held = self._holders()
        while not loop.turn(at_us).complete:
            pass

    def _holders(self) -> dict[str, tuple[str, Placement]]:
        found: dict[str, tuple[str, Placement]] = {}
        for uid, entry in self.world.entries.items():
            if uid.startswith("pod/"):
                found[uid.removeprefix("pod/")] = (uid, entry.held[0])
            flight = self.source.flights.get(uid)
            for number, seat in flight.seats.items() if flight is not None else ():
                if seat.pod and number in entry.held:
                    found[seat.pod] = (uid, entry.held[number])
        return found

    # Rows -------------------------------------------------------------------------------------

    def devices(self) -> list[DeviceRow]:
        """Every device, by node."""
        holders: dict[tuple[str, str], list[str]] = {}
        for pod, (_, place) in self.held.items():
            for leaf in place.leaves:
                found = self.source.pods.get(pod)
                name = "/".join(found.key) if found is not None else pod
                holders.setdefault((place.node, leaf), []).append(name)
        for uid, entry in self.world.entries.items():
            if uid.startswith("claim/"):
                for leaf in entry.held[0].leaves:
                    name = f"claim {entry.workload.namespace}/{entry.workload.name}"
                    holders.setdefault((entry.held[0].node, leaf), []).append(name)
        return [
            DeviceRow(
                name,
                device.name,
                device.accelerator,
                sum(leaf.memory_mib for leaf in device.leaves),
                tuple(
                    sorted(
                        who for leaf in device.leaves for who in holders.get((name, leaf.name), ())
                    )
                ),
            )
            for name, inventory in sorted(self.source.fleet.inventories.items())
            for device in inventory.node.devices
        ]

    def nodes(self) -> list[NodeRow]:
        """Every node that has devices."""
        rows = []
        held: dict[str, int] = {}
        for each in self.devices():
            held[each.node] = held.get(each.node, 0) + bool(each.holders)
        for name, inventory in sorted(self.source.fleet.inventories.items()):
            node = inventory.node
            if node.devices:
                kinds = tuple(sorted({device.accelerator for device in node.devices}))
                pools = pools_of_node(self.world.fleet.pools, node.labels)
                state = "in several pools" if len(pools) > 1 else "ready"
                if node.cordoned:
                    state = "cordoned"
                if any(taint.key.startswith("node.kubernetes.io/") for taint in node.taints):
                    state = "not ready"
                devices = len(node.devices)
                rows.append(NodeRow(name, pools, kinds, devices, held.get(name, 0), state))
        return rows

    def pools(self) -> list[PoolRow]:
        """Every pool with the nodes that have devices, and the rest of those if there are any."""
        nodes = self.nodes()
        rest = [row for row in nodes if not row.pools]
        rows = [
            _pool_row(pool.name, pool, [row for row in nodes if pool.name in row.pools])
            for pool in self.world.fleet.pools
        ]
        return [*rows, _pool_row(NO_POOL, None, rest)] if rest else rows

    def workloads(self) -> list[WorkloadRow]:
        """Workloads that wait or were started, the oldest first."""
        rows = []
        for uid, entry in self.world.entries.items():
            if uid.startswith(("pod/", "claim/")):
                continue
            workload = entry.workload
            waits = uid in self.waited
            places = () if waits else tuple(sorted({p.node for p in entry.held.values()}))
            rows.append(
                (
                    place_of(self.world, entry),
                    WorkloadRow(
                        uid,
                        workload.namespace,
                        workload.name,
                        State.WAITING.value if waits else entry.state.value,
                        workload.pods,
                        sum(p.count * p.request.devices.count for p in workload.pod_sets),
                        places,
                        self.acts_in(workload.namespace),
                        workload.user,
                    ),
                )
            )
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])]

    def pods(self) -> list[PodRow]:
        """Pods that ask for devices or hold some."""
        rows = [self._row(pod) for pod in self.truth.pods.values()]
        kept = [row for row in rows if (row.devices or row.leaves) and row.stage != "gone"]
        return sorted(kept, key=lambda row: (row.namespace, row.pod))

    def _row(self, pod: Pod) -> PodRow:
        workload, place = self.held.get(pod.uid, ("", None))
        workload = workload or self.source.units.unit_of.get(pod.uid, "")
        note = read_note(pod)
        if not workload and note is not None:
            workload = note.workload
        return PodRow(
            pod.metadata.namespace,
            pod.metadata.name,
            self._stage(pod),
            self.source.ask(pod).devices,
            pod.spec.node_name or (place.node if place is not None else ""),
            place.leaves if place is not None else (),
            "" if workload.startswith("pod/") else workload,
        )

    def _stage(self, pod: Pod) -> str:
        stage = self.truth.stage(pod)
        if stage is Stage.GATED and not pod.spec.scheduling_gates:
            return Stage.PENDING.value
        return stage.value

    def acts_in(self, namespace: str) -> bool:
        """Whether Shoal acts in a namespace."""
        found = self.truth.namespaces.get(namespace)
        return found is not None and managed_by_labels(found.metadata.labels)

    # Why --------------------------------------------------------------------------------------

    def why(self, namespace: str, name: str) -> Answer | None:
        """What is to be said about a pod; None if there is none of that name."""
        pod = self.truth.pods.get(name, namespace)
        if pod is None:
            return None
        uid = self.source.units.unit_of.get(pod.uid, "") or self._unit_before(pod)
        start = self._collector.starts.get(uid)
        place = self._place_in(start, uid, pod) if start is not None else None
        position = None
        if uid in self.waited:
            position = (self.waited.index(uid) + 1, len(self.waited))
        said = pod.status.condition("PodScheduled")
        return Answer(
            self._row(pod),
            self.acts_in(namespace),
            next((hold for hold in self.source.holds.values() if pod.uid in hold.pods), None),
            self._collector.verdicts.get(uid),
            place,
            position,
            said.message if said is not None and said.reason == "Unschedulable" else "",
            self.source.ask(pod).user or "",
        )

    def _unit_before(self, pod: Pod) -> str:
        for uid, unit in self.source.units.waiting.items():
            if pod.uid in unit.pods:
                return uid
        return ""

    def _place_in(self, start: Start, uid: str, pod: Pod) -> Placement | None:
        unit = self.source.units.waiting.get(uid)
        if unit is None or pod.uid not in unit.pods:
            return None
        number = unit.pods.index(pod.uid)
        return next((p for p in start.placements if p.pod == number), None)


def _pool_row(name: str, pool: Pool | None, nodes: list[NodeRow]) -> PoolRow:
    """A pool with these nodes; None for the nodes in none, which serve all types of work."""
    types = pool.types if pool is not None else tuple(WorkloadType)
    devices = sum(row.devices for row in nodes)
    return PoolRow(
        name,
        tuple(each.value for each in types),
        pool is not None and pool.mixes_queues,
        len(nodes),
        devices,
        devices - sum(row.held for row in nodes),
    )


def managed_by_labels(labels: dict[str, str]) -> bool:
    """Whether a namespace with these labels is managed."""
    return labels.get("shoal.dev/mode") == "manage"


async def take_picture(
    client: Client,
    catalog: Catalog,
    policy: Policy,
    written: Written = NOTHING,
    controllers: Controllers = KUBERNETES_OWN,
    *,
    seed: int | None = None,
) -> Picture:
    """Look at a cluster once, with these pools and queues."""
    truth = await listed(client, as_if_managed=True)
    askers = Askers(truth, controllers)
    await askers.begin(client)
    if seed is None:
        seed = await cluster_seed(client)
    return Picture(truth, catalog, policy, seed, written, askers)


async def cluster_seed(client: Client) -> int:
    """The seed of a cluster: its uid, which is that of its namespace `kube-system`."""
    found = await client.get(NAMESPACES, "kube-system")
    return int(found.uid.replace("-", ""), 16) % 2**63


async def compare_once(client: Client, catalog: Catalog) -> list[str]:
    """Differences between a world made anew and a second look at the API server.

    Both looks are repeated while they differ, because the cluster changes between them.
    """
    found: list[str] = []
    for _ in range(LOOKS):
        truth = await listed(client)
        source = _made_anew(truth, catalog, NOTHING, Askers(truth))
        found = differences(source, await listed(client))
        if not found:
            break
    return found


async def look_ahead(
    client: Client,
    catalog: Catalog,
    old: Written,
    new: Written,
    controllers: Controllers = KUBERNETES_OWN,
) -> tuple[Meaning, ...]:
    """What it means for a cluster to keep to these pools and queues instead of those.

    Raises `BadObjectsError` where a node would come to be in several pools.
    """
    truth = await listed(client, as_if_managed=True)
    askers = Askers(truth, controllers)
    await askers.begin(client)
    world = _made_anew(truth, catalog, old, askers).world
    problems = several_pools(world, old, new)
    if problems:
        raise BadObjectsError(problems)
    return change(world, old, new, names_of(catalog), now_us()).meanings


def _made_anew(truth: Truth, catalog: Catalog, written: Written, askers: Askers) -> Source:
    """A source with a world as the API server has it, in which nothing is decided."""
    world = World()
    source = Source(truth, world, AskReader(catalog, askers), FleetView(truth, world, catalog))
    Organisation(source, names_of(catalog)).take(written, now_us())
    while source.is_dirty:
        for event in source.changes(now_us()):
            world.apply(event)
    return source
