"""Which groups a cycle looks at, and for which of those that slept there is still room."""

from collections.abc import Iterable, Mapping

from shoal.core.eviction.giving_way import GivingWay
from shoal.core.placing.keeping import lay, lift
from shoal.core.placing.reservation import Reservation
from shoal.core.queueing.waiting import Group, QueueAndUser
from shoal.core.world import World


class Looks:
    """What one cycle looks at.

    Groups that are awake, or whose time has come (`due`), are looked at whatever room there is;
    those that sleep as long as a pod of theirs may fit on rows that have gained room (`fresh`), or
    in places there that are kept for others (`ahead`, by uid) until running work ends, if these may
    give way to them or they may end before. In a cycle room only gets less.
    """

    def __init__(
        self,
        world: World,
        fresh: Mapping[int, None],
        due: Iterable[Group],
        ahead: Mapping[str, Reservation],
    ) -> None:
        self._world = world
        self._ahead = ahead
        self._giving_way = GivingWay(world, world.tenants.now_us, ahead)
        self._uses_kept: dict[Group, bool] = {}
        """Whether a group may use places that are kept for others, once it was asked."""
        self._due: dict[QueueAndUser, dict[Group, None]] = {}
        for group in due:
            self._due.setdefault((group.queue, group.user), {})[group] = None
        self._free = world.room(fresh)
        """For whom there is room that is kept for nobody."""
        self._room = self._free
        if ahead:
            lift(world, ahead)
            self._room = world.room(fresh)
            lay(world, ahead)
        self._read = world.fleet.changes.read()

    def places(self) -> dict[QueueAndUser, None]:
        """Return the queues, and users where these have their turns, with groups to look at."""
        waiting = self._world.waiting
        return dict.fromkeys((*waiting.awake, *self._due, *waiting.places_of(self._room.kinds)))

    def groups_in(self, place: QueueAndUser) -> list[Group]:
        """Return the groups there to look at."""
        waiting, due = self._world.waiting, self._due.get(place, {})
        sleeping = waiting.sleepers_in(place, self._room.kinds)
        room = [group for group in sleeping if group not in due and self._has_room(group)]
        return [*waiting.awake.get(place, ()), *due, *room]

    def worth(self, group: Group) -> bool:
        """Return whether a group is, or still is, to be looked at."""
        if not group.asleep or group in self._due.get((group.queue, group.user), ()):
            return True
        return self.any_room() and self._has_room(group)

    def any_room(self) -> bool:
        """Return whether there may be room for any group that slept."""
        fleet = self._world.fleet
        if self._room.kinds and self._read != fleet.changes.head:
            rows = fleet.changes.since(self._read)
            changed = None if rows is None else rows.tolist()
            self._free.lessen(fleet, changed)
            if self._room is not self._free:
                lift(self._world, self._ahead)
                self._room.lessen(fleet, changed)
                lay(self._world, self._ahead)
            self._read = fleet.changes.read()
        return bool(self._room.kinds)

    def _has_room(self, group: Group) -> bool:
        """Return whether there may be room for a group that sleeps."""
        if group.shapes in self._free.kinds or group.shapes not in self._room.kinds:
            return group.shapes in self._free.kinds
        if group not in self._uses_kept:
            first = self._world.entries[group.members[0][2]]
            self._uses_kept[group] = self._giving_way.may_use(first)
        return self._uses_kept[group]
