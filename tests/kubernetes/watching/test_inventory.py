"""What nodes and slices say, as the core's nodes."""

import msgspec
import pytest

from shoal.kubernetes.executing.plans import DevicePin
from shoal.kubernetes.watching.inventory import NOT_READY, take_inventory
from shoal.kubernetes.wire.kinds import NODES, RESOURCE_SLICES
from shoal.model.node import Taint, TaintEffect
from tests.kubernetes.manifests import PLUGIN, Body, node, slice_of
from tests.kubernetes.rig import CATALOG


def taken(body: Body, *slices: Body):  # type: ignore[no-untyped-def]  # noqa: ANN201
    read = [RESOURCE_SLICES.read(msgspec.json.encode(each)) for each in slices]
    return take_inventory(NODES.read(msgspec.json.encode(body)), read, CATALOG)


def test_a_plugins_count_stands_for_devices_with_made_up_names() -> None:
    found = taken(node("n1", 2))
    names = [device.name for device in found.node.devices]
    assert names == ["n1/nvidia.com-gpu/0", "n1/nvidia.com-gpu/1"]
    assert {device.accelerator for device in found.node.devices} == {"H100-SXM5-80GB"}
    assert found.offers == {PLUGIN}
    assert (found.node.cpu_milli, found.node.memory_mib, found.node.pods) == (64_000, 524_288, 110)


def test_slices_give_devices_by_uuid_and_win_over_counts() -> None:
    found = taken(node("n1", 8), slice_of("n1", 2))
    assert [device.name for device in found.node.devices] == ["GPU-n1-0", "GPU-n1-1"]
    assert found.node.devices[0].leaves[0].memory_mib == 81_559
    assert found.offers == {PLUGIN, "dra/gpu.nvidia.com"}
    assert found.pins["GPU-n1-1"] == DevicePin("gpu.nvidia.com", "GPU-n1-1")
    assert found.leaf_of["gpu.nvidia.com", "n1", "n1-gpu-1"] == "GPU-n1-1"


def test_only_complete_pools_of_the_newest_generation_count() -> None:
    old, new = slice_of("n1", 4), slice_of("n1", 2)
    old["metadata"]["name"] = "old"
    new["spec"]["pool"] = {"name": "n1", "generation": 2, "resourceSliceCount": 1}
    assert len(taken(node("n1", 0), old, new).node.devices) == 2
    new["spec"]["pool"]["resourceSliceCount"] = 2
    assert taken(node("n1", 0), old, new).node.devices == ()


@pytest.mark.parametrize(("effect", "devices"), [("NoSchedule", 1), ("NoExecute", 1), ("None", 2)])
def test_a_device_that_its_driver_taints_is_not_offered(effect: str, devices: int) -> None:
    body = slice_of("n1", 2)
    body["spec"]["devices"][0]["taints"] = [{"key": "ill", "effect": effect}]
    assert len(taken(node("n1", 0), body).node.devices) == devices


def test_a_node_that_is_not_ready_keeps_pods_off_whatever_its_taints_say() -> None:
    body = node("n1", 1)
    body["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert taken(body).node.taints == (NOT_READY,)
    body["spec"]["taints"] = [{"key": NOT_READY.key, "effect": "NoExecute"}]
    assert taken(body).node.taints == (Taint(NOT_READY.key, TaintEffect.NO_EXECUTE),)


def test_a_cordon_is_said_once() -> None:
    body = node("n1", 1)
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    body["spec"] = {"unschedulable": True, "taints": [taint]}
    found = taken(body).node
    assert (found.cordoned, found.taints) == (True, ())


def test_what_cannot_be_read_offers_nothing() -> None:
    found = taken(node("n1", 1, cpu="lots", **{PLUGIN: "many"}))
    assert (found.node.cpu_milli, found.node.devices, found.offers) == (0, (), frozenset())
