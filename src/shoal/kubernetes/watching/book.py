"""What those who wait are compared with: a protocol, so that both sides can be read alone."""

from collections.abc import Sequence
from typing import Protocol

from shoal.core.world import World
from shoal.kubernetes.executing.plans import Kept, PlanNote
from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.watching.fleet import FleetView
from shoal.kubernetes.watching.flights import Flight
from shoal.kubernetes.watching.truth import Truth
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.workload import Job, ReplicaSet, StatefulSet


class Book(Protocol):
    """What the units read of the rest of the source."""

    truth: Truth
    world: World
    fleet: FleetView
    jobs: dict[str, Job]
    replica_sets: dict[str, ReplicaSet]
    stateful_sets: dict[str, StatefulSet]
    flights: dict[str, Flight]
    flights_of: dict[str, set[str]]
    replans: set[str]
    kept: dict[str, Kept]

    def ask(self, pod: Pod) -> Ask:
        """What a pod asks for."""
        ...

    def wishes_known(self, owner: str) -> bool:
        """Whether it is known how many pods a controller wants."""
        ...

    def is_strange(self, pod: Pod) -> bool:
        """Whether a pod that names a Job or ReplicaSet as its controller was not made for it."""
        ...

    def truth_of(self, uid: str) -> Pod | None:
        """The pod with this uid as it was last seen."""
        ...

    def is_seated(self, pod: str) -> bool:
        """Whether a pod has its place in a start."""
        ...

    def is_ours(self, pod: Pod, note: PlanNote) -> bool:
        """Whether a note is one that Shoal made for this pod, and still holds."""
        ...

    def is_spare(self, uid: str, ask: Ask) -> bool:
        """Whether a service can do without its replica in the slot of this workload."""
        ...

    def fill(self, owner: str, pods: Sequence[Pod], now_us: int) -> list[Pod]:
        """Seat pods in empty seats of their owner's starts; returns those left over."""
        ...
