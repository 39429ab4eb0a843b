"""The whole way in one piece: admission and scheduler as processes, under the rights they have."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.admission import ACCOUNT, MANAGED, MANAGED_DRA, Admission
from tests.cluster.harness.api import Client, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import job, pod, running
from tests.cluster.harness.processes import Process
from tests.cluster.way import POD, SHOAL, Shoal, ask, node_of, wait_bound

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("admission")]

WEBHOOK = "system:serviceaccount:shoal:shoal-webhook"


@contextmanager
def webhook(admission: Admission, name: str) -> Iterator[Process]:
    """The webhook as a process of its own, on the port that the API server calls."""
    argv = [SHOAL, "webhook", "--kubeconfig", str(admission.cluster.user(WEBHOOK))]
    argv += ["--listen", f"127.0.0.1:{admission.port}", "--also-known-as", "127.0.0.1"]
    process = admission.cluster.make(name, argv)
    process.start()
    eventually(lambda: '"serving"' in process.log.read_text(), 30, process.tail)
    yield process
    process.kill()


def completed(api: Client, name: str, namespace: str) -> None:
    def done(body: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
        return any(each["type"] == "Complete" for each in body["status"].get("conditions", []))

    api.wait("batch/v1/Job", name, namespace, until=done, seconds=60)


def test_pods_are_admitted_planned_and_run_on_both_channels_and_then_released(
    cluster: Cluster,
) -> None:
    api = cluster.api
    cluster.fake_nodes.add("gpu", count=2, devices=4)
    cluster.fake_nodes.add("dra", count=2, devices=4, channels=["dra"])
    with Admission(cluster) as admission:
        admission.stop()
        admission.grant("webhook", WEBHOOK)
        admission.grant("scheduler", ACCOUNT)
        with webhook(admission, "webhook"):
            admission.wait_until_it_acts()
            shoal = Shoal(cluster, kubeconfig=cluster.user(ACCOUNT))
            short = {"fake-node/runs-for": "1"}
            for namespace in (MANAGED, MANAGED_DRA):
                api.create(job("gang", 2, parallelism=4, namespace=namespace, annotations=short))
                completed(api, "gang", namespace)
                for n in range(3):
                    api.create(pod(f"p{n}", 4, namespace=namespace))
                nodes = wait_bound(cluster, 2, namespace)
                assert len(set(nodes.values())) == 2
            # Without a request for devices a pod never waits.
            api.create(pod("plain", namespace=MANAGED_DRA))
            api.wait(POD, "plain", MANAGED_DRA, until=running)
            shoal.check()
            said = ask(cluster, "release", "--yes")
            assert "released 2 pods in 3 namespaces; 1 claims made" in said
            for namespace in (MANAGED, MANAGED_DRA):
                held = device_pods(api, namespace)
                (waiting,) = [name for name, node in held.items() if not node]
                # What it waits for now is kube-scheduler, which places it when there is room.
                api.delete(POD, next(name for name, node in held.items() if node), namespace)
                api.wait(POD, waiting, namespace, until=running, seconds=60)


def device_pods(api: Client, namespace: str) -> dict[str, str]:
    """Node by name of the three pods that want a node's devices each."""
    names = [f"p{n}" for n in range(3)]
    return {name: node_of(api.get(POD, name, namespace)) for name in names}
