"""Which groups a cycle looks at, and for which of those that slept there is still room."""

from collections.abc import Collection, Iterable, Mapping

from shoal.core.placing.keeping import lay, lift
from shoal.core.queueing.waiting import Group, QueueAndUser
from shoal.core.world import World


class Looks:
    """What one cycle looks at.

    Groups that are awake, or whose time has come (`due`), are looked at whatever room there is;
    those that sleep as long as a pod of theirs may fit on rows that have gained room (`fresh`), or
    in places that are kept for others (`ahead`, by uid) until running work ends, because they may
    end before. In a cycle room only gets less.
    """

    def __init__(
        self,
        world: World,
        fresh: Mapping[int, None],
        due: Iterable[Group],
        ahead: Collection[str],
    ) -> None:
        self._world = world
        self._ahead = ahead
        self._due: dict[QueueAndUser, dict[Group, None]] = {}
        for group in due:
            self._due.setdefault((group.queue, group.user), {})[group] = None
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
        return [*waiting.awake.get(place, ()), *due, *(g for g in sleeping if g not in due)]

    def worth(self, group: Group) -> bool:
        """Return whether a group is, or still is, to be looked at."""
        if not group.asleep or group in self._due.get((group.queue, group.user), ()):
            return True
        return self.any_room() and group.shapes in self._room.kinds

    def any_room(self) -> bool:
        """Return whether there may be room for any group that slept."""
        fleet = self._world.fleet
        if self._room.kinds and self._read != fleet.changes.head:
            rows = fleet.changes.since(self._read)
            lift(self._world, self._ahead)
            self._room.lessen(fleet, None if rows is None else rows.tolist())
            lay(self._world, self._ahead)
            self._read = fleet.changes.read()
        return bool(self._room.kinds)
