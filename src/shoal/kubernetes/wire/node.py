"""Nodes and namespaces."""

from datetime import datetime

from shoal.kubernetes.wire.meta import Conditioned, Object, Wire


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


class Namespace(Object, frozen=True):
    """A namespace; its labels say whether Shoal manages it."""

    status: NamespaceStatus = NamespaceStatus()
