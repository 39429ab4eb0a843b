"""The whole state, and its only mutator.

`World.apply(event)` is the only way to change it. What is derived from the state (boards, shapes)
may be thrown away at any time; everything else is remembered by `snapshot`, the shortest list of
events that makes an equal world.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from shoal.core import events as ev
from shoal.core.board import Board
from shoal.core.decisions import Decision, Retract, Start, Wait
from shoal.core.demand import Demand, Prices
from shoal.core.eligibility import StaticMasks
from shoal.core.entry import Entry, State
from shoal.core.fleet import Fleet
from shoal.core.labels import BoolArray
from shoal.core.policies import Policy
from shoal.core.shape import Shape, Shapes
from shoal.core.tenants import Charge, Tenants, charges_of
from shoal.core.waiting import Group, Waiting
from shoal.model.node import Node
from shoal.model.queue import QueueTree
from shoal.model.request import Request
from shoal.model.workload import Placement, Workload

__all__ = ["Entry", "InvalidTransitionError", "State", "World"]


class InvalidTransitionError(Exception):
    """A decision that does not fit the state of its workload: a bug in whoever decided."""


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
        self.failed: dict[str, None] = {}
        """Workloads whose start has to be retracted."""
        self._refused_on: dict[str, set[str]] = {}
        """Uids that a node refused, by node."""
        self._shapes = Shapes()
        self._masks = StaticMasks(self.fleet)
        self._boards: dict[tuple[Policy, int], Board] = {}

    def apply(self, event: ev.Event) -> None:  # noqa: C901, PLR0912 - a table, a line an event
        """Take in what happened. Events about things that are unknown or gone change nothing."""
        match event:
            case ev.Decided():
                self._decided(event.decision)
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
            case ev.NodeSeen():
                self._node_seen(event.node)
            case ev.NodeLost():
                self._node_lost(event.name)
            case ev.NodeCordoned():
                self._node_cordoned(event)
            case ev.DeviceLost():
                self._device_lost(event)
            case ev.DeviceReturned():
                self._device_returned(event)
            case ev.MaskSet():
                self._mask_set(event)
            case ev.QueuesSet():
                self._queues_set(event.queues)
            case ev.PricesSet():
                self._prices_set(event.prices)
            case ev.DemandRestored():
                self.demand.restore(event.learned)
            case ev.WorkloadRestored():
                self._workload_restored(event)
            case ev.GroupRestored():
                self._group_restored(event)
            case ev.RoomRestored():
                self._room_restored(event)
            case _:
                assert_never(event)

    def board(self, policy: Policy, seed: int) -> Board:
        """Return the scores of nodes under a policy."""
        board = self._boards.get((policy, seed))
        if board is None:
            board = self._boards[policy, seed] = Board(
                self.fleet, self._masks, policy.scorer(self.prices), seed
            )
        return board

    def _queues_set(self, queues: QueueTree) -> None:
        self.tenants.set_tree(queues)
        for entry in self.entries.values():
            for pod, placement in entry.held.items():
                charges = charges_of(self.fleet, entry.request_of(pod), placement)
                entry.charges[pod] = charges or entry.charges.get(pod, ())
                self.charge(entry, entry.charges[pod], 1)
        self.waiting.wake_all()

    def charge(self, entry: Entry, charges: tuple[Charge, ...], sign: int) -> None:
        """Charge a workload's queue (`sign` 1), or take charges off it (-1)."""
        self.tenants.charge(entry.workload.queue, entry.workload.type, charges, sign)

    def _prices_set(self, prices: Prices) -> None:
        self.prices = prices
        self.demand.priced()
        for (policy, _), board in self._boards.items():
            board.use(policy.scorer(prices))

    def allowed_rows(self, shape: Shape) -> BoolArray:
        """Return for every row whether pods of a shape may run there at all."""
        return self._masks.of(shape)

    def sleepers_for(self, rows: Iterable[int]) -> dict[Group, None]:
        """Return the sleeping groups of which a pod may fit on one of these rows."""
        return self.waiting.sleepers_for(self.fleet, self._masks, rows)

    def shape_of(self, request: Request) -> Shape:
        """Return the one shape of equal requests."""
        return self._shapes.of(request)

    def shapes_of(self, workload: Workload) -> tuple[Shape, ...]:
        """Return the shapes of a workload's pod sets, in order."""
        return tuple(self._shapes.of(pod_set.request) for pod_set in workload.pod_sets)

    # Nodes ------------------------------------------------------------------------------------

    def _node_seen(self, node: Node) -> None:
        row = self.fleet.row_of.get(node.name)
        if row is not None and self.fleet.nodes[row] == node:
            return
        accelerators = self.fleet.accelerators()
        row = self.fleet.see(node)
        self._charge_anew(node.name)
        self._forget_refusals(node.name)
        self.waiting.room_on(self.fleet, row)
        if self.tenants.tree.queues and self.fleet.accelerators() != accelerators:
            # Whoever has used up what it may have of the others may have these.
            self.waiting.wake_all()

    def _charge_anew(self, node: str) -> None:
        """Charge what is held on a node by its devices as they are now."""
        if not self.tenants.tree.queues or not self.fleet.holds_something(node):
            return
        for entry in self.entries.values():
            for pod, placement in entry.held.items():
                if placement.node == node:
                    self.charge(entry, entry.charges[pod], -1)
                    entry.charges[pod] = charges_of(self.fleet, entry.request_of(pod), placement)
                    self.charge(entry, entry.charges[pod], 1)
                    self._quota_on(entry)

    def _node_lost(self, name: str) -> None:
        row = self.fleet.lose(name)
        if row is not None:
            self.waiting.fresh.pop(row, None)
        self._forget_refusals(name)

    def _node_cordoned(self, event: ev.NodeCordoned) -> None:
        row = self.fleet.row_of.get(event.name)
        node = self.fleet.nodes[row] if row is not None else None
        if node is not None:
            self._node_seen(replace(node, cordoned=event.cordoned))

    def _device_lost(self, event: ev.DeviceLost) -> None:
        lost = self.fleet.lost_devices.get(event.node, frozenset())
        self.fleet.set_lost_devices(event.node, lost | {event.device})

    def _device_returned(self, event: ev.DeviceReturned) -> None:
        lost = self.fleet.lost_devices.get(event.node, frozenset())
        if event.device in lost:
            row = self.fleet.set_lost_devices(event.node, lost - {event.device})
            self._forget_refusals(event.node)
            if row is not None:
                self.waiting.room_on(self.fleet, row)

    def _mask_set(self, event: ev.MaskSet) -> None:
        self.fleet.set_mask(event.mask, frozenset(event.nodes))
        for group in self.waiting.groups.values():
            if any(shape.request.mask == event.mask for shape in group.shapes):
                self.waiting.wake(group)

    def _forget_refusals(self, node: str) -> None:
        for uid in sorted(self._refused_on.pop(node, ())):
            entry = self.entries.get(uid)
            if entry is None:
                continue
            waits = entry.group is not None
            if waits:
                self._wait_no_more(entry)
            entry.refused -= {node}
            if waits:
                self._wait(entry)

    # Workloads --------------------------------------------------------------------------------

    def _submitted(self, event: ev.WorkloadSubmitted) -> None:
        if event.workload.uid not in self.entries:
            entry = self.entries[event.workload.uid] = Entry(event.workload)
            self._learn(event.workload)
            self._wait(entry)

    def _learn(self, workload: Workload) -> None:
        for pod_set in workload.pod_sets:
            self.demand.arrived(pod_set.request, pod_set.count)

    def _adopted(self, event: ev.WorkloadAdopted) -> None:
        if event.workload.uid in self.entries or not event.placements:
            return
        entry = self.entries[event.workload.uid] = Entry(event.workload)
        self._learn(event.workload)
        for placement in event.placements:
            self._hold(entry, placement)
            entry.started.add(placement.pod)

    def _ended(self, event: ev.WorkloadEnded) -> None:
        entry = self.entries.get(event.uid)
        if entry is None:
            return
        if entry.group is not None:
            self._wait_no_more(entry)
        self._remove(entry)
        self._give_back(entry, list(entry.held.values()))

    def _pod_started(self, event: ev.PodStarted) -> None:
        entry = self.entries.get(event.uid)
        if entry is not None and event.pod in entry.held:
            entry.started.add(event.pod)

    def _pod_ended(self, event: ev.PodEnded) -> None:
        entry = self.entries.get(event.uid)
        placement = entry.held.pop(event.pod, None) if entry is not None else None
        if entry is None or placement is None:
            return
        entry.started.discard(event.pod)
        if not entry.held:
            self._remove(entry)
        self._give_back(entry, [placement])

    def _pod_moved(self, event: ev.PodMoved) -> None:
        entry = self.entries.get(event.uid)
        pod = event.placement.pod
        if entry is None or pod not in entry.started:
            return
        self._give_back(entry, [entry.held.pop(pod)])
        self._hold(entry, event.placement)

    def _start_failed(self, event: ev.StartFailed) -> None:
        entry = self.entries.get(event.uid)
        if entry is None or entry.attempt != event.attempt or event.pod not in entry.held:
            return
        if event.pod not in entry.started and entry.failed_on is None:
            entry.failed_on = entry.held[event.pod].node
            self.failed[event.uid] = None

    def _remove(self, entry: Entry) -> None:
        uid = entry.workload.uid
        del self.entries[uid]
        self.failed.pop(uid, None)
        for node in sorted(entry.refused):
            self._refused_on[node].discard(uid)

    def _hold(
        self, entry: Entry, placement: Placement, charges: tuple[Charge, ...] | None = None
    ) -> None:
        request = entry.request_of(placement.pod)
        self.fleet.take(request, placement)
        entry.held[placement.pod] = placement
        if charges is None and self.tenants.tree.queues:
            charges = charges_of(self.fleet, request, placement)
        entry.charges[placement.pod] = charges or ()
        self.charge(entry, entry.charges[placement.pod], 1)

    def _give_back(self, entry: Entry, placements: list[Placement]) -> None:
        give_back = self.fleet.give_back
        rows = {give_back(entry.request_of(p.pod), p): None for p in placements}
        for row in rows:
            self.waiting.room_on(self.fleet, row)
        for placement in placements:
            self.charge(entry, entry.charges.pop(placement.pod), -1)
        self._quota_on(entry)

    def _quota_on(self, entry: Entry) -> None:
        """Wake those for whom the quota stood in the way that a workload may hold less of now."""
        for queue in self.tenants.path(entry.workload.queue):
            self.waiting.quota_on(queue)

    def _wait(self, entry: Entry) -> None:
        workload = entry.workload
        counts = (pod_set.count for pod_set in workload.pod_sets)
        shapes = zip(self.shapes_of(workload), counts, strict=True)
        entry.group = self.waiting.add(workload, (workload.queue, tuple(shapes), entry.refused))

    def _wait_no_more(self, entry: Entry) -> None:
        if entry.group is not None:
            self.waiting.remove(entry.workload, entry.group)
            entry.group = None

    # Decisions --------------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        match decision:
            case Start():
                self._start(decision)
            case Retract():
                self._retract(decision)
            case Wait():
                self._tell(decision)
            case _:
                assert_never(decision)

    def _start(self, decision: Start) -> None:
        entry = self._entry_for(decision, decision.workload)
        if entry.group is None:
            raise InvalidTransitionError(f"{decision.key}: the workload does not wait")
        self._wait_no_more(entry)
        entry.attempt += 1
        for placement in decision.placements:
            self._hold(entry, placement)

    def _retract(self, decision: Retract) -> None:
        entry = self._entry_for(decision, decision.workload)
        if entry.failed_on is None:
            raise InvalidTransitionError(f"{decision.key}: no start of the workload failed")
        placements = list(entry.held.values())
        entry.held.clear()
        entry.started.clear()
        entry.failed_on = None
        del self.failed[decision.workload]
        entry.refused |= {decision.node}
        self._refused_on.setdefault(decision.node, set()).add(decision.workload)
        self._wait(entry)
        self._give_back(entry, placements)

    def _tell(self, decision: Wait) -> None:
        for uid in decision.workloads:
            entry = self._entry_for(decision, uid)
            if entry.group is None:
                raise InvalidTransitionError(f"{decision.key}: workload {uid} does not wait")
            entry.group.verdict = decision.verdict
            self.waiting.told(entry.group, uid)

    def _entry_for(self, decision: Decision, uid: str) -> Entry:
        entry = self.entries.get(uid)
        if entry is None:
            raise InvalidTransitionError(f"{decision.key}: there is no workload {uid}")
        return entry

    def _cycled(self, event: ev.Cycled) -> None:
        for examined in event.examined:
            entry = self.entries.get(examined.uid)
            if entry is not None and entry.group is not None:
                self.waiting.sleep(entry.group, examined, self._masks)
        if event.complete:
            self.waiting.end_of_cycle()

    # Snapshots --------------------------------------------------------------------------------

    def snapshot(self, at_us: int) -> Iterator[ev.Event]:
        """Return events that make an equal world out of a new one."""
        fleet = self.fleet
        for node in sorted((n for n in fleet.nodes if n is not None), key=lambda n: n.name):
            yield ev.NodeSeen(at_us, node)
        for name, devices in sorted(fleet.lost_devices.items()):
            for device in sorted(devices):
                yield ev.DeviceLost(at_us, name, device)
        if self.tenants.tree.queues:
            yield ev.QueuesSet(at_us, self.tenants.tree)
        for mask, names in sorted(fleet.masks.items()):
            yield ev.MaskSet(at_us, mask, tuple(sorted(names)))
        if self.prices.classes:
            yield ev.PricesSet(at_us, self.prices)
        yield ev.DemandRestored(at_us, self.demand.learned())
        for _, entry in sorted(self.entries.items()):
            yield ev.WorkloadRestored(
                at_us=at_us,
                workload=entry.workload,
                attempt=entry.attempt,
                placements=tuple(placement for _, placement in sorted(entry.held.items())),
                started=tuple(sorted(entry.started)),
                failed_on=entry.failed_on,
                refused=tuple(sorted(entry.refused)),
                charges=tuple(charges for _, charges in sorted(entry.charges.items())),
            )
        waiting = self.waiting
        for group in sorted(waiting.groups.values(), key=lambda g: g.members[0]):
            yield ev.GroupRestored(
                at_us=at_us,
                uid=group.members[0][2],
                verdict=group.verdict,
                asleep=group.asleep,
                missing_pods=group.missing_pods,
                blocked_at=group.blocked_at,
                unanswered=tuple(sorted(group.unanswered)),
            )
        yield ev.RoomRestored(at_us, tuple(sorted(fleet.names[row] for row in waiting.fresh)))

    def _workload_restored(self, event: ev.WorkloadRestored) -> None:
        entry = self.entries[event.workload.uid] = Entry(event.workload)
        entry.attempt = event.attempt
        entry.refused = frozenset(event.refused)
        for node in sorted(event.refused):
            self._refused_on.setdefault(node, set()).add(event.workload.uid)
        charges = event.charges or (None,) * len(event.placements)
        for placement, charged in zip(event.placements, charges, strict=True):
            self._hold(entry, placement, charged)
        entry.started.update(event.started)
        if event.failed_on is not None:
            entry.failed_on = event.failed_on
            self.failed[event.workload.uid] = None
        if not event.placements:
            self._wait(entry)

    def _group_restored(self, event: ev.GroupRestored) -> None:
        group = self.entries[event.uid].group
        if group is None:
            raise InvalidTransitionError(f"snapshot: workload {event.uid} does not wait")
        group.verdict = event.verdict
        if event.asleep:
            examined = ev.Examined(event.uid, event.missing_pods, event.blocked_at)
            self.waiting.sleep(group, examined, self._masks)
        for _, _, uid in group.members:
            if uid not in event.unanswered:
                self.waiting.told(group, uid)

    def _room_restored(self, event: ev.RoomRestored) -> None:
        rows = (self.fleet.row_of.get(name) for name in event.nodes)
        self.waiting.fresh = {row: None for row in rows if row is not None}
