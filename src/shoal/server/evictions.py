"""Evictions, kept places and the guard as the API sends them, with their sentences."""

from shoal.core.decisions import Evict, Freeze, GiveUp, Reserve
from shoal.core.placing.reservation import Reservation
from shoal.core.world import Entry
from shoal.loop.steps import Step
from shoal.loop.story import Life
from shoal.model.workload import Placement
from shoal.server.models import (
    EvictionView,
    GuardView,
    PlacementView,
    ReservationView,
    WorkloadName,
)
from shoal.server.standing import Look, id_of, moment, moment_or_none
from shoal.texts.answers import nodes_text
from shoal.texts.evictions import (
    EvictionSaid,
    KeptSaid,
    eviction_text,
    frozen_text,
    gives_up_text,
    keeps_text,
    kept_text,
)
from shoal.texts.verdicts import HOUR_US


def workload_name(look: Look, uid: str) -> WorkloadName:
    """Which workload is meant; its uid serves as a name where it is forgotten."""
    life = look.story.life(uid)
    if life is None:
        return WorkloadName(id=id_of(uid), namespace="", name=uid)
    return WorkloadName(id=id_of(uid), namespace=life.workload.namespace, name=life.workload.name)


def label(look: Look, uid: str) -> str:
    """A workload as sentences name it."""
    named = workload_name(look, uid)
    return f"{named.namespace}/{named.name}" if named.namespace else named.name


def placement_view(placement: Placement) -> PlacementView:
    """Where a pod is."""
    return PlacementView(pod=placement.pod, node=placement.node, leaves=list(placement.leaves))


# Evictions ------------------------------------------------------------------------------------


def eviction_view(look: Look, at_us: int, decision: Evict, *, past: bool = False) -> EvictionView:
    """One eviction; with `past` as it is told to the one who was evicted."""
    return EvictionView(
        at=moment(at_us),
        pods=list(decision.pods),
        evicted_for=[workload_name(look, uid) for uid in decision.for_],
        reason=decision.reason.value,
        lost_device_hours=round(decision.lost_device_us / HOUR_US, 4),
        exact=decision.exact,
        grace_seconds=decision.grace_us / 1e6,
        text=evict_text(look, decision, past=past),
    )


def last_eviction(look: Look, life: Life) -> EvictionView | None:
    """The last eviction of a workload, if it was evicted."""
    if life.evicted is None:
        return None
    return eviction_view(look, life.evicted.at_us, life.evicted.decision, past=True)


def evict_text(look: Look, decision: Evict, *, past: bool = False) -> str:
    """An eviction as sentences."""
    life = look.story.life(decision.workload)
    said = EvictionSaid(
        workload=label(look, decision.workload),
        pods=len(decision.pods),
        of_pods=life.workload.pods if life is not None else len(decision.pods),
        names=tuple(label(look, uid) for uid in decision.for_),
        queue=_queue(look, decision.for_[0]) if decision.for_ else "",
        reason=decision.reason,
        lost_us=decision.lost_device_us,
        exact=decision.exact,
        grace_us=decision.grace_us,
    )
    return eviction_text(said, look.language, past=past)


def _queue(look: Look, uid: str) -> str:
    life = look.story.life(uid)
    return life.workload.queue if life is not None else "-"


# Kept places ----------------------------------------------------------------------------------


def reservation_view(look: Look, life: Life, entry: Entry) -> ReservationView | None:
    """The places that are kept for a workload, if any are."""
    reservation = entry.reserved
    if reservation is None:
        return None
    since_us = next(
        (each.at_us for each in reversed(life.moments) if each.step is Step.RESERVED), None
    )
    return ReservationView(
        since=moment_or_none(since_us),
        at=moment_or_none(reservation.at_us),
        reason=reservation.reason.value,
        placements=[placement_view(each) for each in reservation.placements],
        evicted=[
            workload_name(look, uid)
            for uid in sorted(reservation.evicted, key=lambda uid: (label(look, uid), uid))
        ],
        text=_kept_text(look, entry, reservation),
    )


def _kept_text(look: Look, entry: Entry, reservation: Reservation) -> str:
    at_us, now_us = reservation.at_us, look.standing.doors.now_us()
    said = KeptSaid(
        workload=label(look, entry.workload.uid),
        queue=entry.workload.queue,
        nodes=_nodes(look, reservation.placements),
        others=tuple(label(look, uid) for uid in in_kept_places(look, reservation)),
        reason=reservation.reason,
        in_us=None if at_us is None else max(0, at_us - now_us),
    )
    return kept_text(said, look.language)


def in_kept_places(look: Look, reservation: Reservation) -> list[str]:
    """Who still holds what is kept for somebody else, by uid."""
    found = {
        entry.workload.uid: None
        for placement in reservation.placements
        for leaf in placement.leaves
        for entry, _ in look.holders.get(leaf, ())
    }
    # What is kept beside others on a shared device does not wait for them.
    going = [uid for uid in found if not reservation.evicted or uid in reservation.evicted]
    return sorted(going, key=lambda uid: (label(look, uid), uid))


def keep_text(look: Look, at_us: int, decision: Reserve) -> str:
    """A decision to keep places as a sentence."""
    said = KeptSaid(
        workload=label(look, decision.workload),
        queue=_queue(look, decision.workload),
        nodes=_nodes(look, decision.placements),
        others=tuple(label(look, uid) for uid in decision.evicted),
        reason=decision.reason,
        in_us=None if decision.at_us is None else max(0, decision.at_us - at_us),
    )
    return keeps_text(said, look.language)


def give_up_text(look: Look, decision: GiveUp) -> str:
    """A decision to keep places no longer as a sentence."""
    return gives_up_text(label(look, decision.workload), decision.reason, look.language)


def _nodes(look: Look, placements: tuple[Placement, ...]) -> str:
    return nodes_text(list(dict.fromkeys(each.node for each in placements)), look.language)


# The guard ------------------------------------------------------------------------------------


def freeze_text(look: Look, decision: Freeze) -> str:
    """A decision to freeze evictions as sentences."""
    return frozen_text(decision.reason, decision.count, decision.most, look.language)


def alert_text(look: Look) -> str:
    """What people have to know and do while evictions are frozen; else nothing."""
    frozen = look.story.guard.frozen
    return freeze_text(look, frozen) if frozen is not None else ""


def guard_view(look: Look) -> GuardView:
    """Whether evictions are frozen."""
    guard, world = look.story.guard, look.world
    now_us = look.standing.doors.now_us()
    return GuardView(
        frozen=guard.frozen is not None,
        since=moment_or_none(guard.frozen_us),
        reason=guard.frozen.reason.value if guard.frozen is not None else None,
        text=alert_text(look),
        lately=world.evictions.lately(now_us),
        most=world.evictions.most(world.holders, now_us),
        resumed_at=moment_or_none(guard.resumed_us),
        resumed_by=guard.by,
    )
