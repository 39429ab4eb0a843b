"""The default policy is fed prices, which are made beside the loop and never hold it up."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog

from shoal.bounds.prices import prices
from shoal.core.demand import FIRST_PRICING_PODS, Prices, TaskClass
from shoal.core.policies import POLICIES, Policy
from shoal.kubernetes import pricing
from shoal.kubernetes.picture import Picture
from shoal.kubernetes.wire.kinds import NAMESPACES, NODES, PODS
from shoal.model.node import Node
from tests.kubernetes.fake_api import BOUND_S, in_loop, until
from tests.kubernetes.manifests import Body, namespace, node, pod
from tests.kubernetes.rig import CATALOG, Rig, Shoal

ONLY_H100 = {"shoal.dev/accelerators": "H100"}


@pytest.fixture
def rig() -> Rig:
    """A managed namespace with a node of each of two accelerators."""
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("gpu-2", 8))
    other = node("gpu-1", 8)
    other["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB"
    rig.put(NODES, other)
    return rig


def choosy(name: str) -> Body:
    """A pod that runs on one accelerator only."""
    body = pod(name)
    body["metadata"]["annotations"] |= ONLY_H100
    return body


@asynccontextmanager
async def pricing_of(shoal: Shoal) -> AsyncIterator[None]:
    """Prices are made, as in a process."""
    task = asyncio.ensure_future(shoal.scheduler.pricing.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def teach(rig: Rig, shoal: Shoal) -> None:
    """Let as many pods come and go as it takes before prices are asked for."""
    for n in range(FIRST_PRICING_PODS):
        rig.put(PODS, choosy(f"choosy-{n}"))
    await shoal.settle()
    for n in range(FIRST_PRICING_PODS):
        rig.remove(PODS, f"choosy-{n}", "ns")
    await shoal.settle()


async def place_of(rig: Rig, shoal: Shoal, name: str) -> str:
    rig.put(PODS, pod(name))
    await shoal.settle()
    return rig.bound()[name]


@in_loop
async def test_what_others_need_is_left_to_them_once_that_is_known(rig: Rig) -> None:
    shoal = Shoal(rig)
    assert await place_of(rig, shoal, "before") == "gpu-2"
    async with pricing_of(shoal):
        await teach(rig, shoal)
        await until(lambda: shoal.scheduler.step() or bool(shoal.world.prices.classes))
        assert shoal.scheduler.counts.events["PricesSet"] >= 1
        assert await place_of(rig, shoal, "after") == "gpu-1"


@in_loop
async def test_a_look_at_the_cluster_knows_as_much(rig: Rig) -> None:
    for n in range(FIRST_PRICING_PODS):
        rig.put(PODS, choosy(f"choosy-{n}"))
    picture = Picture(rig.truth(), CATALOG, Policy("fragmentation"), 1)
    assert picture.world.prices.classes
    picture = Picture(rig.truth(), CATALOG, Policy("pack"), 1)
    assert not picture.world.prices.classes


@in_loop
async def test_devices_are_given_while_prices_are_made(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slowly(nodes: list[Node], classes: tuple[TaskClass, ...]) -> Prices:
        begun.set()
        may_end.wait(BOUND_S)
        return prices(nodes, classes)

    monkeypatch.setattr(pricing, "prices", slowly)
    shoal = Shoal(rig)
    async with pricing_of(shoal):
        try:
            await teach(rig, shoal)
            await until(begun.is_set)
            assert await place_of(rig, shoal, "meanwhile")
            assert not shoal.world.prices.classes
        finally:
            may_end.set()
        await until(lambda: shoal.scheduler.step() or bool(shoal.world.prices.classes))


@in_loop
async def test_programs_that_fail_stop_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_nodes: list[Node], _classes: tuple[TaskClass, ...]) -> Prices:
        raise RuntimeError("no solution")

    monkeypatch.setattr(pricing, "prices", fails)
    shoal = Shoal(rig)
    with structlog.testing.capture_logs() as logged:
        async with pricing_of(shoal):
            await teach(rig, shoal)
            await until(lambda: shoal.scheduler.step() or bool(logged))
            assert await place_of(rig, shoal, "a")
    assert [line["event"] for line in logged if line["log_level"] == "error"] == ["no prices"]


def test_every_policy_that_is_named_exists() -> None:
    assert set(POLICIES) >= pricing.NEEDS_PRICES
