"""A real kubelet with a fake container runtime, and a simulated device plugin beside it.

The kubelet's directory of device plugins is a constant, /var/lib/kubelet/device-plugins. So each
kubelet has a mount namespace of its own, in which a directory of the cluster lies over /var/lib:
this needs root, leaves nothing on the machine, and lets several kubelets run side by side.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.cluster.harness import control
from tests.cluster.harness.api import eventually
from tests.cluster.harness.fake_objects import RESOURCE, device_ids
from tests.cluster.harness.ports import free_port
from tests.cluster.harness.processes import ROOT, Failed

if TYPE_CHECKING:
    from tests.cluster.harness.cluster import Cluster

# By its name alone: protobuf knows a message once in a process, and Shoal has the same ones.
PLUGIN = "tests.cluster.harness.device_plugin"

# The fake runtime runs nothing, so no container's process, cgroup or disk is looked after.
CONFIGURATION: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "address": "127.0.0.1",
    "readOnlyPort": 0,
    "healthzPort": 0,
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
    # The machine may have cgroups v1 only, or none that we may write.
    "failCgroupV1": False,
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "makeIPTablesUtilChains": False,
    # A full disk of the machine must not evict the tests' pods.
    "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
    "nodeStatusUpdateFrequency": "2s",
    "nodeStatusReportFrequency": "1m",
    "syncFrequency": "5s",
}


class Kubelet:
    """One node with a real kubelet. `process`, `runtime` and `plugin` can be restarted alone."""

    def __init__(self, cluster: "Cluster", name: str, devices: int) -> None:
        if os.geteuid() != 0:
            raise Failed(
                "A real kubelet needs a mount namespace of its own, and this user may not make "
                "one: run the tests as root (`sudo make test`)."
            )
        self.name = name
        self.devices = device_ids(name, devices)
        self._cluster = cluster
        # Paths of unix sockets may have 107 bytes: keep it short.
        self._directory = cluster.directory / "kubelets" / name
        # What the kubelet sees as /var/lib/kubelet.
        self.state = self._directory / "lib" / "kubelet"
        # A kubelet of this name may have been here before a reset.
        shutil.rmtree(self._directory, ignore_errors=True)
        (self.state / "device-plugins").mkdir(parents=True)
        (self._directory / "empty").mkdir()
        self.runtime = cluster.make(
            f"{name}-runtime", [cluster.binary, "fake-runtime", self._directory / "cri.sock"]
        )
        self.process = cluster.make(f"{name}-kubelet", self._argv())
        self._control = self._directory / "plugin"
        self.plugin = cluster.make(
            f"{name}-plugin",
            [
                *(sys.executable, "-m", PLUGIN),
                *("--directory", self.state / "device-plugins", "--control", self._control),
                *("--devices", ",".join(self.devices)),
            ],
            env={"PYTHONPATH": str(ROOT)},
        )

    def _argv(self) -> list[str]:
        authority = self._cluster.authority
        serving = authority.server(f"{self.name}-kubelet", ("127.0.0.1", "localhost", self.name))
        config = self._directory / "config.json"
        config.write_text(
            json.dumps(
                {
                    **CONFIGURATION,
                    "port": free_port(),
                    "authentication": {
                        **CONFIGURATION["authentication"],
                        "x509": {"clientCAFile": str(authority.certificate)},
                    },
                    "tlsCertFile": str(serving.certificate),
                    "tlsPrivateKeyFile": str(serving.key),
                    "containerRuntimeEndpoint": f"unix://{self._directory / 'cri.sock'}",
                    "podLogsDir": str(self._directory / "logs"),
                    "volumePluginDir": str(self._directory / "volume-plugins"),
                }
            )
        )
        kubeconfig = self._cluster.user(f"system:node:{self.name}", "system:nodes")
        kubelet = [
            *(str(self._cluster.binary), "kubelet"),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            "--root-dir=/var/lib/kubelet",
            f"--cert-dir={self._directory / 'pki'}",
        ]
        # The kubelet's directory comes as $0, its command as the rest; `exec` keeps it one process.
        # It works in an empty directory: for a container without a log file, as the fake runtime's
        # are, it removes what the empty path followed by `*` matches.
        inside = 'mount --bind "$0/lib" /var/lib && cd "$0/empty" && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", inside, str(self._directory), *kubelet]

    def start(self, seconds: float = 60) -> None:
        """Start runtime, kubelet and plugin; wait until the node is ready and has its devices."""
        self.runtime.start()
        eventually((self._directory / "cri.sock").exists, 10, self.runtime.tail)
        self.process.start()
        self.plugin.start()
        self.ready(seconds)

    def ready(self, seconds: float = 60) -> None:
        """Wait until the node is ready and offers all its devices."""
        eventually(
            self._is_ready,
            seconds,
            lambda: "\n".join(
                [f"node {self.name} is not ready.", self.process.tail(), self.plugin.tail()]
            ),
        )

    def _is_ready(self) -> bool:
        if not self.process.running:
            raise Failed(f"the kubelet of {self.name} ended.\n{self.process.tail()}")
        node = self._cluster.api.find("v1/Node", self.name)
        if node is None:
            return False
        status = node["status"]
        ready = {each["type"]: each["status"] for each in status.get("conditions", [])}
        devices = int(status.get("allocatable", {}).get(RESOURCE, "0"))
        return ready.get("Ready") == "True" and devices == len(self.devices)

    def set_health(self, devices: Sequence[str], *, healthy: bool) -> None:
        """Have the plugin report devices (by id) as healthy or not."""
        control.ask(self._control, "set_health", devices=devices, healthy=healthy)

    def prefer(self, devices: Sequence[str]) -> None:
        """Have the plugin answer GetPreferredAllocation with these devices (by id)."""
        control.ask(self._control, "prefer", devices=devices)

    def allocated(self) -> list[list[str]]:
        """The devices of each Allocate call so far, since the plugin was started."""
        calls: list[list[str]] = control.ask(self._control, "calls")["allocated"]
        return calls

    def asked(self) -> list[dict[str, Any]]:
        """Each GetPreferredAllocation so far: the ids `available` and the `size` asked for."""
        calls: list[dict[str, Any]] = control.ask(self._control, "calls")["asked"]
        return calls

    def registrations(self) -> int:
        """How often the plugin has registered since it was started."""
        times: int = control.ask(self._control, "calls")["registrations"]
        return times

    def restart_plugin(self) -> None:
        """Kill the plugin and start it again: the node has no devices until it registers."""
        self.plugin.kill()
        self.plugin.start()
