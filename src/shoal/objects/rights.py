"""Who may use which queue, and what for: namespaces by their labels, types, priorities."""

from collections.abc import Collection, Mapping
from typing import Final

from shoal.model.queue import Queue, QueueTree
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.request import Operator
from shoal.model.workload import WorkloadType
from shoal.objects.annotations import PRIORITY, QUEUE, TYPE, nearest, refuse

USER: Final = "user:"
GROUP: Final = "group:"
"""How subjects begin."""

SERVICE_ACCOUNTS: Final = "system:serviceaccount:"
"""How Kubernetes begins the names of service accounts."""


def open_queues(tree: QueueTree) -> tuple[str, ...]:
    """The leaves that choose no namespaces: all may name them, and none is led to them."""
    leaves = (queue for queue in tree.leaves() if not queue.closing)
    return tuple(queue.name for queue in leaves if queue.namespaces is None)


def queues_of(tree: QueueTree, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The leaves that choose a namespace with these labels."""
    leaves = (queue for queue in tree.leaves() if not queue.closing)
    return tuple(
        queue.name
        for queue in leaves
        if queue.namespaces is not None and queue.namespaces.matches(labels)
    )


def queue_for(
    tree: QueueTree, namespace: str, labels: Mapping[str, str], written: str | None
) -> str | Refusal:
    """The queue in which work of a namespace waits; `written` is what `shoal.dev/queue` says.

    The labels are those of now: whoever asks again after they changed gets the new queue.
    """
    own = queues_of(tree, labels)
    usable = (*own, *open_queues(tree))
    if written is not None:
        return written if written in usable else _not_usable(tree, written, usable)
    if len(own) == 1:
        return own[0]
    if own:
        return refuse(RefusalCode.SEVERAL_QUEUES, QUEUE, namespace, words=", ".join(own))
    return refuse(
        RefusalCode.NO_QUEUE_OF_NAMESPACE,
        QUEUE,
        namespace,
        labels=", ".join(_labels(tree)) or "-",
        open=", ".join(open_queues(tree)) or "-",
    )


def type_in(queue: Queue, type_: WorkloadType) -> Refusal | None:
    """Why a queue may not run work of a type; None where it may."""
    if type_ in queue.types:
        return None
    words = ", ".join(queue.types)
    return refuse(RefusalCode.TYPE_NOT_GRANTED, TYPE, type_, queue=queue.name, words=words)


def priority_in(queue: Queue, written: str, subjects: Collection[str] | None) -> int | Refusal:
    """The value of a priority of a queue; 0 where none is written.

    Args:
        queue: with the priorities that it was granted.
        written: what `shoal.dev/priority` says; empty: nothing.
        subjects: who asks: `user:NAME`, `group:NAME`, `serviceaccount:NAMESPACE:NAME`. Empty:
            nobody knows who. None: somebody who may ask for everything.
    """
    if not written:
        return 0
    found = next((each for each in queue.priorities if each.name == written), None)
    if found is None:
        names = ", ".join(each.name for each in queue.priorities) or "-"
        details = {"queue": queue.name, "words": names}
        return refuse(RefusalCode.UNKNOWN_PRIORITY, PRIORITY, written, **details)
    if found.subjects and subjects is not None and not set(found.subjects) & set(subjects):
        details = {"queue": queue.name, "words": ", ".join(found.subjects)}
        code = RefusalCode.PRIORITY_OF_OTHERS if subjects else RefusalCode.PRIORITY_OF_NOBODY
        return refuse(code, PRIORITY, written, **details)
    return found.value


def named_groups(tree: QueueTree) -> tuple[str, ...]:
    """The groups that some priority of a queue is kept for."""
    subjects = {
        subject
        for queue in tree.queues
        for priority in queue.priorities
        for subject in priority.subjects
    }
    groups = (each.removeprefix(GROUP) for each in subjects if each.startswith(GROUP))
    return tuple(sorted(groups))


def subjects_of(user: str, groups: Collection[str]) -> frozenset[str]:
    """What a user of Kubernetes with these groups is called where subjects are named."""
    found = {USER + user, *(GROUP + each for each in groups)}
    if user.startswith(SERVICE_ACCOUNTS):
        found.add("serviceaccount:" + user.removeprefix(SERVICE_ACCOUNTS))
    return frozenset(found)


def _not_usable(tree: QueueTree, written: str, usable: tuple[str, ...]) -> Refusal:
    queue = tree.get(written)
    if queue is not None and queue.closing:
        words = ", ".join(usable) or "-"
        return refuse(RefusalCode.CLOSING_QUEUE, QUEUE, written, words=words)
    near = ", ".join(nearest(written, usable) or usable[:3]) or "-"
    return refuse(RefusalCode.UNKNOWN_QUEUE, QUEUE, written, near=near)


def _labels(tree: QueueTree) -> list[str]:
    """Labels by which a namespace comes to a queue, as far as one label is enough."""
    found = []
    for queue in tree.leaves():
        tests = queue.namespaces.requirements if queue.namespaces is not None else ()
        if len(tests) == 1 and tests[0].operator is Operator.IN and not queue.closing:
            found.append(f"{tests[0].key}={tests[0].values[0]}")
    return found
