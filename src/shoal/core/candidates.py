"""Who may go so that a workload can start, at a time and if nothing else changes."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from shoal.core.entry import Entry
from shoal.core.precedence import priority_of
from shoal.core.rights import borrowing_queues, borrows, has_right, height_against, lent_together
from shoal.core.victims import Cost, Victim, evictable_from_us, victims_of
from shoal.core.world import World


@dataclass(frozen=True, slots=True)
class Found:
    """Who may go, the cheapest first, and whether others may come to."""

    victims: list[Victim]
    hungry: bool
    later: dict[int, Cost]
    """When somebody's protection ends, and the least that evicting such a one costs then."""


class Candidates:
    """Who may go in one cycle."""

    def __init__(self, world: World, now_us: int) -> None:
        self._world = world
        self._now_us = now_us
        self._victims: dict[tuple[str, int], tuple[Victim, ...]] = {}
        """What each workload could be taken apart into at a time."""
        self.going: set[tuple[str, int]] = set()
        """Pods that this cycle evicts."""
        self.lent_together = False
        """Whether those may go as well who merely began on borrowed devices; see `rights`."""

    def find(
        self,
        asker: Entry,
        accelerators: tuple[str, ...],
        reclaimed: tuple[str, ...],
        at_us: int | None = None,
    ) -> Found:
        """Return who may go, now or at a time.

        From its own queue those of lower priority may go that hold any of these accelerators; from
        others those that hold borrowed devices of one that is to be `reclaimed`, to which the
        asker's queue has a right.
        """
        world, workload = self._world, asker.workload
        at_us = self._now_us if at_us is None else at_us
        found: list[Victim] = []
        later: dict[int, Cost] = {}

        def consider(entry: Entry, lender: str | None, names: tuple[str, ...]) -> None:
            from_us = evictable_from_us(world, entry, lender, at_us)
            if from_us is None or world.evictions.allowed(entry.workload.uid) == 0:
                return
            victims = [v for v in self._of(entry, at_us) if v.lies_on(names)]
            if from_us <= at_us:
                found.extend(victims)
            elif victims:
                then = min(victim.cost for victim in victims_of(world, entry, from_us))
                later[from_us] = min(then, later.get(from_us, then))

        may_preempt = not asker.was_evicted
        tree = world.tenants.tree
        priority = priority_of(tree, workload)
        if may_preempt:
            for entry in self._holding(workload.queue):
                if priority_of(tree, entry.workload) < priority:
                    consider(entry, None, accelerators)
        heights = [(name, has_right(world.tenants, workload.queue, name)) for name in reclaimed]
        rights = {name: height for name, height in heights if height is not None}
        for entry, names in self._borrowing(workload.queue, rights) if rights else ():
            consider(entry, workload.queue, names)
        found.sort(key=lambda victim: victim.key)
        ranks = may_preempt and priority > self._least_priority(workload.queue)
        return Found(found, bool(rights) or ranks, later)

    def may_take(self, asker: Entry, victim: Victim, accelerators: Collection[str]) -> bool:
        """Return whether a workload may take these from a victim's queue, as accounts are now."""
        entry, queue = victim.entry, asker.workload.queue
        holder = entry.workload.queue
        names = [name for name in victim.accelerators if name in accelerators]
        return (
            holder == queue
            or borrows(self._world.tenants, holder, queue, names)
            or self._lent(entry, queue, victim.accelerators)
        )

    def _borrowing(
        self, asker: str, rights: Mapping[str, int]
    ) -> Iterator[tuple[Entry, tuple[str, ...]]]:
        """Yield the work that holds borrowed devices which are the asker's by right, and which.

        `rights` says how far up its queue has one, by accelerator.
        """
        world = self._world
        borrowed = {
            name: frozenset(borrowing_queues(world.tenants, asker, name, right))
            for name, right in rights.items()
        }
        for queue in sorted(world.holders):
            names = tuple(name for name in rights if queue in borrowed[name])
            others: list[str] = []
            if self.lent_together and queue != asker:
                height = height_against(world.tenants, asker, queue)
                others = [n for n, right in rights.items() if n not in names and right < height]
            for entry in self._holding(queue) if names or others else ():
                lent = (name for name in others if self._lent(entry, asker, (name,)))
                of_these = (*names, *lent) if others else names
                if of_these:
                    yield entry, of_these

    def _lent(self, entry: Entry, asker: str, accelerators: tuple[str, ...]) -> bool:
        """Return whether work may go that merely began on borrowed devices, and this is such."""
        tenants = self._world.tenants
        return self.lent_together and lent_together(
            tenants, entry.workload.queue, entry.borrowed, asker, accelerators
        )

    def _holding(self, queue: str) -> list[Entry]:
        entries = (self._world.entries[uid] for uid in self._world.holders.get(queue, ()))
        return [entry for entry in entries if entry.failed_on is None]

    def _of(self, entry: Entry, at_us: int) -> list[Victim]:
        uid = entry.workload.uid
        known = self._victims.get((uid, at_us))
        if known is None:
            known = self._victims[uid, at_us] = victims_of(self._world, entry, at_us)
        going = self.going
        return [v for v in known if not any((uid, pod) in going for pod in v.pods)]

    def _least_priority(self, queue: str) -> int:
        known = self._world.tenants.tree.get(queue)
        return min((each.value for each in known.priorities), default=0) if known else 0
