"""What the API sends and takes. Names carry their units; times are RFC 3339 in UTC."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shoal.model.modes import Mode
from shoal.model.workload import WorkloadType
from shoal.server.whole import Manifest


class Model(BaseModel):
    """Base of everything: no unknown field, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PodSetView(Model):
    """Equal pods of a workload and what each of them asks for."""

    name: str
    count: int
    devices: int
    whole: bool
    memory_mib: int
    compute_percent: float
    accelerators: list[str]
    cpu_milli: int
    host_memory_mib: int


class PlacementView(Model):
    """Where one pod is, or is planned."""

    pod: int
    node: str
    leaves: list[str]


class WaitView(Model):
    """Why a workload waits, in short."""

    stage: str
    reason: str
    text: str


class WorkloadName(Model):
    """Which workload."""

    id: str
    namespace: str
    name: str


class EvictionView(Model):
    """Pods that were told to stop, for whom, and what that cost at most.

    `exact`: no other choice would have cost less.
    """

    at: datetime
    pods: list[int]
    evicted_for: list[WorkloadName]
    reason: str
    lost_device_hours: float
    exact: bool
    grace_seconds: float
    text: str


class ReservationView(Model):
    """Places that are kept for a workload that waits.

    `at` is when they are free as far as declared ends tell. `evicted` are those that go for it.
    """

    since: datetime | None
    at: datetime | None
    reason: str
    placements: list[PlacementView]
    evicted: list[WorkloadName]
    text: str


class WorkloadView(Model):
    """One workload. `position` counts from 1 among those that wait in its queue and may ever start.

    `waiting_since` is when it came, or was last taken from what it held; `eviction` the last.
    `spare`: it is a replica of inference that its service can do without.
    """

    id: str
    uid: str
    namespace: str
    name: str
    queue: str
    type: str
    spare: bool
    priority: int
    state: str
    outcome: str | None
    created_at: datetime
    waiting_since: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    position: int | None
    waiting_in_queue: int | None
    pods: int
    devices: int
    pod_sets: list[PodSetView]
    placements: list[PlacementView]
    wait: WaitView | None
    reservation: ReservationView | None
    eviction: EvictionView | None


class MomentView(Model):
    """Something that happened to a workload."""

    at: datetime
    step: str
    text: str


class ObstacleView(Model):
    """So many nodes failed this test and none before it."""

    reason: str
    nodes: int
    text: str


class OverQuotaView(Model):
    """The rule of a queue that would be broken, in devices: used and asked of bound."""

    reason: str
    queue: str
    accelerators: str
    used: float
    asked: float
    bound: float


class CandidateView(Model):
    """A node that comes near, and what it lacks: `free` and `needed` by what is counted."""

    node: str
    free: dict[str, int]
    needed: dict[str, int]
    short_of: list[str]


class HolderView(Model):
    """A workload that holds devices which the one that waits could use.

    `ends_at` is when it has ended as its owner declared. Where free devices are kept for it while
    it waits itself, `kept` says so in a sentence.
    """

    id: str
    namespace: str
    name: str
    queue: str
    type: str
    devices: float
    nodes: list[str]
    started_at: datetime | None
    ends_at: datetime | None = None
    evicting: bool = False
    kept: str = ""


class ExplanationView(Model):
    """Why a workload waits, where it runs, or how it ended, at one moment.

    `never` says that this fleet could not hold it if it were empty, whatever labels and taints its
    nodes have. `stage` is where it stopped; at the stage `quota` it is `over_quota` that says why,
    and `holders` are those of that queue. `headline` is what goes before the obstacles, `summary`
    all of it as one text. `obstacles` count every node once that has no room for the pod which
    finds none; `fitting_nodes` have room for one. `candidates` are the nearest nodes; `holders`
    hold devices on nodes where it may run, the largest first, and `more_holders` counts those left
    out. Where places are kept for it, `holders` are those that hold them still. `alert` says that
    evictions are frozen, where that may matter to it.
    """

    workload: WorkloadView
    as_of: datetime
    now: datetime
    stage: str | None
    never: bool
    alert: str
    headline: str
    summary: str
    over_quota: OverQuotaView | None
    placed_pods: int | None
    fitting_nodes: int | None
    obstacles: list[ObstacleView]
    candidates: list[CandidateView]
    holders: list[HolderView]
    more_holders: int
    wakes: list[str]
    wakes_text: str
    moments: list[MomentView]


class QuotaView(Model):
    """Devices of one accelerator or group; `used` counts shares by what they are charged.

    `kept` is kept for work that waits, and counts for limits and guarantees like what is used.
    """

    accelerator: str
    used: float
    guarantee: int | None
    limit: int | None
    borrowed: float
    kept: float


class AcceleratorUse(Model):
    """What is used of one accelerator."""

    accelerator: str
    devices: float


