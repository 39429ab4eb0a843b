"""Giving a cluster back: in the right order, whatever still refuses at first, and again."""

from typing import Any

from shoal.catalog.load import load_catalog
from shoal.kubernetes.admission.names import GATE
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.release import Released, release
from shoal.objects.devices import Claimed
from tests.kubernetes.fake_api import Refusal, in_loop, transport_to
from tests.kubernetes.strategic import StrategicApi

CATALOG = load_catalog()
GUARDED = Refusal(403, "pods 'p' is forbidden: ValidatingAdmissionPolicy", "Forbidden")


def gated(name: str, gates: tuple[str, ...] = (GATE,), **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns"} | metadata,
        "spec": {
            "containers": [{"name": "main"}],
            "schedulingGates": [{"name": each} for each in gates],
        },
    }


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


async def give_back(api: StrategicApi, time: Time | None = None, **more: Any) -> Released:
    time = time or Time()
    async with transport_to(api) as transport:
        client = Client(transport)
        return await release(client, CATALOG, monotonic_s=time, sleep=time.sleep, **more)


def gates(api: StrategicApi, name: str) -> list[str]:
    spec = api.objects["pods"]["ns", name]["spec"]
    return [each["name"] for each in spec.get("schedulingGates", [])]


@in_loop
async def test_every_gate_is_lifted_and_others_stay() -> None:
    async with StrategicApi() as api:
        api.put("namespaces", {"metadata": {"name": "ns", "labels": {"shoal.dev/mode": "manage"}}})
        api.put("validatingadmissionpolicies", {"metadata": {"name": "guard.shoal.dev"}})
        api.put("validatingadmissionpolicies", {"metadata": {"name": "of.others"}})
        for n in range(700):
            api.put("pods", gated(f"p{n}"))
        api.put("pods", gated("other", ("example.com/a", GATE)))
        api.put("pods", gated("free", ()))
        said: list[int] = []
        done = await give_back(api, progress=lambda each: said.append(each.pods))
        assert (done.pods, done.objects, done.left) == (701, 1, {})
        assert said == sorted(said)
        assert len(said) > 3
        assert api.objects["namespaces"]["", "ns"]["metadata"]["labels"] == {
            "shoal.dev/mode": "observe"
        }
        assert list(api.objects["validatingadmissionpolicies"]) == [("", "of.others")]
        assert gates(api, "p0") == []
        assert gates(api, "other") == ["example.com/a"]
        # Once more there is nothing to do.
        again = await give_back(api)
        assert (again.pods, again.objects, again.left) == (0, 0, {})


@in_loop
async def test_a_guard_that_still_acts_is_waited_for() -> None:
    async with StrategicApi() as api:
        for n in range(3):
            api.put("pods", gated(f"p{n}"))
        api.refuse("PATCH", GUARDED, times=7)
        time = Time()
        done = await give_back(api, time)
        assert (done.pods, done.left) == (3, {})
        assert time.now_s >= 15


@in_loop
async def test_what_is_refused_for_good_is_named() -> None:
    async with StrategicApi() as api:
        api.put("pods", gated("p"))
        api.refuse_until_told("PATCH", GUARDED)
        done = await give_back(api)
        assert done.pods == 0
        assert "forbidden" in done.left["ns", "p"]


@in_loop
async def test_pods_on_the_dra_channel_get_the_claim_that_they_name() -> None:
    note = Claimed("p-0123456789.shoal.dev", {"main": {"nvidia.com/gpu": "2"}}).text()
    async with StrategicApi() as api:
        api.put("deviceclasses", {"metadata": {"name": "gpu.nvidia.com"}})
        marks = {"shoal.dev/claim": note, "shoal.dev/user": "ann", "shoal.dev/queue": "vision"}
        api.put("pods", gated("p", annotations=marks))
        done = await give_back(api)
        assert (done.pods, done.claims) == (1, 1)
        claim = api.objects["resourceclaims"]["ns", "p-0123456789.shoal.dev"]
        (request,) = claim["spec"]["devices"]["requests"]
        assert request["exactly"] == {
            "deviceClassName": "gpu.nvidia.com",
            "allocationMode": "ExactCount",
            "count": 2,
        }


@in_loop
async def test_a_pod_whose_claim_nobody_can_make_is_let_go_and_named() -> None:
    note = Claimed("p-0123456789.shoal.dev", {"main": {"nvidia.com/gpu": "2"}}).text()
    async with StrategicApi() as api:
        api.put("pods", gated("p", annotations={"shoal.dev/claim": note}))
        done = await give_back(api)
        assert done.pods == 1
        assert gates(api, "p") == []
        assert "DeviceClass" in done.claimless["ns", "p"]
        assert done.left == {}
