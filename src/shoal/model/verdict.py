"""Why a workload does not start, as a machine-readable value; sentences are made in `texts`."""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """How far a workload came on its way to a start."""

    QUOTA = "quota"
    BUDGET = "budget"
    PLACE = "place"


class Reason(StrEnum):
    """What stood in the way, or why a decision was taken.

    Those from `GONE` to `NEIGHBOURS` are tests of a node, in the order in which they are made.
    """

    NO_QUEUE = "no-queue"
    CLOSING = "queue-closing"
    TYPE = "type"
    LIMIT = "limit"
    GUARANTEE = "guarantee"
    BORROW_LIMIT = "borrow-limit"
    LEND_LIMIT = "lend-limit"
    PLACEABLE = "placeable"
    KEPT_QUOTA = "kept-quota"
    BUDGET = "budget"
    NO_PRICE = "no-price"
    NO_NODES = "no-nodes"
    GONE = "node-gone"
    MASK = "mask"
    SELECTOR = "selector"
    AFFINITY = "affinity"
    TAINT = "taint"
    CORDONED = "cordoned"
    REFUSED_BEFORE = "refused-before"
    ACCELERATOR = "accelerator"
    ISOLATION = "isolation"
    SEVERAL_POOLS = "several-pools"
    POOL = "pool"
    CPU = "cpu"
    MEMORY = "memory"
    PODS = "pods"
    WHOLE_DEVICES = "whole-devices"
    LEAF_ROOM = "leaf-room"
    NEIGHBOURS = "neighbours"
    PLACED = "placed"
    START_FAILED = "start-failed"
    RECLAIM = "reclaim"
    PREEMPTION = "preemption"
    RESERVED = "reserved"
    PLACE_LOST = "place-lost"
    NOT_FREED = "not-freed"
    TOO_MANY_EVICTIONS = "too-many-evictions"
    DEVICES_GONE = "devices-gone"
    MAXIMUM_RUN = "maximum-run"
    MAXIMUM_WAIT = "maximum-wait"


class Wake(StrEnum):
    """Kinds of events that can end a verdict."""

    QUOTA = "quota"
    QUEUES = "queues"
    CAPACITY = "capacity"
    NODES = "nodes"
    MASK = "mask"
    PERIOD = "period"
    POOLS = "pools"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """`nodes` nodes failed the test `reason` and none before it."""

    reason: Reason
    nodes: int


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A workload would hold more than a queue may: used + asked of bound, in units of devices.

    `queue` is the one whose rule is broken, the workload's own or one above it. `bound` is its
    limit (`Reason.LIMIT`) or, for work that cannot be returned, its guarantee (`GUARANTEE`), on
    `accelerators` as they are written there. `BORROW_LIMIT`: used and asked are what the queue
    borrows, bound is how much it may. `LEND_LIMIT`: used and asked are what is held of the
    accelerators by everybody, bound is how much may be while the queue, which is another one, does
    not lend more of its guarantee. `KEPT_QUOTA`: bound is one of the two kinds of limit on what the
    queue holds or borrows, and used is with what work would hold that has waited too long.
    `PLACEABLE`: bound is what the queue, which is another one, is promised on nodes of so many
    devices each, used is how much of it would be left together.

    `NO_QUEUE`: no work can wait in a queue of that name. `CLOSING`: it is being deleted. `TYPE`: it
    does not grant the workload's type. These have no numbers.
    """

    reason: Reason
    queue: str
    accelerators: str = ""
    used_units: int = 0
    asked_units: int = 0
    bound_units: int = 0


@dataclass(frozen=True, slots=True)
class OverBudget:
    """What is used and reserved of a queue's budget until `ends_us`, and what is asked beside.

    Amounts are device microseconds, or millionths of `currency` where there is one. `time_zone` is
    the one in which the budget's periods end at midnight. `unpriced` is an accelerator without a
    price, which a budget in money cannot count; then nothing is asked.
    """

    queue: str
    used: int
    reserved: int
    asked: int
    budget: int
    ends_us: int
    time_zone: str = "UTC"
    currency: str = ""
    unpriced: str = ""

    @property
    def reason(self) -> Reason:
        """What stands in the way."""
        return Reason.NO_PRICE if self.unpriced else Reason.BUDGET

    @property
    def too_many(self) -> int:
        """By how much used, reserved and asked are more than the budget."""
        return self.used + self.reserved + self.asked - self.budget


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a workload waits: stage, obstacles, how much of the gang fitted, what would wake it.

    At the stage `quota`, `over_quota` says which rule was broken and there are no obstacles; at the
    stage `budget`, `over_budget` says which budget does not suffice, or cannot count the start.
    `obstacles` are counted for the first pod that found no node, in the order of the tests; the
    last of them is the one that the most promising nodes failed. `placed_pods` of `pods` found a
    place before it. `never`: it cannot start as long as the queues are as they are, whatever is
    free; so it has no place among those that wait.
    """

    stage: Stage
    obstacles: tuple[Obstacle, ...]
    placed_pods: int
    pods: int
    wakes: tuple[Wake, ...]
    over_quota: OverQuota | None = None
    never: bool = False
    over_budget: OverBudget | None = None

    @property
    def cause(self) -> tuple[Stage, Reason]:
        """What makes two verdicts the same to the person who waits; numbers may differ."""
        if self.over_quota is not None:
            return self.stage, self.over_quota.reason
        if self.over_budget is not None:
            return self.stage, self.over_budget.reason
        return self.stage, self.obstacles[-1].reason
