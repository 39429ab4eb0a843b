"""The control plane itself: restarts, several at once, and nothing left behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import processes, supervisor
from tests.cluster.harness.api import ApiError, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import allocated, pod, running
from tests.cluster.harness.processes import ROOT, Failed

pytestmark = pytest.mark.cluster

POD = "v1/Pod"


def test_two_clusters_know_nothing_of_one_another(
    cluster: Cluster, new_cluster: Callable[..., Cluster]
) -> None:
    other = new_cluster()
    for each in (cluster, other):
        each.fake_nodes.add("gpu")
        each.api.create(pod("same", devices=8))
    first, second = (each.api.wait(POD, "same", until=running) for each in (cluster, other))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert cluster.kubeconfig != other.kubeconfig
    other.close()
    assert running(cluster.api.get(POD, "same"))


def test_the_api_server_can_be_killed_and_started(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu", count=2)
    cluster.api.create(pod("before", 1))
    cluster.api.wait(POD, "before", until=running)
    cluster.api_server.kill()
    with pytest.raises(OSError, match="connect"):
        cluster.api.get(POD, "before")
    cluster.api_server.start()
    cluster.ready()
    assert running(cluster.api.get(POD, "before"))
    cluster.api.create(pod("after", 1))
    cluster.api.wait(POD, "after", until=running)


def test_the_whole_control_plane_can_be_killed_and_keeps_its_objects(cluster: Cluster) -> None:
    cluster.fake_nodes.add("gpu")
    cluster.api.create(pod("before", 1))
    cluster.api.wait(POD, "before", until=running)
    parts = (cluster.scheduler, cluster.controller_manager, cluster.api_server, cluster.etcd)
    for each in parts:
        each.kill()
    for each in reversed(parts):
        each.start()
    cluster.ready()
    cluster.api.create(pod("after", 1))
    cluster.api.wait(POD, "after", until=running)
    assert running(cluster.api.get(POD, "before"))


def test_a_reset_leaves_nobody_who_may_know_what_is_gone(cluster: Cluster) -> None:
    def clients() -> tuple[int, int]:
        return cluster.controller_manager.pid, cluster.scheduler.pid

    connected = clients()
    cluster.reset()
    assert clients() == connected
    cluster.api_server.kill()
    cluster.api_server.start()
    cluster.reset()
    assert not set(clients()) & set(connected)
    cluster.fake_nodes.add("gpu")
    cluster.api.create(pod("first", 1))
    cluster.api.wait(POD, "first", until=running)


def test_a_frozen_api_server_answers_when_it_goes_on(cluster: Cluster) -> None:
    cluster.api_server.pause()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(
                [cluster.binary, "kubectl", "--kubeconfig", cluster.kubeconfig, "get", "nodes"],
                timeout=1,
                check=False,
                capture_output=True,
            )
    finally:
        cluster.api_server.resume()
    assert cluster.api.list("v1/Node") == []


def test_users_have_the_rights_of_their_groups(cluster: Cluster) -> None:
    config = cluster.user("system:serviceaccount:default:somebody", "system:serviceaccounts")
    done = subprocess.run(
        [cluster.binary, "kubectl", "--kubeconfig", config, "get", "nodes"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert 'User "system:serviceaccount:default:somebody" cannot list resource' in done.stderr


def test_errors_of_the_api_server_are_told(cluster: Cluster) -> None:
    with pytest.raises(ApiError, match='pods "none" not found') as missing:
        cluster.api.get(POD, "none")
    assert missing.value.code == 404
    with pytest.raises(Failed, match="kubectl get nothing: error: the server doesn't have"):
        cluster.kubectl("get", "nothing")


def test_the_audit_log_tells_who_wrote_what(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(audit=True)
    cluster.fake_nodes.add("gpu")
    cluster.api.create(pod("one"))
    cluster.api.wait(POD, "one", until=running)

    def writes() -> list[tuple[str, str, str]]:
        return [
            (each["user"]["username"], each["verb"], each["objectRef"].get("subresource", ""))
            for each in cluster.audit_log()
            if each.get("objectRef", {}).get("name", "") == "one"
            and each["verb"] not in ("get", "list", "watch")
        ]

    expected = {
        ("admin", "create", ""),
        ("admin", "patch", "status"),
        ("system:kube-scheduler", "create", "binding"),
    }
    # The log is written after the answer is sent; and the scheduler, which may not have heard yet
    # that the new node is ready, may have called the pod unschedulable first.
    maybe = ("system:kube-scheduler", "patch", "status")
    eventually(lambda: {*writes()} - {maybe} == expected, 10, lambda: str(writes()))


# Leftovers. A child Python process plays the pytest that fails or is killed.

SCRIPT = """
    import sys, time
    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.harness.objects import allocated, pod, running
    cluster = Cluster()
    cluster.fake_nodes.add("gpu")
    cluster.make("sleeper", ["sh", "-c", "sleep 1000 & sleep 1000"]).start()
    print(cluster.directory, flush=True)
    {end}
