"""What the stream tells and the world does not keep: when things happened, and what was decided.

A story is made from the same items as the world, by whoever reads them, and is bounded: it holds
every workload that has not ended, and the latest of those that have, and of the decisions.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from shoal.core import events as ev
from shoal.core.decisions import (
    Decision,
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
)
from shoal.loop.steps import STEPS, Moment, Step
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome, Placement, Workload

ENDED_KEPT = 2_000
"""Ended workloads remembered."""

NOTED_KEPT = 500
"""Decisions remembered."""

MOMENTS_KEPT = 12
"""Moments remembered of one workload: the first, and the latest of the others."""

NAMED = 3
"""Workloads named in a remembered decision to wait."""


@dataclass(frozen=True, slots=True)
class Acting:
    """A person said whether Shoal is to decide: `acts` is False after a release."""

    at_us: int
    acts: bool


@dataclass(frozen=True, slots=True)
class Stopping:
    """A person had a workload stopped that runs or is about to; its end is an event of its own."""

    at_us: int
    uid: str


@dataclass(frozen=True, slots=True)
class Eviction:
    """Pods of a workload that were told to stop, and when."""

    at_us: int
    decision: Evict


@dataclass(slots=True)
class Life:
    """A workload from its submission to its end. Times are None until they have come."""

    workload: Workload
    submitted_us: int
    moments: list[Moment] = field(default_factory=list)
    placements: tuple[Placement, ...] = ()
    """What it holds; after its end, what it held at last."""
    attempt: int = 0
    """Starts decided so far."""
    started_us: int | None = None
    """When its present or last start was decided."""
    running_us: int | None = None
    """When all pods of that start ran."""
    stopping_us: int | None = None
    """When somebody had it stopped."""
    joining: dict[int, int] = field(default_factory=dict)
    """Pods that were to join it while it ran and do not run yet, and when that was decided."""
    checkpoint_us: int | None = None
    """Up to when the work of the present run is safe, as it says itself."""
    done_us: int = 0
    """How long the runs were from which it was evicted, as far as their work is safe."""
    evicting: tuple[Eviction, ...] = ()
    """Those of which pods have not ended yet, oldest first."""
    evicted: Eviction | None = None
    """The last."""
    ends: bool = False
    """Whether it does not come back: it ran for as long as it may, or it has ended by itself, and
    only pods still go that it could spare."""
    ended_us: int | None = None
    outcome: Outcome | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its pods, each once, in the order of the pods."""
        return tuple(dict.fromkeys(placement.node for placement in self.placements))

    def came_to(self, moment: Moment) -> None:
        """Note that something happened."""
        self.moments.append(moment)
        if len(self.moments) > MOMENTS_KEPT:
            del self.moments[1]


@dataclass(frozen=True, slots=True)
class LifeRestored:
    """What a snapshot adds to a restored workload."""

    uid: str
    submitted_us: int
    started_us: int | None
    running_us: int | None
    stopping_us: int | None
    moments: tuple[Moment, ...]
    checkpoint_us: int | None = None
    done_us: int = 0
    evicting: tuple[Eviction, ...] = ()
    evicted: Eviction | None = None
    joining: tuple[tuple[int, int], ...] = ()
    ends: bool = False


@dataclass(frozen=True, slots=True)
class EndedLife:
    """A workload that has ended, as a snapshot remembers it."""

    life: Life


@dataclass(frozen=True, slots=True)
class Guard:
    """Whether evictions are frozen, since when and why, and who let them go on when they last were.

    `frozen` is None while they are not; times are None until they have come.
    """

    frozen_us: int | None = None
    frozen: Freeze | None = None
    resumed_us: int | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """A decision as it is remembered. `offset` is its place in the stream.

    It is about `workloads` workloads; where that is many, a `Wait` names the first of them only.
    """

    offset: int
    at_us: int
    decision: Decision
    workloads: int


Part = LifeRestored | EndedLife | Guard | Noted
"""What only the snapshot of a story has."""


