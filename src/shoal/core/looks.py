"""Which groups a cycle looks at, and for which of those that slept there is still room."""

from collections.abc import Collection, Iterable, Mapping

from shoal.core.keeping import lay, lift
from shoal.core.sleepers import Kind
from shoal.core.waiting import Group
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
        self._fresh = fresh
        self._due = dict.fromkeys(due)
        self._ahead = ahead
        self.kinds = world.kinds_for(fresh)
        """What sleeping groups ask for that are worth a look."""
        if ahead:
            lift(world, ahead)
            self.kinds |= world.kinds_for(fresh)
            lay(world, ahead)
        self._room_for: dict[Kind, bool] = {}

    def groups(self) -> tuple[Group, ...]:
        """Return the groups that are looked at whatever room there is."""
        return tuple(self._world.waiting.awake | self._due)

    def must(self, group: Group) -> bool:
        """Return whether a group is one of these."""
        return not group.asleep or group in self._due

    def room(self, group: Group) -> bool:
        """Return whether there is still room for a group that slept."""
        room = self._room_for.get(group.shapes)
        if room is None:
            world, kind = self._world, group.shapes
            room = world.may_fit(kind, self._fresh)
            if not room and self._ahead:
                lift(world, self._ahead)
                room = world.may_fit(kind, self._fresh)
                lay(world, self._ahead)
            self._room_for[kind] = room
        return room

    def any_room(self) -> bool:
        """Return whether there may be room for any group that slept."""
        return any(self._room_for.get(kind, True) for kind in self.kinds)

    def taken(self) -> None:
        """Note that something was started, so that there is less room."""
        self._room_for = {kind: False for kind, room in self._room_for.items() if not room}
