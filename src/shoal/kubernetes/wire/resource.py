"""Dynamic resource allocation (`resource.k8s.io/v1`): slices, classes and claims."""

from datetime import datetime

import msgspec

from shoal.kubernetes.wire.meta import EMPTY, Object, Wire, own
from shoal.kubernetes.wire.node import Taint


class DeviceAttribute(Wire, frozen=True):
    """One fact about a device; exactly one field is set."""

    string: str | None = None
    version: str | None = None
    integer: int | None = msgspec.field(name="int", default=None)
    boolean: bool | None = msgspec.field(name="bool", default=None)


class DeviceCapacity(Wire, frozen=True):
    """How much of something a device has, as a quantity."""

    value: str = "0"


class Counter(Wire, frozen=True):
    """An amount that partitions of one device share, as a quantity."""

    value: str = "0"


class CounterConsumption(Wire, frozen=True):
    """What a device takes from a shared set of counters when it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class CounterSet(Wire, frozen=True):
    """Counters that the devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = {}


class Device(Wire, frozen=True):
    """A device that a driver offers. Its identity is driver, pool and name."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    taints: tuple[Taint, ...] = ()
    allow_multiple_allocations: bool = False
    node_name: str = ""
    all_nodes: bool = False


class ResourcePool(Wire, frozen=True):
    """A pool is usable when all slices of its highest generation are there."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True):
    """Devices of one pool and where they can be reached; `node_selector` is raw JSON."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: msgspec.Raw = EMPTY
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()

    def __post_init__(self) -> None:
        """Cut the raw subtree off the message that it came in."""
        if self.node_selector:
            msgspec.structs.force_setattr(self, "node_selector", own(self.node_selector))


class ResourceSlice(Object, frozen=True):
    """A part of a driver's pool of devices."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


class CelSelector(Wire, frozen=True):
    """An expression over a device."""

    expression: str = ""


class DeviceSelector(Wire, frozen=True):
    """A condition that a device must meet."""

    cel: CelSelector = CelSelector()


class DeviceClassSpec(Wire, frozen=True):
    """Which devices the class means, and the extended resource that stands for it, if any."""

    selectors: tuple[DeviceSelector, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Object, frozen=True):
    """A named kind of device."""

    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequest(Wire, frozen=True):
    """How much of a shared device is asked for, as quantities."""

    requests: dict[str, str] = {}


class DeviceAsk(Wire, frozen=True):
    """What a request, or one alternative of it, asks for; `name` only in alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    capacity: CapacityRequest | None = None


class DeviceRequest(Wire, frozen=True):
    """One request of a claim: exactly this, or the first of these that is available."""

    name: str = ""
    exactly: DeviceAsk | None = None
    first_available: tuple[DeviceAsk, ...] = ()


class ClaimDevices(Wire, frozen=True):
    """The requests of a claim; `constraints` is raw JSON."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: msgspec.Raw = EMPTY

    def __post_init__(self) -> None:
        """Cut the raw subtree off the message that it came in."""
        if self.constraints:
            msgspec.structs.force_setattr(self, "constraints", own(self.constraints))


class ResourceClaimSpec(Wire, frozen=True):
    """What a claim asks for; it never changes."""

    devices: ClaimDevices = ClaimDevices()


class AllocatedDevice(Wire, frozen=True):
    """One device that a claim holds."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(name="shareID", default="")
    consumed_capacity: dict[str, str] = {}
    admin_access: bool = False


class AllocatedDevices(Wire, frozen=True):
    """The devices that a claim holds."""

    results: tuple[AllocatedDevice, ...] = ()


class Allocation(Wire, frozen=True):
    """What kube-scheduler gave to a claim."""

    devices: AllocatedDevices = AllocatedDevices()
    allocation_timestamp: datetime | None = None


class Consumer(Wire, frozen=True):
    """Who may use an allocated claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(Wire, frozen=True):
    """What a claim holds and for whom."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(Object, frozen=True):
    """A claim on devices."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
