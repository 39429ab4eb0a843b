"""Why a workload waits, where it is, or how it ended: computed on the replica, when asked.

The numbers are those of the moment that is named, not of the moment at which the verdict was given:
the shipped planner tries the workload on the journal of the replica, which is then rolled back.
"""

from dataclasses import dataclass, replace

from shoal.core.arrays.shape import Shape
from shoal.core.budget import Budget
from shoal.core.placing.ahead import expected_end_us
from shoal.core.placing.eligibility import count_obstacles, fitting_leaves
from shoal.core.placing.placement import hardest_first
from shoal.core.placing.reservation import Reservation
from shoal.core.tenancy.quota import Refusal, start_within_quota, without
from shoal.core.world import Entry, State
from shoal.loop.steps import Moment, Step
from shoal.loop.story import Life
from shoal.model.fractions import UNIT
from shoal.model.verdict import Obstacle, OverBudget, OverQuota, Reason, Verdict, Wake
from shoal.objects.quotas import behind
from shoal.server.evictions import alert_text, in_kept_places, label, reservation_view
from shoal.server.models import (
    CandidateView,
    ExplanationView,
    HolderView,
    MomentView,
    ObstacleView,
    OverQuotaView,
)
from shoal.server.never import Never, never
from shoal.server.standing import Look, id_of, moment, moment_or_none
from shoal.server.views import workload_view
from shoal.texts.answers import answer_text, ended_text, moment_text, nodes_text
from shoal.texts.evictions import kept_for_text, not_while_frozen_text
from shoal.texts.language import Language
from shoal.texts.screens import word
from shoal.texts.verdicts import (
    obstacle_text,
    over_budget_text,
    over_quota_text,
    verdict_text,
    wakes_text,
)

CANDIDATES = 3
HOLDERS = 10


@dataclass(frozen=True, slots=True)
class _Block:
    """Why a waiting workload finds no place now.

    `obstacles` count the nodes that have no room for the pod that found none, beside what others
    hold and not beside the workload's own trial; `fitting` have room for one such pod. Of the
    accelerators that would do, a `rule` forbids those in `left_out`.
    """

    verdict: Verdict
    shape: Shape
    obstacles: tuple[Obstacle, ...]
    fitting: int
    left_out: tuple[str, ...] = ()
    rule: OverQuota | OverBudget | None = None


def explanation(look: Look, life: Life) -> ExplanationView:
    """Explain one workload."""
    entry = look.world.entries.get(life.workload.uid)
    waits = entry is not None and entry.state is State.WAITING
    block = _try(look, entry) if entry is not None and waits else None
    holders = _holders(look, block) if block is not None else []
    hopeless = never(look, entry) if entry is not None and block is not None else None
    kept = entry.reserved if entry is not None else None
    if kept is not None:
        holders = _in_kept_places(look, kept)
    headline = _headline(look, life, entry, block)
    if hopeless is not None and look.story.acts:
        headline = _never_text(hopeless, look.language)
    return ExplanationView(
        workload=workload_view(look, life),
        as_of=moment(look.at_us),
        now=look.standing.now(),
        stage=block.verdict.stage.value if block else None,
        never=hopeless is not None,
        alert=_alert(look) if waits else "",
        headline=headline,
        summary=_summary(headline, block, look.language),
        over_quota=_over_quota(block.verdict.over_quota) if block else None,
        placed_pods=block.verdict.placed_pods if block else None,
        fitting_nodes=block.fitting if block else None,
        obstacles=[
            ObstacleView(
                reason=each.reason.value,
                nodes=each.nodes,
                text=obstacle_text(each, look.language),
            )
            for each in reversed(block.obstacles if block else ())
        ],
        candidates=(
            _candidates(look, block.shape, entry) if block and entry and block.obstacles else []
        ),
        holders=holders[:HOLDERS],
        more_holders=max(0, len(holders) - HOLDERS),
        wakes=[each.value for each in (block.verdict.wakes if block else ())],
        wakes_text=wakes_text(block.verdict.wakes, look.language) if block else "",
        moments=[
            MomentView(
                at=moment(each.at_us),
                step=each.step.value,
                text=moment_text(each.step.value, each.reason, _detail(look, each), look.language),
            )
            for each in life.moments
        ],
    )


