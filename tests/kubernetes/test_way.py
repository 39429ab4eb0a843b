"""The way from a gated pod to a bound one, and back, against a small cluster in memory."""

import pytest

from shoal.kubernetes.executing.deadlines import DeadlineOptions
from shoal.kubernetes.scheduler import SchedulerOptions, now_us
from shoal.kubernetes.wire.kinds import (
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from shoal.model.hold import HoldReason
from shoal.objects.annotations import PLAN
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import PLUGIN, job, namespace, node, pod, replica_set, slice_of
from tests.kubernetes.rig import Rig, Shoal

QUICK = SchedulerOptions(tick_s=0.0, deadlines=DeadlineOptions(refused_us=0, claim_us=0))


@pytest.fixture
def rig() -> Rig:
    """A managed namespace."""
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    return rig


def dra(rig: Rig, *nodes: str, devices: int = 8) -> None:
    rig.put(NAMESPACES, namespace(channel="dra"))
    rig.put(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}})
    for name in nodes:
        rig.put(NODES, node(name, 0))
        rig.put(RESOURCE_SLICES, slice_of(name, devices))


@in_loop
async def test_a_bare_pod_is_pinned_and_released_in_one_patch(rig: Rig) -> None:
    rig.put(NODES, node("n1", 2))
    rig.put(PODS, pod("a"))
    shoal = Shoal(rig)
    await shoal.settle()
    assert rig.writes == ["patch pods a"]
    assert rig.bound() == {"a": "n1"}
    assert shoal.states() == {"uid-a/0": "running"}
    assert shoal.held("n1") == 1


@in_loop
async def test_a_claim_is_made_before_its_pod_is_released(rig: Rig) -> None:
    dra(rig, "n1")
    rig.put(PODS, pod("a", 2, dra=True))
    shoal = Shoal(rig)
    await shoal.settle()
    assert rig.writes == ["create resourceclaims a.shoal.dev", "patch pods a"]
    claim = rig.get(RESOURCE_CLAIMS, "a.shoal.dev", "ns")
    assert claim["metadata"]["ownerReferences"][0]["uid"] == "uid-a"
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 2
    assert rig.bound() == {"a": "n1"}
    assert shoal.held("n1") == 2


@in_loop
async def test_the_pods_of_a_job_start_together_or_not_at_all(rig: Rig) -> None:
    rig.put(NODES, node("n1", 2))
    owner = rig.put(JOBS, job("train", 4))
    shoal = Shoal(rig)
    await shoal.settle([(owner, "Job")])
    assert rig.bound() == {}
    assert shoal.states() == {"uid-train/0": "waiting"}
    rig.put(NODES, node("n2", 2))
    await shoal.settle()
    assert sorted(rig.bound().values()) == ["n1", "n1", "n2", "n2"]
    # The whole plan stood on one pod before the first was let go.
    assert len(rig.writes) == 5
    assert rig.writes[0] == rig.writes[1]


@in_loop
async def test_a_job_waits_for_all_of_its_pods(rig: Rig) -> None:
    rig.put(NODES, node("n1", 8))
    owner = rig.put(JOBS, job("train", 3))
    shoal = Shoal(rig)
    for n in range(2):
        rig.put(PODS, pod(f"train-{n}", owner=owner))
    await shoal.settle()
    assert rig.writes == []
    hold = shoal.scheduler.source.holds["uid-train"]
    assert hold.reason is HoldReason.INCOMPLETE
    assert dict(hold.details) == {"owner": "Job train", "pods": 2, "wanted": 3}
    rig.put(PODS, pod("train-2", owner=owner))
    await shoal.settle()
    assert len(rig.bound()) == 3
    assert shoal.scheduler.source.holds == {}


@in_loop
async def test_pods_of_a_replica_set_start_one_by_one(rig: Rig) -> None:
    rig.put(NODES, node("n1", 2))
    owner = rig.put(REPLICA_SETS, replica_set("web", 3))
    shoal = Shoal(rig)
    await shoal.settle([(owner, "ReplicaSet")])
    assert len(rig.bound()) == 2
    assert sorted(shoal.states().items()) == [
        ("uid-web/0", "running"),
        ("uid-web/1", "running"),
        ("uid-web/2", "waiting"),
    ]


