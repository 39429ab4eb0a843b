"""What a fake node writes about its pods: the slim view of a pod, and bodies of patches."""

import datetime
from typing import Any

import msgspec

Body = dict[str, Any]


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str = ""
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Resources(msgspec.Struct):
    limits: dict[str, str | int] = {}


class Container(msgspec.Struct):
    name: str
    image: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)


class Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []


class DeviceHealth(msgspec.Struct, rename={"id": "resourceID"}):
    id: str
    health: str = "Healthy"


class Allocated(msgspec.Struct):
    name: str
    resources: list[DeviceHealth] = []


class ContainerStatus(msgspec.Struct, rename="camel"):
    name: str
    allocated_resources_status: list[Allocated] = []


class Status(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    container_statuses: list[ContainerStatus] = []


class Pod(msgspec.Struct):
    metadata: Meta
    spec: Spec
    status: Status = msgspec.field(default_factory=Status)

    @property
    def terminal(self) -> bool:
        """Whether its containers have ended."""
        return self.status.phase in ("Succeeded", "Failed")

    def seconds(self, annotation: str) -> float:
        """A time that its annotations give, 0 if they do not."""
        return float(self.metadata.annotations.get(f"fake-node/{annotation}", 0))

    def wanted(self, resource: str) -> dict[str, int]:
        """How many devices of a resource each container asks for, those that ask for any."""
        return {
            each.name: count
            for each in self.spec.containers
            if (count := int(each.resources.limits.get(resource, 0)))
        }

    def reported(self, resource: str) -> dict[str, list[str]]:
        """Which devices each container holds, as the pod's status has it."""
        return {
            each.name: [device.id for device in allocated.resources]
            for each in self.status.container_statuses
            for allocated in each.allocated_resources_status
            if allocated.name == resource
        }


class PodList(msgspec.Struct):
    metadata: "ListMeta"
    items: list[Pod]


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


def now() -> str:
    """The time, as the API writes it in `metav1.Time`."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def address(node: int, pod: int = 0) -> str:
    """An address that nothing uses: 10.128.0.0 upward, one block of 256 to a node."""
    return f"10.{128 + node // 256 % 128}.{node % 256}.{pod % 254 + 1}"


def running(pod: Pod, host_ip: str, pod_ip: str, resource: str, held: dict[str, list[str]]) -> Body:
    """The status patch that a started pod gets: one write, where a kubelet makes two."""
    at = now()
    ready = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    status: Body = {
        "phase": "Running",
        "startTime": at,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": [_condition(each, "True", at) for each in ready],
        "containerStatuses": [
            {
                **_container(each, pod),
                "ready": True,
                "started": True,
                "state": {"running": {"startedAt": at}},
                **_allocated(resource, held.get(each.name, [])),
            }
            for each in pod.spec.containers
        ],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [
            {
                **_container(each, pod),
                "ready": True,
                "started": False,
                "state": {"terminated": _terminated(0, at)},
            }
            for each in pod.spec.init_containers
        ]
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def ended(pod: Pod, exit_code: int) -> Body:
    """The status patch of a pod whose containers have all ended."""
    at = now()
    reason = "PodCompleted" if exit_code == 0 else "PodFailed"
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": "Succeeded" if exit_code == 0 else "Failed",
            "conditions": [
                {**_condition(each, "False", at), "reason": reason}
                for each in ("ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    **_container(each, pod),
                    "ready": False,
                    "started": False,
                    "state": {"terminated": _terminated(exit_code, at)},
                }
                for each in pod.spec.containers
            ],
        },
    }


def refused(pod: Pod, resource: str, wanted: int, free: int) -> Body:
    """The status patch of a pod that a kubelet does not admit, for want of devices."""
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": "Failed",
            "reason": f"OutOf{resource}",
            "message": f"Pod was rejected: Node didn't have enough resource: {resource}, "
            f"requested: {wanted}, free: {free}",
            "startTime": now(),
        },
    }


def _condition(kind: str, status: str, at: str) -> Body:
    return {"type": kind, "status": status, "lastTransitionTime": at}


def _container(container: Container, pod: Pod) -> Body:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": container.image,
        "containerID": f"fake://{pod.metadata.uid}/{container.name}",
        "restartCount": 0,
    }


def _terminated(exit_code: int, at: str) -> Body:
    return {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "startedAt": at,
        "finishedAt": at,
    }


def _allocated(resource: str, ids: list[str]) -> Body:
    if not ids:
        return {}
    health = [{"resourceID": each, "health": "Healthy"} for each in ids]
    return {"allocatedResourcesStatus": [{"name": resource, "resources": health}]}
