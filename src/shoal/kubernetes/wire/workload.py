"""What owns pods: Jobs, ReplicaSets, Deployments and StatefulSets."""

from datetime import datetime

from shoal.kubernetes.wire.meta import Conditioned, Object, Wire
from shoal.kubernetes.wire.pod import PodTemplate


class JobSpec(Wire, frozen=True):
    """How many pods a Job runs, and on what terms."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = ""
    suspend: bool = False
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    pod_replacement_policy: str = ""
    managed_by: str = ""
    template: PodTemplate = PodTemplate()


class JobStatus(Conditioned, frozen=True):
    """How a Job fares."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None


class Job(Object, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def is_ended(self) -> bool:
        """Whether the Job is complete or has failed."""
        return self.status.is_true("Complete") or self.status.is_true("Failed")


class ReplicaSpec(Wire, frozen=True):
    """How many equal pods a controller keeps; `pod_management_policy` only on StatefulSets."""

    replicas: int = 1
    pod_management_policy: str = ""
    template: PodTemplate = PodTemplate()


class ReplicaStatus(Conditioned, frozen=True):
    """How many of its pods there are."""

    replicas: int = 0
    ready_replicas: int = 0


class ReplicaSet(Object, frozen=True):
    """A ReplicaSet."""

    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()


class StatefulSet(Object, frozen=True):
    """A StatefulSet."""

    spec: ReplicaSpec = ReplicaSpec()
    status: ReplicaStatus = ReplicaStatus()
