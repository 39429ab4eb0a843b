"""CPU and memory, against what kube-scheduler's own `PodRequests` gives for the same pods."""

from typing import Any

import pytest

from shoal.objects.hosts import host_request
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
