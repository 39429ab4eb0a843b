"""In which order the work of one queue has its turn.

No order depends on what time it is, so that those who wait keep their places while nothing happens.
Waiting counts like priority where a queue says so (`Queue.aging_us`), in proportion: whoever came
`aging_us` earlier is as far ahead as by one point. That is a line through the time of creation.
"""

from shoal.model.queue import Order as Kind
from shoal.model.queue import Priority, QueueTree
from shoal.model.workload import Workload

Order = tuple[int, int, str]
"""What comes first has less: by the order of the queue, then by age, then by uid."""

UNKNOWN_US = 1 << 62
"""In place of the run time of work that did not declare one."""


def order_of(
    workload: Workload, tree: QueueTree, run_us: int | None, served_device_us: int
) -> Order:
    """Return the place of a workload in its queue.

    `run_us` is how long it is expected to run, None where nobody knows; `served_device_us` the
    device time that it has had in all its starts.
    """
    queue = tree.get(workload.queue)
    kind = Kind.PRIORITY if queue is None else queue.order
    if kind is Kind.FIFO:
        first = 0
    elif kind is Kind.SHORTEST:
        first = UNKNOWN_US if run_us is None else run_us
    elif kind is Kind.LEAST_ATTAINED_SERVICE:
        first = served_device_us
    elif queue is not None and queue.aging_us is not None:
        first = workload.created_us - priority_of(tree, workload) * queue.aging_us
    else:
        first = -priority_of(tree, workload)
    return first, workload.created_us, workload.uid


def by_priority(tree: QueueTree, name: str) -> bool:
    """Return whether work of a queue has its turn by its priority, and nothing before that."""
    queue = tree.get(name)
    return queue is None or (queue.order is Kind.PRIORITY and queue.aging_us is None)


def priority_of(tree: QueueTree, workload: Workload) -> int:
    """Return what the priority of a workload is worth in its queue.

    A name is worth what the table of its queue, or else that of the nearest above it, says, and
    nothing where that grants none of this name. Without a name the value counts that it came with,
    as it does where there is no such queue.
    """
    if not workload.priority_name or tree.get(workload.queue) is None:
        return workload.priority
    granted = granted_in(tree, workload.queue)
    return next((each.value for each in granted if each.name == workload.priority_name), 0)


def granted_in(tree: QueueTree, queue: str) -> tuple[Priority, ...]:
    """Return the priorities of a queue: those that it writes, or else those of its parent."""
    at = tree.get(queue)
    while at is not None and not at.priorities:
        at = tree.get(at.parent)
    return () if at is None else at.priorities
