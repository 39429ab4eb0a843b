"""The kinds of object that Shoal reads: where they live, and one decoder for each."""

from typing import Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from shoal.kubernetes.api.errors import Status, WireError, status_error
from shoal.kubernetes.wire.cluster import (
    AdmissionPolicy,
    ConfigMap,
    DisruptionBudget,
    Event,
    Lease,
    ResourceQuota,
)
from shoal.kubernetes.wire.meta import ListMeta, Object, Wire
from shoal.kubernetes.wire.node import Namespace, Node
from shoal.kubernetes.wire.pod import Pod
from shoal.kubernetes.wire.resource import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from shoal.kubernetes.wire.workload import Job, ReplicaSet, StatefulSet

T = TypeVar("T", bound=Object)


class WatchEvent(Wire, Generic[T], frozen=True):
    """One line of a watch: `type` is `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`."""

    type: str
    object: T


class Page(Wire, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()


class _OddEvent(Wire, frozen=True):
    """A line whose object is not a whole object of its kind."""

    type: str
    object: msgspec.Raw


_odd_event = msgspec.json.Decoder(_OddEvent)
_bare_object = msgspec.json.Decoder(Object)
_status = msgspec.json.Decoder(Status)


class Kind(Generic[T]):
    """A kind of object: its place in the API and its decoders, built once."""

    def __init__(
        self,
        type_: type[T],
        *,
        name: str,
        plural: str,
        group: str = "",
        version: str = "v1",
        namespaced: bool = True,
    ) -> None:
        """Name the kind; `name` is what manifests call it, `plural` what paths call it."""
        self.type = type_
        self.name = name
        self.plural = plural
        self.group = group
        self.version = version
        self.namespaced = namespaced
        self._object = msgspec.json.Decoder(type_)
        self._page = msgspec.json.Decoder(Page[type_])  # type: ignore[valid-type]
        self._event = msgspec.json.Decoder(WatchEvent[type_])  # type: ignore[valid-type]

    def __repr__(self) -> str:
        return f"Kind({self.resource})"

    @property
    def api_version(self) -> str:
        """What manifests write as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def api_path(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def resource(self) -> str:
        """Plural and group, as `kubectl` writes them: `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of one object, of a namespace's objects, or (no namespace) of all.

        Raises ValueError for a namespace where the kind has none, and for a name without one.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.resource} have no namespace; {namespace!r} was given")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.resource} live in namespaces; give one for {name!r}")
        parts = [self.api_path]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)

    def read(self, body: bytes) -> T:
        """One object. Raises WireError."""
        try:
            return self._object.decode(body)
        except msgspec.DecodeError as error:
            raise WireError(f"cannot read an object of {self.resource}: {error}") from error

    def read_page(self, body: bytes) -> Page[T]:
        """One page of a list. Raises WireError."""
        try:
            return self._page.decode(body)
        except msgspec.DecodeError as error:
            raise WireError(f"cannot read a list of {self.resource}: {error}") from error

    def read_event(self, line: bytes) -> WatchEvent[T]:
        """One line of a watch.

        Raises the StatusError that a line of type `ERROR` carries, and WireError. Whole objects are
        decoded in one pass; only a line that does not fit is looked at again.
        """
        try:
            event = self._event.decode(line)
        except msgspec.DecodeError as error:
            try:
                return self._read_odd_event(line)
            except msgspec.DecodeError:
                raise WireError(f"cannot read an event of {self.resource}: {error}") from error
        # A Status may look like an empty object of a kind that has no status.
        return self._read_odd_event(line) if event.type == "ERROR" else event

    def _read_odd_event(self, line: bytes) -> WatchEvent[T]:
        """An error, or a bookmark, whose object has metadata and otherwise the nulls of Go."""
        odd = _odd_event.decode(line)
        if odd.type == "ERROR":
            raise status_error(_status.decode(odd.object), f"WATCH {self.resource}")
        if odd.type == "BOOKMARK":
            metadata = _bare_object.decode(odd.object).metadata
            return WatchEvent(odd.type, self.type(metadata=metadata))
        return self._event.decode(line)


NODES: Final = Kind(Node, name="Node", plural="nodes", namespaced=False)
NAMESPACES: Final = Kind(Namespace, name="Namespace", plural="namespaces", namespaced=False)
PODS: Final = Kind(Pod, name="Pod", plural="pods")
CONFIG_MAPS: Final = Kind(ConfigMap, name="ConfigMap", plural="configmaps")
RESOURCE_QUOTAS: Final = Kind(ResourceQuota, name="ResourceQuota", plural="resourcequotas")

_RESOURCE: Final = "resource.k8s.io"
RESOURCE_SLICES: Final = Kind(
    ResourceSlice, name="ResourceSlice", plural="resourceslices", group=_RESOURCE, namespaced=False
)
DEVICE_CLASSES: Final = Kind(
    DeviceClass, name="DeviceClass", plural="deviceclasses", group=_RESOURCE, namespaced=False
)
RESOURCE_CLAIMS: Final = Kind(
    ResourceClaim, name="ResourceClaim", plural="resourceclaims", group=_RESOURCE
)

JOBS: Final = Kind(Job, name="Job", plural="jobs", group="batch")
REPLICA_SETS: Final = Kind(ReplicaSet, name="ReplicaSet", plural="replicasets", group="apps")
STATEFUL_SETS: Final = Kind(StatefulSet, name="StatefulSet", plural="statefulsets", group="apps")

LEASES: Final = Kind(Lease, name="Lease", plural="leases", group="coordination.k8s.io")
EVENTS: Final = Kind(Event, name="Event", plural="events", group="events.k8s.io")
DISRUPTION_BUDGETS: Final = Kind(
    DisruptionBudget, name="PodDisruptionBudget", plural="poddisruptionbudgets", group="policy"
)

_ADMISSION: Final = "admissionregistration.k8s.io"
MUTATING_POLICIES: Final = Kind(
    AdmissionPolicy,
    name="MutatingAdmissionPolicy",
    plural="mutatingadmissionpolicies",
    group=_ADMISSION,
    namespaced=False,
)
MUTATING_POLICY_BINDINGS: Final = Kind(
    AdmissionPolicy,
    name="MutatingAdmissionPolicyBinding",
    plural="mutatingadmissionpolicybindings",
    group=_ADMISSION,
    namespaced=False,
)
VALIDATING_POLICIES: Final = Kind(
    AdmissionPolicy,
    name="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    group=_ADMISSION,
    namespaced=False,
)
VALIDATING_POLICY_BINDINGS: Final = Kind(
    AdmissionPolicy,
    name="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    group=_ADMISSION,
    namespaced=False,
)
