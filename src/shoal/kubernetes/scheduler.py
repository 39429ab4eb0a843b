"""The scheduler of a cluster: watch, feed, decide, carry out.

One asyncio loop does it all; only the lease is renewed in a thread of its own. A standby watches
and feeds its world just as the leader does, and decides nothing. Nothing is decided before every
kind has been listed, and nothing while one of them cannot be watched.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import structlog

from shoal.catalog.catalog import Catalog
from shoal.core import events as ev
from shoal.core.decisions import Freeze, Wait, Warn
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.events import EventRecorder, Told
from shoal.kubernetes.executing.deadlines import DEFAULT_OPTIONS as DEADLINE_DEFAULTS
from shoal.kubernetes.executing.deadlines import DeadlineOptions, Deadlines
from shoal.kubernetes.executing.executor import KubernetesExecutor
from shoal.kubernetes.files import Files
from shoal.kubernetes.memory import Content, Memory, content_of, events_of
from shoal.kubernetes.organisation import Organisation
from shoal.kubernetes.pricing import Pricing
from shoal.kubernetes.watching.askers import Askers
from shoal.kubernetes.watching.asks import AskReader
from shoal.kubernetes.watching.books import DEFAULT_OPTIONS as SOURCE_DEFAULTS
from shoal.kubernetes.watching.books import SourceOptions
from shoal.kubernetes.watching.cache import WatchCache
from shoal.kubernetes.watching.fleet import FleetView
from shoal.kubernetes.watching.flights import Flight
from shoal.kubernetes.watching.several_pools import SeveralPools
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.watching.truth import Truth
from shoal.kubernetes.wire.meta import ObjectReference
from shoal.loop.engine import Loop, NoRecorder, Recorder
from shoal.loop.periods import periods_due
from shoal.model.hold import Hold, HoldReason
from shoal.objects.files import Written
from shoal.objects.pools import several_pools_problem
from shoal.objects.quotas import names_of
from shoal.texts.holds import hold_text
from shoal.texts.meanings import meaning_text
from shoal.texts.verdicts import verdict_text

_log = structlog.get_logger(__name__)

LATENCIES: Final = 10_000
"""So many of the last times from a freed device to the next patch are kept."""


class Leadership(Protocol):
    """Whether this process leads now."""

    @property
    def is_leader(self) -> bool:
        """True while it surely does."""
        ...


class AlwaysLeads:
    """For a process that has no rival."""

    is_leader = True


NOTHING: Final = Written()


@dataclass(frozen=True)
class SchedulerOptions:
    """How a scheduler goes about it."""

    budget: int = 2_000
    """Places searched for before what was found is carried out."""
    gather_s: float = 0.002
    """The pause in which changes gather, so that one cycle serves them all."""
    tick_s: float = 0.5
    """How often deadlines are looked at."""
    written: Written = NOTHING
    """The pools and queues."""
    files: tuple[Path, ...] = ()
    """Where they are written; they are read again when they change."""
    source: SourceOptions = SOURCE_DEFAULTS
    deadlines: DeadlineOptions = DEADLINE_DEFAULTS


DEFAULT_OPTIONS: Final = SchedulerOptions()


@dataclass(frozen=True)
class Reach:
    """A cluster as it is reached and seen; the cache feeds the stores of `truth`.

    What has to be remembered beside is kept in `memory`, if there is one.
    """

    client: Client
    cache: WatchCache
    truth: Truth
    memory: Memory | None = None


@dataclass
class Counts:
    """What a scheduler has done so far."""

    cycles: int = 0
    cycle_s: float = 0.0
    longest_cycle_s: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    free_to_patch_s: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    """From hearing that a device is free to sending the patch of the pod that gets it."""


class Scheduler:
    """Wires stores, source, loop and executor of one cluster."""

    def __init__(
        self,
        reach: Reach,
        catalog: Catalog,
        policy: Policy,
        seed: int,
        *,
        leadership: Leadership | None = None,
        recorder: Recorder | None = None,
        tell: EventRecorder | None = None,
        options: SchedulerOptions = DEFAULT_OPTIONS,
    ) -> None:
        truth = reach.truth
        self.world = World()
        self.counts = Counts()
        self.options = options
        self.is_ready = False
        """Whether everything has been listed and taken in."""
        fleet = FleetView(truth, self.world, catalog)
        self.askers = Askers(truth, options.source.controllers)
        reader = AskReader(catalog, self.askers)
        self.source = Source(truth, self.world, reader, fleet, options.source)
        self._client = reach.client
        self._cache = reach.cache
        self._leadership = leadership or AlwaysLeads()
        self._wake = asyncio.Event()
        self._tell = tell
        self._memory = reach.memory
        self._recalled: Content | None = None
        """What an earlier leader remembered, once this process has come to lead."""
        self._deadlines = Deadlines(self.source, options.deadlines)
        self._told_holds: dict[str, Hold] = {}
        self._freed: deque[float] = deque(maxlen=LATENCIES)
        self._tick_at_s = 0.0
        self._heard_s: float | None = None
        """When the first change came that has not been taken in."""
        self._undecided = False
        """Whether anything has changed since the last cycle that came to an end."""
        self._look_again_us: int | None = None
        """When time alone may change a decision, as the last cycle said."""
        self.executor = KubernetesExecutor(
            reach.client,
            self.source,
            now_us=now_us,
            may_write=lambda: self._leadership.is_leader,
            news=self,
        )
        self.loop = Loop(self.world, policy, seed, self.executor, recorder or NoRecorder())
        self.pricing = Pricing(self.world, policy, self.wake)
        self.several_pools = SeveralPools(self.world)
        self.organisation = Organisation(self.source, names_of(catalog))
        self.organisation.take(options.written, now_us())
        self.files = Files(options.files, catalog)
        for store in truth.stores:
            store.subscribe(self._changed)

    def _changed(self, _old: object, _new: object) -> None:
        if self._heard_s is None:
            self._heard_s = time.monotonic()
        self._wake.set()

    def wake(self) -> None:
        """Have the scheduler look around now."""
        self._wake.set()

    async def run(self) -> None:
        """Watch and decide until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cache.run(), name="watch")
            if self._tell is not None:
                tasks.create_task(self._tell.run(), name="events")
            tasks.create_task(self.pricing.run(), name="prices")
            tasks.create_task(self.files.follow(self._keep_to), name="files")
            if self._memory is not None:
                tasks.create_task(self._memory.run(self._to_remember), name="memory")
            tasks.create_task(self._drive(), name="drive")

    async def _drive(self) -> None:
        await self._cache.wait_listed()
        async with asyncio.TaskGroup() as tasks:
            await self.askers.begin(self._client)
            tasks.create_task(self.askers.run(self._client, self._know_askers), name="askers")
            await self._decide_always()

    def _know_askers(self, uids: Iterable[str] | None) -> None:
        """Look again at pods and owners of which it is known now who asked for them."""
        for uid in self.source.pods if uids is None else uids:
            self.source.look_at(uid)
            self.source.mark_owner(uid)
        self.wake()

    async def _decide_always(self) -> None:
        while True:
            self._wake.clear()
            if self._memory is not None and self._leadership.is_leader and not self.source.acts:
                self._recalled = await self._memory.read()
            again = self.step()
            if again or self.source.is_dirty:
                await asyncio.sleep(0)
            else:
                await self._rest()

    def _keep_to(self, written: Written) -> None:
        """Keep to other pools and queues."""
        said = self.organisation.take(written, now_us())
        _log.info(
            "pools and queues are taken in",
            pools=len(written.pools),
            queues=len(written.tree.queues),
            means=[meaning_text(each) for each in said],
        )
        self.wake()

    def step(self) -> bool:
        """Take in what changed, and decide if this process may; whether there is more to do."""
        at_us = now_us()
        leads = self._leadership.is_leader
        gained = leads and not self.source.acts
        if self.source.acts and not leads:
            self.source.follow_evictions()
        self.source.acts = leads
        self._undecided |= gained or self._is_time(at_us)
        heard_s, self._heard_s = self._heard_s, None
        for event in self.source.changes(at_us):
            self._count(event, heard_s)
            self.loop.feed(event)
            self.several_pools.applied(event)
            self._undecided = True
        for event in self._recall(at_us):
            self.loop.feed(event)
        for priced in self.pricing.changes(at_us):
            self._count(priced, None)
            self.loop.feed(priced)
        for begun in periods_due(self.world, at_us):
            self._count(begun, None)
            self.loop.feed(begun)
            self._undecided = True
        if not self.is_ready:
            self.is_ready = True
            _log.info(
                "the cluster is known",
                nodes=len(self.source.fleet.inventories),
                pods=len(self.source.pods),
                workloads=len(self.world.entries),
            )
        if gained:
            _log.info("deciding", cluster_is_visible=not self._cache.troubles())
            self.executor.take_over()
            self.source.settle()
            for owner in list(self.source.flights_of):
                self.source.mark_owner(owner)
        self.organisation.let_closed_go(at_us)
        if not leads or self._cache.troubles():
            return False
        self.executor.release_seats()
        self.executor.mark_held()
        self._look_at_deadlines(at_us)
        self._tell_holds()
        self._tell_several_pools()
        return self._undecided and self._decide(at_us)

    def _recall(self, at_us: int) -> Iterator[ev.Event]:
        """What an earlier leader remembered, once everything else has been taken in."""
        content, self._recalled = self._recalled, None
        if content is None:
            return
        _log.info("remembered", workloads=len(content.pasts), refusals=len(content.refusals))
        for owner, nodes in content.refusals.items():
            self.source.units.refusals.setdefault(owner, {}).update(nodes)
            self.source.mark_owner(owner)
        for owner in self.source.units.timed_out.recall(content.ended):
            self.source.mark_owner(owner)
        yield from events_of(content)
        self.organisation.recall(content.queues, at_us)
        yield from self.source.recall(content.pasts, at_us)
        yield from self.source.changes(at_us)

    def _to_remember(self) -> Content | None:
        if not self._leadership.is_leader or not self.source.acts or not self.is_ready:
            return None
        return content_of(self.world, self.source, self.organisation.written.tree, now_us())

    def _is_time(self, at_us: int) -> bool:
        return self._look_again_us is not None and self._look_again_us <= at_us

    def _decide(self, at_us: int) -> bool:
        began_s = time.perf_counter()
        came = self.loop.turn(at_us, self.options.budget)
        took_s = time.perf_counter() - began_s
        self.counts.cycles += 1
        self.counts.cycle_s += took_s
        self.counts.longest_cycle_s = max(self.counts.longest_cycle_s, took_s)
        for decision in came.decisions:
            self.counts.decisions[type(decision).__name__] += 1
            if not isinstance(decision, Wait):
                _log.debug("decided", key=decision.key)
        self._look_again_us = came.look_again_us
        self._undecided = not came.complete or bool(came.decisions)
        return self._undecided

    async def _rest(self) -> None:
        """Wait for a change, for a time at which something is due, or for the next tick."""
        timeout_s = self.options.tick_s
        for due_us in (self.source.next_due_us(), self._look_again_us):
            if due_us is None:
                continue
            timeout_s = min(timeout_s, max(0.0, (due_us - now_us()) / 1e6))
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self.options.gather_s)

    # Deadlines --------------------------------------------------------------------------------

    def _look_at_deadlines(self, at_us: int) -> None:
        now_s = time.monotonic()
        if now_s < self._tick_at_s:
            return
        self._tick_at_s = now_s + self.options.tick_s
        for late in list(self._deadlines.overdue(at_us)):
            if late.reason:
                self.failed(late.flight, late.number, late.reason)
            else:
                self.executor.renew_claim(late.flight, late.number)

    def failed(self, flight: Flight, number: int, reason: str) -> None:
        """Take note of a start that does not come true, and tell its pods."""
        if flight.failure:
            return
        late = flight.seats[number]
        node, pod = late.placement.node, self.source.pods.get(late.pod)
        name = pod.metadata.name if pod is not None else f"number {number}"
        _log.info("start failed", workload=flight.uid, pod=number, node=node, why=reason)
        for uid in flight.pods:
            alone = uid == late.pod
            what = "Not started" if alone else f"Taken back, as pod {name} did not start"
            self._say(uid, "StartFailed", f"{what} on node {node}: {reason}", warning=True)
        self.source.fail(flight, number, reason, now_us())

    def evicts(self, flight: Flight) -> None:
        """Tell pods that they are evicted, and for whom."""
        for number, eviction in sorted(flight.evicting.items()):
            note = f"Evicted ({eviction.reason})"
            if eviction.beneficiaries:
                note += f" so that {self._names(eviction.beneficiaries)} can start"
            note += f". It has {eviction.grace_s} s to stop."
            _log.info("evicting", workload=flight.uid, pod=number, why=note)
            self._say(flight.seats[number].pod, "Evicted", note, warning=True)

    def _names(self, workloads: tuple[str, ...]) -> str:
        entries = (self.world.entries.get(uid) for uid in workloads)
        return ", ".join(
            uid if entry is None else f"{entry.workload.namespace}/{entry.workload.name}"
            for uid, entry in zip(workloads, entries, strict=True)
        )

    def blocked(self, flight: Flight, number: int, why: str) -> None:
        """Tell a pod that it stays."""
        seat = flight.seats.get(number)
        if seat is not None and seat.pod:
            self._say(seat.pod, "EvictionRefused", f"Not evicted: {why}")

    def warns(self, decision: Freeze | Warn) -> None:
        """Tell whoever reads the log what a person has to know."""
        if isinstance(decision, Freeze):
            why, count, most = decision.reason.value, decision.count, decision.most
            _log.error(
                "evictions are frozen until a person resumes them", why=why, count=count, most=most
            )
        else:
            _log.warning("a budget is used up", queue=decision.queue, key=decision.key)

    def resume(self, by: str) -> bool:
        """Let evictions go on because a person says so; false where this process does not lead."""
        if not self._leadership.is_leader or not self.is_ready:
            return False
        _log.info("evictions resumed", by=by)
        self.source.queue(ev.EvictionsResumed(now_us(), by))
        self._undecided = True
        self.wake()
        return True

    # Telling people ---------------------------------------------------------------------------

    def waits(self, decision: Wait) -> None:
        """Tell pods why they wait."""
        text = verdict_text(decision.verdict)
        for uid in decision.workloads:
            unit = self.source.units.waiting.get(uid)
            for pod in unit.pods if unit is not None else ():
                self._say(pod, "Waiting", text)

    def _tell_holds(self) -> None:
        """Tell pods that are held back, once for each reason."""
        holds = self.source.holds
        for key, hold in holds.items():
            known = self._told_holds.get(key)
            if hold.reason is HoldReason.ASKER_UNREAD:
                continue  # it passes before anybody could read of it
            if known is None or known.reason is not hold.reason:
                for pod in hold.pods:
                    self._say(pod, "HeldBack", hold_text(hold), warning=_is_grave(hold))
        self._told_holds = dict(holds)

    def _tell_several_pools(self) -> None:
        """Tell nodes that come to be in several pools, once for each such change."""
        for name in self.several_pools.news():
            pools = self.several_pools.found[name]
            _log.warning("a node is in several pools", node=name, pools=pools)
            node = self.source.truth.nodes.get(name)
            if self._tell is not None and node is not None:
                about = ObjectReference.to("v1", "Node", node.metadata)
                note = f"Nothing new starts here: {several_pools_problem(name, pools)}."
                self._tell.record(Told(about, "SeveralPools", note, "Planning", warning=True))

    def _say(self, pod: str, reason: str, note: str, *, warning: bool = False) -> None:
        found = self.source.pods.get(pod)
        if self._tell is not None and found is not None:
            about = ObjectReference.to("v1", "Pod", found.metadata)
            self._tell.record(Told(about, reason, note, "Planning", warning=warning))

    # Counting ---------------------------------------------------------------------------------

    def _count(self, event: ev.Event, heard_s: float | None) -> None:
        self.counts.events[type(event).__name__] += 1
        if isinstance(event, ev.WorkloadEnded | ev.PodEnded):
            entry = self.world.entries.get(event.uid)
            if entry is not None and entry.started:
                self._freed.append(time.monotonic() if heard_s is None else heard_s)

    def is_released(self) -> None:
        """Count how long it took from a freed device to a patch."""
        if self._freed:
            self.counts.free_to_patch_s.append(time.monotonic() - self._freed.popleft())


def now_us() -> int:
    """Microseconds since the epoch, by this machine's clock."""
    return time.time_ns() // 1000


def _is_grave(hold: Hold) -> bool:
    return hold.reason in (HoldReason.REFUSED, HoldReason.OWN_CLAIM, HoldReason.STUCK)