def _detail(look: Look, moment: Moment) -> str:
    """What a moment is about, as people name it."""
    named = moment.step is Step.EVICTED and moment.detail
    return label(look, moment.detail) if named else moment.detail


def _alert(look: Look) -> str:
    if look.story.guard.frozen is None:
        return ""
    return f"{not_while_frozen_text(look.language)} {alert_text(look)}"


def _in_kept_places(look: Look, reservation: Reservation) -> list[HolderView]:
    """Who holds what is kept for somebody else, in the order of the places."""
    leaves = {leaf for each in reservation.placements for leaf in each.leaves}
    return [
        _holder(look, uid, *_held(look, uid, leaves)) for uid in in_kept_places(look, reservation)
    ]


def _held(look: Look, uid: str, leaves: set[str]) -> tuple[int, list[str]]:
    """How much of some leaves a workload holds, and on which nodes."""
    entry = look.world.entries[uid]
    units, nodes = 0, dict[str, None]()
    for pod, placement in entry.held.items():
        for leaf in leaves.intersection(placement.leaves):
            units += look.units(entry, pod, leaf)
            nodes[placement.node] = None
    return units, list(nodes)


def _headline(look: Look, life: Life, entry: Entry | None, block: _Block | None) -> str:
    """What is said before the obstacles; empty where they say it all."""
    if entry is None:
        return ended_text(life.outcome, look.language)
    if entry.state is not State.WAITING:
        state = look.state(life)
        in_part = state == State.RUNNING.value and life.workload.uid in look.world.lacking
        return answer_text(
            "running-in-part" if in_part else state,
            look.language,
            nodes=nodes_text(life.nodes, look.language),
            running=len(entry.started),
            held=len(entry.held),
            pods=life.workload.pods,
        )
    if not look.story.acts:
        return answer_text("released", look.language)
    reservation = reservation_view(look, life, entry)
    if reservation is not None:
        return reservation.text
    if block is None:
        return answer_text("fits", look.language)
    verdict = block.verdict
    if verdict.over_quota is not None:
        return over_quota_text(verdict.over_quota, look.language)
    if verdict.over_budget is not None:
        return over_budget_text(verdict.over_budget, look.language)
    said = [_left_out_text(look, block)] if block.rule is not None else []
    if verdict.pods > 1:
        numbers = {"placed": verdict.placed_pods, "fitting": block.fitting}
        said.append(answer_text("gang", look.language, pods=verdict.pods, **numbers))
    return " ".join(said)


def _left_out_text(look: Look, block: _Block) -> str:
    """Which accelerators would do and may not be had, and why."""
    rule = ""
    if isinstance(block.rule, OverQuota):
        rule = over_quota_text(_as_written(look, block.rule), look.language)
    elif block.rule is not None:
        rule = over_budget_text(block.rule, look.language)
    names = ("、" if look.language is Language.CHINESE else ", ").join(block.left_out)
    return answer_text("left-out", look.language, accelerators=names, rule=rule)


def _as_written(look: Look, over: OverQuota) -> OverQuota:
    """The same with the accelerators as people wrote them."""
    return replace(over, accelerators=look.words.get(over.accelerators, over.accelerators))


def _never_text(why: Never, language: Language) -> str:
    return answer_text(
        f"never-{why.what}",
        language,
        asked=why.asked,
        most=why.most,
        accelerators=nodes_text(why.accelerators, language),
        word=word(why.word, language),
    )


def _summary(headline: str, block: _Block | None, language: Language) -> str:
    if block is None:
        return headline
    if block.verdict.over_quota is not None or block.verdict.over_budget is not None:
        return verdict_text(block.verdict, language)
    if not block.obstacles:
        return headline
    counted = replace(block.verdict, obstacles=block.obstacles, pods=1)
    return f"{headline} {verdict_text(counted, language)}".strip()