class QueueView(Model):
    """One queue of the tree; `written` is false where only workloads name it.

    `fair` is its fair share of each accelerator: what it would hold if work could be divided.
    A queue that is `closing` is no longer written and goes when nothing runs in it any more.
    """

    name: str
    parent: str | None
    path: list[str]
    written: bool
    closing: bool
    leaf: bool
    weight: int
    types: list[str]
    quotas: list[QuotaView]
    used: list[AcceleratorUse]
    fair: list[AcceleratorUse]
    running: int
    waiting: int
    waiting_devices: int
    lost_device_hours_today: float


class AcceleratorCount(Model):
    """Devices of one accelerator: all, in working order, of these wholly free or kept.

    What is kept is free too, but for somebody who waits.
    """

    accelerator: str
    devices: int
    healthy: int
    free: int
    kept: int


class PoolView(Model):
    """One pool; `written` is false for the rest of the nodes, which are in no pool.

    `shared_between_queues`: whether work of different queues below the root may share a device.
    """

    name: str
    written: bool
    types: list[str]
    shared_between_queues: bool
    modes: list[str]
    placement: str | None
    levels: list[str]
    nodes: int
    accelerators: list[AcceleratorCount]


class NodeView(Model):
    """One node. `pools` has one name; none where no pool chooses it. In several nothing starts."""

    name: str
    pools: list[str]
    state: str
    accelerators: list[AcceleratorCount]
    cpu_milli: int
    cpu_free_milli: int
    memory_mib: int
    memory_free_mib: int
    pods: int
    labels: dict[str, str]
    taints: list[str]


class LeafHolderView(Model):
    """A pod that holds a leaf."""

    id: str
    namespace: str
    name: str
    pod: int


class LeafView(Model):
    """What can be allocated of a device."""

    name: str
    memory_mib: int
    compute_percent: float
    tenants: int
    sharing: str
    cap: str
    memory_free_mib: int
    compute_free_percent: float
    held_by: list[LeafHolderView]
    kept_for: list[LeafHolderView]


class DeviceView(Model):
    """One device, with its leaves."""

    node: str
    name: str
    accelerator: str
    state: str
    memory_mib: int
    leaves: list[LeafView]


class DecisionView(Model):
    """A decision. `id` is its place in the stream; ask for what came after it."""

    id: int
    at: datetime
    kind: str
    key: str
    workloads: list[WorkloadName]
    workload_count: int
    reason: str
    text: str
    placements: list[PlacementView]
    eviction: EvictionView | None = None


class GuardView(Model):
    """Whether evictions are frozen, since when and why; and who let them go on last.

    `text` is empty while they are not. At most `most` workloads are evicted within five minutes;
    `lately` were.
    """

    frozen: bool
    since: datetime | None
    reason: str | None
    text: str
    lately: int
    most: int
    resumed_at: datetime | None
    resumed_by: str


class StatusView(Model):
    """How the platform is."""

    version: str
    now: datetime
    as_of: datetime
    lag_ms: int
    acting: bool
    evictions: GuardView
    policy: str
    nodes: int
    devices: int
    healthy_devices: int
    free_devices: int
    waiting: int
    starting: int
    running: int
    decisions: int
    events: int


class ActingView(Model):
    """Whether Shoal decides, and whether evictions go on that were frozen."""

    acting: bool
    evictions_resumed: bool = False


class Page(Model):
    """What all pages have: where the next one begins, if there is one, and the platform's time."""

    next: str | None
    now: datetime


class WorkloadPage(Page):
    """Workloads."""

    items: list[WorkloadView]


class QueuePage(Page):
    """Queues."""

    items: list[QueueView]


class PoolPage(Page):
    """Pools."""

    items: list[PoolView]


class NodePage(Page):
    """Nodes."""

    items: list[NodeView]


class DevicePage(Page):
    """Devices."""

    items: list[DeviceView]


class DecisionPage(Page):
    """Decisions."""

    items: list[DecisionView]


Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$", max_length=253)]


class Submission(Model):
    """Manifests to take in, all or none. With `dry_run` they are only judged."""

    manifests: Annotated[list[Manifest], Field(min_length=1, max_length=1000)]
    namespace: Name = "default"
    queue: Name | None = None
    dry_run: bool = False


class Nothing(Model):
    """What is sent where there is nothing to say."""


class Submitted(Model):
    """What became of a submission; `hints` are sentences that a person should read."""

    workloads: list[WorkloadName]
    hints: list[str]


class Cancelled(Model):
    """What was ended."""

    workloads: list[WorkloadName]


class ProblemPart(Model):
    """One thing that is wrong: which document of the submission (from 1), and which field."""

    document: int | None = None
    field: str = ""
    message: str


class Problem(Model):
    """What went wrong (RFC 9457, application/problem+json)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemPart] = Field(default_factory=list)


def words(values: tuple[WorkloadType, ...] | tuple[Mode, ...]) -> list[str]:
    """The words of enumerated values."""
    return [str(each) for each in values]
