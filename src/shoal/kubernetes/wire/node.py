"""Nodes and namespaces."""

from datetime import datetime

import msgspec

from shoal.kubernetes.wire.meta import EMPTY, Conditioned, Object, ObjectMeta, Wire, own


class Taint(Wire, frozen=True):
    """What keeps pods off a node, or a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Wire, frozen=True):
    """What people set on a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(Wire, frozen=True):
    """Versions of what runs on a node."""

    kubelet_version: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    architecture: str = ""


class NodeStatus(Conditioned, frozen=True):
    """What a node offers (quantities by resource name) and how it fares."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    node_info: NodeInfo = NodeInfo()


class Node(Object, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the node's condition `Ready` says `True`."""
        return self.status.is_true("Ready")


class NamespaceStatus(Wire, frozen=True):
    """Where a namespace is in its life."""

    phase: str = ""


class ManagedFields(Wire, frozen=True):
    """What one writer of an object wrote last, and when."""

    time: datetime | None = None
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default=EMPTY)

    def __post_init__(self) -> None:
        """Cut the fields off the message that they came in."""
        msgspec.structs.force_setattr(self, "fields_v1", own(self.fields_v1))


class NamespaceMeta(ObjectMeta, frozen=True):
    """The metadata of a namespace, with who wrote which label when."""

    managed_fields: tuple[ManagedFields, ...] = ()


class Namespace(Object, frozen=True):
    """A namespace; its labels say whether Shoal manages it."""

    metadata: NamespaceMeta = NamespaceMeta()
    status: NamespaceStatus = NamespaceStatus()
