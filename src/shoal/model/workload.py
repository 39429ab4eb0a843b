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
    """`count` equal pods of a workload."""

    name: str
    count: int
    request: Request


@dataclass(frozen=True, slots=True)
class Workload:
    """One unit of admission. Its pods, over all pod sets in order, are numbered from 0.

    `uid` is unique for ever. `created_us` is the control plane's time of creation, in microseconds
    since the epoch; work of equal priority in a queue is served in its order.
    """

    uid: str
    pod_sets: tuple[PodSet, ...]
    queue: str = "default"
    type: WorkloadType = WorkloadType.BATCH
    priority: int = 0
    created_us: int = 0
    name: str = ""
    namespace: str = ""


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
