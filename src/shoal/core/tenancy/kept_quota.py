"""Limits within which room is kept for work that has waited too long.

Places alone do not help work that its queue's limit keeps waiting: smaller work would go on taking
what others give back. So what it would hold counts against every limit that it shares with others.
"""

from collections.abc import Mapping

from shoal.core.entry import Entry
from shoal.core.placing.keeping import backfills
from shoal.core.queueing.grouping import starves
from shoal.core.tenancy.rights import within
from shoal.core.world import World
from shoal.model.verdict import OverQuota, Reason


def over_kept_quota(world: World, entry: Entry, asked: Mapping[str, int]) -> OverQuota | None:
    """Return the limit that a workload, as it is charged, exceeds with one that starves.

    That is one which has waited for longer, for which places are kept and behind which it does not
    fill in. None where the other's queue has to give back to it.
    """
    tenants, queue = world.tenants, entry.workload.queue
    now_us = tenants.now_us
    end_us = world.declared.end_us(entry.workload, now_us)
    for uid in world.reserving:
        other = world.entries[uid]
        kept, theirs = other.reserved, other.workload.queue
        if uid in tenants.promised:
            continue  # it starts, and is charged
        if kept is None or kept.reason is not Reason.RESERVED or backfills(kept, end_us):
            continue
        if other.waits_since_us >= entry.waits_since_us or not starves(world, other, now_us):
            continue
        if not tenants.share_limits(queue, theirs) or within(tenants, queue, theirs, asked):
            continue
        charged = tenants.speculated
        for pod, charges in world.charges_in(other, kept.placements).items():
            world.charge(other, pod, charges, 1)
        over = tenants.over_shared(queue, theirs, asked)
        tenants.undo(charged)
        if over is not None:
            return over
    return None
