"""One workload in the world: where it stands, what it holds, what it is charged."""

from enum import Enum

from shoal.core.arrays.charges import Charge
from shoal.core.eviction.underway import Underway
from shoal.core.placing.reservation import Reservation
from shoal.core.queueing.precedence import Order
from shoal.core.queueing.waiting import Group
from shoal.model.request import Request
from shoal.model.workload import Placement, Workload


class State(Enum):
    """Where a workload stands on its way. It leaves the world when it has ended."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"


class Entry:
    """A workload in the world."""

    __slots__ = (
        "attempt",
        "borrowed",
        "charges",
        "checkpoint_us",
        "evicting",
        "evictions_us",
        "failed_on",
        "finishing",
        "group",
        "grows",
        "held",
        "joining",
        "kept",
        "order",
        "refused",
        "requests",
        "reserved",
        "served_device_us",
        "started",
        "underway",
        "waits_since_us",
        "was_evicted",
        "workload",
    )

    def __init__(self, workload: Workload, waits_since_us: int) -> None:
        self.workload = workload
        self.requests = tuple(pod_set.request for pod_set in workload.pod_sets)
        """What the pods of each pod set ask for; the world adds what neighbours they may have."""
        self.waits_since_us = waits_since_us
        """When it came, or was last taken from what it held."""
        self.attempt = 0
        """Starts decided so far."""
        self.held: dict[int, Placement] = {}
        """Where each pod is that runs or is planned, by its number."""
        self.charges: dict[int, tuple[Charge, ...]] = {}
        """What each of these pods is charged."""
        self.started: dict[int, int] = {}
        """Since when each of the pods runs that are known to; each of them holds something."""
        self.grows = workload.grows and workload.elastic
        """Whether it gets pods that it lacks while it runs."""
        self.joining: set[int] = set()
        """Those of its pods that joined it while it ran, and do not run yet."""
        self.finishing = False
        """Whether a pod has ended by itself, so that the workload is about to be done."""
        self.checkpoint_us: int | None = None
        """Up to when its work is safe, as it says itself."""
        self.evicting: dict[int, tuple[str, ...]] = {}
        """Pods that are being evicted, and the uids of those for whom each makes room. As long as
        there are any, they are charged and the pod is not."""
        self.underway: tuple[Underway, ...] = ()
        """The evictions that these pods are part of, as they were counted, oldest first."""
        self.was_evicted = False
        """Whether it was ever evicted; it then causes no preemption any more."""
        self.borrowed: int | None = None
        """For how many queues, from its own up, it began on devices that they borrow; see `slots`.
        None while it holds none, or holds them since before there were queues."""
        self.evictions_us: tuple[int, ...] = ()
        """When it was evicted by the bounds of preemption, within the last day."""
        self.failed_on: str | None = None
        """The node where a pod did not start as planned; the next cycle retracts the start."""
        self.refused: frozenset[str] = frozenset()
        """Nodes where a start failed, until they change; it is not planned there again."""
        self.group: Group | None = None
        """The group in which it waits, if it does and has no places reserved."""
        self.order: Order = (0, 0, workload.uid)
        """Its place in its queue, as long as it waits in a group."""
        self.served_device_us = 0
        """The device time that it has had in earlier starts, and in pods that have ended."""
        self.kept = 0
        """How often places were kept for it so far."""
        self.reserved: Reservation | None = None
        """The places that are kept for it while it waits, if any are."""

    @property
    def state(self) -> State:
        """Where it stands."""
        if self.group is not None or self.reserved is not None:
            return State.WAITING
        runs = len(self.started) + len(self.joining) == len(self.held)
        return State.RUNNING if runs else State.STARTING

    def request_of(self, pod: int) -> Request:
        """Return what the pod with this number asks for."""
        return self.requests[self._place_of(pod)[0]]

    def written_of(self, pod: int) -> Request:
        """Return what the pod with this number asks for, as it was submitted."""
        return self.workload.pod_sets[self._place_of(pod)[0]].request

    def spared(self, pod: int) -> bool:
        """Return whether the workload can do without the pod with this number."""
        number, index = self._place_of(pod)
        return index >= self.workload.pod_sets[number].needed

    def pod_set_of(self, pod: int) -> int:
        """Return the number of a pod's pod set."""
        return self._place_of(pod)[0]

    def rests(self, pod: int) -> bool:
        """Return whether a pod is not charged, because it makes room for somebody who is."""
        return bool(self.evicting.get(pod))

    def _place_of(self, pod: int) -> tuple[int, int]:
        """Return the number of a pod's pod set, and the pod's number there."""
        for number, pod_set in enumerate(self.workload.pod_sets):
            if pod < pod_set.count:
                return number, pod
            pod -= pod_set.count
        raise IndexError(f"workload {self.workload.uid} has no such pod")
