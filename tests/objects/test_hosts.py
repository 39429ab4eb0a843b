"""CPU and memory, against what kube-scheduler's own `PodRequests` gives for the same pods."""

from typing import Any

import pytest

from shoal.objects.hosts import MOST, host_request
from shoal.objects.quantity import QuantityError
from tests.objects.small import pod


def container(cpu: str = "0", memory: str = "0", *, always: bool = False) -> dict[str, Any]:
    body: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return body | ({"restartPolicy": "Always"} if always else {})


@pytest.mark.parametrize(
    ("inits", "apps", "cpu_milli"),
    [
        ([], ["1", "500m"], 1_500),
        (["3"], ["1", "1"], 3_000),
        (["1"], ["1", "1"], 2_000),
        (["2 always"], ["1"], 3_000),
        (["2 always", "3"], ["1"], 5_000),
        (["3", "2 always"], ["2"], 4_000),
        (["1 always", "4", "1 always"], ["1"], 5_000),
        ([], ["0.5m", "0.5m"], 1),
        ([], ["1m", "0.1m"], 2),
    ],
)
def test_S06_host_resources_are_what_the_worst_moment_needs(
    inits: list[str], apps: list[str], cpu_milli: int
) -> None:
    body = pod(
        initContainers=[
            container(text.split()[0], always=text.endswith("always")) for text in inits
        ],
        containers=[container(text) for text in apps],
    )
    assert host_request(body.spec) == (cpu_milli, 0)


def test_overhead_comes_on_top_and_memory_is_rounded_up_to_mib() -> None:
    body = pod(
        containers=[container("1", "1Gi"), container("1", "1")],
        overhead={"cpu": "250m", "memory": "120Mi"},
    )
    assert host_request(body.spec) == (2_250, 1_145)


def test_a_limit_without_a_request_is_the_request() -> None:
    body = pod(containers=[{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}])
    assert host_request(body.spec) == (2_000, 1_024)


def test_resources_of_the_pod_itself_replace_the_sum() -> None:
    body = pod(
        containers=[container("1", "1Gi")],
        resources={"requests": {"cpu": "4"}},
        overhead={"cpu": "1"},
    )
    assert host_request(body.spec) == (5_000, 1_024)


@pytest.mark.parametrize("amount", ["1E", "9E", "9223372036854775807Gi", "1e36"])
def test_what_no_machine_has_is_still_a_number_that_can_be_counted(amount: str) -> None:
    """The sum over as many pods as a gang may have fits into 64 bits."""
    found = host_request(pod(containers=[container(amount, amount)]).spec)
    assert max(found) * 20_000 < 1 << 63
    assert found[0] == MOST


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_nobody_asks_for_less_than_nothing(where: str) -> None:
    """An API server takes no such pod, and a manifest that none has seen would make CPU of it."""
    spec: dict[str, Any] = {"containers": [container("1")]} | {where: [container("-2")]}
    with pytest.raises(QuantityError, match="'-2' is below zero; write 0 or more"):
        host_request(pod(**spec).spec)
    with pytest.raises(QuantityError, match="'-1' is below zero"):
        host_request(pod(containers=[container("2")], overhead={"cpu": "-1"}).spec)