def _try(look: Look, entry: Entry) -> _Block | None:
    """Try to start a waiting workload: what blocks it, or None where it would start."""
    world, group = look.world, entry.group
    if group is None:
        return None
    board = world.board(look.policy, look.seed)
    start = world.fleet.journal.checkpoint()
    world.tenants.speculate()
    world.spending.decides(look.at_us)
    try:
        found = start_within_quota(world, board, entry, group.shapes, Budget(1))
    finally:
        world.fleet.rollback(start)
        world.tenants.end_speculation()
    if not isinstance(found, Refusal):
        return None
    shape = _blocked_shape(look, entry, found.verdict)
    over = found.verdict.over_quota
    if found.verdict.over_budget is not None:
        return _Block(found.verdict, shape, (), 0)
    if over is not None:
        said = replace(found.verdict, over_quota=_as_written(look, over))
        return _Block(said, shape, (), 0)
    shape = without(world, shape, found.left_out) or shape
    counted = count_obstacles(world.fleet, shape, entry.refused)
    obstacles = tuple(each for each in counted if each.nodes)
    known = int((world.fleet.known > 0).sum())
    fitting = known - sum(each.nodes for each in obstacles)
    wakes = [*found.verdict.wakes]
    if found.rule is not None:
        wakes += [Wake.QUOTA, *([Wake.PERIOD] if isinstance(found.rule, OverBudget) else [])]
    return _Block(
        replace(found.verdict, wakes=tuple(dict.fromkeys(wakes))),
        shape,
        obstacles if known else counted,
        fitting,
        found.left_out,
        found.rule,
    )


def _over_quota(over: OverQuota | None) -> OverQuotaView | None:
    if over is None:
        return None
    return OverQuotaView(
        reason=over.reason.value,
        queue=over.queue,
        accelerators=over.accelerators,
        used=_devices(over.used_units),
        asked=_devices(over.asked_units),
        bound=_devices(over.bound_units),
    )


def _devices(units: int) -> float:
    return round(units / UNIT, 2)


def _blocked_shape(look: Look, entry: Entry, verdict: Verdict) -> Shape:
    """The shape of the first pod that found no node; the planner places the hardest first."""
    shapes = look.world.shapes_of(entry)
    left = verdict.placed_pods
    order = hardest_first(shapes)
    for index in order:
        left -= entry.workload.pod_sets[index].count
        if left < 0:
            return shapes[index]
    return shapes[order[-1]]


@dataclass(frozen=True, slots=True)
class _Gap:
    """How far a node is from holding one more pod."""

    node: str
    free: dict[str, int]
    needed: dict[str, int]

    @property
    def short_of(self) -> list[str]:
        return [what for what, needed in self.needed.items() if self.free[what] < needed]

    @property
    def distance(self) -> tuple[int, int, str]:
        missing = self.needed["devices"] - self.free["devices"] if "devices" in self.needed else 0
        return len(self.short_of), max(0, missing), self.node


def _candidates(look: Look, shape: Shape, entry: Entry) -> list[CandidateView]:
    """The nodes that come nearest to holding one more pod, the nearest first."""
    fleet = look.world.fleet
    request = shape.request
    needed = {
        what: amount
        for what, amount in (
            ("devices", request.devices.count),
            ("cpu_milli", request.cpu_milli),
            ("memory_mib", request.memory_mib),
            ("pods", 1),
        )
        if amount
    }
    allowed = look.world.allowed_rows(shape)
    gaps = []
    for row in allowed.nonzero()[0].tolist():
        if fleet.names[row] in entry.refused:
            continue
        free = {
            "cpu_milli": int(fleet.cpu_free[row]),
            "memory_mib": int(fleet.memory_free[row]),
            "pods": int(fleet.pods_free[row]),
        }
        if request.devices.count:
            free["devices"] = _fitting_devices(look, shape, row)
        gaps.append(_Gap(fleet.names[row], {what: free[what] for what in needed}, needed))
    nearest = sorted(gaps, key=lambda gap: gap.distance)[:CANDIDATES]
    return [
        CandidateView(node=g.node, free=g.free, needed=g.needed, short_of=g.short_of)
        for g in nearest
    ]


