"""Leases, events, quotas, disruption budgets, ConfigMaps and admission policies."""

from datetime import datetime

import msgspec

from shoal.kubernetes.wire.meta import EMPTY, Conditioned, Object, ObjectReference, Wire, own


class LeaseSpec(Wire, frozen=True):
    """Who holds a lease, and the terms. Its times are stamps of other clocks: never judged."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None


class Lease(Object, frozen=True):
    """A lease of `coordination.k8s.io/v1`."""

    spec: LeaseSpec = LeaseSpec()


class EventSeries(Wire, frozen=True):
    """How often the same thing happened, and when last."""

    count: int = 0
    last_observed_time: datetime | None = None


class Event(Object, frozen=True):
    """An event of `events.k8s.io/v1`."""

    event_time: datetime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""


class ResourceQuotaSpec(Wire, frozen=True):
    """What a namespace may have, as quantities; `scope_selector` is raw JSON."""

    hard: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: msgspec.Raw = EMPTY

    def __post_init__(self) -> None:
        """Cut the raw subtree off the message that it came in."""
        if self.scope_selector:
            msgspec.structs.force_setattr(self, "scope_selector", own(self.scope_selector))


class ResourceQuotaStatus(Wire, frozen=True):
    """What is enforced and what is used, as quantities."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(Object, frozen=True):
    """A quota of Kubernetes itself: a fence around a namespace."""

    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class DisruptionBudgetSpec(Wire, frozen=True):
    """Which pods are protected; `selector` is raw JSON, the bounds a count or a percentage."""

    selector: msgspec.Raw = EMPTY
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    def __post_init__(self) -> None:
        """Cut the raw subtree off the message that it came in."""
        if self.selector:
            msgspec.structs.force_setattr(self, "selector", own(self.selector))


class DisruptionBudgetStatus(Conditioned, frozen=True):
    """How many disruptions are allowed now."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class DisruptionBudget(Object, frozen=True):
    """A PodDisruptionBudget."""

    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class ConfigMap(Object, frozen=True):
    """A ConfigMap; in JSON, `binary_data` is base64."""

    binary_data: dict[str, bytes] = {}


class AdmissionPolicy(Object, frozen=True):
    """An admission policy or its binding; `spec` is raw JSON."""

    spec: msgspec.Raw = EMPTY

    def __post_init__(self) -> None:
        """Cut the raw subtree off the message that it came in."""
        if self.spec:
            msgspec.structs.force_setattr(self, "spec", own(self.spec))
