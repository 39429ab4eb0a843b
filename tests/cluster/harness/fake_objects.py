"""What a fake node publishes about itself: Node, Lease, ResourceSlice, and the DeviceClass."""

import datetime
import uuid
from typing import Any, Literal

import msgspec

from tests.cluster.harness.fake_pods import address, now

Body = dict[str, Any]

RESOURCE = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"  # also the DeviceClass that the driver's chart installs
LEASES = "kube-node-lease"
LEASE_S = 40  # the kubelet's own default for nodeLeaseDurationSeconds


class Group(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes that are alike (FakeNodes.add says what the fields mean)."""

    name: str
    count: int = 1
    devices: int = 8
    channels: tuple[Literal["device-plugin", "dra"], ...] = ("device-plugin",)
    product: str = "NVIDIA-H100-80GB-HBM3"
    memory_mib: int = 81559
    shared: bool = False
    cpu: str = "192"
    memory: str = "2048Gi"
    pods: int = 110
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []


def device_ids(node: str, count: int) -> list[str]:
    """The uuids of a node's devices, the same whenever the node is made again."""
    return [f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}')}" for index in range(count)]


def node(group: Group, name: str, number: int, allocatable: int) -> Body:
    """The Node, ready from its first moment: a Node's status may be given when it is created."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    if group.devices:
        # What GPU feature discovery writes.
        labels |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": group.product,
            "nvidia.com/gpu.memory": str(group.memory_mib),
            "nvidia.com/gpu.count": str(group.devices),
        }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, **group.labels}},
        "spec": {"taints": group.taints},
        "status": {
            **resources(group, group.devices, allocatable),
            "addresses": [
                {"type": "InternalIP", "address": address(number)},
                {"type": "Hostname", "address": name},
            ],
            "conditions": conditions(ready=True),
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "fake",
                "kernelVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "containerRuntimeVersion": "fake://1",
                "kubeletVersion": "v1.37.2",
                "kubeProxyVersion": "",
            },
        },
    }


def resources(group: Group, capacity: int, allocatable: int) -> Body:
    """Capacity and allocatable of a node's status."""
    common = {"cpu": group.cpu, "memory": group.memory, "pods": str(group.pods)}
    common["ephemeral-storage"] = "1Ti"
    if "device-plugin" not in group.channels or not group.devices:
        return {"capacity": common, "allocatable": common}
    return {
        "capacity": {**common, RESOURCE: str(capacity)},
        "allocatable": {**common, RESOURCE: str(allocatable)},
    }


def conditions(*, ready: bool) -> list[Body]:
    """A node's conditions: what kubelets report."""
    at = now()
    kinds = {
        "Ready": "True" if ready else "False",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }
    return [
        {
            "type": kind,
            "status": status,
            "reason": "FakeNode",
            "message": "",
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
        for kind, status in kinds.items()
    ]


def renewal() -> Body:
    """The spec of a Lease that is renewed now (metav1.MicroTime)."""
    at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"renewTime": at}


def lease(name: str, owner: Body) -> Body:
    """The node's Lease, owned by the Node as a kubelet's is."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, **renewal()},
    }


def owner(name: str, uid: str) -> Body:
    """The reference by which a node's Lease and slices go when it goes."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


def slice_name(name: str) -> str:
    """What the node's ResourceSlice is called."""
    return f"{name}-{DRIVER}"


def resource_slice(
    group: Group, name: str, reference: Body, healthy: dict[int, str], generation: int
) -> Body:
    """The node's ResourceSlice; `healthy` has the uuid of each device that is offered."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(name), "ownerReferences": [reference]},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": 1},
            "devices": [_device(group, index, each) for index, each in healthy.items()],
        },
    }


def _device(group: Group, index: int, identity: str) -> Body:
    device: Body = {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": identity},
            "productName": {"string": group.product.replace("-", " ")},
        },
        "capacity": {"memory": {"value": f"{group.memory_mib}Mi"}},
    }
    if group.shared:
        device["allowMultipleAllocations"] = True
    return device


def device_class() -> Body:
    """The DeviceClass for whole devices of the driver."""
    whole = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": whole}}]},
    }
