"""The whole state, and its only mutator.

`World.apply(event)` is the only way to change it. What is derived from the state (boards, shapes)
may be thrown away at any time; everything else is remembered by `snapshot`, the shortest list of
events that makes an equal world.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from shoal.core import events as ev
from shoal.core import nodes, snapshots, transitions
from shoal.core.arrays.charges import Charge, charges_of
from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.labels import BoolArray
from shoal.core.arrays.neighbours import asked_by
from shoal.core.arrays.shape import Shape, Shapes
from shoal.core.demand import Demand, Prices
from shoal.core.entry import Entry, State
from shoal.core.eviction import evicting
from shoal.core.eviction.evictions import Evictions
from shoal.core.eviction.protection import Protection
from shoal.core.limits import declared
from shoal.core.limits.spending import Spending
from shoal.core.limits.timelimits import TimeLimits
from shoal.core.placing import lacking
from shoal.core.placing.board import Board
from shoal.core.placing.eligibility import StaticMasks
from shoal.core.placing.reservation import Reservation
from shoal.core.policies import Policy
from shoal.core.queueing import grouping, requeue
from shoal.core.queueing.sleepers import Room
from shoal.core.queueing.waiting import Waiting
from shoal.core.tenancy.tenants import Tenants
from shoal.core.transitions import InvalidTransitionError
from shoal.model.fractions import UNIT
from shoal.model.request import Request
from shoal.model.workload import Outcome, Placement, Workload, WorkloadType

__all__ = ["Entry", "InvalidTransitionError", "State", "World"]


class World:
    """Fleet and workloads as the events told it."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.entries: dict[str, Entry] = {}
        """Workloads that have not ended, by uid."""
        self.tenants = Tenants(self.fleet)
        self.waiting = Waiting()
        self.demand = Demand()
        """What arrives, as learned so far."""
        self.prices = Prices()
        """What room is worth; nothing is known of it until prices are set."""
        self.evictions = Evictions()
        self.protection = Protection()
        self.limits = TimeLimits()
        self.declared = declared.Declared(self.limits)
        self.spending = Spending(self.fleet, self.tenants, self.declared)
        self.failed: dict[str, None] = {}
        """Workloads whose start has to be retracted."""
        self.declaring: dict[str, None] = {}
        """Uids of those that hold something and declared a run time."""
        self.evicted: dict[str, None] = {}
        """Uids of those that hold something, and some of whose pods were evicted since."""
        self.holders: dict[str, dict[str, None]] = {}
        """Workloads that hold something, by queue."""
        self.reserving: dict[str, None] = {}
        """Workloads that places are kept for."""
        self.lacking: dict[str, None] = {}
        """Running work that lacks pods; see `lacking`."""
        self.refused_on: dict[str, set[str]] = {}
        """Uids that a node refused, by node."""
        self._shapes = Shapes()
        self.masks = StaticMasks(self.fleet)
        self._boards: dict[tuple[Policy, int], Board] = {}

    def apply(self, event: ev.Event) -> None:
        """Take in what happened. Events about things that are unknown or gone change nothing."""
        self.tenants.clock(event.at_us)
        if isinstance(event, ev.Decided | ev.Cycled) and self.tenants.bring_up_to_date():
            self.waiting.wake_blocked()
        self.protection.happens(self, event)
        self._take_in(event)
        if not isinstance(event, ev.Decided):
            self.tenants.happened()

    def _take_in(self, event: ev.Event) -> None:  # noqa: C901, PLR0912 - a table, a line an event
        match event:
            case ev.Decided():
                transitions.decided(self, event.decision, event.at_us)
            case ev.Cycled():
                self._cycled(event)
            case ev.WorkloadSubmitted():
                self._submitted(event)
            case ev.WorkloadEnded():
                self._ended(event)
            case ev.PodStarted():
                self._pod_started(event)
            case ev.PodEnded():
                self._pod_ended(event)
            case ev.PodMoved():
                self._pod_moved(event)
            case ev.WorkloadAdopted():
                self._adopted(event)
            case ev.StartFailed():
                self._start_failed(event)
            case (
                ev.NodeSeen()
                | ev.NodeLost()
                | ev.NodeCordoned()
                | ev.DeviceLost()
                | ev.DeviceReturned()
            ):
                nodes.changed(self, event)
                working = int(self.fleet.device_count[: self.fleet.size].sum())
                self.evictions.works(event.at_us, working)
            case ev.MaskSet():
                nodes.mask_set(self, event)
            case ev.PoolsSet():
                self.fleet.set_pools(event.pools)
                grouping.regroup(self, self.entries.values())
                self.waiting.wake_all()
            case ev.QueuesSet():
                requeue.queues_set(self, event.queues)
            case ev.PricesSet():
                self._prices_set(event.prices)
            case ev.EvictionBlocked():
                evicting.blocked(self, event)
            case ev.EvictionsResumed():
                self.evictions.resume(event.at_us)
                self.waiting.wake_hungry()
            case ev.DisruptionBudgetSet():
                self.evictions.set_budget(event.name, event.allowed, event.workloads)
                self.waiting.wake_hungry()
            case ev.CheckpointReported():
                self._checkpoint_reported(event)
            case ev.PrioritySet():
                grouping.set_priority(self, event.uid, event.priority_name)
            case ev.PeriodBegan():
                self._period_began(event)
            case _:
                snapshots.restore(self, event)

    def board(self, policy: Policy, seed: int) -> Board:
        """Return the scores of nodes under a policy."""
        board = self._boards.get((policy, seed))
        if board is None:
            others: dict[str, Policy] = {policy.name: policy}

            def other(name: str) -> Board:
                return self.board(others.setdefault(name, Policy(name)), seed)

            scorer = policy.scorer(self.prices)
            board = self._boards[policy, seed] = Board(self.fleet, self.masks, scorer, seed, other)
        return board

    def _period_began(self, event: ev.PeriodBegan) -> None:
        self.spending.period_began(event.queue, event.begin_us, event.end_us)
        self.waiting.quota_on(event.queue)

    def _checkpoint_reported(self, event: ev.CheckpointReported) -> None:
        """Note that less is lost with a workload, which may bring it within what may be lost."""
        entry = self.entries.get(event.uid)
        declared.checkpoint(entry, event.taken_us, event.at_us)
        if entry is not None and self.tenants.most_hours_lost(entry.workload.queue) is not None:
            self.waiting.wake_hungry()

    def count(self, entry: Entry, pod: int, sign: int) -> None:
        """Count what a pod is charged as held (`sign` 1), or no longer (-1)."""
        self.spending.held(entry, entry.charges[pod], sign)
        if not entry.rests(pod):
            self.charge(entry, pod, entry.charges[pod], sign)
        self.pin(entry, entry.charges[pod], sign)

    def pin(self, entry: Entry, charges: tuple[Charge, ...], sign: int) -> None:
        """Note which devices a workload holds, if it is known whether they are borrowed."""
        if entry.borrowed is not None:
            self.tenants.pin(entry.workload.queue, charges, entry.borrowed, sign)

    def borrowed(self, entry: Entry, placements: Iterable[Placement]) -> int:
        """Return for how many queues what is charged for these places is borrowed."""
        if not self.tenants.tree.queues:
            return self.tenants.borrowed(entry.workload, {})
        charges = self.charges_in(entry, placements).values()
        names = {charge.accelerator: None for each in charges for charge in each}
        return self.tenants.borrowed(entry.workload, names)

    def charges_in(
        self, entry: Entry, placements: Iterable[Placement]
    ) -> dict[int, tuple[Charge, ...]]:
        """Return what each pod of a workload is charged in these places, by its number."""
        return {p.pod: charges_of(self.fleet, entry.request_of(p.pod), p) for p in placements}

    def begins(self, entry: Entry, borrowed: int) -> None:
        """Note for how many queues what a workload holds, or is kept for it, is borrowed."""
        entry.borrowed = borrowed
        for charges in entry.charges.values():
            self.pin(entry, charges, 1)
        for charges in entry.reserved.charges if entry.reserved is not None else ():
            self.pin(entry, charges, 1)

    def charge(self, entry: Entry, pod: int, charges: tuple[Charge, ...], sign: int) -> None:
        """Charge a workload's queue for a pod (`sign` 1), or take charges off it (-1)."""
        fixed = self.tenants.stays(entry.workload, spared=entry.spared(pod))
        workload = entry.workload
        self.tenants.charge(workload.queue, charges, sign, fixed=fixed, user=workload.user)

    def returnable(self, workload: Workload) -> bool:
        """Return whether work can be taken back from where it borrows; see `tenants`."""
        return self.tenants.returnable(workload)

    def _prices_set(self, prices: Prices) -> None:
        self.prices = prices
        self.demand.priced()
        for (policy, _), board in self._boards.items():
            board.use(policy.scorer(prices))

    @property
    def may_grow(self) -> bool:
        """Whether running work that lacks pods is to be looked at."""
        return bool(self.lacking) and self.waiting.freed

    def allowed_rows(self, shape: Shape) -> BoolArray:
        """Return for every row whether pods of a shape may run there at all."""
        return self.masks.of(shape)

    def room(self, rows: Iterable[int]) -> Room:
        """Return for which of those that sleep there is room on some rows."""
        return self.waiting.room(self.fleet, self.masks, rows)

    def shape_of(self, request: Request, type_: WorkloadType | None = None) -> Shape:
        """Return the one shape of equal requests, by work of a type where pools tell them apart."""
        return self._shapes.of(request, type_ if self.fleet.pools else None)

    def shapes_of(self, entry: Entry) -> tuple[Shape, ...]:
        """Return the shapes of a workload's pod sets, in order."""
        return tuple(self.shape_of(request, entry.workload.type) for request in entry.requests)

    def enter(self, workload: Workload, since_us: int) -> Entry:
        """Take in a workload, which holds nothing yet and does not wait."""
        entry = self.entries[workload.uid] = Entry(workload, since_us)
        entry.requests = asked_by(workload, self.tenants.tree)
        return entry

    # Workloads --------------------------------------------------------------------------------

    def _submitted(self, event: ev.WorkloadSubmitted) -> None:
        if event.workload.uid not in self.entries:
            entry = self.enter(event.workload, event.at_us)
            self._learn(event.workload)
            self.wait(entry)

    def _learn(self, workload: Workload) -> None:
        for pod_set in workload.pod_sets:
            self.demand.arrived(pod_set.request, pod_set.count)

    def _adopted(self, event: ev.WorkloadAdopted) -> None:
        if event.workload.uid in self.entries or not event.placements:
            return
        entry = self.enter(event.workload, event.at_us)
        self._learn(event.workload)
        since_us = event.at_us if event.since_us is None else min(event.since_us, event.at_us)
        for placement in event.placements:
            self.hold(entry, placement)
            entry.started[placement.pod] = since_us
        self.begins(entry, self.borrowed(entry, event.placements))
        self.spending.adopted(entry, since_us)
        lacking.look_at(self, entry)
        self.limits.runs(entry)
        self.waiting.wake_hungry()

    def _ended(self, event: ev.WorkloadEnded) -> None:
        entry = self.entries.get(event.uid)
        if entry is None:
            return
        completed = event.outcome is Outcome.COMPLETED
        grouping.learn(self, entry, event.at_us, completed=completed)
        if entry.group is not None:
            self.wait_no_more(entry)
        self.unreserve(entry)
        self.give_back(entry, list(entry.held.values()))
        self.remove(entry)

    def _pod_started(self, event: ev.PodStarted) -> None:
        entry = self.entries.get(event.uid)
        if entry is not None and event.pod in entry.held:
            entry.started.setdefault(event.pod, event.at_us)
            entry.joining.discard(event.pod)
            self.limits.runs(entry)
            if self.tenants.tree.queues:
                self.waiting.wake_hungry()

    def _pod_ended(self, event: ev.PodEnded) -> None:
        entry = self.entries.get(event.uid)
        placement = entry.held.pop(event.pod, None) if entry is not None else None
        if entry is None or placement is None:
            return
        self.served(entry, event.pod)
        gone = not entry.held
        evicted, joining = event.pod in entry.evicting, event.pod in entry.joining
        if gone:
            grouping.learn(self, entry, event.at_us, completed=not evicted)
        entry.started.pop(event.pod, None)
        self.give_back(entry, [placement])
        if not gone:
            if not evicted and entry.held.keys() <= entry.evicting.keys():
                self.limits.ends(
                    event.uid
                )  # it has ended by itself; what it could spare still goes
            self.limits.runs(entry)
            entry.finishing |= not (evicted or joining)
            lacking.look_at(self, entry)
        elif evicted and entry.workload.recreated and event.uid not in self.limits.ending:
            self.wait_anew(entry, event.at_us)
        else:
            self.remove(entry)

    def _pod_moved(self, event: ev.PodMoved) -> None:
        entry = self.entries.get(event.uid)
        pod = event.placement.pod
        if entry is None or pod not in entry.started:
            return
        rests, going = entry.evicting.get(pod), entry.underway
        self.give_back(entry, [entry.held.pop(pod)])
        self.hold(entry, event.placement)
        if rests is not None:
            entry.evicting[pod], entry.underway = rests, going
        if rests:
            self.charge(entry, pod, entry.charges[pod], -1)

    def _start_failed(self, event: ev.StartFailed) -> None:
        entry = self.entries.get(event.uid)
        if entry is None or entry.attempt != event.attempt or event.pod not in entry.held:
            return
        if event.pod in entry.joining:  # it runs on without
            lacking.refuses(self, entry, entry.held[event.pod].node)
            self._pod_ended(ev.PodEnded(event.at_us, event.uid, event.pod))
        elif event.pod not in entry.started and entry.failed_on is None:
            entry.failed_on = entry.held[event.pod].node
            self.failed[event.uid] = None

    def remove(self, entry: Entry) -> None:
        """Forget a workload."""
        uid = entry.workload.uid
        del self.entries[uid]
        self._holds_nothing(entry)
        self.failed.pop(uid, None)
        for node in sorted(entry.refused):
            self.refused_on[node].discard(uid)

    def hold(
        self, entry: Entry, placement: Placement, charges: tuple[Charge, ...] | None = None
    ) -> None:
        """Let a workload hold a place, and charge it; `charges` says what, if it is known."""
        self.holders.setdefault(entry.workload.queue, {})[entry.workload.uid] = None
        if entry.workload.run_us is not None:
            self.declaring[entry.workload.uid] = None
        request = entry.request_of(placement.pod)
        self.fleet.take(request, placement)
        entry.held[placement.pod] = placement
        if charges is None and self.tenants.tree.queues:
            charges = charges_of(self.fleet, request, placement)
        entry.charges[placement.pod] = charges or ()
        self.count(entry, placement.pod, 1)

    def give_back(self, entry: Entry, placements: list[Placement]) -> None:
        """Take from a workload what it held."""
        give_back = self.fleet.give_back
        rows = {give_back(entry.request_of(p.pod), p): None for p in placements}
        for row in rows:
            self.waiting.room_on(self.fleet, row)
        for placement in placements:
            self.count(entry, placement.pod, -1)
            del entry.charges[placement.pod]
            if entry.evicting.pop(placement.pod, None) is not None:
                evicting.gone(entry, placement.pod)
            entry.joining.discard(placement.pod)
        self.quota_on(entry)

    def served(self, entry: Entry, pod: int) -> None:
        """Count the device time that a pod has had, which is about to be over."""
        since_us = entry.started.get(pod)
        if since_us is not None:
            units = sum(charge.units for charge in entry.charges[pod])
            entry.served_device_us += units * max(0, self.tenants.now_us - since_us) // UNIT

    def quota_on(self, entry: Entry) -> None:
        """Wake those for whom the quota stood in the way that a workload may hold less of now."""
        for queue in self.tenants.path(entry.workload.queue):
            self.waiting.quota_on(queue)

    def wait(self, entry: Entry) -> None:
        """Let a workload wait in its group."""
        self.limits.waits(entry)
        entry.order = grouping.place_of(self, entry)
        entry.group = self.waiting.add(
            entry.order, grouping.key_of(self, entry), entry.waits_since_us
        )

    def wait_no_more(self, entry: Entry) -> None:
        """Let a workload wait in its group no longer."""
        if entry.group is not None:
            self.limits.waits_no_more(entry.workload.uid)
            self.waiting.remove(entry.order, entry.group)
            entry.group = None

    # Places ----------------------------------------------------------------------------------

    def reserve(self, entry: Entry, reservation: Reservation) -> None:
        """Keep places, which are booked already, for a workload, and charge them."""
        entry.reserved = reservation
        self.reserving[entry.workload.uid] = None
        self.charge_reserved(entry, reservation, 1)
        self.spending.kept_for(entry)
        self.limits.waits(entry)

    def charge_reserved(self, entry: Entry, reservation: Reservation, sign: int) -> None:
        """Charge a workload for the places kept for it (`sign` 1), or take that off (-1)."""
        for placement, charges in zip(reservation.placements, reservation.charges, strict=True):
            self.charge(entry, placement.pod, charges, sign)
            self.pin(entry, charges, sign)

    def unreserve(self, entry: Entry) -> None:
        """Keep no places for a workload any more; it may be given them in the same step.

        Whoever still goes to make room for it is charged again.
        """
        reservation = entry.reserved
        if reservation is None:
            return
        entry.reserved = None
        del self.reserving[entry.workload.uid]
        self.waiting.wake_hungry()
        give_back = self.fleet.give_back
        placements = reservation.placements
        rows = {give_back(entry.request_of(p.pod), p): None for p in placements}
        self.charge_reserved(entry, reservation, -1)
        entry.borrowed = None
        self.spending.kept_no_more(entry.workload.uid)
        self.limits.waits_no_more(entry.workload.uid)
        for row in rows:
            self.waiting.room_on(self.fleet, row)
        self.quota_on(entry)
        for uid in reservation.evicted:
            evicting.goes_for(self, uid, (), entry.workload.uid)

    def _holds_nothing(self, entry: Entry) -> None:
        self.spending.holds_nothing(entry.workload.uid)
        self.limits.holds_nothing(entry.workload.uid)
        self.declaring.pop(entry.workload.uid, None)
        self.evicted.pop(entry.workload.uid, None)
        self.lacking.pop(entry.workload.uid, None)
        entry.finishing = False
        holders = self.holders.get(entry.workload.queue)
        if holders is not None:
            holders.pop(entry.workload.uid, None)
            if not holders:
                del self.holders[entry.workload.queue]

    def wait_anew(self, entry: Entry, at_us: int) -> None:
        """Let a workload wait again that has lost what it held."""
        self._holds_nothing(entry)
        entry.started.clear()
        entry.evicting.clear()
        entry.checkpoint_us = None
        entry.borrowed = None
        if entry.failed_on is not None:
            lacking.refuses(self, entry, entry.failed_on)
            entry.failed_on = None
            del self.failed[entry.workload.uid]
        entry.waits_since_us = at_us
        self.wait(entry)

    # Cycles -----------------------------------------------------------------------------------

    def _cycled(self, event: ev.Cycled) -> None:
        for examined in event.examined:
            entry = self.entries.get(examined.uid)
            if entry is not None and entry.group is not None:
                self.waiting.sleep(entry.group, examined, self.masks)
            elif entry is not None and entry.reserved is not None:
                entry.reserved = replace(entry.reserved, look_us=examined.again_us)
        if event.complete:
            self.waiting.end_of_cycle()

    # Snapshots --------------------------------------------------------------------------------

    def snapshot(self, at_us: int) -> Iterator[ev.Event]:
        """Return events that make an equal world out of a new one."""
        return snapshots.snapshot(self, at_us)
