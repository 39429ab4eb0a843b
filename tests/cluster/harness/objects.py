"""Objects that many tests create, as short calls. What a test needs besides it adds itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.harness.fake_objects import DRIVER, RESOURCE

Body = dict[str, Any]


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Body:
    """A namespace. Kubernetes makes its service account a moment later: Cluster.namespace waits."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": dict(labels or {})},
    }


def pod_spec(devices: int = 0, *, claims: Mapping[str, str] | None = None, **spec: Any) -> Body:
    """The spec of a pod with one container.

    devices: how many `nvidia.com/gpu` it asks for. claims: names of ResourceClaims by the names
    that the pod has for them. spec: further fields, as Kubernetes calls them.
    """
    container: Body = {"name": "main", "image": "none"}
    resources: Body = {}
    if devices:
        resources["limits"] = {RESOURCE: str(devices)}
    if claims:
        resources["claims"] = [{"name": each} for each in claims]
        spec["resourceClaims"] = [
            {"name": each, "resourceClaimName": claim} for each, claim in claims.items()
        ]
    if resources:
        container["resources"] = resources
    return {"containers": [container], "restartPolicy": "Never", **spec}


def pod(
    name: str,
    devices: int = 0,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    claims: Mapping[str, str] | None = None,
    **spec: Any,
) -> Body:
    """A pod with one container (see pod_spec)."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": pod_spec(devices, claims=claims, **spec),
    }


def job(
    name: str,
    devices: int = 0,
    *,
    parallelism: int = 1,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Body:
    """A Job whose pods run at once. fields: of its spec; spec: of its pods' spec."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            **(fields or {}),
            "template": {
                "metadata": {"annotations": dict(annotations or {})},
                "spec": pod_spec(devices, **spec),
            },
        },
    }


def claim(name: str, uuids: Sequence[str], *, namespace: str = "default") -> Body:
    """A ResourceClaim for exactly these devices of the driver gpu.nvidia.com, by their uuids."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": f"gpu-{index}",
                        "exactly": {
                            "deviceClassName": DRIVER,
                            "selectors": [
                                {
                                    "cel": {
                                        "expression": f'device.attributes["{DRIVER}"].uuid '
                                        f'== "{each}"'
                                    }
                                }
                            ],
                        },
                    }
                    for index, each in enumerate(uuids)
                ]
            }
        },
    }


def allocated(claim: Body) -> list[tuple[str, str]]:
    """The (pool, device) pairs that a claim holds, in the order of its requests."""
    allocation = claim.get("status", {}).get("allocation", {})
    return [
        (each["pool"], each["device"]) for each in allocation.get("devices", {}).get("results", [])
    ]


def running(pod: Body) -> bool:
    """Whether a pod runs and is ready."""
    return pod["status"].get("phase") == "Running" and condition(pod, "Ready") == "True"


def condition(body: Body, kind: str) -> str | None:
    """The status of an object's condition: "True", "False", "Unknown"; None if it has none."""
    for each in body.get("status", {}).get("conditions") or []:
        if each["type"] == kind:
            status: str = each["status"]
            return status
    return None
