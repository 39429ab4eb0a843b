"""What happened. Events are the only way into the world; `at_us` is when the loop took them in.

Late and repeated events are ordinary: one about something that is gone changes nothing.
"""

from dataclasses import dataclass

from shoal.core.arrays.charges import Charge
from shoal.core.decisions import Decision
from shoal.core.demand import Learned, Prices
from shoal.core.eviction.underway import Underway
from shoal.core.limits.spending_account import Kept
from shoal.core.placing.reservation import Reservation
from shoal.model.node import Node
from shoal.model.pool import Pool
from shoal.model.queue import QueueTree
from shoal.model.verdict import Verdict
from shoal.model.workload import Outcome, Placement, Workload


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node appeared or changed: capacity, devices, labels, taints or cordon."""

    at_us: int
    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone. What runs there holds its place until it is known to have ended."""

    at_us: int
    name: str


@dataclass(frozen=True, slots=True)
class NodeCordoned:
    """A node was closed to new pods, or opened again."""

    at_us: int
    name: str
    cordoned: bool


@dataclass(frozen=True, slots=True)
class DeviceLost:
    """A device is out of order."""

    at_us: int
    node: str
    device: str


@dataclass(frozen=True, slots=True)
class DeviceReturned:
    """A device works again."""

    at_us: int
    node: str
    device: str


@dataclass(frozen=True, slots=True)
class MaskSet:
    """Pods whose request names this mask may run on these nodes and no others."""

    at_us: int
    mask: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueuesSet:
    """The queues are these from now on; all of them change at once."""

    at_us: int
    queues: QueueTree


@dataclass(frozen=True, slots=True)
class PoolsSet:
    """The pools are these from now on. A node of a pool takes only work of the pool's types."""

    at_us: int
    pools: tuple[Pool, ...]


@dataclass(frozen=True, slots=True)
class PricesSet:
    """What room on the fleet is worth was computed anew, outside the core."""

    at_us: int
    prices: Prices


@dataclass(frozen=True, slots=True)
class WorkloadSubmitted:
    """A workload asks to start."""

    at_us: int
    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadAdopted:
    """A workload was found running, placed by whomever; it is taken as it is.

    `since_us` is how long it has run, None where nobody knows.
    """

    at_us: int
    workload: Workload
    placements: tuple[Placement, ...]
    since_us: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadEnded:
    """A workload is over, or was taken back while it waited; all it held is free."""

    at_us: int
    uid: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PodStarted:
    """A pod runs where it was planned."""

    at_us: int
    uid: str
    pod: int


@dataclass(frozen=True, slots=True)
class PodEnded:
    """A pod is gone and what it held is free; with its last pod a workload ends.

    One that was evicted whole does not end but waits again.
    """

    at_us: int
    uid: str
    pod: int


@dataclass(frozen=True, slots=True)
class PodMoved:
    """A running pod was ended where it was and runs at `placement` now."""

    at_us: int
    uid: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A planned pod did not start; `attempt` says which start of the workload is meant."""

    at_us: int
    uid: str
    attempt: int
    pod: int


@dataclass(frozen=True, slots=True)
class EvictionBlocked:
    """The eviction of a pod was refused, because of the disruption budgets that cover it."""

    at_us: int
    uid: str
    attempt: int
    pod: int


@dataclass(frozen=True, slots=True)
class EvictionsResumed:
    """A person looked at why evictions were frozen, and lets them go on."""

    at_us: int
    by: str


@dataclass(frozen=True, slots=True)
class DisruptionBudgetSet:
    """Of the pods of these workloads, `allowed` may be evicted now; None: the budget is gone."""

    at_us: int
    name: str
    allowed: int | None
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointReported:
    """A running workload says that its work up to `taken_us` is safe."""

    at_us: int
    uid: str
    taken_us: int


@dataclass(frozen=True, slots=True)
class PrioritySet:
    """A workload was given another priority, by its name in the table of its queue."""

    at_us: int
    uid: str
    priority_name: str


@dataclass(frozen=True, slots=True)
class PeriodBegan:
    """The budget of a queue counts from `begin_us` to `end_us`, by its own calendar."""

    at_us: int
    queue: str
    begin_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision was taken; from here on it is part of the state."""

    at_us: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Examined:
    """A cycle looked at the group of this waiting workload and it must still wait.

    Of one for which places are kept only `again_us` counts.

    `missing_pods` is how many pods of its gang found no place, so far as that is known (else 1);
    None where more room would not help. `blocked_at` is a queue whose quota stands in the way.
    `hungry`: others may come to have to make room for it. `again_us` is when time alone may change
    the answer.
    """

    uid: str
    missing_pods: int | None
    blocked_at: str = ""
    hungry: bool = False
    again_us: int | None = None


@dataclass(frozen=True, slots=True)
class Cycled:
    """A cycle with so many operations for its budget is over; `complete` if nothing is left."""

    at_us: int
    budget: int
    complete: bool
    examined: tuple[Examined, ...]


