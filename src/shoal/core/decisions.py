"""What the core decides. A decision is a value; it becomes state as a `Decided` event.

Each has a `key` that makes carrying it out twice harmless, and a machine-readable reason.
"""

from dataclasses import dataclass

from shoal.model.verdict import OverBudget, Reason, Verdict
from shoal.model.workload import Placement


@dataclass(frozen=True, slots=True)
class Start:
    """Start a whole workload: every pod of it, each on its node and leaves.

    `borrowed` is for how many queues, from its own up, it begins on devices that they borrow; less
    than none for work that cannot be returned.
    """

    key: str
    workload: str
    placements: tuple[Placement, ...]
    reason: Reason = Reason.PLACED
    borrowed: int = -1


@dataclass(frozen=True, slots=True)
class Resize:
    """Start pods of a running workload that it lacks, all of which it can do without."""

    key: str
    workload: str
    placements: tuple[Placement, ...]
    reason: Reason = Reason.PLACED


@dataclass(frozen=True, slots=True)
class Retract:
    """Take back a start that did not come true, because `node` did not do what was planned."""

    key: str
    workload: str
    node: str
    reason: Reason = Reason.START_FAILED


@dataclass(frozen=True, slots=True)
class Wait:
    """Tell workloads of one group why they do not start; given when that changes, not before."""

    key: str
    workloads: tuple[str, ...]
    verdict: Verdict

    @property
    def reason(self) -> Reason:
        """The first thing that would have to change."""
        return self.verdict.cause[1]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep these places for a workload that waits, until it starts there or gives them up.

    `at_us` is when they are free, as far as declared ends tell; work that ends before may use them
    meanwhile. None: nobody else may, because they are being freed for it (`evicted` names whom it
    takes them from, and `pods` which pods of each), or because nobody knows when. Only who takes
    them from others is charged, and for him `borrowed` is as in `Start`; the places of others give
    way to guarantees.
    """

    key: str
    workload: str
    placements: tuple[Placement, ...]
    at_us: int | None
    evicted: tuple[str, ...]
    reason: Reason
    borrowed: int = -1
    pods: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Keep no places for a workload any longer; it waits like others."""

    key: str
    workload: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Evict:
    """End pods of a running workload on purpose: all of them, or those above its minimum.

    `for_` are the workloads that start where they were. `lost_device_us` is the work that is lost,
    in device microseconds. `exact`: no choice of victims would have lost less. Its pods are given
    `grace_us` to stop. `Reason.MAXIMUM_RUN`: it ends for good, and does not wait again.
    """

    key: str
    workload: str
    pods: tuple[int, ...]
    for_: tuple[str, ...]
    lost_device_us: int
    exact: bool
    grace_us: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Freeze:
    """Evict nobody until a person resumes: the world looks wrong.

    So many evictions within minutes (`count`) are more than `most`; or, by the reason, so many
    devices are gone of the `most` that worked.
    """

    key: str
    count: int
    most: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refuse:
    """End a workload that waits, because it has waited for the `maximum_us` of its queue."""

    key: str
    workload: str
    waited_us: int
    maximum_us: int
    reason: Reason = Reason.MAXIMUM_WAIT


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell whoever is responsible for a queue that its budget is used up, once in a period.

    From here on it counts what is to happen when it is spent; `over` says where it stands.
    """

    key: str
    queue: str
    over: OverBudget
    reason: Reason = Reason.BUDGET


Decision = Start | Resize | Retract | Reserve | GiveUp | Evict | Freeze | Refuse | Warn | Wait


def workloads_of(decision: Decision) -> tuple[str, ...]:
    """Return what a decision is about: several that wait, or one; none for fleet or queue."""
    match decision:
        case Wait():
            return decision.workloads
        case Freeze() | Warn():
            return ()
        case _:
            return (decision.workload,)
