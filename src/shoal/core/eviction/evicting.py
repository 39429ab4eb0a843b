"""What counts when an eviction begins, and what becomes of that if it is refused.

An eviction counts from the moment of its decision: as a preemption of its workload, as work lost in
its queue, as one of those that the guard counts, and as a mark of who was evicted before. Where it
is refused nobody was evicted, so all of that is taken back, to the unit and at its own time. What
is lost with pods that have gone by then stays lost.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from shoal.core.entry import Entry
from shoal.core.eviction.evictions import DAY_US
from shoal.core.eviction.underway import Underway
from shoal.core.eviction.victims import lost_unit_us
from shoal.core.placing import lacking
from shoal.model.fractions import UNIT
from shoal.model.verdict import Reason

if TYPE_CHECKING:
    from shoal.core import events as ev
    from shoal.core.decisions import Evict
    from shoal.core.world import World


def begun(world: "World", entry: Entry, decision: "Evict", at_us: int) -> None:
    """Count an eviction that was decided, of pods that are noted as going."""
    preempts = decision.reason is Reason.PREEMPTION
    lost = (lost_unit_us(world, entry, pod, at_us) if preempts else 0 for pod in decision.pods)
    going = tuple((pod, divmod(each, UNIT)) for pod, each in zip(decision.pods, lost, strict=True))
    again = entry.was_evicted
    eviction = Underway(at_us, decision.reason, going, decision.lost_device_us, again)
    entry.underway = (*entry.underway, eviction)
    entry.was_evicted = True
    if _is_guarded(entry, eviction):
        world.evictions.happened(at_us)
    if preempts:
        today = (each for each in entry.evictions_us if each > at_us - DAY_US)
        entry.evictions_us = (*today, at_us)
        world.evictions.preempted(entry.workload.queue, at_us, decision.lost_device_us)


def goes_for(world: "World", uid: str, pods: Collection[int], asker: str) -> None:
    """Let these pods of a workload, of those that are evicted, make room for an asker.

    One that makes room for nobody is charged, and others are not.
    """
    victim = world.entries.get(uid)
    if victim is None:
        return
    for pod, before in victim.evicting.items():
        others = tuple(each for each in before if each != asker)
        victim.evicting[pod] = (*others, asker) if pod in pods else others
        now = victim.evicting[pod]
        if bool(before) != bool(now):
            world.charge(victim, pod, victim.charges[pod], -1 if now else 1)


def gone(entry: Entry, pod: int) -> None:
    """Note that an evicted pod has gone."""
    evictions = (each.without(pod) for each in entry.underway)
    entry.underway = tuple(each for each in evictions if each.going)


def blocked(world: "World", event: "ev.EvictionBlocked") -> None:
    """Let a workload run on that cannot be evicted, and those for whom it was wait anew."""
    entry = world.entries.get(event.uid)
    if entry is None or entry.attempt != event.attempt or event.pod not in entry.evicting:
        return
    for eviction in reversed(entry.underway):
        _take_back(world, entry, eviction)
    entry.underway = ()
    uids = dict.fromkeys(uid for each in entry.evicting.values() for uid in each)
    for beneficiary in [world.entries[uid] for uid in world.reserving if uid in uids]:
        world.unreserve(beneficiary)
        world.wait(beneficiary)
    for uid in uids:
        goes_for(world, event.uid, (), uid)
    entry.evicting.clear()
    lacking.look_at(world, entry)
    world.limits.goes_on(entry, event.at_us)
    world.waiting.wake_hungry()


def _take_back(world: "World", entry: Entry, eviction: Underway) -> None:
    """Count an eviction no more, or only what is lost with those of its pods that have gone."""
    queue, at_us = entry.workload.queue, eviction.at_us
    gone = eviction.gone
    if gone is None:
        entry.was_evicted = eviction.again
        if _is_guarded(entry, eviction):
            world.evictions.did_not_happen(at_us)
    if eviction.reason is not Reason.PREEMPTION:
        return
    if gone is None and at_us in entry.evictions_us:
        place = entry.evictions_us.index(at_us)
        entry.evictions_us = entry.evictions_us[:place] + entry.evictions_us[place + 1 :]
    lost_device_us = None if gone is None else gone[0] + (gone[1] > 0)
    world.evictions.lost_less(queue, at_us, eviction.lost_device_us, lost_device_us)


def _is_guarded(entry: Entry, eviction: Underway) -> bool:
    """Return whether an eviction is one that there may be too many of: of work that goes whole."""
    if eviction.reason is Reason.MAXIMUM_RUN:
        return False
    return any(not entry.spared(pod) for pod, _ in eviction.going)
