"""One workload in the world: where it stands, what it holds, what it is charged."""

from enum import Enum

from shoal.core.tenants import Charge
from shoal.core.waiting import Group
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
        "charges",
        "failed_on",
        "group",
        "held",
        "refused",
        "started",
        "workload",
    )

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.attempt = 0
        """Starts decided so far."""
        self.held: dict[int, Placement] = {}
        """Where each pod is that runs or is planned, by its number."""
        self.charges: dict[int, tuple[Charge, ...]] = {}
        """What each of these pods is charged."""
        self.started: set[int] = set()
        """Pods known to run; each of them holds something."""
        self.failed_on: str | None = None
        """The node where a pod did not start as planned; the next cycle retracts the start."""
        self.refused: frozenset[str] = frozenset()
        """Nodes where a start failed, until they change; it is not planned there again."""
        self.group: Group | None = None
        """The group in which it waits, if it does."""

    @property
    def state(self) -> State:
        """Where it stands."""
        if self.group is not None:
            return State.WAITING
        return State.RUNNING if len(self.started) == len(self.held) else State.STARTING

    def request_of(self, pod: int) -> Request:
        """Return what the pod with this number asks for."""
        for pod_set in self.workload.pod_sets:
            if pod < pod_set.count:
                return pod_set.request
            pod -= pod_set.count
        raise IndexError(f"workload {self.workload.uid} has no such pod")