"""


def processes_of(directory: Path) -> list[str]:
    """Processes whose command line, working directory or mounts name a cluster's directory."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            told = (each / "cmdline").read_text().replace("\0", " ")
            about = [told, str((each / "cwd").readlink()), (each / "mounts").read_text()]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if any(str(directory) in text for text in about):
            found.append(f"{each.name} {told}")
    return found


@contextlib.contextmanager
def somebodys_tests(end: str) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT).format(end=end)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            directory = Path(child.stdout.readline().strip())
            assert directory.name.startswith(processes.PREFIX)
            yield child, directory
        finally:
            child.kill()


def gone(directory: Path) -> bool:
    return not directory.exists() and not processes_of(directory)


@pytest.mark.parametrize("end", ["raise SystemExit('a test failed')", "cluster.close()"])
def test_nothing_is_left_when_the_tests_end(end: str) -> None:
    with somebodys_tests(end) as (child, directory):
        child.wait()
        eventually(lambda: gone(directory), 15, lambda: str(processes_of(directory)))


def test_nothing_is_left_when_the_tests_are_killed() -> None:
    with somebodys_tests("time.sleep(1000)") as (child, directory):
        assert len(processes_of(directory)) >= 6
        child.kill()
        child.wait()
        eventually(lambda: gone(directory), 15, lambda: str(processes_of(directory)))


def test_nothing_is_left_when_the_supervisor_is_killed_and_the_next_one_sweeps() -> None:
    with somebodys_tests("time.sleep(1000)") as (_, directory):
        (told,) = [each for each in processes_of(directory) if supervisor.__name__ in each]
        os.kill(int(told.split()[0]), signal.SIGKILL)

        def only_grandchildren() -> bool:
            return all("sleep 1000" in each for each in processes_of(directory))

        eventually(only_grandchildren, 15, lambda: str(processes_of(directory)))
        processes.sweep()
        eventually(lambda: gone(directory), 15, lambda: str(processes_of(directory)))


def test_sweeping_spares_clusters_that_run(cluster: Cluster) -> None:
    processes.sweep()
    assert cluster.directory.exists()
    cluster.ready()


@pytest.mark.parametrize(
    "gate",
    [
        "DRAConsumableCapacity",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAPartitionableDevices",
        "DynamicResourceAllocation",
        "MutatingAdmissionPolicy",
        "ResourceHealthStatus",
    ],
)
def test_what_shoal_builds_on_is_on_by_default(shared_cluster: Cluster, gate: str) -> None:
    metrics = shared_cluster.kubectl("get", "--raw", "/metrics")
    assert re.search(rf'^kubernetes_feature_enabled{{name="{gate}",.*}} 1$', metrics, re.MULTILINE)


def test_an_extended_resource_can_be_served_by_dra(cluster: Cluster) -> None:
    cluster.fake_nodes.add("dra", devices=2, channels=["dra"])
    served = {"spec": {"extendedResourceName": "nvidia.com/gpu"}}
    cluster.api.patch("resource.k8s.io/v1/DeviceClass", "gpu.nvidia.com", served)
    cluster.api.create(pod("plain", devices=2))
    there = cluster.api.wait(POD, "plain", until=running)
    name = there["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    made = cluster.api.get("resource.k8s.io/v1/ResourceClaim", name)
    assert allocated(made) == [("dra-0", "gpu-0"), ("dra-0", "gpu-1")]


def test_gates_and_served_versions_can_be_chosen(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(
        feature_gates={"GenericWorkload": True},
        runtime_config={"scheduling.k8s.io/v1beta1": True},
    )
    assert cluster.api.list("scheduling.k8s.io/v1beta1/PodGroup") == []
