"""A real Kubernetes on the loopback: etcd, API server, controller manager and scheduler.

    with Cluster() as cluster:
        cluster.fake_nodes.add("gpu", count=3, devices=8)
        cluster.api.create(pod("one", devices=1))

Every cluster has its own directory, certificates and ports; any number can run at once.
"""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tests.cluster.harness import binary, fake_nodes, objects
from tests.cluster.harness.api import Client, credentials
from tests.cluster.harness.certificates import Authority, KeyPair
from tests.cluster.harness.etcd import Snapshot
from tests.cluster.harness.kubelet import Kubelet
from tests.cluster.harness.nodes import FakeNodes
from tests.cluster.harness.ports import free_port
from tests.cluster.harness.processes import ROOT, Failed, Process, Processes

# kube-scheduler and the controller manager ask for 50 and 20 requests a second by default, which
# would be all that a throughput test measures.
CLIENT_QPS = 5000


class Cluster:
    """One control plane, started when it is made, with what the tests add to it.

    node_grace_s: after how long without a lease the controller manager calls a node unknown. Fake
    nodes renew three times in it, which is a write a node each time: keep it long with thousands.
    feature_gates, runtime_config: set on every component, and on the API server.
    audit: write the API server's audit log (metadata of every request), for `audit_log`.
    """

    def __init__(
        self,
        *,
        node_grace_s: int = 20,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Mapping[str, bool] | None = None,
        audit: bool = False,
    ) -> None:
        self.binary = binary.ready()
        self.node_grace_s = node_grace_s
        self._gates = _flags("feature-gates", feature_gates)
        self._runtime_config = _flags("runtime-config", runtime_config)
        self._guests: list[Process] = []
        self._remembered: Snapshot | None = None
        self._known_servers = (0, 0)
        self._processes = Processes()
        try:
            self._make(audit=audit)
            self.start()
        except BaseException:
            self.close()
            raise

    def _make(self, *, audit: bool) -> None:
        self.directory = self._processes.directory
        self.authority = Authority(self.directory / "certificates")
        self.server = f"https://127.0.0.1:{free_port()}"
        self.kubeconfig = self.user("admin", "system:masters")
        self.etcd = self._etcd()
        self.api_server = self._api_server(audit=audit)
        self.controller_manager = self._controller_manager()
        self.scheduler = self._scheduler()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the control plane and wait until it serves."""
        for each in (self.etcd, self.api_server):
            each.start()
        self.ready()
        for each in (self.controller_manager, self.scheduler):
            each.start()
        # The controller manager makes it; without it no pod can be created.
        self.api.wait("v1/ServiceAccount", "default", until=bool)

    def close(self) -> None:
        """Kill everything that belongs to the cluster and remove its directory."""
        if "api" in self.__dict__:
            self.api.close()
            del self.__dict__["api"]
        self._processes.close()

    def remember(self) -> None:
        """Remember all objects as they are now, for `reset`."""
        self._remembered = Snapshot(self._etcd_url)
        self._known_servers = self._servers()

    def reset(self) -> None:
        """Make it as it was at `remember`, with all components running and no guests."""
        if self._remembered is None:
            raise Failed("a cluster can be reset only after `remember`")
        self.end_guests()
        servers, clients = (self.etcd, self.api_server), (self.controller_manager, self.scheduler)
        for each in (*servers, *clients):
            each.resume()
        for each in servers:
            if not each.running:
                each.start()
        self.ready()
        # Whoever lost the API server tries again at intervals of up to half a minute, one for each
        # kind of object: a scheduler binds pods to nodes until then that are gone.
        if self._servers() != self._known_servers:
            for each in clients:
                each.kill()
        self._remembered.restore()
        for each in clients:
            if not each.running:
                each.start()
        self._known_servers = self._servers()

    def _servers(self) -> tuple[int, int]:
        return self.etcd.pid, self.api_server.pid

    def end_guests(self) -> None:
        """Kill what was added to the control plane: fake nodes, kubelets, processes of tests."""
        for each in self._guests:
            each.kill()
        self._guests.clear()
        self.__dict__.pop("fake_nodes", None)

    def ready(self, seconds: float = 60) -> None:
        """Wait until the API server serves; use it after a restart."""
        server, context = credentials(self.kubeconfig)
        deadline = time.monotonic() + seconds
        while True:
            for each in (self.etcd, self.api_server):
                if not each.running:
                    raise Failed(f"{each.name} ended.\n{each.tail()}")
            connection = http.client.HTTPSConnection(
                server.removeprefix("https://"), context=context, timeout=5
            )
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == http.client.OK:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            if time.monotonic() > deadline:
                raise Failed(
                    f"the API server was not ready after {seconds:g} s.\n{self.api_server.tail()}"
                )
            time.sleep(0.05)

    @cached_property
    def api(self) -> Client:
        """The API server as the cluster's administrator sees it."""
        return Client(self.kubeconfig)

    @cached_property
    def fake_nodes(self) -> FakeNodes:
        """Nodes without a machine, in thousands: one process, started when first asked for."""
        control = self.directory / "fake-nodes"
        control.unlink(missing_ok=True)  # of a process that was killed
        process = self.make(
            "fake-nodes",
            [
                *(sys.executable, "-m", fake_nodes.__name__, "--kubeconfig", self.kubeconfig),
                *("--control", control, "--renew-s", str(self.node_grace_s / 3)),
            ],
            env={"PYTHONPATH": str(ROOT)},
        )
        process.start()
        return FakeNodes(process, control)

    def kubelet(self, name: str, devices: int = 8) -> Kubelet:
        """Start a real kubelet with a fake runtime and a simulated device plugin (needs root)."""
        kubelet = Kubelet(self, name, devices)
        kubelet.start()
        return kubelet

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace, and wait until pods can be created in it; returns its name."""
        self.api.create(objects.namespace(name, labels))
        self.api.wait("v1/ServiceAccount", "default", name, until=bool)
        return name

    def user(self, name: str, *groups: str) -> Path:
        """A kubeconfig for any user, by a client certificate.

        A service account is the user `system:serviceaccount:NAMESPACE:NAME` of the groups
        `system:serviceaccounts` and `system:serviceaccounts:NAMESPACE`.
        """
        file = name.replace(":", ".").replace("/", ".")
        pair = self.authority.client(file, name, groups)
        path = self.directory / f"{file}.kubeconfig"
        path.write_text(json.dumps(_kubeconfig(self.server, self.authority.certificate, pair)))
        return path

    def serving(self, name: str) -> KeyPair:
        """A serving certificate for a webhook or another server of the tests on the loopback."""
        return self.authority.server(name)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator; returns what it prints. Raises Failed."""
        done = subprocess.run(
            [self.binary, "kubectl", "--kubeconfig", self.kubeconfig, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def make(
        self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None
    ) -> Process:
        """A process that ends with the cluster, not started yet (Shoal's own, for example)."""
        process = self._processes.make(name, argv, env)
        self._guests.append(process)
        return process

    def audit_log(self) -> list[dict[str, Any]]:
        """Completed requests so far, in order, as events of audit.k8s.io/v1 (needs audit=True)."""
        lines = (self.directory / "audit.log").read_text().splitlines()
        return [json.loads(line) for line in lines]

    # The components. Their flags are those of facts that were tried: loopback only, no throttling.

    def _component(self, name: str, *flags: str) -> Process:
        return self._processes.make(name, [self.binary, name, *flags])

    def _etcd(self) -> Process:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd_url = client
        return self._component(
            "etcd",
            f"--data-dir={self.directory / 'etcd'}",
            # Nobody needs a test's data after a power cut.
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=warn",
        )

    def _api_server(self, *, audit: bool) -> Process:
        serving = self.authority.server("apiserver")
        self._accounts = self.authority.service_account_key()
        return self._component(
            "kube-apiserver",
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.server.rpartition(':')[2]}",
            f"--cert-dir={self.directory / 'apiserver'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=Node,RBAC",
            f"--client-ca-file={self.authority.certificate}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._accounts.certificate}",
            f"--service-account-signing-key-file={self._accounts.key}",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            *(self._audit() if audit else ()),
            *self._gates,
            *self._runtime_config,
        )

    def _audit(self) -> tuple[str, str]:
        policy = self.directory / "audit-policy.json"
        policy.write_text(
            json.dumps(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived"],
                    "rules": [{"level": "Metadata"}],
                }
            )
        )
        return (
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.directory / 'audit.log'}",
        )

    def _controller_manager(self) -> Process:
        config = self.user("system:kube-controller-manager")
        return self._component(
            "kube-controller-manager",
            *_identity(config),
            f"--cert-dir={self.directory / 'controller-manager'}",
            f"--secure-port={free_port()}",
            f"--service-account-private-key-file={self._accounts.key}",
            f"--root-ca-file={self.authority.certificate}",
            "--use-service-account-credentials",
            f"--kube-api-qps={CLIENT_QPS}",
            f"--kube-api-burst={CLIENT_QPS}",
            # It writes a hint for kubelets on every node, which nobody here reads.
            "--controllers=*,-ttl-controller",
            f"--node-monitor-grace-period={self.node_grace_s}s",
            "--node-monitor-period=1s",
            # It makes this directory, by default in /usr/libexec.
            f"--flex-volume-plugin-dir={self.directory / 'volume-plugins'}",
            *self._gates,
        )

    def _scheduler(self) -> Process:
        config = self.user("system:kube-scheduler")
        file = self.directory / "scheduler.json"
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    "clientConnection": {
                        "kubeconfig": str(config),
                        "qps": CLIENT_QPS,
                        "burst": CLIENT_QPS,
                    },
                }
            )
        )
        return self._component(
            "kube-scheduler",
            f"--config={file}",
            *_identity(config)[1:],
            f"--cert-dir={self.directory / 'scheduler'}",
            f"--secure-port={free_port()}",
            *self._gates,
        )


def _identity(config: Path) -> list[str]:
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]


def _flags(flag: str, values: Mapping[str, bool] | None) -> tuple[str, ...]:
    if not values:
        return ()
    joined = ",".join(f"{name}={str(value).lower()}" for name, value in values.items())
    return (f"--{flag}={joined}",)


def _kubeconfig(server: str, authority: Path, pair: KeyPair) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": server, "certificate-authority": str(authority)},
            }
        ],
        "users": [
            {
                "name": "test",
                "user": {
                    "client-certificate": str(pair.certificate),
                    "client-key": str(pair.key),
                },
            }
        ],
    }
