"""From the replica to what the API sends: workloads, queues, pools, nodes, devices, decisions."""

from collections.abc import Iterable, Sequence

from shoal.core.decisions import (
    Evict,
    Freeze,
    GiveUp,
    Refuse,
    Reserve,
    Resize,
    Retract,
    Start,
    Wait,
    Warn,
    workloads_of,
)
from shoal.core.queueing.precedence import priority_of
from shoal.core.world import Entry, State
from shoal.loop.story import Life, Noted
from shoal.model.modes import Cap
from shoal.model.node import Device, Leaf, Node
from shoal.model.pool import pools_of_node
from shoal.model.verdict import Stage
from shoal.model.workload import PodSet, WorkloadType
from shoal.server.evictions import (
    evict_text,
    eviction_view,
    freeze_text,
    give_up_text,
    guard_view,
    keep_text,
    label,
    last_eviction,
    placement_view,
    reservation_view,
    workload_name,
)
from shoal.server.models import (
    AcceleratorCount,
    DecisionView,
    DeviceView,
    LeafHolderView,
    LeafView,
    NodeView,
    PodSetView,
    PoolView,
    StatusView,
    WaitView,
    WorkloadView,
    words,
)
from shoal.server.standing import Look, devices_of, id_of, moment, moment_or_none
from shoal.texts.answers import answer_text, nodes_text
from shoal.texts.evictions import kept_label
from shoal.texts.screens import duration_text
from shoal.texts.verdicts import over_budget_text, reason_label


def workload_view(look: Look, life: Life) -> WorkloadView:
    """One workload."""
    workload = life.workload
    entry = look.world.entries.get(workload.uid)
    state = look.state(life)
    waits = state == State.WAITING.value
    order = look.order(workload.queue) if waits else {}
    return WorkloadView(
        id=id_of(workload.uid),
        uid=workload.uid,
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        type=workload.type.value,
        spare=workload.spare,
        priority=priority_of(look.world.tenants.tree, entry.workload if entry else workload),
        state=state,
        outcome=life.outcome.value if life.outcome else None,
        created_at=moment(workload.created_us or life.submitted_us),
        waiting_since=moment(entry.waits_since_us) if entry is not None and waits else None,
        started_at=moment_or_none(life.started_us),
        ended_at=moment_or_none(life.ended_us),
        position=order.get(workload.uid),
        waiting_in_queue=len(order) if waits else None,
        pods=workload.pods,
        devices=devices_of(workload),
        pod_sets=[_pod_set(each) for each in workload.pod_sets],
        placements=[placement_view(each) for each in life.placements],
        wait=_wait(look, entry) if entry is not None and waits else None,
        reservation=reservation_view(look, life, entry) if entry is not None else None,
        eviction=last_eviction(look, life),
    )


def _pod_set(pod_set: PodSet) -> PodSetView:
    request = pod_set.request
    devices = request.devices
    return PodSetView(
        name=pod_set.name,
        count=pod_set.count,
        devices=devices.count,
        whole=devices.whole,
        memory_mib=devices.memory_mib,
        compute_percent=devices.compute_milli / 10,
        accelerators=list(devices.accelerators),
        cpu_milli=request.cpu_milli,
        host_memory_mib=request.memory_mib,
    )


def _wait(look: Look, entry: Entry) -> WaitView | None:
    if entry.reserved is not None:
        reason = entry.reserved.reason
        text = kept_label(reason, look.language)
        return WaitView(stage=Stage.PLACE.value, reason=reason.value, text=text)
    verdict = entry.group.verdict if entry.group is not None else None
    if verdict is None:
        return None
    stage, reason = verdict.cause
    return WaitView(
        stage=stage.value, reason=reason.value, text=reason_label(reason, look.language)
    )


# Fleet ----------------------------------------------------------------------------------------


def present_nodes(look: Look) -> list[Node]:
    """The nodes that are there, by name."""
    return sorted(
        (each for each in look.world.fleet.nodes if each is not None), key=lambda n: n.name
    )


