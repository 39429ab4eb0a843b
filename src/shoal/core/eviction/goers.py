"""Pods that go, by earlier decisions and by those of one cycle, whoever it is for.

Those that go for nobody, because they have run for their maximum or who asked has been cancelled,
are charged until they are gone or go for somebody. What is found here counts on their places only,
and not on that charge.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from shoal.core.entry import Entry
from shoal.core.eviction.victims import Victim
from shoal.core.placing.keeping import lift, owes
from shoal.core.world import World
from shoal.model.workload import Placement


class Goers:
    """The pods that go. The world must be speculating."""

    def __init__(
        self, world: World, going: Collection[tuple[str, int]], ended: Collection[tuple[str, int]]
    ) -> None:
        """`going` are those that this cycle evicts, by workload and number; it adds to them.

        `ended` are those that it ends for nobody's sake.
        """
        self._world = world
        self._going = going
        self._ended = ended
        self._evicted: list[tuple[Entry, int]] | None = None
        """Pods that were evicted before, once they were asked for."""
        self._by_us: int | None = None

    def wait_for(self, by_us: int | None) -> None:
        """Count from here on only on those who are gone by a time; None: on all."""
        self._by_us = by_us

    def any(self) -> bool:
        """Return whether any pod goes."""
        return next(self._pods(), None) is not None

    def let_go(self) -> None:
        """Let the places of all of them be free, whoever it is for."""
        for entry, pod in self._pods():
            self._world.fleet.give_back(entry.request_of(pod), entry.held[pod])

    def needed(
        self,
        asker: Entry,
        placements: Sequence[Placement],
        victims: Sequence[Victim],
        given_way: Sequence[str],
    ) -> list[tuple[Entry, int]]:
        """Return those without whose going a plan would have no room.

        By it the asker starts in these places, while `victims` go, and the places that are kept for
        those that give way are free.
        """
        fleet = self._world.fleet
        places = dict.fromkeys(placement.node for placement in placements)
        beside = [(e, pod) for e, pod in self._pods() if e.held[pod].node in places]
        if not beside:
            return []
        beside.sort(key=lambda goer: (goer[0].workload.uid, goer[1]))
        checkpoint = fleet.journal.checkpoint()
        self.let_go()
        lift(self._world, given_way)
        for victim in victims:
            for pod in victim.pods:
                fleet.give_back(victim.entry.request_of(pod), victim.entry.held[pod])
        for placement in placements:
            fleet.take(asker.request_of(placement.pod), placement)
        for entry, pod in beside:
            fleet.take(entry.request_of(pod), entry.held[pod])
        short = {name for name in places if owes(fleet, name)}
        fleet.rollback(checkpoint)
        wanted = {(placement.node, leaf) for placement in placements for leaf in placement.leaves}
        return [
            (entry, pod)
            for entry, pod in beside
            if (held := entry.held[pod]).node in short
            or any((held.node, leaf) in wanted for leaf in held.leaves)
        ]

    def gone_us(self, pods: Iterable[tuple[Entry, int]]) -> int:
        """Return when all of these are gone, if none takes longer to stop than it is given."""
        return max((self._gone_us(entry, pod) for entry, pod in pods), default=0)

    def _gone_us(self, entry: Entry, pod: int) -> int:
        begun = (each.at_us for each in entry.underway if pod in dict(each.going))
        at_us = next(begun, self._world.tenants.now_us)
        return at_us + self._world.tenants.grace_us(entry.workload)

    def _pods(self) -> Iterator[tuple[Entry, int]]:
        world, by_us = self._world, self._by_us
        if self._evicted is None:
            evicted = [e for uid in world.evicted if (e := world.entries[uid]).failed_on is None]
            self._evicted = [(entry, pod) for entry in evicted for pod in entry.evicting]
        now = ((world.entries[uid], pod) for uid, pod in sorted((*self._going, *self._ended)))
        for entry, pod in chain(self._evicted, now):
            if by_us is None or self._gone_us(entry, pod) <= by_us:
                yield entry, pod
