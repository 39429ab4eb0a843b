"""A real control plane on this machine: how much of kube-scheduler's own rate is left with Shoal.

Ratios of one run, as the API server, both schedulers, the fake nodes and whoever creates the pods
share the machine. kube-scheduler's and the controllers' client limits are raised for all.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.frame import Result, bench, peak_mib
from tests.cluster.admission import MANAGED, MANAGED_DRA, Admission
from tests.cluster.harness.api import Api, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import job, pod
from tests.cluster.way import Shoal, account

NODES = 1_000
PODS = 5_000
JOB_NODES = 200
JOBS = 700
COLD_PODS = 10_000
LONGEST_S = 900.0
FREED = 300
Body = dict[str, Any]


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815  (as Kubernetes writes it)


class _Meta(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_event = msgspec.json.Decoder(_Event)


class Tally:
    """Counts the bound pods of a namespace by one watch, in a thread of its own."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.last_s = 0.0
        self._bound: set[str] = set()
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    @property
    def bound(self) -> int:
        """How many pods have been seen on a node."""
        return len(self._bound)

    def wait(self, count: int) -> float:
        """When (monotonic) the last of so many pods was seen on a node."""
        eventually(lambda: self.bound >= count, LONGEST_S, lambda: f"{self.bound} are bound")
        return self.last_s

    def close(self) -> None:
        """End the watch."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _main(self) -> None:
        self._task = self._loop.create_task(self._watch())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _watch(self) -> None:
        async with Api(self._kubeconfig) as api:
            path = f"/api/v1/namespaces/{self._namespace}/pods"
            while True:
                async for line in api.watch(path, {}):
                    event = _event.decode(line)
                    if event.type in ("ADDED", "MODIFIED") and event.object.spec.nodeName:
                        name = event.object.metadata.name
                        if name not in self._bound:
                            self._bound.add(name)
                            self.last_s = time.monotonic()


@contextmanager
def _shoal(cluster: Cluster, admission: Admission | None = None) -> Iterator[Shoal]:
    """A scheduler that leads; behind admission, under the account that may lift gates."""
    own: dict[str, Any] = {}
    if admission is not None:
        own = {"kubeconfig": account(admission), "lease_namespace": "shoal"}
    shoal = Shoal(cluster, refused_after=30, **own)
    eventually(lambda: shoal.leads, 120, "it does not lead")
    yield shoal
    shoal.process.stop()


def _rate(cluster: Cluster, namespace: str, bodies: list[Body], pods: int) -> float:
    """Pods bound per second, from the first creation to the last binding."""
    tally = Tally(cluster.kubeconfig, namespace)
    time.sleep(1)
    began_s = time.monotonic()
    cluster.api.create_all(bodies)
    took_s = tally.wait(pods) - began_s
    tally.close()
    return pods / took_s


def _clean(cluster: Cluster, namespace: str) -> None:
    """Delete all pods and Jobs of a namespace."""
    for kind in ("batch/v1/Job", "v1/Pod"):
        group = cluster.api.run(cluster.api._api.path(kind, namespace))  # noqa: SLF001
        query = "?propagationPolicy=Background&gracePeriodSeconds=0"
        cluster.api.call("DELETE", f"{group}{query}")
    eventually(
        lambda: not cluster.api.list("v1/Pod", namespace),
        LONGEST_S,
        f"pods are left in {namespace}",
    )


def _pods(namespace: str, count: int, **spec: Any) -> list[Body]:
    return [pod(f"p{n}", 1, namespace=namespace, **spec) for n in range(count)]


def _template() -> Body:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": "plain"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _templated(count: int) -> list[Body]:
    """Pods with a claim of their own made from a template: Kubernetes' own way."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    bodies = [pod(f"p{n}", namespace="plain", resourceClaims=claims) for n in range(count)]
    for body in bodies:
        body["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return bodies


@bench
def cluster_throughput() -> Iterator[Result]:
    """5,000 one-card pods on 1,000 nodes, from creation to binding, beside kube-scheduler alone."""
    yield from throughput(NODES, PODS)


def throughput(nodes: int, pods: int) -> Iterator[Result]:
    """The same at any size."""
    with Cluster(node_grace_s=600) as cluster, Admission(cluster) as admission:
        cluster.namespace("plain")
        cluster.fake_nodes.add("gpu", nodes, 8)
        alone = _rate(cluster, "plain", _pods("plain", pods), pods)
        _clean(cluster, "plain")
        with _shoal(cluster, admission):
            ours = _rate(cluster, MANAGED, _pods(MANAGED, pods), pods)
        cluster.fake_nodes.clear()
    size = f"{pods:,} pods, {nodes:,} nodes"
    yield Result(f"kube-scheduler alone, device plugin ({size})", alone, "1/s")
    yield Result(f"with Shoal, device plugin ({size})", ours, "1/s")
    yield Result(f"Shoal of kube-scheduler, device plugin ({size})", ours / alone, "", at_least=0.5)
    with Cluster(node_grace_s=600) as cluster, Admission(cluster) as admission:
        cluster.namespace("plain")
        cluster.fake_nodes.add("dra", nodes, 8, channels=["dra"])
        cluster.api.create(_template())
        alone = _rate(cluster, "plain", _templated(pods), pods)
        _clean(cluster, "plain")
        with _shoal(cluster, admission):
            ours = _rate(cluster, MANAGED_DRA, _pods(MANAGED_DRA, pods), pods)
    yield Result(f"kube-scheduler alone, DRA ({size})", alone, "1/s")
    yield Result(f"with Shoal, DRA ({size})", ours, "1/s")
    yield Result(f"Shoal of kube-scheduler, DRA ({size})", ours / alone, "", at_least=0.4)


@bench
def cluster_jobs() -> Iterator[Result]:
    """700 one-card Jobs on 200 nodes, from creation to binding, beside plain Jobs."""
    with Cluster(node_grace_s=600) as cluster, Admission(cluster) as admission:
        cluster.namespace("plain")
        cluster.fake_nodes.add("gpu", JOB_NODES, 8)
        plain = [job(f"j{n}", 1, namespace="plain") for n in range(JOBS)]
        alone = _rate(cluster, "plain", plain, JOBS)
        _clean(cluster, "plain")
        with _shoal(cluster, admission):
            bodies = [job(f"j{n}", 1, namespace=MANAGED) for n in range(JOBS)]
            ours = _rate(cluster, MANAGED, bodies, JOBS)
    yield Result("plain Jobs (700 on 200 nodes)", alone, "1/s")
    yield Result("Jobs with Shoal (700 on 200 nodes)", ours, "1/s")
    yield Result("Shoal of plain Jobs (700 on 200 nodes)", ours / alone, "", at_least=0.6)


@bench
def cluster_cold_start() -> Iterator[Result]:
    """Cold start with 1,000 nodes and 10,000 pods: until it decides, and its memory."""
    yield from cold_start(NODES, COLD_PODS)


def cold_start(nodes: int, pods: int) -> Iterator[Result]:
    """The same at any size: 8 of 10 pods run, each on a device; the others wait."""
    with Cluster(node_grace_s=600) as cluster:
        cluster.namespace("team", {"shoal.dev/mode": "manage"})
        names = cluster.fake_nodes.add("gpu", nodes, 8)
        running = pods * 8 // 10
        cluster.api.create_all(
            pod(f"r{n}", 1, namespace="team", nodeName=names[n % nodes]) for n in range(running)
        )
        gates = [{"name": "shoal.dev/plan"}]
        cluster.api.create_all(
            pod(f"w{n}", 1, namespace="team", schedulingGates=gates) for n in range(pods - running)
        )
        eventually(
            lambda: cluster.fake_nodes.counts().get("running", running) >= running,
            LONGEST_S,
            "not all run",
        )
        began_s = time.monotonic()
        shoal = Shoal(cluster)
        eventually(lambda: _cycles(shoal) >= 1, LONGEST_S, "it does not decide")
        took_s = time.monotonic() - began_s
        memory = peak_mib(shoal.process.pid)
    size = f"{pods:,} pods, {nodes:,} nodes"
    yield Result(f"from start to first cycle ({size})", took_s, "s", at_most=15)
    yield Result(f"most memory ({size})", memory, "MiB", at_most=400)


def _cycles(shoal: Shoal) -> float:
    try:
        return shoal.metric("shoal_cycle_seconds_count")
    except (AssertionError, OSError):
        return 0


@bench
def cluster_latency() -> Iterator[Result]:
    """From a device becoming free to the next patch sent, with 5,000 pods waiting."""
    yield from latency(100, PODS)


def latency(nodes: int, waiting: int) -> Iterator[Result]:
    """The same at any size: every device is in use, and they become free one by one."""
    with Cluster(node_grace_s=600) as cluster:
        cluster.namespace("team", {"shoal.dev/mode": "manage"})
        cluster.fake_nodes.add("gpu", nodes, 8)
        gates = [{"name": "shoal.dev/plan"}]
        with _shoal(cluster) as shoal:
            bodies = _pods("team", nodes * 8 + waiting, schedulingGates=gates)
            tally = Tally(cluster.kubeconfig, "team")
            cluster.api.create_all(bodies)
            tally.wait(nodes * 8)
            eventually(
                lambda: shoal.metric('shoal_workloads{state="waiting"}') == waiting,
                LONGEST_S,
                "not all wait",
            )
            for each in sorted(tally._bound)[:FREED]:  # noqa: SLF001
                cluster.api.delete("v1/Pod", each, "team", grace_s=0)
                time.sleep(0.05)
            tally.wait(nodes * 8 + FREED)
            p50, p99 = (
                shoal.metric(f'shoal_free_to_patch_seconds{{quantile="{q}"}}') for q in (0.5, 0.99)
            )
            tally.close()
    yield Result(f"device free to patch sent, median ({waiting:,} waiting)", p50 * 1000, "ms")
    yield Result(
        f"device free to patch sent, p99 ({waiting:,} waiting)", p99 * 1000, "ms", at_most=200
    )
