"""How much may go: what disruption budgets allow, and what a queue may lose in a day.

A pod that still goes counts in the budgets that cover it, as if nobody had counted it yet: whoever
keeps a budget may not have seen it. What work in a queue may lose in a day bounds preemption; it
does not bound reclaim.
"""

from collections.abc import Sequence

from shoal.core.entry import Entry
from shoal.core.eviction.victims import HOUR_US, Victim
from shoal.core.world import World
from shoal.model.fractions import UNIT


class Losses:
    """What goes in one cycle."""

    def __init__(self, world: World, now_us: int) -> None:
        self._world = world
        self._now_us = now_us
        self._disrupted: dict[str, int] = {}
        """Pods that go or still go, by the disruption budget that covers them."""
        self._lost: dict[str, int] = {}
        """Work that is lost by preemption, by queue, in units times microseconds."""

    def take(self, asker: Entry, victims: Sequence[Victim]) -> None:
        """Note that these go."""
        count = Count(self, asker)
        for victim in victims:
            count.add(victim)
        self._disrupted |= count.disrupted
        self._lost[asker.workload.queue] = count.lost

    def allow(self, asker: Entry, victims: Sequence[Victim]) -> bool:
        """Return whether all of these may go for a workload."""
        count = Count(self, asker)
        return all(count.add(victim) for victim in victims)

    def disrupted(self, name: str) -> int:
        """Return how many pods that a disruption budget covers go or still go."""
        known = self._disrupted.get(name)
        if known is None:
            entries = self._world.entries
            _, covered = self._world.evictions.budgets[name]
            known = sum(len(entries[uid].evicting) for uid in covered if uid in entries)
            self._disrupted[name] = known
        return known

    def allowed(self, name: str) -> int:
        """Return how many pods a disruption budget lets go."""
        return self._world.evictions.budgets[name][0]

    def budgets_of(self, uid: str) -> tuple[str, ...]:
        """Return the names of the disruption budgets that cover a workload."""
        return self._world.evictions.budgets_of(uid)

    def lost(self, queue: str) -> int:
        """Return what work in a queue loses in this cycle."""
        return self._lost.get(queue, 0)

    def most(self, name: str) -> int | None:
        """Return what the work of a queue may lose today, None where nothing bounds it."""
        hours = self._world.tenants.most_hours_lost(name)
        if hours is None:
            return None
        left_us = hours * HOUR_US - self._world.evictions.lost_today(name, self._now_us)
        return left_us * UNIT


class Count:
    """What goes for one workload, beside all that goes already."""

    def __init__(self, losses: Losses, asker: Entry) -> None:
        self._losses = losses
        self._queue = asker.workload.queue
        self._most = losses.most(self._queue)
        self._pods: set[tuple[str, int]] = set()
        self._lost_by: dict[str, int] = {}
        self.disrupted: dict[str, int] = {}
        self.lost = losses.lost(self._queue)

    def add(self, victim: Victim) -> bool:
        """Count a victim, unless it would be more than may go; return whether it was counted."""
        losses, uid = self._losses, victim.uid
        pods = [(uid, pod) for pod in victim.pods if (uid, pod) not in self._pods]
        disrupted = {
            name: self.disrupted.get(name, losses.disrupted(name)) + len(pods)
            for name in losses.budgets_of(uid)
        }
        if any(count > losses.allowed(name) for name, count in disrupted.items()):
            return False
        if victim.entry.workload.queue == self._queue:
            known = 0 if victim.spared else self._lost_by.get(uid, 0)
            lost = self.lost + victim.cost.lost - known
            if self._most is not None and lost > self._most:
                return False
            self._lost_by[uid] = self._lost_by.get(uid, 0) + victim.cost.lost - known
            self.lost = lost
        self._pods.update(pods)
        self.disrupted |= disrupted
        return True
