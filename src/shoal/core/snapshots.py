"""The shortest list of events that makes a world equal to another one, and what they do."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from shoal.core import events as ev
from shoal.core.placing import lacking
from shoal.core.transitions import InvalidTransitionError

if TYPE_CHECKING:
    from shoal.core.world import World


def snapshot(world: "World", at_us: int) -> Iterator[ev.Event]:
    """Return events that make an equal world out of a new one."""
    yield from _surroundings(world, at_us)
    for _, entry in sorted(world.entries.items()):
        yield ev.WorkloadRestored(
            at_us=at_us,
            workload=entry.workload,
            attempt=entry.attempt,
            placements=tuple(placement for _, placement in sorted(entry.held.items())),
            started=tuple(sorted(entry.started)),
            failed_on=entry.failed_on,
            refused=tuple(sorted(entry.refused)),
            charges=tuple(charges for _, charges in sorted(entry.charges.items())),
            since_us=tuple(since_us for _, since_us in sorted(entry.started.items())),
            waits_since_us=entry.waits_since_us,
            checkpoint_us=entry.checkpoint_us,
            evicting=tuple(sorted(entry.evicting)),
            beneficiaries=tuple(uids for _, uids in sorted(entry.evicting.items())),
            was_evicted=entry.was_evicted,
            borrowed=entry.borrowed,
            evictions_us=entry.evictions_us,
            reserved=entry.reserved,
            served_device_us=entry.served_device_us,
            underway=entry.underway,
            joining=tuple(sorted(entry.joining)),
            finishing=entry.finishing,
            kept=entry.kept,
        )
    vanished, shrunk = world.tenants.remembered()
    if vanished or shrunk:
        yield ev.GuaranteesRestored(at_us, vanished, shrunk)
    if world.tenants.past is not None:
        world.tenants.clock(at_us)
        yield ev.UsageRestored(at_us, world.tenants.now_us, world.tenants.past_written())
    if world.spending.accounts:
        yield ev.SpendingRestored(at_us, world.spending.kept(), world.spending.kept_runs())
    for name, (allowed, covered) in sorted(world.evictions.budgets.items()):
        yield ev.DisruptionBudgetSet(at_us, name, allowed, tuple(sorted(covered)))
    yield evictions_kept(world, at_us)
    yield from _waiting(world, at_us)


def evictions_kept(world: "World", at_us: int) -> ev.EvictionsRestored:
    """Return what is remembered of evictions, budgets of others aside."""
    evictions = world.evictions
    return ev.EvictionsRestored(
        at_us,
        evictions.frozen,
        (evictions.approved, evictions.approved_until_us),
        tuple(evictions.recent_us),
        tuple(evictions.all_lost()),
        tuple(evictions.working),
    )


def _waiting(world: "World", at_us: int) -> Iterator[ev.Event]:
    waiting = world.waiting
    for group in sorted(waiting.groups.values(), key=lambda g: g.members[0]):
        yield ev.GroupRestored(
            at_us=at_us,
            uid=group.members[0][2],
            verdict=group.verdict,
            asleep=group.asleep,
            missing_pods=group.missing_pods,
            blocked_at=group.blocked_at,
            unanswered=tuple(sorted(group.unanswered)),
            hungry=group.hungry,
            again_us=group.again_us,
        )
    fresh = tuple(sorted(world.fleet.names[row] for row in waiting.fresh))
    yield ev.RoomRestored(at_us, fresh, waiting.stirred, waiting.freed)


def _what_was_said(world: "World", at_us: int) -> Iterator[ev.Event]:
    """Yield what is known of declarations, and who was told to end; work refers to it."""
    ratios, limits = world.declared.kept(), world.limits
    if ratios:
        yield ev.DeclaredRestored(at_us, ratios)
    if limits.ending or limits.again_us:
        again_us = tuple(sorted(limits.again_us.items()))
        yield ev.EndingRestored(at_us, tuple(sorted(limits.ending)), again_us)


def _surroundings(world: "World", at_us: int) -> Iterator[ev.Event]:
    """Return what the world is besides its workloads."""
    fleet = world.fleet
    for node in sorted((n for n in fleet.nodes if n is not None), key=lambda n: n.name):
        yield ev.NodeSeen(at_us, node)
    for name, devices in sorted(fleet.lost_devices.items()):
        for device in sorted(devices):
            yield ev.DeviceLost(at_us, name, device)
    if fleet.pools:
        yield ev.PoolsSet(at_us, fleet.pools)
    if world.tenants.tree.queues:
        yield ev.QueuesSet(at_us, world.tenants.tree)
    for mask, names in sorted(fleet.masks.items()):
        yield ev.MaskSet(at_us, mask, tuple(sorted(names)))
    if world.prices.classes:
        yield ev.PricesSet(at_us, world.prices)
    yield ev.DemandRestored(at_us, world.demand.learned())
    yield from _what_was_said(world, at_us)


Restored = (
    ev.WorkloadRestored
    | ev.EvictionsRestored
    | ev.SpendingRestored
    | ev.DeclaredRestored
    | ev.EndingRestored
    | ev.GroupRestored
    | ev.RoomRestored
    | ev.DemandRestored
    | ev.UsageRestored
    | ev.GuaranteesRestored
)


def restore(world: "World", event: Restored) -> None:
    """Take in one event of a snapshot that nothing but a snapshot has."""
    match event:
        case ev.WorkloadRestored():
            _restore_workload(world, event)
        case ev.EvictionsRestored():
            _restore_evictions(world, event)
        case ev.SpendingRestored():
            world.spending.restore(event.accounts, event.runs, world.entries)
        case ev.DeclaredRestored():
            world.declared.restore(event.ratios)
        case ev.EndingRestored():
            world.limits.ending = dict.fromkeys(event.ending)
            world.limits.again_us = dict(event.again_us)
        case ev.GroupRestored():
            _restore_group(world, event)
        case ev.RoomRestored():
            rows = (world.fleet.row_of.get(name) for name in event.nodes)
            world.waiting.fresh = {row: None for row in rows if row is not None}
            world.waiting.stirred = event.stirred
            world.waiting.freed = event.freed
        case ev.DemandRestored():
            world.demand.restore(event.learned)
        case ev.GuaranteesRestored():
            world.tenants.remember(event.vanished, event.shrunk)
        case ev.UsageRestored():
            world.tenants.restore_past(event.used, event.as_of_us)
        case _:
            assert_never(event)


def _restore_workload(world: "World", event: ev.WorkloadRestored) -> None:
    """Let a workload stand where it stood."""
    since_us = event.at_us if event.waits_since_us is None else event.waits_since_us
    entry = world.enter(event.workload, since_us)
    entry.attempt = event.attempt
    entry.served_device_us = event.served_device_us
    entry.refused = frozenset(event.refused)
    entry.borrowed = event.borrowed
    for node in sorted(event.refused):
        world.refused_on.setdefault(node, set()).add(event.workload.uid)
    charges = event.charges or (None,) * len(event.placements)
    for placement, charged in zip(event.placements, charges, strict=True):
        world.hold(entry, placement, charged)
    times_us = event.since_us or (event.at_us,) * len(event.started)
    entry.started.update(zip(event.started, times_us, strict=True))
    entry.checkpoint_us = event.checkpoint_us
    entry.was_evicted = event.was_evicted
    entry.evictions_us = event.evictions_us
    entry.underway = event.underway
    for pod, uids in zip(event.evicting, event.beneficiaries, strict=True):
        entry.evicting[pod] = uids
        world.evicted[event.workload.uid] = None
        if uids:
            world.charge(entry, pod, entry.charges[pod], -1)
    entry.joining.update(event.joining)
    entry.finishing = event.finishing
    entry.kept = event.kept
    lacking.look_at(world, entry)
    world.limits.runs(entry)
    if event.failed_on is not None:
        entry.failed_on = event.failed_on
        world.failed[event.workload.uid] = None
    if event.reserved is not None:
        for placement in event.reserved.placements:
            world.fleet.take(entry.request_of(placement.pod), placement)
        world.reserve(entry, event.reserved)
    elif not event.placements:
        world.wait(entry)


def _restore_group(world: "World", event: ev.GroupRestored) -> None:
    """Let a group know what it knew."""
    group = world.entries[event.uid].group
    if group is None:
        raise InvalidTransitionError(f"snapshot: workload {event.uid} does not wait")
    group.verdict = event.verdict
    if event.asleep:
        examined = ev.Examined(
            event.uid, event.missing_pods, event.blocked_at, event.hungry, event.again_us
        )
        world.waiting.sleep(group, examined, world.masks)
    for _, _, uid in group.members:
        if uid not in event.unanswered:
            world.waiting.told(group, uid)


def _restore_evictions(world: "World", event: ev.EvictionsRestored) -> None:
    """Remember these evictions and no others."""
    evictions = world.evictions
    evictions.recent_us.clear()
    evictions.lost.clear()
    evictions.frozen = event.frozen
    evictions.approved, evictions.approved_until_us = event.approved
    evictions.recent_us.extend(event.recent_us)
    if event.working:
        evictions.working.clear()
        evictions.working.extend(event.working)
    for queue, at_us, lost_device_us in event.lost:
        evictions.preempted(queue, at_us, lost_device_us)