@in_loop
async def test_pods_of_others_are_seen_and_respected(rig: Rig) -> None:
    rig.put(NAMESPACES, namespace("other", mode="observe"))
    rig.put(NODES, node("n1", 2))
    rig.put(PODS, pod("theirs", gated=False, namespace="other", nodeName="n1"))
    rig.put(PODS, pod("a"))
    rig.put(PODS, pod("b"))
    shoal = Shoal(rig)
    await shoal.settle()
    assert rig.bound() == {"theirs": "n1", "a": "n1"}
    rig.remove(PODS, "theirs", "other")
    await shoal.settle()
    assert rig.bound() == {"a": "n1", "b": "n1"}


@in_loop
async def test_an_observed_namespace_is_not_touched(rig: Rig) -> None:
    rig.put(NAMESPACES, namespace("other", mode="observe"))
    rig.put(NODES, node("n1", 2))
    rig.put(PODS, pod("a", namespace="other"))
    shoal = Shoal(rig)
    await shoal.settle()
    assert rig.writes == []
    assert shoal.states() == {}


@in_loop
async def test_a_standby_writes_nothing_and_its_first_decisions_equal_the_leaders(
    rig: Rig,
) -> None:
    rig.put(NODES, node("n1", 4))
    rig.put(NODES, node("n2", 4))
    standby = Shoal(rig, leads=False)
    leader = Shoal(rig)
    for n in range(6):
        rig.put(PODS, pod(f"p{n}"))
    await leader.settle()
    await standby.settle()
    assert len(rig.bound()) == 6
    assert standby.states() == leader.states()
    assert placements(standby) == placements(leader)
    first = rig.writes[:]
    leader.leader.is_leader = False
    standby.leader.is_leader = True
    await standby.settle()
    assert rig.writes == first  # nothing is done again
    assert standby.held("n1") + standby.held("n2") == 6


def placements(shoal: Shoal) -> dict[str, object]:
    return {uid: sorted(entry.held.items()) for uid, entry in shoal.world.entries.items()}