def count_accelerators(look: Look, nodes: Iterable[Node]) -> list[AcceleratorCount]:
    """Count the devices of some nodes by accelerator."""
    counts: dict[str, list[int]] = {}
    for node in nodes:
        for device in node.devices:
            count = counts.setdefault(device.accelerator, [0, 0, 0, 0])
            state = _state(look, node, device)
            count[0] += 1
            count[1] += state != "lost"
            count[2] += state == "free"
            count[3] += state == "kept"
    return [
        AcceleratorCount(accelerator=name, devices=n, healthy=healthy, free=free, kept=kept)
        for name, (n, healthy, free, kept) in sorted(counts.items())
    ]


def _state(look: Look, node: Node, device: Device) -> str:
    if look.lost(node.name, device.name):
        return "lost"
    if any(look.holders.get(leaf.name) for leaf in device.leaves):
        return "held"
    return "kept" if any(look.kept.get(leaf.name) for leaf in device.leaves) else "free"


def node_view(look: Look, node: Node) -> NodeView:
    """One node."""
    fleet = look.world.fleet
    row = fleet.row_of[node.name]
    return NodeView(
        name=node.name,
        pools=list(pools_of_node(fleet.pools, node.labels)),
        state="cordoned" if node.cordoned else "ready",
        accelerators=count_accelerators(look, [node]),
        cpu_milli=node.cpu_milli,
        cpu_free_milli=int(fleet.cpu_free[row]),
        memory_mib=node.memory_mib,
        memory_free_mib=int(fleet.memory_free[row]),
        pods=node.pods - int(fleet.pods_free[row]),
        labels=dict(sorted(node.labels.items())),
        taints=[_taint(each.key, each.value, each.effect.value) for each in node.taints],
    )


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def device_view(look: Look, node: Node, device: Device) -> DeviceView:
    """One device with its leaves."""
    leaves = [_leaf(look, node, leaf) for leaf in device.leaves]
    return DeviceView(
        node=node.name,
        name=device.name,
        accelerator=device.accelerator,
        state=_state(look, node, device),
        memory_mib=sum(leaf.memory_mib for leaf in device.leaves),
        leaves=leaves,
    )


def _leaf(look: Look, node: Node, leaf: Leaf) -> LeafView:
    fleet = look.world.fleet
    row = fleet.row_of[node.name]
    at = row, fleet.leaves[row].index(leaf.name)
    return LeafView(
        name=leaf.name,
        memory_mib=leaf.memory_mib,
        compute_percent=leaf.compute_milli / 10,
        tenants=leaf.tenants,
        sharing=leaf.sharing.word,
        cap=leaf.cap.word if leaf.cap is not Cap.NONE else "none",
        memory_free_mib=max(0, int(fleet.leaf_memory_free[at])),
        compute_free_percent=max(0, int(fleet.leaf_compute_free[at])) / 10,
        held_by=_named(look.holders.get(leaf.name, ())),
        kept_for=_named(look.kept.get(leaf.name, ())),
    )


def _named(pods: Sequence[tuple[Entry, int]]) -> list[LeafHolderView]:
    views = [
        LeafHolderView(
            id=id_of(entry.workload.uid),
            namespace=entry.workload.namespace,
            name=entry.workload.name,
            pod=pod,
        )
        for entry, pod in pods
    ]
    return sorted(views, key=lambda each: (each.namespace, each.name, each.pod))


REST = "no pool"
"""The name under which nodes are shown that no pool chooses."""


def is_in(look: Look, node: Node, pool: str | None) -> bool:
    """Whether a node is in a pool of that name, or in none where that is asked; None: it is."""
    return pool is None or pool in (pools_of_node(look.world.fleet.pools, node.labels) or (REST,))


