"""Objects of a cluster in memory, as short calls."""

from typing import Any

import msgspec

Body = dict[str, Any]
PLUGIN = "nvidia.com/gpu"


def node(name: str, devices: int = 8, **status: str) -> Body:
    """A ready node that counts devices."""
    return {
        "metadata": {
            "name": name,
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "nvidia.com/gpu.count": str(devices),
            },
        },
        "spec": {},
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}
            | ({PLUGIN: str(devices)} if devices else {})
            | status,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def slice_of(name: str, devices: int = 8) -> Body:
    """The ResourceSlice of a node."""
    return {
        "metadata": {"name": f"{name}-slice"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"{name}-gpu-{n}",
                    "attributes": {
                        "type": {"string": "gpu"},
                        "uuid": {"string": f"GPU-{name}-{n}"},
                        "productName": {"string": "NVIDIA H100 80GB HBM3"},
                    },
                    "capacity": {"memory": {"value": "81559Mi"}},
                }
                for n in range(devices)
            ],
        },
    }


def namespace(name: str = "ns", mode: str = "manage", channel: str = "device-plugin") -> Body:
    labels = {"shoal.dev/mode": mode, "shoal.dev/channel": channel}
    return {"metadata": {"name": name, "labels": labels}}


def pod(
    name: str,
    devices: int = 1,
    *,
    owner: Body | None = None,
    owner_kind: str = "Job",
    gated: bool = True,
    namespace: str = "ns",
    dra: bool = False,
    notes: Body | None = None,
    **spec: Any,
) -> Body:
    """A pod as admission leaves it, with these annotations."""
    meta: Body = {"name": name, "namespace": namespace, "ownerReferences": []}
    meta |= {"annotations": {**(notes or {})}, "uid": f"uid-{name}"}
    if owner is not None:
        version = "batch/v1" if owner_kind == "Job" else "apps/v1"
        reference = {"apiVersion": version, "kind": owner_kind, "controller": True}
        meta["ownerReferences"] = [
            reference | {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        ]
        if owner_kind == "Job":
            meta["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    container: Body = {"name": "main", "resources": {"limits": {PLUGIN: str(devices)}}}
    body: Body = {"metadata": meta, "spec": {"containers": [container]}, "status": {}}
    if dra:
        claim = f"{name}.shoal.dev"
        container["resources"] = {"claims": [{"name": "shoal"}]}
        body["spec"]["resourceClaims"] = [{"name": "shoal", "resourceClaimName": claim}]
        asked_for = {"asked": {"main": {PLUGIN: str(devices)}}, "name": claim}
        meta["annotations"]["shoal.dev/claim"] = msgspec.json.encode(asked_for).decode()
    if gated:
        body["spec"]["schedulingGates"] = [{"name": "shoal.dev/plan"}]
    body["spec"] |= spec
    return body


def job(name: str, parallelism: int, completions: int | None = None, **make: Any) -> Body:
    spec = {"parallelism": parallelism}
    if completions is not None:
        spec["completions"] = completions
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": spec,
        "status": {},
        "make": make,
    }


def replica_set(name: str, replicas: int, **make: Any) -> Body:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": {"replicas": replicas}, "status": {}, "make": make}
