"""A simulated device plugin for `nvidia.com/gpu`, as a process beside a real kubelet.

    python -m tests.cluster.harness.device_plugin --directory DIR --control SOCKET --devices ID,ID

It registers with the kubelet whose socket lies in DIR, again whenever that socket is made anew,
offers devices, and remembers what it was asked. By `GetPreferredAllocation` it offers the devices
that it was told to prefer, else the first in order.
"""

import argparse
import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.cluster.harness import control
from tests.cluster.harness import device_plugin_pb2 as v1beta1

log = logging.getLogger("device-plugin")

RESOURCE = "nvidia.com/gpu"
KUBELET = "kubelet.sock"
ENVIRONMENT = "NVIDIA_VISIBLE_DEVICES"


class DevicePlugin:
    """The service v1beta1.DevicePlugin, and the commands by which tests steer it."""

    def __init__(self, devices: list[str]) -> None:
        self.health = dict.fromkeys(devices, True)
        self.preferred: list[str] = []
        self.registrations = 0
        self.allocated: list[list[str]] = []
        self.asked: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()

    # Commands

    async def set_health(self, devices: list[str], healthy: bool) -> None:
        """Report devices as healthy or not."""
        async with self._changed:
            self.health |= dict.fromkeys(devices, healthy)
            self._changed.notify_all()

    async def prefer(self, devices: list[str]) -> None:
        """Answer GetPreferredAllocation with these, as far as they are available."""
        self.preferred = devices

    async def calls(self) -> dict[str, Any]:
        """What the kubelet asked: the devices of each Allocate; each preference asked for."""
        return {
            "allocated": self.allocated,
            "asked": self.asked,
            "registrations": self.registrations,
        }

    # The service

    async def options(self, _request: object, _context: object) -> v1beta1.DevicePluginOptions:
        """GetDevicePluginOptions."""
        return v1beta1.DevicePluginOptions(get_preferred_allocation_available=True)

    async def list_and_watch(
        self, _request: object, _context: object
    ) -> AsyncIterator[v1beta1.ListAndWatchResponse]:
        """ListAndWatch: the whole list, again after every change."""
        async with self._changed:
            while True:
                yield v1beta1.ListAndWatchResponse(
                    devices=[
                        v1beta1.Device(ID=each, health="Healthy" if healthy else "Unhealthy")
                        for each, healthy in self.health.items()
                    ]
                )
                await self._changed.wait()

    async def preferred_allocation(
        self, request: v1beta1.PreferredAllocationRequest, _context: object
    ) -> v1beta1.PreferredAllocationResponse:
        """GetPreferredAllocation."""
        answer = v1beta1.PreferredAllocationResponse()
        for each in request.container_requests:
            available = sorted(each.available_deviceIDs, key=list(self.health).index)
            self.asked.append({"available": available, "size": each.allocation_size})
            order = [
                *each.must_include_deviceIDs,
                *(device for device in self.preferred if device in available),
                *available,
            ]
            chosen = list(dict.fromkeys(order))[: each.allocation_size]
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def allocate(
        self, request: v1beta1.AllocateRequest, _context: object
    ) -> v1beta1.AllocateResponse:
        """Allocate."""
        answer = v1beta1.AllocateResponse()
        for each in request.container_requests:
            self.allocated.append(list(each.devices_ids))
            answer.container_responses.add(envs={ENVIRONMENT: ",".join(each.devices_ids)})
        return answer

    async def pre_start(
        self, _request: object, _context: object
    ) -> v1beta1.PreStartContainerResponse:
        """PreStartContainer."""
        return v1beta1.PreStartContainerResponse()

    def handlers(self) -> grpc.GenericRpcHandler:
        """The service, as grpc wants it."""
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": unary(
                    self.options,
                    v1beta1.Empty.FromString,
                    v1beta1.DevicePluginOptions.SerializeToString,
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self.list_and_watch,
                    v1beta1.Empty.FromString,
                    v1beta1.ListAndWatchResponse.SerializeToString,
                ),
                "GetPreferredAllocation": unary(
                    self.preferred_allocation,
                    v1beta1.PreferredAllocationRequest.FromString,
                    v1beta1.PreferredAllocationResponse.SerializeToString,
                ),
                "Allocate": unary(
                    self.allocate,
                    v1beta1.AllocateRequest.FromString,
                    v1beta1.AllocateResponse.SerializeToString,
                ),
                "PreStartContainer": unary(
                    self.pre_start,
                    v1beta1.PreStartContainerRequest.FromString,
                    v1beta1.PreStartContainerResponse.SerializeToString,
                ),
            },
        )


async def register(directory: Path, endpoint: str) -> None:
    """Tell the kubelet of the socket that we serve on."""
    async with grpc.aio.insecure_channel(f"unix:{directory / KUBELET}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            v1beta1.RegisterRequest.SerializeToString,
            v1beta1.Empty.FromString,
        )
        await call(
            v1beta1.RegisterRequest(
                version="v1beta1",
                endpoint=endpoint,
                resource_name=RESOURCE,
                options=v1beta1.DevicePluginOptions(get_preferred_allocation_available=True),
            ),
            timeout=5,
        )


async def serve(directory: Path, plugin: DevicePlugin) -> None:
    """Serve and stay registered, for ever.

    A kubelet that starts empties the directory, our socket with it, and refuses an endpoint name
    that it still holds: so each registration has a new name and a new socket.
    """
    registered: tuple[int, int] | None = None
    server: grpc.aio.Server | None = None
    for attempt in range(1 << 30):
        with contextlib.suppress(FileNotFoundError):
            status = (directory / KUBELET).stat()
            # A file system gives a new file the number of the one just removed: the time tells.
            socket = (status.st_ino, status.st_ctime_ns)
            if socket != registered:
                if server is not None:
                    await server.stop(None)
                endpoint = f"gpu-{os.getpid()}-{attempt}.sock"
                server = grpc.aio.server()
                server.add_generic_rpc_handlers((plugin.handlers(),))
                server.add_insecure_port(f"unix:{directory / endpoint}")
                await server.start()
                try:
                    await register(directory, endpoint)
                    registered = socket
                    plugin.registrations += 1
                    log.info("registered as %s", endpoint)
                except grpc.aio.AioRpcError as error:
                    # The socket of a kubelet that is gone, or one that does not serve yet.
                    log.info("registration: %s", error.details())
        await asyncio.sleep(0.3)


async def run(directory: Path, socket: Path, devices: list[str]) -> None:
    """The plugin and its control socket."""
    plugin = DevicePlugin(devices)
    commands = await control.serve(
        socket,
        {each.__name__: each for each in (plugin.set_health, plugin.prefer, plugin.calls)},
    )
    async with commands:
        await serve(directory, plugin)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="device_plugin")
    parser.add_argument("--directory", type=Path, required=True, help="of the kubelet's sockets")
    parser.add_argument("--control", type=Path, required=True, help="unix socket for commands")
    parser.add_argument("--devices", required=True, help="device ids, separated by commas")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(run(given.directory, given.control, given.devices.split(",")))


if __name__ == "__main__":
    main()
