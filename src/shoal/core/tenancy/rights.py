"""Who may take devices back from whom.

A queue has a right to what it is guaranteed, and so has everything below it. What others hold is
borrowed where they, and every queue above them up to the one that both have in common, hold more
than they are guaranteed. So nobody is reclaimed from who keeps within a guarantee. All of that is
a matter of each accelerator: only of those that are taken back it has to be so.
"""

from collections.abc import Iterable, Mapping
from itertools import takewhile

from shoal.core.tenancy.accounts import Bound
from shoal.core.tenancy.tenants import Tenants


def has_right(tenants: Tenants, queue: str, accelerator: str) -> int | None:
    """Return how far up a queue, from itself at 0, holds less than it is guaranteed.

    None where neither it nor any above it does, but for the root: from outside that nobody takes.
    """
    for height, at in enumerate(tenants.path(queue)[:-1]):
        bound = tenants.guarantee(at, accelerator)
        if tenants.held(at, bound) < bound.units:
            return height
    return None


def height_against(tenants: Tenants, asker: str, holder: str) -> int:
    """Return how many queues, from the asker's up, are not above the holder's as well."""
    above_holder = frozenset(tenants.path(holder))
    return sum(1 for _ in takewhile(lambda at: at not in above_holder, tenants.path(asker)))


def within(
    tenants: Tenants,
    asker: str,
    holder: str,
    accelerators: Iterable[str],
    more: Mapping[str, int] | None = None,
) -> bool:
    """Return whether what the asker's queue holds now is guaranteed to it before the holder's.

    That is so where, on each of the accelerators, its queue, or one above it that is not above the
    holder's, is within its guarantee. `more` is what it holds besides, in units by accelerator.
    """
    own = tenants.path(asker)[: height_against(tenants, asker, holder)]
    return all(any(covers(tenants, at, (name,), more) for at in own) for name in accelerators)


def covers(
    tenants: Tenants, queue: str, accelerators: Iterable[str], more: Mapping[str, int] | None = None
) -> bool:
    """Return whether a queue is guaranteed all that it holds of each of these.

    `more` is what it holds besides, in units by accelerator.
    """
    bounds = [tenants.guarantee(queue, name) for name in accelerators]
    return all(
        0 < bound.units >= tenants.held(queue, bound) + _units_in(more or {}, bound)
        for bound in bounds
    )


def _units_in(units: Mapping[str, int], bound: Bound) -> int:
    return sum(each for name, each in units.items() if name in bound.accelerators)


def borrows(tenants: Tenants, holder: str, asker: str, accelerators: Iterable[str]) -> bool:
    """Return whether all that the holder's queue has of these is more than it is guaranteed.

    The queues above it count as well, below the first that is also above the asker's.
    """
    above_asker = frozenset(tenants.path(asker))
    names = tuple(accelerators)
    path = tenants.path(holder)
    if not path or path[0] in above_asker:
        return False
    for at in path:
        if at in above_asker:
            break
        bounds = [tenants.guarantee(at, name) for name in names]
        if any(tenants.held(at, bound) <= bound.units for bound in bounds):
            return False
    return True


def lent_together(
    tenants: Tenants, holder: str, borrowed: int | None, asker: str, accelerators: Iterable[str]
) -> bool:
    """Return whether work began on borrowed devices that the asker's queue is promised together.

    `borrowed` is for how many queues it did. Such work goes even where its queue has come to hold
    no more than its guarantee meanwhile: what was freed of it elsewhere is there for it.
    """
    above_asker = frozenset(tenants.path(asker))
    path = tenants.path(holder)
    common = next((height for height, at in enumerate(path) if at in above_asker), 0)
    if borrowed is None or not 0 < common <= borrowed:
        return False
    names = frozenset(accelerators)
    return any(
        promise.queue in above_asker and promise.queue not in path and names <= promise.accelerators
        for promise in tenants.slots.promises
    )


def borrowing_queues(tenants: Tenants, asker: str, accelerator: str, right: int) -> tuple[str, ...]:
    """Return the queues with work that hold borrowed devices which the asker's has a right to.

    `right` is how far up it has one.
    """
    return tuple(
        queue
        for queue in sorted(tenants.takes_work)
        if height_against(tenants, asker, queue) > right
        and borrows(tenants, queue, asker, (accelerator,))
    )