@in_loop
async def test_k05_a_device_is_free_when_its_pod_is_gone(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    rig.put(PODS, pod("a"))
    shoal = Shoal(rig)
    await shoal.settle()
    rig.put(PODS, pod("b"))
    rig.change(PODS, "a", "ns", metadata={"deletionTimestamp": rig.stamp()})
    await shoal.settle()
    assert rig.bound() == {"a": "n1"}
    # Variant C: a restart makes no work of the dying pod.
    again = Shoal(rig)
    await again.settle()
    assert again.states() == {"uid-a/0": "running", "uid-b/0": "waiting"}
    rig.remove(PODS, "a", "ns")
    await again.settle()
    assert rig.bound() == {"b": "n1"}


@in_loop
async def test_k06_a_short_not_ready_moves_nothing(rig: Rig) -> None:
    for name in ("n1", "n2", "n3"):
        rig.put(NODES, node(name, 8))
    owner = rig.put(JOBS, job("g", 2, devices=8))
    shoal = Shoal(rig)
    await shoal.settle([(owner, "Job")])
    before = placements(shoal)
    busy = sorted(rig.bound().values())
    away, spare = busy[1], ({"n1", "n2", "n3"} - set(busy)).pop()
    rig.change(NODES, away, status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
    rig.put(PODS, pod("w", 8))
    rig.put(PODS, pod("x", 8))
    await shoal.settle()
    assert rig.bound()["w"] == spare
    assert "x" not in rig.bound()
    rig.change(NODES, away, status={"conditions": [{"type": "Ready", "status": "True"}]})
    await shoal.settle()
    assert {k: v for k, v in placements(shoal).items() if k in before} == before
    # Variant: its pod is deleted while it is away; the next one is never pinned there.
    rig.change(NODES, away, status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
    lost = next(name for name, at in rig.bound().items() if at == away)
    rig.remove(PODS, lost, "ns")
    await shoal.settle([(owner, "Job")])
    assert away not in rig.bound().values()
    rig.change(NODES, away, status={"conditions": [{"type": "Ready", "status": "True"}]})
    await shoal.settle([(owner, "Job")])
    assert away in rig.bound().values()


@in_loop
async def test_a_device_plugin_that_restarts_moves_nothing(rig: Rig) -> None:
    rig.put(NODES, node("n1", 4))
    rig.put(PODS, pod("a", 2))
    rig.put(PODS, pod("theirs", 1, gated=False, nodeName="n1"))
    shoal = Shoal(rig)
    await shoal.settle()
    before = placements(shoal)
    rig.change(NODES, "n1", status={"allocatable": {PLUGIN: "0"}})
    rig.put(PODS, pod("b"))
    await shoal.settle()
    assert "b" not in rig.bound()
    # Started in the meantime, Shoal knows as much.
    again = Shoal(rig)
    await again.settle()
    rig.change(NODES, "n1", status={"allocatable": {PLUGIN: "4"}})
    for each in (shoal, again):
        await each.settle()
        assert {k: v for k, v in placements(each).items() if k in before} == before
        assert each.held("n1") == 4
    assert rig.bound()["b"] == "n1"


@pytest.mark.parametrize("channel", ["device-plugin", "dra"])
@in_loop
async def test_k02_a_replaced_pod_keeps_its_place(rig: Rig, channel: str) -> None:
    if channel == "dra":
        dra(rig, "n1", devices=2)
    else:
        rig.put(NODES, node("n1", 2))
    owner = rig.put(REPLICA_SETS, replica_set("web", 2, dra=channel == "dra"))
    shoal = Shoal(rig)
    await shoal.settle([(owner, "ReplicaSet")])
    rig.put(PODS, pod("other", dra=channel == "dra"))
    for _ in range(26):
        for name in [n for n in rig.bound() if n.startswith("web")]:
            rig.remove(PODS, name, "ns")
        await shoal.settle()
        assert "other" not in rig.bound()
        await shoal.settle([(owner, "ReplicaSet")])
        ours = [uid for uid in shoal.states() if uid.startswith("uid-web")]
        assert len(ours) == 2
        assert len(rig.bound()) == 2
    assert "other" not in rig.bound()


@in_loop
async def test_k02_an_empty_place_is_given_away_in_time_or_when_nobody_wants_it(
    rig: Rig,
) -> None:
    rig.put(NODES, node("n1", 2))
    owner = rig.put(REPLICA_SETS, replica_set("web", 2))
    shoal = Shoal(rig)
    await shoal.settle([(owner, "ReplicaSet")])
    rig.put(PODS, pod("other"))
    first, second = sorted(rig.bound())
    rig.remove(PODS, first, "ns")
    await shoal.settle()
    assert "other" not in rig.bound()
    rig.change(REPLICA_SETS, "web", "ns", spec={"replicas": 1})
    await shoal.settle()
    assert sorted(rig.bound()) == ["other", second]


@in_loop
async def test_what_kube_scheduler_refuses_is_taken_back_and_goes_elsewhere(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    owner = rig.put(JOBS, job("train", 1))
    shoal = Shoal(rig, options=QUICK)
    rig.replace(owner, "Job")
    await shoal.step()
    # Somebody else was faster.
    rig.put(PODS, pod("thief", gated=False, nodeName="n1"))
    rig.put(NODES, node("n2", 1))
    await shoal.settle([(owner, "Job")])
    assert sorted(rig.bound().values()) == ["n1", "n2"]
    assert any(
        reason == "StartFailed" and "cannot allocate" in note for _, reason, note in shoal.said
    )
    # The pod that never ran is no longer counted by its Job when it goes.
    kinds = [write.rpartition(" ")[0] for write in rig.writes]
    assert kinds == ["patch pods", "patch pods", "delete pods", "patch pods"]


@in_loop
async def test_a_gang_that_is_not_whole_in_time_is_taken_back_whole(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    rig.put(NODES, node("n2", 1))
    owner = rig.put(JOBS, job("train", 2))
    shoal = Shoal(rig, options=QUICK)
    rig.replace(owner, "Job")
    await shoal.step()
    rig.put(PODS, pod("thief", gated=False, nodeName="n2"))
    await shoal.settle([(owner, "Job")])
    assert rig.bound() == {"thief": "n2"}
    assert list(shoal.states().values()) == ["waiting"]
    assert all(
        p["spec"].get("schedulingGates") for p in rig.pods() if "train" in p["metadata"]["name"]
    )
    rig.put(NODES, node("n3", 1))
    await shoal.settle([(owner, "Job")])
    assert sorted(rig.bound().values()) == ["n1", "n2", "n3"]


@in_loop
async def test_a_bare_pod_that_cannot_start_says_so_and_keeps_its_node(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    rig.put(PODS, pod("a"))
    shoal = Shoal(rig, options=QUICK)
    await shoal.step()
    rig.put(PODS, pod("thief", gated=False, nodeName="n1"))
    rig.put(NODES, node("n2", 1))
    await shoal.settle()
    assert rig.bound() == {"thief": "n1"}
    hold = shoal.scheduler.source.holds["uid-a"]
    assert hold.reason is HoldReason.STUCK
    assert dict(hold.details)["node"] == "n1"
    rig.remove(PODS, "thief", "ns")
    await shoal.settle()
    assert rig.bound() == {"a": "n1"}
    assert shoal.scheduler.source.holds == {}
    assert shoal.held("n1") == 1


@in_loop
async def test_a_bare_pod_with_a_claim_gets_another_device_of_its_node(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = {"us": now_us()}
    monkeypatch.setattr("shoal.kubernetes.scheduler.now_us", lambda: time["us"])
    dra(rig, "n1", devices=2)
    rig.put(PODS, pod("a", dra=True))
    shoal = Shoal(rig)
    await shoal.step()
    claim = rig.get(RESOURCE_CLAIMS, "a.shoal.dev", "ns")
    pinned = claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"][0]["cel"]
    taken = next(n for n in range(2) if f"GPU-n1-{n}" in pinned["expression"])
    result = {
        "request": "r",
        "driver": "gpu.nvidia.com",
        "pool": "n1",
        "device": f"n1-gpu-{taken}",
    }
    theirs = {
        "metadata": {"name": "theirs", "namespace": "ns"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    rig.put(RESOURCE_CLAIMS, theirs)
    await shoal.settle()
    assert rig.bound() == {}
    time["us"] += DeadlineOptions().refused_us
    await shoal.settle()
    assert rig.bound() == {"a": "n1"}
    assert f"GPU-n1-{1 - taken}" in rig.get(PODS, "a", "ns")["metadata"]["annotations"][PLAN]
    held = rig.get(RESOURCE_CLAIMS, "a.shoal.dev", "ns")["status"]["allocation"]
    assert held["devices"]["results"][0]["device"] == f"n1-gpu-{1 - taken}"
    assert shoal.held("n1") == 2


@in_loop
async def test_a_claim_that_a_user_deletes_is_made_again(rig: Rig) -> None:
    dra(rig, "n1", devices=1)
    rig.put(PODS, pod("a", dra=True))
    shoal = Shoal(rig, options=QUICK)
    await shoal.step()
    rig.remove(RESOURCE_CLAIMS, "a.shoal.dev", "ns")
    await shoal.settle()
    assert rig.bound() == {"a": "n1"}


@in_loop
async def test_k07_a_quota_without_room_is_an_obstacle_with_a_name(rig: Rig) -> None:
    dra(rig, "n1")
    resource = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    quota = {
        "metadata": {"name": "team", "namespace": "ns"},
        "spec": {"hard": {resource: "4"}},
        "status": {"hard": {resource: "4"}, "used": {resource: "3"}},
    }
    rig.put(RESOURCE_QUOTAS, quota)
    owner = rig.put(JOBS, job("w", 2, dra=True))
    shoal = Shoal(rig)
    await shoal.settle([(owner, "Job")])
    assert rig.writes == []
    hold = shoal.scheduler.source.holds["uid-w"]
    assert hold.reason is HoldReason.QUOTA
    assert dict(hold.details) == {
        "quota": "team",
        "namespace": "ns",
        "resource": resource,
        "used": 3,
        "asked": 2,
        "allowed": 4,
    }
    # Variant A: the quota says there is room, and refuses the claim all the same.
    rig.claim_refusal = "claims is forbidden: exceeded quota: team, requested: devices=1"
    rig.change(RESOURCE_QUOTAS, "team", "ns", status={"used": {resource: "2"}})
    await shoal.settle()
    assert not any("patch" in write for write in rig.writes)
    assert not rig.objects["resourceclaims.resource.k8s.io"]
    tried = len(rig.writes)
    assert shoal.scheduler.source.holds["uid-w"].reason is HoldReason.QUOTA_REFUSED
    await shoal.settle()
    assert len(rig.writes) == tried  # not tried again before the quota changes
    rig.claim_refusal = ""
    rig.change(RESOURCE_QUOTAS, "team", "ns", status={"used": {resource: "1"}})
    await shoal.settle()
    assert len(rig.bound()) == 2


@in_loop
async def test_o02_late_and_repeated_events_change_nothing(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    rig.put(PODS, pod("a"))
    shoal = Shoal(rig)
    await shoal.settle()
    rig.change(PODS, "a", "ns", status={"phase": "Succeeded"})
    await shoal.settle()
    ended = shoal.scheduler.counts.events["PodEnded"]
    assert ended == 1
    assert shoal.held("n1") == 0
    # What a watch tells after a list may be told again.
    rig.change(PODS, "a", "ns", metadata={"labels": {"seen": "again"}})
    rig.remove(PODS, "a", "ns")
    rig.remove(PODS, "a", "ns")
    await shoal.settle()
    assert shoal.scheduler.counts.events["PodEnded"] == ended
    assert shoal.held("n1") == 0


@in_loop
async def test_a_change_that_means_nothing_causes_no_event(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    rig.put(PODS, pod("a"))
    shoal = Shoal(rig)
    await shoal.settle()
    before = sum(shoal.scheduler.counts.events.values())
    rig.change(NODES, "n1", status={"nodeInfo": {"kernelVersion": "6.1"}})
    rig.change(PODS, "a", "ns", status={"phase": "Running"})
    rig.change(PODS, "a", "ns", metadata={"labels": {"x": "y"}})
    await shoal.settle()
    assert sum(shoal.scheduler.counts.events.values()) == before


@in_loop
async def test_nothing_is_decided_while_a_kind_cannot_be_watched(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    rig.put(PODS, pod("a"))
    shoal = Shoal(rig)
    shoal.cache.trouble = {"pods": "away"}
    await shoal.settle()
    assert rig.writes == []
    shoal.cache.trouble = {}
    await shoal.settle()
    assert rig.bound() == {"a": "n1"}


@in_loop
async def test_a_pod_keeps_the_terms_of_its_owner_in_every_alternative(rig: Rig) -> None:
    rig.put(NODES, node("n1", 1))
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    rig.put(PODS, pod("a", affinity={"nodeAffinity": required}))
    shoal = Shoal(rig)
    await shoal.settle()
    written = rig.get(PODS, "a", "ns")["spec"]["affinity"]["nodeAffinity"]
    kept = written["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchExpressions"] for term in kept] == [t["matchExpressions"] for t in terms]
    assert all(term["matchFields"][0]["values"] == ["n1"] for term in kept)
    assert PLAN in rig.get(PODS, "a", "ns")["metadata"]["annotations"]
