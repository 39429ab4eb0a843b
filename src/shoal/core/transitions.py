"""How decisions become state: each makes the world what its own carrying out will make of it."""

from typing import TYPE_CHECKING, assert_never

from shoal.core.arrays.charges import charges_of
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
from shoal.core.entry import Entry, State
from shoal.core.eviction import evicting
from shoal.core.placing import lacking
from shoal.core.placing.reservation import Reservation
from shoal.model.verdict import Reason

if TYPE_CHECKING:
    from shoal.core.world import World


class InvalidTransitionError(Exception):
    """A decision that does not fit the state of its workload: a bug in whoever decided."""


def decided(world: "World", decision: Decision, at_us: int) -> None:
    """Let a decision become state. Raises `InvalidTransitionError`."""
    match decision:
        case Start():
            _start(world, decision)
        case Resize():
            _resize(world, decision)
        case Retract():
            _retract(world, decision, at_us)
        case Reserve():
            _reserve(world, decision)
        case GiveUp():
            _give_up(world, decision)
        case Evict():
            _evict(world, decision, at_us)
        case Freeze():
            too_many = decision.reason is Reason.TOO_MANY_EVICTIONS
            world.evictions.freeze(decision.count if too_many else 0)
        case Refuse():
            _refuse(world, decision)
        case Warn():
            world.spending.warned(decision.queue)
        case Wait():
            _tell(world, decision)
        case _:
            assert_never(decision)


def _start(world: "World", decision: Start) -> None:
    entry = _entry_for(world, decision, decision.workload)
    if entry.state is not State.WAITING:
        raise InvalidTransitionError(f"{decision.key}: the workload does not wait")
    world.unreserve(entry)
    world.wait_no_more(entry)
    entry.attempt += 1
    entry.checkpoint_us = None
    for placement in decision.placements:
        world.hold(entry, placement)
    world.begins(entry, decision.borrowed)
    lacking.look_at(world, entry)


def _resize(world: "World", decision: Resize) -> None:
    entry = _entry_for(world, decision, decision.workload)
    if not {each.pod for each in decision.placements} <= set(lacking.pods_of(entry)):
        raise InvalidTransitionError(f"{decision.key}: the workload does not lack these pods")
    lacking.joins(world, entry, decision.placements)


def _reserve(world: "World", decision: Reserve) -> None:
    entry = _entry_for(world, decision, decision.workload)
    if entry.group is None:
        raise InvalidTransitionError(f"{decision.key}: the workload does not wait")
    world.wait_no_more(entry)
    entry.kept += 1
    charges = []
    for placement in decision.placements:
        request = entry.request_of(placement.pod)
        world.fleet.take(request, placement)
        charged = bool(world.tenants.tree.queues) and bool(decision.evicted)
        charges.append(charges_of(world.fleet, request, placement) if charged else ())
    world.reserve(
        entry,
        Reservation(
            decision.placements,
            tuple(charges),
            decision.at_us,
            decision.evicted,
            decision.reason,
        ),
    )
    for uid, pods in zip(decision.evicted, decision.pods, strict=True):
        evicting.goes_for(world, uid, pods, decision.workload)
    if decision.evicted:
        world.begins(entry, decision.borrowed)


def _give_up(world: "World", decision: GiveUp) -> None:
    entry = _entry_for(world, decision, decision.workload)
    if entry.reserved is None:
        raise InvalidTransitionError(f"{decision.key}: no places are kept for the workload")
    world.unreserve(entry)
    world.wait(entry)


def _evict(world: "World", decision: Evict, at_us: int) -> None:
    entry = _entry_for(world, decision, decision.workload)
    if not set(decision.pods) <= entry.held.keys() - entry.evicting.keys():
        raise InvalidTransitionError(f"{decision.key}: the workload does not hold these pods")
    for pod in decision.pods:
        entry.evicting[pod] = decision.for_
        if decision.for_:
            world.charge(entry, pod, entry.charges[pod], -1)
    world.evicted[decision.workload] = None
    evicting.begun(world, entry, decision, at_us)
    lacking.look_at(world, entry)
    world.quota_on(entry)
    if decision.reason is Reason.MAXIMUM_RUN:
        world.limits.ends(decision.workload)
    world.limits.runs(entry)


def _refuse(world: "World", decision: Refuse) -> None:
    entry = _entry_for(world, decision, decision.workload)
    if entry.state is not State.WAITING:
        raise InvalidTransitionError(f"{decision.key}: the workload does not wait")
    world.unreserve(entry)
    world.wait_no_more(entry)
    world.remove(entry)


def _retract(world: "World", decision: Retract, at_us: int) -> None:
    entry = _entry_for(world, decision, decision.workload)
    if entry.failed_on is None:
        raise InvalidTransitionError(f"{decision.key}: no start of the workload failed")
    placements = list(entry.held.values())
    for pod in entry.held:
        world.served(entry, pod)
    world.give_back(entry, placements)
    entry.held.clear()
    world.wait_anew(entry, at_us)


def _tell(world: "World", decision: Wait) -> None:
    for uid in decision.workloads:
        entry = _entry_for(world, decision, uid)
        if entry.group is None:
            raise InvalidTransitionError(f"{decision.key}: workload {uid} does not wait")
        entry.group.verdict = decision.verdict
        world.waiting.told(entry.group, uid)


def _entry_for(world: "World", decision: Decision, uid: str) -> Entry:
    entry = world.entries.get(uid)
    if entry is None:
        raise InvalidTransitionError(f"{decision.key}: there is no workload {uid}")
    return entry
