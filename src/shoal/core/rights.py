"""Who may take devices back from whom.

A queue has a right to what it is guaranteed, and so has everything below it. What others hold is
borrowed where they, and every queue above them up to the one that both have in common, hold more
than they are guaranteed. So nobody is reclaimed from who keeps within a guarantee.
"""

from collections.abc import Iterable

from shoal.core.tenants import Tenants


def has_right(tenants: Tenants, queue: str, accelerator: str) -> bool:
    """Return whether a queue, or one above it, holds less than it is guaranteed."""
    return any(
        tenants.held(at, bound) < bound.units
        for at in tenants.path(queue)
        if (bound := tenants.guarantee(at, accelerator)).units
    )


def within(tenants: Tenants, asker: str, holder: str, accelerators: Iterable[str]) -> bool:
    """Return whether what the asker's queue holds now is guaranteed to it before the holder's.

    That is so where its queue, or one above it that is not above the holder's, is within its
    guarantee on each of the accelerators.
    """
    names = tuple(accelerators)
    above_holder = frozenset(tenants.path(holder))
    for at in tenants.path(asker):
        if at in above_holder:
            return False
        bounds = [tenants.guarantee(at, name) for name in names]
        if all(0 < bound.units >= tenants.held(at, bound) for bound in bounds):
            return True
    return False


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


def borrowing_queues(tenants: Tenants, asker: str, accelerator: str) -> tuple[str, ...]:
    """Return the queues with work that hold borrowed devices, as seen from the asker's."""
    return tuple(
        queue
        for queue in sorted(tenants.takes_work)
        if borrows(tenants, queue, asker, (accelerator,))
    )
