"""Pods, as far as planning, carrying out and accounting need them."""

from datetime import datetime

import msgspec

from shoal.kubernetes.wire.meta import EMPTY, Conditioned, Object, ObjectMeta, Wire, own


class SchedulingGate(Wire, frozen=True):
    """A gate that holds a pod back from kube-scheduler."""

    name: str = ""


class Toleration(Wire, frozen=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ContainerClaim(Wire, frozen=True):
    """A container's use of one of its pod's claims; without `request`, of the whole claim."""

    name: str = ""
    request: str = ""


class Resources(Wire, frozen=True):
    """What a container asks for, as quantities by resource name."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    claims: tuple[ContainerClaim, ...] = ()


class Container(Wire, frozen=True):
    """A container; an init container with `restart_policy` `Always` is a sidecar."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class PodClaim(Wire, frozen=True):
    """A claim that a pod brings: an existing one by name, or one made from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class SchedulingGroup(Wire, frozen=True):
    """The pod's place in a PodGroup of scheduling.k8s.io."""

    pod_group_name: str = ""


class PodSpec(Wire, frozen=True):
    """What a pod asks for. `affinity` and `topology_spread_constraints` are raw JSON."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: msgspec.Raw = EMPTY
    topology_spread_constraints: msgspec.Raw = EMPTY
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources | None = None
    overhead: dict[str, str] = {}
    resource_claims: tuple[PodClaim, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    runtime_class_name: str = ""
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None

    def __post_init__(self) -> None:
        """Cut the raw subtrees off the message that they came in."""
        if self.affinity:
            msgspec.structs.force_setattr(self, "affinity", own(self.affinity))
        if self.topology_spread_constraints:
            spread = own(self.topology_spread_constraints)
            msgspec.structs.force_setattr(self, "topology_spread_constraints", spread)


class Terminated(Wire, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Running(Wire, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class Waiting(Wire, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True):
    """One of three, or none of them while nothing is known."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class DeviceHealth(Wire, frozen=True):
    """One device that the kubelet gave to a container, and how it fares."""

    resource_id: str = msgspec.field(name="resourceID", default="")
    health: str = ""


class AllocatedResource(Wire, frozen=True):
    """The devices of one resource, or of one claim, that a container holds (1.36 and later)."""

    name: str = ""
    resources: tuple[DeviceHealth, ...] = ()


class ContainerStatus(Wire, frozen=True):
    """How a container fares."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources: dict[str, str] = {}
    allocated_resources_status: tuple[AllocatedResource, ...] = ()


class PodClaimStatus(Wire, frozen=True):
    """Which claim stands for an entry of `spec.resource_claims`."""

    name: str = ""
    resource_claim_name: str = ""


class ExtendedClaimMapping(Wire, frozen=True):
    """Which request of the claim serves which container's extended resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedClaimStatus(Wire, frozen=True):
    """The claim that kube-scheduler made for extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedClaimMapping, ...] = ()


class PodStatus(Conditioned, frozen=True):
    """How a pod fares."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    start_time: datetime | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class Pod(Object, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ended(self) -> bool:
        """Whether all its containers have stopped for good."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_terminating(self) -> bool:
        """Whether its deletion has been asked for."""
        return self.metadata.deletion_timestamp is not None

    def has_gate(self, name: str) -> bool:
        """Whether this scheduling gate still holds the pod."""
        return any(gate.name == name for gate in self.spec.scheduling_gates)


class PodTemplate(Wire, frozen=True):
    """What a controller makes pods from."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