def _fitting_devices(look: Look, shape: Shape, row: int) -> int:
    """How many devices of a node could serve a pod of this shape now."""
    fleet = look.world.fleet
    fits = fitting_leaves(fleet, shape, slice(row, row + 1))
    if fits is None:
        return int(fleet.whole_free[row])
    devices = fleet.leaf_device[row].tolist()
    return len({devices[column] for column in fits[0].nonzero()[0].tolist()})


def _holders(look: Look, block: _Block) -> list[HolderView]:
    """Who holds devices that stand in the way, the largest first.

    At the stage of places these are devices on nodes where the pod may run; at that of quota those
    of the queue whose rule would be broken.
    """
    if not block.shape.request.devices.count:
        return []
    over = block.verdict.over_quota
    if over is not None:
        wanted = behind(over.accelerators, look.standing.names)
        allowed = None
    else:
        wanted = frozenset(block.shape.request.devices.accelerators)
        rows = look.world.allowed_rows(block.shape).nonzero()[0].tolist()
        allowed = {look.world.fleet.names[row] for row in rows}
    tree = look.world.tenants.tree
    held: dict[str, int] = {}
    nodes: dict[str, dict[str, None]] = {}
    for uid, entry in look.world.entries.items():
        if over is not None and over.queue not in tree.path(entry.workload.queue):
            continue
        for pod, placement in entry.held.items():
            if allowed is not None and placement.node not in allowed:
                continue
            for leaf in placement.leaves:
                found = look.places.get(leaf)
                if found is None or (wanted and found.device.accelerator not in wanted):
                    continue
                held[uid] = held.get(uid, 0) + look.units(entry, pod, leaf)
                nodes.setdefault(uid, {})[placement.node] = None
    ordered = sorted(held, key=lambda uid: (-held[uid], label(look, uid), uid))
    views = [_holder(look, uid, held[uid], list(nodes[uid])) for uid in ordered]
    return views + _keepers(look, wanted, allowed, over.queue if over is not None else None)


def _keepers(
    look: Look, wanted: frozenset[str], allowed: set[str] | None, queue: str | None
) -> list[HolderView]:
    """For whom devices are kept that nobody holds; with `queue`, if they count for that."""
    tree = look.world.tenants.tree
    units: dict[str, int] = {}
    nodes: dict[str, dict[str, None]] = {}
    for leaf, pods in look.kept.items():
        place = look.places.get(leaf)
        if place is None or look.holders.get(leaf):
            continue
        if (allowed is not None and place.node not in allowed) or (
            wanted and place.device.accelerator not in wanted
        ):
            continue
        for entry, pod in pods:
            uid = entry.workload.uid
            if queue is not None and queue not in tree.path(entry.workload.queue):
                continue
            units[uid] = units.get(uid, 0) + look.units(entry, pod, leaf)
            nodes.setdefault(uid, {})[place.node] = None
    return [_keeper(look, uid, units[uid], list(nodes[uid])) for uid in units]


def _keeper(look: Look, uid: str, units: int, nodes: list[str]) -> HolderView:
    entry = look.world.entries[uid]
    reason = entry.reserved.reason if entry.reserved is not None else Reason.RESERVED
    devices = _devices(units)
    kept = kept_for_text(
        label(look, uid),
        entry.workload.queue,
        devices,
        nodes_text(nodes, look.language),
        reason,
        look.language,
    )
    return _holder(look, uid, units, nodes).model_copy(update={"kept": kept})


def _holder(look: Look, uid: str, units: int, nodes: list[str]) -> HolderView:
    entry, life = look.world.entries[uid], look.story.life(uid)
    workload = entry.workload
    ends_us = (
        expected_end_us(look.world, entry, look.standing.doors.now_us()) if entry.held else None
    )
    return HolderView(
        id=id_of(uid),
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        type=workload.type.value,
        devices=_devices(units),
        nodes=nodes,
        started_at=moment_or_none(life.started_us) if life is not None else None,
        ends_at=moment_or_none(ends_us),
        evicting=bool(entry.evicting),
    )