@dataclass(frozen=True, slots=True)
class WorkloadRestored:
    """A workload as a snapshot remembers it.

    `charges` are those of the pods of `placements`; none where the devices say what they are.
    `since_us` says since when each of the pods in `started` runs; none where it is not known.
    `beneficiaries` are the uids of those for whom each of the pods in `evicting` makes room.
    Those in `joining` joined while it ran, and do not run yet; `finishing`: a pod has ended by
    itself. `served_device_us` is the device time of pods that are over, `kept` is how often places
    were kept for it.
    """

    at_us: int
    workload: Workload
    attempt: int
    placements: tuple[Placement, ...]
    started: tuple[int, ...]
    failed_on: str | None
    refused: tuple[str, ...]
    charges: tuple[tuple[Charge, ...], ...] = ()
    since_us: tuple[int, ...] = ()
    waits_since_us: int | None = None
    checkpoint_us: int | None = None
    evicting: tuple[int, ...] = ()
    beneficiaries: tuple[tuple[str, ...], ...] = ()
    was_evicted: bool = False
    borrowed: int | None = None
    evictions_us: tuple[int, ...] = ()
    reserved: Reservation | None = None
    served_device_us: int = 0
    underway: tuple[Underway, ...] = ()
    joining: tuple[int, ...] = ()
    finishing: bool = False
    kept: int = 0


@dataclass(frozen=True, slots=True)
class EvictionsRestored:
    """What is remembered of evictions, from a snapshot or from where it was kept.

    `approved`: how many evictions a person was last asked about, and until when so many may happen.
    `recent_us`: when workloads were evicted of late. `working`: how many devices worked, from when
    on. `lost`: queue, when, and device microseconds lost by its work, for preemptions of the last
    day.
    """

    at_us: int
    frozen: bool
    approved: tuple[int, int]
    recent_us: tuple[int, ...]
    lost: tuple[tuple[str, int, int], ...]
    working: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SpendingRestored:
    """What was used of budgets, from a snapshot or where it was kept; see `spending_account.Kept`.

    `runs`: uid, since when it counts, and until when it is expected to run, of what is held.
    """

    at_us: int
    accounts: tuple[Kept, ...]
    runs: tuple[tuple[str, int, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class DeclaredRestored:
    """How true declared run times were, from a snapshot or from where it was kept.

    `ratios`: queue, user, and actual by declared times of the last runs, in thousandths.
    """

    at_us: int
    ratios: tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class EndingRestored:
    """Work that is being ended because it ran for its maximum, from a snapshot.

    `again_us`: uid, and when it is asked to end again, of what could not be evicted.
    """

    at_us: int
    ending: tuple[str, ...]
    again_us: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupRestored:
    """What is known of the group of a waiting workload, from a snapshot."""

    at_us: int
    uid: str
    verdict: Verdict | None
    asleep: bool
    missing_pods: int | None
    blocked_at: str
    unanswered: tuple[str, ...]
    hungry: bool = False
    again_us: int | None = None


@dataclass(frozen=True, slots=True)
class RoomRestored:
    """Nodes that had gained room since the last complete cycle, from a snapshot.

    `stirred`: others may have come to have to make room for somebody since then. `freed`: something
    may have become free, in room or in quota.
    """

    at_us: int
    nodes: tuple[str, ...]
    stirred: bool = False
    freed: bool = False


@dataclass(frozen=True, slots=True)
class DemandRestored:
    """The demand learned so far, from a snapshot or from where it was kept."""

    at_us: int
    learned: Learned


@dataclass(frozen=True, slots=True)
class GuaranteesRestored:
    """What guarantees are worth, from a snapshot.

    `vanished`: node, device, accelerator, and since when the device is missed. `shrunk`: queue,
    accelerators, and the units that are left of a guarantee that is worth less than is written.
    """

    at_us: int
    vanished: tuple[tuple[str, str, str, int], ...]
    shrunk: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class UsageRestored:
    """What queues have used of late, from a snapshot or from where it was kept.

    `used`: queue, accelerator, and past use as `core.past.Past` writes it, as it was at `as_of_us`.
    """

    at_us: int
    as_of_us: int
    used: tuple[tuple[str, str, int], ...]


Event = (
    NodeSeen
    | NodeLost
    | NodeCordoned
    | DeviceLost
    | DeviceReturned
    | MaskSet
    | QueuesSet
    | PoolsSet
    | PricesSet
    | WorkloadSubmitted
    | WorkloadAdopted
    | WorkloadEnded
    | PodStarted
    | PodEnded
    | PodMoved
    | StartFailed
    | EvictionBlocked
    | EvictionsResumed
    | DisruptionBudgetSet
    | CheckpointReported
    | PrioritySet
    | PeriodBegan
    | Decided
    | Cycled
    | WorkloadRestored
    | EvictionsRestored
    | SpendingRestored
    | DeclaredRestored
    | EndingRestored
    | GroupRestored
    | RoomRestored
    | DemandRestored
    | UsageRestored
    | GuaranteesRestored
)
