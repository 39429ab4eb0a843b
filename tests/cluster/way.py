"""Shoal's scheduler on a cluster of the tests, and pods as admission would leave them."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from shoal.kubernetes.admission.installation import RIGHTS
from tests.cluster.admission import ACCOUNT, Admission
from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import job, namespace, pod

Body = dict[str, Any]

POD = "v1/Pod"
JOB = "batch/v1/Job"
NODE = "v1/Node"
CLAIM = "resource.k8s.io/v1/ResourceClaim"
DEPLOYMENT = "apps/v1/Deployment"
GATES = [{"name": "shoal.dev/plan"}]
SHOAL = str(Path(sys.executable).parent / "shoal")


class Shoal:
    """One scheduler process. `check` compares its world with the API server."""

    def __init__(self, cluster: Cluster, name: str = "shoal", **options: Any) -> None:
        self.cluster = cluster
        self.kubeconfig = options.pop("kubeconfig", cluster.kubeconfig)
        known = {"refused_after": 2, "listen": "127.0.0.1:0", "lease_namespace": "default"}
        argv = [SHOAL, "scheduler", "--kubeconfig", str(self.kubeconfig)]
        for key, value in (known | options).items():
            option = key.replace("_", "-")
            argv += [f"--{option}"] + ([] if value is None else [str(value)])
        self.process = cluster.make(name, argv)
        self.url = ""
        self._logged = 0
        self.start()

    def start(self) -> None:
        """Start it, or start it again, and wait until it serves."""
        self._logged = len(self.log())
        self.process.start()
        self.url = eventually(self._serving, 30, self.process.tail)

    def _serving(self) -> str:
        lines = [line for line in self.log()[self._logged :] if line.get("event") == "serving"]
        return f"http://127.0.0.1:{lines[-1]['port']}" if lines else ""

    def log(self) -> list[Body]:
        """What it has logged so far."""
        if not self.process.log.exists():
            return []
        text = self.process.log.read_text().splitlines()
        return [json.loads(line) for line in text if line.startswith("{")]

    def get(self, path: str) -> bytes:
        """What it serves under a path."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:  # noqa: S310 (ours)
            return bytes(answer.read())

    def metric(self, name: str) -> float:
        """The value of a metric, by name with its labels."""
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"there is no metric {name}")

    @property
    def leads(self) -> bool:
        """Whether it decides."""
        return self.metric("shoal_leader") == 1

    def check(self) -> None:
        """Both a world made anew and the running one agree with the API server."""
        ask(self.cluster, "check", "--consistency", "--scheduler", self.url)


def account(admission: Admission) -> Path:
    """The kubeconfig of Shoal's own account, which has just the rights of its scheduler."""
    cluster = admission.cluster
    admission.grant("scheduler", ACCOUNT)
    rules = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [*right.verbs]}
        for right in RIGHTS
        if right.process == "scheduler" and right.namespaced
    ]
    rbac = "rbac.authorization.k8s.io"
    meta = {"name": "shoal-scheduler", "namespace": "shoal"}
    api = f"{rbac}/v1"
    cluster.api.apply({"apiVersion": api, "kind": "Role", "metadata": meta, "rules": rules})
    role = {"apiGroup": rbac, "kind": "Role", "name": meta["name"]}
    subject = {"apiGroup": rbac, "kind": "User", "name": ACCOUNT}
    binding = {"roleRef": role, "subjects": [subject], "metadata": meta}
    cluster.api.apply({"apiVersion": api, "kind": "RoleBinding", **binding})
    return cluster.user(ACCOUNT)


def ask(cluster: Cluster, *arguments: str) -> str:
    """Run a command against the cluster; returns what it prints."""
    argv = [SHOAL, *arguments, "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def managed(cluster: Cluster, name: str = "team", channel: str = "device-plugin") -> str:
    """A managed namespace, ready for pods."""
    labels = {"shoal.dev/mode": "manage", "shoal.dev/channel": channel}
    cluster.api.create(namespace(name, labels))
    cluster.api.wait("v1/ServiceAccount", "default", name, until=bool)
    return name


def gated(name: str, devices: int = 1, namespace: str = "team", **more: Any) -> Body:
    """A gated pod of the device-plugin channel."""
    return pod(name, devices, namespace=namespace, schedulingGates=GATES, **more)


def gated_job(
    name: str, parallelism: int, devices: int = 1, *, retries: int = 0, **more: Any
) -> Body:
    """A Job whose pods are gated."""
    body = job(
        name, devices, parallelism=parallelism, namespace="team", schedulingGates=GATES, **more
    )
    body["spec"]["backoffLimit"] = retries
    return body


def gated_deployment(name: str, replicas: int, devices: int = 1) -> Body:
    """A Deployment whose pods are gated."""
    labels = {"app": name}
    template = gated(name, devices, labels=labels)
    template["spec"]["restartPolicy"] = "Always"
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def claiming(name: str, devices: int = 1, namespace: str = "claims") -> Body:
    """A gated pod as the webhook leaves it on the DRA channel."""
    claim = f"{name}.shoal.dev"
    asked = {"asked": {"main": {"nvidia.com/gpu": str(devices)}}, "name": claim}
    return pod(
        name,
        namespace=namespace,
        claims={"shoal": claim},
        annotations={"shoal.dev/claim": json.dumps(asked)},
        schedulingGates=GATES,
    )


def node_of(body: Body) -> str:
    """Where a pod is bound; empty if it is not."""
    found: str = body["spec"].get("nodeName", "")
    return found


def bound(cluster: Cluster, namespace: str = "team") -> dict[str, str]:
    """Node by name of the pods of a namespace that are bound and have not ended."""
    return {
        each["metadata"]["name"]: node_of(each)
        for each in cluster.api.list(POD, namespace)
        if node_of(each) and each["status"].get("phase") not in ("Succeeded", "Failed")
    }


def wait_bound(
    cluster: Cluster, count: int, namespace: str = "team", seconds: float = 30
) -> dict[str, str]:
    """Wait until just so many pods of a namespace are bound."""

    def holds() -> dict[str, str] | None:
        now = bound(cluster, namespace)
        return now if len(now) == count else None

    return eventually(holds, seconds, lambda: f"bound are {bound(cluster, namespace)}")


def events_of(cluster: Cluster, name: str, namespace: str = "team") -> list[tuple[str, str]]:
    """Reason and note of what Shoal said about a pod."""
    return [
        (each["reason"], each["note"])
        for each in cluster.api.list("events.k8s.io/v1/Event", namespace)
        if each["regarding"].get("name") == name
        and each.get("reportingController") == "shoal.dev/scheduler"
    ]
