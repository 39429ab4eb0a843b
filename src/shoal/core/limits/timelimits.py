"""How long work may run and wait, by its queue and type, and what is ended when that has passed.

Of the limits on the path from a queue to the root the shortest counts. Work that has run for its
maximum, since the first of its pods that run began to, is ended and does not come back. Work that
has waited for its maximum, since it came or was last taken from what it held, is refused.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shoal.core.decisions import Evict, Refuse
from shoal.core.limits.deadlines import Deadlines, earliest
from shoal.model.queue import QueueTree
from shoal.model.verdict import Reason
from shoal.model.workload import WorkloadType

if TYPE_CHECKING:
    from shoal.core.entry import Entry
    from shoal.core.world import World

AGAIN_US = 60_000_000
"""Work whose end was refused by a disruption budget is asked to end again after this."""

Limits = dict[tuple[str, WorkloadType], int]


class TimeLimits:
    """Who has to end when, by the limits of the tree."""

    def __init__(self) -> None:
        self.running = Deadlines()
        """When running work has to end, by uid."""
        self.waiting = Deadlines()
        """When waiting work has waited for too long, by uid."""
        self.ending: dict[str, None] = {}
        """Work that is being ended and does not come back."""
        self.again_us: dict[str, int] = {}
        """When to ask again, by uid, where an end was refused."""
        self.limit_runs: tuple[str, ...] = ()
        """Queues in which work of some type may not run for as long as it likes."""
        self._run: Limits = {}
        self._wait: Limits = {}

    def set_tree(self, tree: QueueTree) -> None:
        """Keep to another tree; whoever knows the work tells of it again."""
        self._run, self._wait = {}, {}
        for queue in tree.queues:
            for limits, own in (
                (self._run, dict(queue.maximum_run_us)),
                (self._wait, dict(queue.maximum_wait_us)),
            ):
                for type_ in WorkloadType:
                    found = (own.get(type_), limits.get((queue.parent, type_)))
                    known = [each for each in found if each is not None]
                    if known:
                        limits[queue.name, type_] = min(known)
        self.limit_runs = tuple(dict.fromkeys(queue for queue, _ in self._run))
        self.running.clear()
        self.waiting.clear()

    def maximum_run_us(self, queue: str, type_: WorkloadType) -> int | None:
        """Return how long work of a type may run in a queue; None: as long as it likes."""
        return self._run.get((queue, type_))

    def maximum_wait_us(self, queue: str, type_: WorkloadType) -> int | None:
        """Return how long work of a type may wait in a queue; None: as long as it has to."""
        return self._wait.get((queue, type_))

    # Keeping up -------------------------------------------------------------------------------

    def runs(self, entry: "Entry") -> None:
        """Note which pods of a workload run; nobody ends it whose pods are all being evicted."""
        uid = entry.workload.uid
        most_us = self.maximum_run_us(entry.workload.queue, entry.workload.type)
        if most_us is None or not entry.started or entry.held.keys() <= entry.evicting.keys():
            self.running.drop(uid)
            return
        end_us = min(entry.started.values()) + most_us
        self.running.set(uid, max(end_us, self.again_us.get(uid, end_us)))

    def waits(self, entry: "Entry") -> None:
        """Note that a workload waits; nobody refuses it for whom others are being evicted."""
        if entry.reserved is not None and entry.reserved.evicted:
            return
        most_us = self.maximum_wait_us(entry.workload.queue, entry.workload.type)
        if most_us is not None:
            self.waiting.set(entry.workload.uid, entry.waits_since_us + most_us)

    def waits_no_more(self, uid: str) -> None:
        """Note that a workload waits no longer."""
        self.waiting.drop(uid)

    def waited_too_long(self, uid: str, now_us: int) -> bool:
        """Return whether a workload is refused now unless it is given a place."""
        at_us = self.waiting.get(uid)
        return at_us is not None and at_us <= now_us

    def ends(self, uid: str) -> None:
        """Note that a workload is being ended for good."""
        self.again_us.pop(uid, None)
        self.ending[uid] = None

    def goes_on(self, entry: "Entry", at_us: int) -> None:
        """Note that a workload could not be evicted; if it was to end, it is asked again."""
        uid = entry.workload.uid
        if uid in self.ending:
            del self.ending[uid]
            self.again_us[uid] = at_us + AGAIN_US
        self.runs(entry)

    def holds_nothing(self, uid: str) -> None:
        """Note that a workload holds nothing any more."""
        self.running.drop(uid)
        self.again_us.pop(uid, None)
        self.ending.pop(uid, None)

    def after(self, now_us: int) -> int | None:
        """Return the first time behind `now_us` at which work has to end, if there is any."""
        return earliest(self.running.after(now_us), self.waiting.after(now_us))


def ended(world: "World", now_us: int) -> Iterator[Evict]:
    """Yield how work is ended that has run for its maximum; nobody is while evictions are frozen.

    It gives back what it was granted, so nothing counts as lost.
    """
    if world.evictions.frozen:
        return
    for at_us, uid in world.limits.running.due(now_us):
        entry = world.entries[uid]
        pods = tuple(sorted(entry.held.keys() - entry.evicting.keys()))
        if pods:
            yield Evict(
                key=f"end/{uid}/{entry.attempt}/{at_us}",
                workload=uid,
                pods=pods,
                for_=(),
                lost_device_us=0,
                exact=True,
                grace_us=world.tenants.grace_us(entry.workload),
                reason=Reason.MAXIMUM_RUN,
            )


def refused(world: "World", now_us: int) -> Iterator[Refuse]:
    """Yield the refusal of work that has waited for its maximum."""
    for at_us, uid in world.limits.waiting.due(now_us):
        workload = world.entries[uid].workload
        most_us = world.limits.maximum_wait_us(workload.queue, workload.type)
        if most_us is not None:
            yield Refuse(f"refuse/{uid}/{at_us}", uid, now_us - at_us + most_us, most_us)
