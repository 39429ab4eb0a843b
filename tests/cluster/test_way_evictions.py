"""Guarantees taken back on a real cluster, and disruption budgets that stand in the way."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness.api import ApiError, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import namespace
from tests.cluster.way import (
    DEPLOYMENT,
    JOB,
    POD,
    Body,
    Shoal,
    ask,
    bound,
    events_of,
    gated,
    gated_deployment,
    gated_job,
    wait_bound,
)

pytestmark = [pytest.mark.cluster]

QUEUES = """
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: root}
---
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: owner}
spec:
  parent: root
  namespaces: {matchLabels: {team: owner}}
  guarantee: {H100: 2}
---
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: borrower}
spec:
  parent: root
  namespaces: {matchLabels: {team: borrower}}
"""
ADMISSION = "admissionregistration.k8s.io/v1"
BUDGET = "policy/v1/PodDisruptionBudget"


@pytest.fixture
def shoal(cluster: Cluster, tmp_path: Path) -> Iterator[Shoal]:
    """A scheduler with a queue that is guaranteed two devices, and one that may borrow them."""
    for name, team in (("owner", "owner"), ("team", "borrower")):
        labels = {"shoal.dev/mode": "manage", "team": team}
        cluster.api.create(namespace(name, labels))
        cluster.api.wait("v1/ServiceAccount", "default", name, until=bool)
    file = tmp_path / "queues.yaml"
    file.write_text(QUEUES)
    shoal = Shoal(cluster, queues=file, no_leader_elect=None)
    cluster.fake_nodes.add("gpu", 1, 2)
    yield shoal
    shoal.check()


def asker(devices: int) -> Body:
    return gated("asker", devices, namespace="owner")


def evictions(shoal: Shoal) -> float:
    return shoal.metric('shoal_decisions_total{decision="Evict"}')


def test_a_guarantee_is_taken_back_and_whoever_borrowed_it_comes_back(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.api.create(gated_deployment("web", 2))
    borrowed = wait_bound(cluster, 2)
    first = {p["metadata"]["name"]: p["metadata"]["uid"] for p in cluster.api.list(POD, "team")}
    cluster.api.create(asker(2))
    assert wait_bound(cluster, 1, "owner") == {"asker": "gpu-0"}
    assert bound(cluster) == {}
    shoal.check()
    # The Deployment has made new pods, which wait at the gate.
    waiting = eventually(lambda: _gated(cluster, 2), 30, "the new pods do not wait")
    assert not set(waiting) & set(borrowed)
    assert shoal.metric('shoal_workloads{state="waiting"}') == 2
    for name in first:
        told = [note for reason, note in events_of(cluster, name) if reason == "Evicted"]
        assert len(told) == 1
        assert "owner/asker" in told[0]
    assert evictions(shoal) == 2
    cluster.api.delete(POD, "asker", "owner", grace_s=0)
    assert set(wait_bound(cluster, 2)) == set(waiting)
    assert evictions(shoal) == 2


def _gated(cluster: Cluster, count: int) -> list[str] | None:
    pods = [p for p in cluster.api.list(POD, "team") if p["spec"].get("schedulingGates")]
    return [p["metadata"]["name"] for p in pods] if len(pods) == count else None


def test_a_gang_is_evicted_whole_and_uses_up_no_retry(cluster: Cluster, shoal: Shoal) -> None:
    cluster.api.create(gated_job("train", 2))
    wait_bound(cluster, 2)
    cluster.api.create(asker(1))
    wait_bound(cluster, 1, "owner")
    eventually(lambda: _gated(cluster, 2), 30, "the Job has made no new pods")
    assert bound(cluster) == {}
    shoal.check()
    train = cluster.api.get(JOB, "train", "team")
    assert not train["status"].get("failed")
    cluster.api.delete(POD, "asker", "owner", grace_s=0)
    wait_bound(cluster, 2)
    assert evictions(shoal) == 1


def test_e05_b_a_disruption_budget_keeps_what_it_covers(cluster: Cluster, shoal: Shoal) -> None:
    cluster.api.create(gated_deployment("web", 2))
    running = wait_bound(cluster, 2)
    for name in running:
        cluster.api.wait(POD, name, "team", until=_is_ready)
    cluster.api.create(_budget())
    cluster.api.wait(
        BUDGET, "keep", "team", until=lambda o: o.get("status", {}).get("currentHealthy") == 2
    )
    cluster.api.create(asker(2))
    eventually(lambda: events_of(cluster, "asker", "owner"), 30, "the asker was told nothing")
    time.sleep(3)
    shoal.check()
    assert bound(cluster) == running
    assert bound(cluster, "owner") == {}
    # What stood in the way is gone.
    cluster.api.delete(BUDGET, "keep", "team")
    wait_bound(cluster, 1, "owner")
    assert bound(cluster) == {}


def test_what_the_api_server_refuses_to_evict_goes_on_running(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.api.create(gated_job("train", 2))
    running = wait_bound(cluster, 2)
    for body in _no_evictions():
        cluster.api.create(body)
    eventually(lambda: _refuses(cluster, min(running)), 30, "the policy does not act")
    cluster.api.create(asker(2))
    name = eventually(lambda: _told(cluster, running), 30, "nobody was told")
    shoal.check()
    assert bound(cluster) == running
    left = cluster.api.wait(POD, name, "team", until=_is_counted)
    assert "eviction" not in left["metadata"]["annotations"]["shoal.dev/plan"]
    cluster.api.delete(f"{ADMISSION}/ValidatingAdmissionPolicyBinding", "keep")
    # It is asked again after 30 s.
    wait_bound(cluster, 1, "owner", seconds=60)


def _told(cluster: Cluster, names: Iterable[str]) -> str:
    """A pod that was told that it is not evicted after all."""
    for name in names:
        if any(reason == "EvictionRefused" for reason, _ in events_of(cluster, name)):
            return name
    return ""


def _is_counted(body: Body) -> bool:
    return "batch.kubernetes.io/job-tracking" in body["metadata"].get("finalizers", ())


def _refuses(cluster: Cluster, pod: str) -> bool:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": "team"},
    }
    path = f"/api/v1/namespaces/team/pods/{pod}/eviction?dryRun=All"
    try:
        cluster.api.call("POST", path, eviction)
    except ApiError:
        return True
    return False


def _no_evictions() -> list[Body]:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/eviction"],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "nobody is evicted here"}],
    }
    policy = "ValidatingAdmissionPolicy"
    bound_to = {"policyName": "keep", "validationActions": ["Deny"]}
    return [
        {"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": "keep"}, "spec": each}
        for kind, each in ((policy, spec), (f"{policy}Binding", bound_to))
    ]


def _budget() -> Body:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "team"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }


def _is_ready(body: Body) -> bool:
    conditions = body["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def test_a_leader_that_is_killed_while_it_evicts_evicts_nobody_twice(
    cluster: Cluster, shoal: Shoal
) -> None:
    cluster.api.create(gated_deployment("web", 2))
    wait_bound(cluster, 2)
    first = {p["metadata"]["uid"] for p in cluster.api.list(POD, "team")}
    cluster.api.create(asker(2))
    for pause_s in (0.0, 0.05, 0.3):
        time.sleep(pause_s)
        shoal.process.kill()
        shoal.start()
    wait_bound(cluster, 1, "owner", seconds=60)
    shoal.check()
    now = cluster.api.list(POD, "team")
    assert len(now) == 2
    assert not {p["metadata"]["uid"] for p in now} & first
    assert all(p["spec"].get("schedulingGates") for p in now)


def test_who_leads_next_remembers_who_was_evicted(cluster: Cluster, shoal: Shoal) -> None:
    cluster.api.create(gated_deployment("web", 2))
    wait_bound(cluster, 2)
    cluster.api.create(asker(2))
    wait_bound(cluster, 1, "owner")
    eventually(lambda: _gated(cluster, 2), 30, "the new pods do not wait")
    shoal.check()
    assert shoal.process.stop() == 0
    assert cluster.api.get("v1/ConfigMap", "shoal-scheduler-memory", "default")["binaryData"]
    shoal.start()
    shoal.check()
    waiting = [each for each in shoal.log() if each.get("event") == "remembered"]
    assert waiting[-1]["workloads"] == 2
    cluster.api.delete(POD, "asker", "owner", grace_s=0)
    wait_bound(cluster, 2)


def test_a_service_keeps_its_floor_through_a_reclaim_and_a_rollout(
    cluster: Cluster, shoal: Shoal, tmp_path: Path
) -> None:
    """Of two replicas it needs one, which its queue is guaranteed; the other borrows."""
    team = "namespaces: {matchLabels: {team: borrower}}"
    queues = QUEUES.replace("H100: 2", "H100: 1").replace(team, f"{team}\n  guarantee: {{H100: 1}}")
    shoal.process.stop()
    (tmp_path / "queues.yaml").write_text(queues)
    shoal.start()
    body = gated_deployment("web", 2)
    notes = {"shoal.dev/type": "inference", "shoal.dev/minimum": "1"}
    body["spec"]["template"]["metadata"]["annotations"] = notes
    cluster.api.create(body)
    first = wait_bound(cluster, 2)
    cluster.api.create(asker(1))
    wait_bound(cluster, 1, "owner")
    (kept,) = bound(cluster)
    eventually(lambda: _gated(cluster, 1), 30, "the new pod does not wait")
    shoal.check()
    # With room for one more it is rolled out: the old floor stays until the new ones run.
    cluster.fake_nodes.add("more", 1, 2)
    wait_bound(cluster, 2)
    assert kept in first
    template = {"metadata": {"annotations": {"version": "2"}}}
    cluster.api.patch(DEPLOYMENT, "web", {"spec": {"template": template}}, "team")
    eventually(lambda: _rolled_out(cluster), 60, "it is not rolled out")
    assert not set(bound(cluster)) & {kept}
    assert evictions(shoal) == 1


def _rolled_out(cluster: Cluster) -> bool:
    pods = cluster.api.list(POD, "team")
    new = [p for p in pods if p["metadata"]["annotations"].get("version") == "2"]
    return len(pods) == len(new) == len(bound(cluster)) == 2


def test_what_ran_for_its_maximum_is_held_back_when_it_is_made_again(
    cluster: Cluster, shoal: Shoal, tmp_path: Path
) -> None:
    """A Job and a StatefulSet end after 4 s; their pods are made again, and stay at the gate."""
    file = tmp_path / "queues.yaml"
    limit = "namespaces: {matchLabels: {team: borrower}}"
    file.write_text(QUEUES.replace(limit, f"{limit}\n  maximumRun: {{batch: 4s}}"))
    shoal.process.stop()
    shoal.start()
    cluster.api.create(gated_job("train", 1, retries=6))
    body = gated_deployment("nb", 1)
    cluster.api.create(body | {"kind": "StatefulSet", "spec": body["spec"] | {"serviceName": "nb"}})
    first = {p["metadata"]["uid"] for p in _pods(wait_bound(cluster, 2), cluster)}
    held = eventually(lambda: _held(cluster), 60, "their pods are not held back")
    assert not {p["metadata"]["uid"] for p in held} & first
    said = ask(cluster, "why", "nb-0", "--namespace", "team")
    assert "It ran for 4s, its maximum in queue borrower, and was ended." in said
    assert any("to 0 and back" in note for _, note in events_of(cluster, "nb-0"))
    # Whoever leads next knows it from the pods.
    shoal.process.stop()
    shoal.start()
    eventually(lambda: shoal.leads, 30, "it does not lead")
    shoal.check()
    assert bound(cluster) == {}
    for replicas in (0, 1):
        scale = {"spec": {"replicas": replicas}}
        cluster.api.patch("apps/v1/StatefulSet", "nb", scale, "team", subresource="scale")
        if not replicas:
            eventually(lambda: len(cluster.api.list(POD, "team")) == 1, 30, "it did not scale")
    assert list(wait_bound(cluster, 1)) == ["nb-0"]


def _pods(names: Iterable[str], cluster: Cluster) -> list[Body]:
    return [p for p in cluster.api.list(POD, "team") if p["metadata"]["name"] in names]


def _held(cluster: Cluster) -> list[Body] | None:
    pods = [
        p
        for p in cluster.api.list(POD, "team")
        if "shoal.dev/held" in p["metadata"].get("annotations", {})
    ]
    return pods if len(pods) == 2 else None


def test_changed_files_are_taken_in_by_a_running_scheduler(
    cluster: Cluster, shoal: Shoal, tmp_path: Path
) -> None:
    cluster.api.create(gated_deployment("web", 2))
    wait_bound(cluster, 2)
    other = tmp_path / "other.yaml"
    other.write_text(QUEUES.replace("guarantee: {H100: 2}", "guarantee: {H100: 1}"))
    file = tmp_path / "queues.yaml"
    said = ask(cluster, "check", str(other), "--against", "--queues", str(file))
    assert said.splitlines() == [
        "Queue owner: the guarantee of H100 changes from 2 to 1.",
        "3 queues and 0 pools could be applied",
    ]
    other.rename(file)
    eventually(lambda: _logged(shoal, "pools and queues are taken in"), 30, "nothing is taken in")
    cluster.api.create(asker(1))
    wait_bound(cluster, 1, "owner")
    assert len(bound(cluster)) == 1
    file.write_text("nonsense")
    eventually(lambda: shoal.metric("shoal_files_refused") == 1, 30, "nothing is refused")
    file.write_text(QUEUES)
    eventually(lambda: shoal.metric("shoal_files_refused") == 0, 30, "it is refused still")


def _logged(shoal: Shoal, event: str) -> bool:
    return any(line.get("event") == event for line in shoal.log())
