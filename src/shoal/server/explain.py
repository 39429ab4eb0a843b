"""Why a workload waits, where it is, or how it ended: computed on the replica, when asked.

The numbers are those of the moment that is named, not of the moment at which the verdict was given:
the shipped planner tries the workload on the journal of the replica, which is then rolled back.
"""

from dataclasses import dataclass, replace

from shoal.core.budget import Budget
from shoal.core.eligibility import count_obstacles, fitting_leaves
from shoal.core.placement import NoPlace, hardest_first, place
from shoal.core.shape import Shape
from shoal.core.world import Entry, State
from shoal.loop.story import Life
from shoal.model.fractions import UNIT
from shoal.model.verdict import Obstacle, Verdict
from shoal.server.models import (
    CandidateView,
    ExplanationView,
    HolderView,
    MomentView,
    ObstacleView,
)
from shoal.server.standing import Look, id_of, moment, moment_or_none, pods_of
from shoal.server.views import workload_view
from shoal.texts.answers import answer_text, ended_text, moment_text, nodes_text
from shoal.texts.language import Language
from shoal.texts.verdicts import obstacle_text, verdict_text, wakes_text

CANDIDATES = 3
HOLDERS = 10


@dataclass(frozen=True, slots=True)
class _Block:
    """Why a waiting workload finds no place now.

    `obstacles` count the nodes that have no room for the pod that found none, beside what others
    hold and not beside the workload's own trial; `fitting` have room for one such pod.
    """

    verdict: Verdict
    shape: Shape
    obstacles: tuple[Obstacle, ...]
    fitting: int


def explanation(look: Look, life: Life) -> ExplanationView:
    """Explain one workload."""
    entry = look.world.entries.get(life.workload.uid)
    waits = entry is not None and entry.state is State.WAITING
    block = _try(look, entry) if entry is not None and waits else None
    holders = _holders(look, block.shape) if block is not None else []
    headline = _headline(look, life, entry, block)
    return ExplanationView(
        workload=workload_view(look, life),
        as_of=moment(look.at_us),
        now=look.standing.now(),
        headline=headline,
        summary=_summary(headline, block, look.language),
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
        candidates=_candidates(look, block.shape, entry) if block and entry else [],
        holders=holders[:HOLDERS],
        more_holders=max(0, len(holders) - HOLDERS),
        wakes=[each.value for each in (block.verdict.wakes if block else ())],
        wakes_text=wakes_text(block.verdict.wakes, look.language) if block else "",
        moments=[
            MomentView(
                at=moment(each.at_us),
                step=each.step.value,
                text=moment_text(each.step.value, each.reason, each.detail, look.language),
            )
            for each in life.moments
        ],
    )


def _headline(look: Look, life: Life, entry: Entry | None, block: _Block | None) -> str:
    """What is said before the obstacles; empty where they say it all."""
    if entry is None:
        return ended_text(life.outcome, look.language)
    if entry.state is not State.WAITING:
        return answer_text(
            look.state(life),
            look.language,
            nodes=nodes_text(life.nodes, look.language),
            running=len(entry.started),
            pods=pods_of(life.workload),
        )
    if not look.story.acts:
        return answer_text("released", look.language)
    if block is None:
        return answer_text("fits", look.language)
    verdict = block.verdict
    if verdict.pods == 1:
        return ""
    return answer_text(
        "gang",
        look.language,
        pods=verdict.pods,
        placed=verdict.placed_pods,
        fitting=block.fitting,
    )


def _summary(headline: str, block: _Block | None, language: Language) -> str:
    if block is None:
        return headline
    if not block.obstacles:
        return headline
    counted = replace(block.verdict, obstacles=block.obstacles, pods=1)
    return f"{headline} {verdict_text(counted, language)}".strip()


def _try(look: Look, entry: Entry) -> _Block | None:
    """Try to place a waiting workload: what blocks it, or None where it fits."""
    world = look.world
    board = world.board(look.policy, look.seed)
    shapes = world.shapes_of(entry.workload)
    start = world.fleet.journal.checkpoint()
    try:
        found = place(world.fleet, board, entry.workload, shapes, entry.refused, Budget(1))
    finally:
        world.fleet.rollback(start)
    if not isinstance(found, NoPlace):
        return None
    shape = _blocked_shape(look, entry, found.verdict)
    counted = count_obstacles(world.fleet, shape, entry.refused)
    obstacles = tuple(each for each in counted if each.nodes)
    known = int((world.fleet.known > 0).sum())
    fitting = known - sum(each.nodes for each in obstacles)
    if not known:
        obstacles = counted
    return _Block(found.verdict, shape, obstacles, fitting)


def _blocked_shape(look: Look, entry: Entry, verdict: Verdict) -> Shape:
    """The shape of the first pod that found no node; the planner places the hardest first."""
    shapes = look.world.shapes_of(entry.workload)
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


def _holders(look: Look, shape: Shape) -> list[HolderView]:
    """Who holds devices on nodes where a pod of this shape may run, the largest first."""
    if not shape.request.devices.count:
        return []
    fleet = look.world.fleet
    wanted = frozenset(shape.request.devices.accelerators)
    allowed = {fleet.names[row] for row in look.world.allowed_rows(shape).nonzero()[0].tolist()}
    held: dict[str, int] = {}
    nodes: dict[str, dict[str, None]] = {}
    for uid, entry in look.world.entries.items():
        for pod, placement in entry.held.items():
            if placement.node not in allowed:
                continue
            for leaf in placement.leaves:
                found = look.places.get(leaf)
                if found is None or (wanted and found.device.accelerator not in wanted):
                    continue
                held[uid] = held.get(uid, 0) + look.units(entry, pod, leaf)
                nodes.setdefault(uid, {})[placement.node] = None
    ordered = sorted(held, key=lambda uid: (-held[uid], uid))
    return [_holder(look, uid, held[uid], list(nodes[uid])) for uid in ordered]


def _holder(look: Look, uid: str, units: int, nodes: list[str]) -> HolderView:
    workload = look.world.entries[uid].workload
    life = look.story.life(uid)
    return HolderView(
        id=id_of(uid),
        namespace=workload.namespace,
        name=workload.name,
        queue=workload.queue,
        type=workload.type.value,
        devices=round(units / UNIT, 2),
        nodes=nodes,
        started_at=moment_or_none(life.started_us) if life is not None else None,
    )