class Story:
    """Made by `apply`, item by item."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        """Workloads that have not ended, by uid, in the order in which they came."""
        self.ended: OrderedDict[str, Life] = OrderedDict()
        """The last that ended, oldest first."""
        self.noted: deque[Noted] = deque(maxlen=NOTED_KEPT)
        """The last decisions, oldest first."""
        self.acts = True
        """Whether Shoal decides; it does not between a release and the resumption."""
        self.guard = Guard()
        self._not_running: dict[str, set[int]] = {}
        """Pods of starting workloads that do not run yet."""

    def life(self, uid: str) -> Life | None:
        """Return what is known of a workload, also of one that ended lately."""
        return self.lives.get(uid) or self.ended.get(uid)

    def noted_after(self, offset: int) -> list[Noted]:
        """Return the remembered decisions with a larger offset, oldest first."""
        found: list[Noted] = []
        for each in reversed(self.noted):
            if each.offset <= offset:
                break
            found.append(each)
        return found[::-1]

    def apply(  # noqa: C901, PLR0912 - a table, a line an event
        self, offset: int, item: ev.Event | Acting | Stopping
    ) -> None:
        """Take in the item whose place in the stream is `offset`."""
        match item:
            case ev.Decided():
                self._decided(offset, item)
            case ev.WorkloadSubmitted():
                self._came(item.at_us, item.workload, Step.SUBMITTED)
            case ev.WorkloadAdopted():
                self._adopted(item)
            case ev.PodStarted():
                self._pod_started(item)
            case ev.StartFailed():
                self._start_failed(item)
            case ev.PodEnded():
                self._pod_ended(item)
            case ev.PodMoved():
                self._pod_moved(item)
            case ev.EvictionBlocked():
                self._eviction_blocked(item)
            case ev.CheckpointReported():
                self._checkpoint(item)
            case ev.EvictionsResumed():
                self.guard = Guard(resumed_us=item.at_us, by=item.by)
            case ev.WorkloadEnded():
                self._ended(item.at_us, item.uid, item.outcome)
            case ev.WorkloadRestored():
                self._restored(item)
            case Acting():
                self.acts = item.acts
            case Stopping():
                self._stopping(item)
            case _:
                pass

    # Workloads --------------------------------------------------------------------------------

    def _came(self, at_us: int, workload: Workload, step: Step) -> Life | None:
        if workload.uid in self.lives:
            return None
        self.ended.pop(workload.uid, None)
        life = self.lives[workload.uid] = Life(workload, at_us)
        life.came_to(Moment(at_us, step))
        return life

    def _adopted(self, event: ev.WorkloadAdopted) -> None:
        life = self._came(event.at_us, event.workload, Step.ADOPTED)
        if life is not None:
            life.placements = event.placements
            life.started_us = life.running_us = event.at_us

    def _pod_started(self, event: ev.PodStarted) -> None:
        life = self.lives.get(event.uid)
        if life is not None:
            life.joining.pop(event.pod, None)
        left = self._not_running.get(event.uid)
        if left is None:
            return
        left.discard(event.pod)
        if not left:
            self._runs(event.uid, event.at_us)

    def _runs(self, uid: str, at_us: int) -> None:
        del self._not_running[uid]
        life = self.lives[uid]
        life.running_us = at_us
        life.came_to(Moment(at_us, Step.RUNNING))

    def _start_failed(self, event: ev.StartFailed) -> None:
        life = self.lives.get(event.uid)
        if life is not None and life.placements and life.attempt == event.attempt:
            life.came_to(Moment(event.at_us, Step.FAILED_START))
            if event.pod in life.joining:
                self._pod_ended(ev.PodEnded(event.at_us, event.uid, event.pod))

    def _pod_ended(self, event: ev.PodEnded) -> None:
        life = self.lives.get(event.uid)
        if life is None or all(each.pod != event.pod for each in life.placements):
            return
        life.joining.pop(event.pod, None)
        left = tuple(each for each in life.placements if each.pod != event.pod)
        if not left:
            self._last_pod_ended(event, life)
            return
        life.placements = left
        stays = {each.pod for each in left}
        going = {pod for each in life.evicting for pod in each.decision.pods}
        life.ends |= event.pod not in going and stays <= going
        life.evicting = tuple(
            each for each in life.evicting if not stays.isdisjoint(each.decision.pods)
        )
        waited_for = self._not_running.get(event.uid)
        if waited_for is not None:
            waited_for.discard(event.pod)
            if not waited_for:
                self._runs(event.uid, event.at_us)

    def _last_pod_ended(self, event: ev.PodEnded, life: Life) -> None:
        """Let a workload end, or wait again if it was evicted."""
        last = life.evicted.decision.reason if life.evicted is not None else None
        by_itself = life.ends and last is not Reason.MAXIMUM_RUN
        if by_itself or all(event.pod not in each.decision.pods for each in life.evicting):
            self._ended(event.at_us, event.uid, None)
        elif not life.workload.recreated or life.ends:
            self._ended(event.at_us, event.uid, Outcome.EVICTED)
        else:
            if life.running_us is not None and life.checkpoint_us is not None:
                life.done_us += max(0, life.checkpoint_us - life.running_us)
            self._holds_nothing(life)
            life.came_to(Moment(event.at_us, Step.WAITS_AGAIN))

    def _holds_nothing(self, life: Life) -> None:
        life.placements = ()
        life.started_us = life.running_us = life.checkpoint_us = None
        life.evicting, life.ends = (), False
        life.joining.clear()
        self._not_running.pop(life.workload.uid, None)

    def _eviction_blocked(self, event: ev.EvictionBlocked) -> None:
        life = self.lives.get(event.uid)
        if life is None or life.attempt != event.attempt:
            return
        if any(event.pod in each.decision.pods for each in life.evicting):
            life.evicting, life.evicted, life.ends = (), None, False
            life.came_to(Moment(event.at_us, Step.SPARED))

    def _checkpoint(self, event: ev.CheckpointReported) -> None:
        life = self.lives.get(event.uid)
        if life is not None and life.running_us is not None:
            taken_us = min(event.taken_us, event.at_us)
            life.checkpoint_us = max(taken_us, life.checkpoint_us or taken_us)

    def _pod_moved(self, event: ev.PodMoved) -> None:
        life = self.lives.get(event.uid)
        moved = event.placement
        if life is None or moved.pod in life.joining:
            return
        if moved.pod not in self._not_running.get(event.uid, ()):
            life.placements = tuple(
                moved if each.pod == moved.pod else each for each in life.placements
            )

    def _ended(
        self, at_us: int, uid: str, outcome: Outcome | None, reason: Reason | None = None
    ) -> None:
        life = self.lives.pop(uid, None)
        if life is None:
            return
        self._not_running.pop(uid, None)
        life.ended_us, life.outcome = at_us, outcome
        life.came_to(Moment(at_us, Step.ENDED, reason, outcome.value if outcome else ""))
        self._remember(life)

    def _remember(self, life: Life) -> None:
        self.ended[life.workload.uid] = life
        if len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)

    # Decisions --------------------------------------------------------------------------------

    def _decided(self, offset: int, event: ev.Decided) -> None:
        decision = event.decision
        match decision:
            case Wait():
                short = replace(decision, workloads=decision.workloads[:NAMED])
                self._note(offset, event.at_us, short, len(decision.workloads))
                moment = Moment(event.at_us, Step.TOLD, decision.reason)
                for uid in decision.workloads:
                    life = self.lives.get(uid)
                    if life is not None:
                        life.came_to(moment)
            case Freeze():
                self._note(offset, event.at_us, decision, 0)
                self.guard = replace(self.guard, frozen_us=event.at_us, frozen=decision)
            case Warn():
                self._note(offset, event.at_us, decision, 0)
            case Refuse():
                self._note(offset, event.at_us, decision, 1)
                self._ended(event.at_us, decision.workload, Outcome.CANCELLED, decision.reason)
            case _:
                self._note(offset, event.at_us, decision, 1)
                life = self.lives.get(decision.workload)
                if life is not None:
                    self._decided_about(life, event.at_us, decision)

    def _decided_about(
        self, life: Life, at_us: int, decision: Start | Resize | Retract | Reserve | GiveUp | Evict
    ) -> None:
        step, detail = STEPS[type(decision)], ""
        match decision:
            case Start():
                life.placements = decision.placements
                life.attempt += 1
                life.started_us, life.running_us = at_us, None
                self._not_running[decision.workload] = {each.pod for each in decision.placements}
            case Resize():
                more = (*life.placements, *decision.placements)
                life.placements = tuple(sorted(more, key=lambda each: each.pod))
                life.joining |= {each.pod: at_us for each in decision.placements}
            case Retract():
                detail = decision.node
                self._holds_nothing(life)
            case Evict():
                detail = decision.for_[0] if decision.for_ else ""
                life.evicted = Eviction(at_us, decision)
                life.evicting = (*life.evicting, life.evicted)
                life.ends |= decision.reason is Reason.MAXIMUM_RUN
            case _:
                pass
        life.came_to(Moment(at_us, step, decision.reason, detail))

    def _note(self, offset: int, at_us: int, decision: Decision, workloads: int) -> None:
        self.noted.append(Noted(offset, at_us, decision, workloads))

    # Snapshots --------------------------------------------------------------------------------

    def snapshot(self, at_us: int) -> Iterator[Acting | Part]:
        """Return what makes an equal story, after the events of the world's snapshot."""
        yield Acting(at_us, self.acts)
        yield self.guard
        for uid, life in self.lives.items():
            yield LifeRestored(
                uid,
                life.submitted_us,
                life.started_us,
                life.running_us,
                life.stopping_us,
                tuple(life.moments),
                life.checkpoint_us,
                life.done_us,
                life.evicting,
                life.evicted,
                tuple(sorted(life.joining.items())),
                life.ends,
            )
        for life in self.ended.values():
            yield EndedLife(life)
        yield from self.noted

    def restore(self, part: Part) -> None:
        """Take in one part of a snapshot."""
        match part:
            case LifeRestored():
                # The order of the parts is the order in which workloads came.
                life = self.lives[part.uid] = self.lives.pop(part.uid)
                life.submitted_us = part.submitted_us
                life.started_us = part.started_us
                life.running_us = part.running_us
                life.stopping_us = part.stopping_us
                life.moments = list(part.moments)
                life.checkpoint_us, life.done_us = part.checkpoint_us, part.done_us
                life.evicting, life.evicted = part.evicting, part.evicted
                life.joining, life.ends = dict(part.joining), part.ends
            case Guard():
                self.guard = part
            case EndedLife():
                self._remember(part.life)
            case Noted():
                self.noted.append(part)

    def _stopping(self, item: Stopping) -> None:
        life = self.lives.get(item.uid)
        if life is not None and life.stopping_us is None:
            life.stopping_us = item.at_us
            life.came_to(Moment(item.at_us, Step.STOPPING))

    def _restored(self, event: ev.WorkloadRestored) -> None:
        uid = event.workload.uid
        life = self.lives[uid] = Life(event.workload, event.at_us)
        life.placements = event.placements
        life.attempt = event.attempt
        left = {each.pod for each in event.placements} - {*event.started, *event.joining}
        if left:
            self._not_running[uid] = left
