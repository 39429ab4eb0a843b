"""Units of admission: pod sets that start together or not at all."""

from dataclasses import dataclass
from enum import StrEnum

from shoal.model.request import Request


class WorkloadType(StrEnum):
    """What kind of work it is; it decides placement, eviction and protection."""

    TRAINING = "training"
    INFERENCE = "inference"
    NOTEBOOK = "notebook"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class PodSet:
    """`count` equal pods of a workload.

    `minimum` of them have to run; the others run while there is room. None: all have to.
    """

    name: str
    count: int
    request: Request
    minimum: int | None = None

    @property
    def needed(self) -> int:
        """How many of its pods have to run."""
        return self.count if self.minimum is None else min(self.count, self.minimum)


@dataclass(frozen=True, slots=True)
class Workload:
    """One unit of admission. Its pods, over all pod sets in order, are numbered from 0.

    `uid` is unique for ever. `created_us` is the control plane's time of creation, in microseconds
    since the epoch; work of equal priority in a queue is served in its order. `user` is who asked
    for it. `priority_name` is a name in the table of priorities of its queue, whose value counts, 0
    where it does not stand there; without a name `priority` does. `run_us` is how long it runs at
    most, as its owner declared. `grace_us` is what its pods take to stop, at most, when asked to.
    Work that is not `recreated` ends when it is evicted, because nobody makes its pods again; so it
    is never evicted. Work that `grows` gets the pods that it lacks while it runs; of other work
    they wait as work of their own. Inference that is `spare` is a replica that its service can do
    without.
    """

    uid: str
    pod_sets: tuple[PodSet, ...]
    queue: str = "default"
    type: WorkloadType = WorkloadType.BATCH
    priority: int = 0
    created_us: int = 0
    name: str = ""
    namespace: str = ""
    user: str = ""
    run_us: int | None = None
    grace_us: int = 0
    recreated: bool = True
    priority_name: str = ""
    grows: bool = True
    spare: bool = False

    @property
    def pods(self) -> int:
        """How many pods it has."""
        return sum(pod_set.count for pod_set in self.pod_sets)

    @property
    def elastic(self) -> bool:
        """Whether it can do without some of its pods."""
        for pod_set in self.pod_sets:
            if pod_set.minimum is not None and pod_set.minimum < pod_set.count:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one pod of a workload goes: its number, the node, the leaves on that node by name."""

    pod: int
    node: str
    leaves: tuple[str, ...] = ()


class Outcome(StrEnum):
    """How a workload ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    EVICTED = "evicted"
    CANCELLED = "cancelled"
