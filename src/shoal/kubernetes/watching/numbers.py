"""Which numbers the slots and waves of an owner have: the lowest that are free, or new ones."""

from collections import defaultdict


def uid_in(owner: str, number: int) -> str:
    """The uid of the workload in a slot or wave of an owner."""
    return f"{owner}/{number}"


def owner_in(uid: str) -> str:
    """The owner of a workload."""
    return uid.rpartition("/")[0]


def slot_of(uid: str) -> tuple[str, int]:
    """The owner of a workload and the number of its slot or wave."""
    owner, _, number = uid.rpartition("/")
    return owner, int(number)


class Numbers:
    """Numbers of slots and waves in use, by owner."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        """Owners of whose numbers others are in use than when this was emptied."""
        self._used: dict[str, set[int]] = defaultdict(set)
        self._low: dict[str, int] = {}
        self._high: dict[str, int] = {}

    def of(self, owner: str) -> list[int]:
        """Those that are in use, in order."""
        return sorted(self._used.get(owner, ()))

    def lowest(self, owner: str) -> int:
        """The lowest free number."""
        used, number = self._used[owner], self._low.get(owner, 0)
        while number in used:
            number += 1
        self._low[owner] = number
        return number

    def next(self, owner: str) -> int:
        """A number above all that were used."""
        return self._high.get(owner, -1) + 1

    def take(self, uid: str) -> None:
        """Note that the number of a workload is in use."""
        owner, number = slot_of(uid)
        self.changed[owner] = None
        self._used[owner].add(number)
        self._high[owner] = max(self._high.get(owner, -1), number)

    def free(self, uid: str) -> None:
        """Note that the number of a workload is no longer in use."""
        owner, number = slot_of(uid)
        self.changed[owner] = None
        self._used[owner].discard(number)
        self._low[owner] = min(self._low.get(owner, 0), number)

    def forget(self, owner: str) -> None:
        """Forget an owner that is gone."""
        for each in (self._used, self._low, self._high):
            each.pop(owner, None)
