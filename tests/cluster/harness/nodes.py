"""The tests' handle on the process of fake nodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.harness import control
from tests.cluster.harness.api import eventually
from tests.cluster.harness.processes import Failed, Process


class FakeNodes:
    """Nodes with accelerators that exist only in the API server; their pods run at once.

    What a fake node does with a pod can be said on the pod, by annotations:

    - `fake-node/starts-after: "2.5"`: seconds from binding to Running (0);
    - `fake-node/runs-for: "30"`: seconds from Running to its end (it runs until it is deleted);
    - `fake-node/exit-code: "1"`: what its containers end with: 0 is Succeeded, else Failed (0);
    - `fake-node/stops-after: "5"`: seconds that it takes to stop when it is deleted, at most its
      grace period (0).
    """

    def __init__(self, process: Process, socket: Path) -> None:
        self.process = process
        self._socket = socket
        eventually(self._listening, 30, process.tail)

    def _listening(self) -> bool:
        if not self.process.running:
            raise Failed(f"the fake nodes ended.\n{self.process.tail()}")
        return control.answers(self._socket)

    def add(
        self,
        group: str,
        count: int = 1,
        devices: int = 8,
        *,
        channels: Sequence[str] = ("device-plugin",),
        product: str = "NVIDIA-H100-80GB-HBM3",
        memory_mib: int = 81559,
        shared: bool = False,
        cpu: str = "192",
        memory: str = "2048Gi",
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> list[str]:
        """Add nodes GROUP-0 ... GROUP-(count-1) and wait until pods may go there; their names.

        channels: "device-plugin" (capacity `nvidia.com/gpu`), "dra" (a ResourceSlice of the driver
        gpu.nvidia.com, and the DeviceClass of that name), or both: then the same devices are
        offered twice, as on a node where both are installed by mistake.
        product: as the label `nvidia.com/gpu.product` says it; with blanks for dashes it is the
        slices' `productName`. shared: DRA devices allow several allocations (consumable capacity).
        """
        names: list[str] = self._ask(
            "add",
            group={
                "name": group,
                "count": count,
                "devices": devices,
                "channels": list(channels),
                "product": product,
                "memory_mib": memory_mib,
                "shared": shared,
                "cpu": cpu,
                "memory": memory,
                "pods": pods,
                "labels": dict(labels or {}),
                "taints": [dict(taint) for taint in taints],
            },
        )
        return names

    def remove(self, *names: str) -> None:
        """Delete nodes for good: Node, Lease, slices. What ran there is left to Kubernetes."""
        self._ask("remove", names=names)

    def clear(self) -> None:
        """Remove all of them."""
        self._ask("clear")

    def lose(self, *names: str) -> None:
        """Cut nodes off: no lease, no status, no deletion is carried out until `recover`."""
        self._ask("lose", names=names)

    def recover(self, *names: str) -> None:
        """Let lost nodes come back, ready, with the pods that they still have."""
        self._ask("recover", names=names)

    def set_ready(self, ready: bool, *names: str) -> None:
        """Have nodes report that they are ready or not, with their lease still renewed."""
        self._ask("set_ready", names=names, ready=ready)

    def set_devices(
        self, *names: str, count: int | None = None, unhealthy: Sequence[int] = ()
    ) -> None:
        """Change what nodes report: how many devices, and which of them (by index) are ill.

        An ill device leaves `allocatable` and the slice; capacity keeps it. `count=0` is what a
        device plugin that restarts looks like for some seconds.
        """
        self._ask("set_devices", names=names, count=count, unhealthy=unhealthy)

    def devices(self, name: str) -> list[str]:
        """The devices' uuids, in order."""
        ids: list[str] = self._ask("devices", name=name)
        return ids

    def held(self, name: str) -> dict[str, list[str]]:
        """Which devices of the device-plugin channel each pod of a node holds, by the pod's uid."""
        held: dict[str, list[str]] = self._ask("held", name=name)
        return held

    def counts(self) -> dict[str, int]:
        """What the process has done so far: nodes, pods known, status writes, deletions, ..."""
        counts: dict[str, int] = self._ask("counts")
        return counts

    def _ask(self, do: str, **arguments: Any) -> Any:
        return control.ask(self._socket, do, **arguments)