def pool_views(look: Look) -> list[PoolView]:
    """The pools, and the rest of the nodes if there are any, which serve all types of work."""
    pools = look.world.fleet.pools
    nodes = present_nodes(look)
    views = [
        PoolView(
            name=pool.name,
            written=True,
            types=words(pool.types),
            shared_between_queues=pool.mixes_queues,
            modes=words(pool.modes),
            placement=None if pool.placement is None else pool.placement.value,
            levels=list(pool.levels),
            nodes=len(own := [node for node in nodes if pool.nodes.matches(node.labels)]),
            accelerators=count_accelerators(look, own),
        )
        for pool in pools
    ]
    rest = [node for node in nodes if not pools_of_node(pools, node.labels)]
    if rest:
        views.append(
            PoolView(
                name=REST,
                written=False,
                types=words(tuple(WorkloadType)),
                shared_between_queues=False,
                modes=[],
                placement=None,
                levels=[],
                nodes=len(rest),
                accelerators=count_accelerators(look, rest),
            )
        )
    return views


# Decisions ------------------------------------------------------------------------------------


def decision_view(look: Look, noted: Noted) -> DecisionView:
    """One decision."""
    decision = noted.decision
    placements = decision.placements if isinstance(decision, Start | Resize | Reserve) else ()
    eviction = eviction_view(look, noted.at_us, decision) if isinstance(decision, Evict) else None
    return DecisionView(
        id=noted.offset,
        at=moment(noted.at_us),
        kind="give-up" if isinstance(decision, GiveUp) else type(decision).__name__.lower(),
        key=decision.key,
        workloads=[workload_name(look, uid) for uid in workloads_of(decision)],
        workload_count=noted.workloads,
        reason=decision.reason.value,
        text=decision_text(look, noted),
        placements=[placement_view(each) for each in placements],
        eviction=eviction,
    )


def decision_text(look: Look, noted: Noted) -> str:
    """A decision as a sentence."""
    decision, language = noted.decision, look.language
    match decision:
        case Start():
            nodes = list(dict.fromkeys(each.node for each in decision.placements))
            said = nodes_text(nodes, language)
            return answer_text(
                "decided-start", language, workload=label(look, decision.workload), nodes=said
            )
        case Resize():
            nodes = list(dict.fromkeys(each.node for each in decision.placements))
            return answer_text(
                "decided-resize",
                language,
                workload=label(look, decision.workload),
                pods=len(decision.placements),
                nodes=nodes_text(nodes, language),
            )
        case Retract():
            return answer_text(
                "decided-retract",
                language,
                workload=label(look, decision.workload),
                node=decision.node,
            )
        case Wait():
            key = "decided-wait" if noted.workloads == 1 else "decided-wait-several"
            return answer_text(
                key,
                language,
                workload=label(look, decision.workloads[0]),
                others=noted.workloads - 1,
                reason=reason_label(decision.reason, language),
            )
        case Evict():
            return evict_text(look, decision)
        case Reserve():
            return keep_text(look, noted.at_us, decision)
        case GiveUp():
            return give_up_text(look, decision)
        case Freeze():
            return freeze_text(look, decision)
        case Warn():
            return over_budget_text(decision.over, language)
        case Refuse():
            return answer_text(
                "decided-refuse",
                language,
                workload=label(look, decision.workload),
                waited=duration_text(decision.waited_us // 1_000_000),
                most=duration_text(decision.maximum_us // 1_000_000),
            )


# Status ---------------------------------------------------------------------------------------


def status_view(look: Look) -> StatusView:
    """How the platform is."""
    states = [entry.state for entry in look.world.entries.values()]
    counts = count_accelerators(look, present_nodes(look))
    now_us = look.standing.doors.now_us()
    metrics = look.standing.doors.metrics
    return StatusView(
        version=look.standing.version,
        now=moment(now_us),
        as_of=moment(look.at_us),
        lag_ms=round(metrics.lag_s * 1000),
        acting=look.story.acts,
        evictions=guard_view(look),
        policy=look.policy.name,
        nodes=sum(node is not None for node in look.world.fleet.nodes),
        devices=sum(each.devices for each in counts),
        healthy_devices=sum(each.healthy for each in counts),
        free_devices=sum(each.free for each in counts),
        waiting=states.count(State.WAITING),
        starting=states.count(State.STARTING),
        running=states.count(State.RUNNING),
        decisions=sum(metrics.decisions.values()),
        events=look.offset,
    )
