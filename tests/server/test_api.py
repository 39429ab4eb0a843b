"""The API: what it answers."""

from pathlib import Path
from typing import Any

import pytest

from shoal.core import events as ev
from shoal.model.node import Device, Leaf, Node
from shoal.server.app import PREFIX, make_app
from tests.server.client import Api, why
from tests.server.rig import A100, H100, NOW_US, job, platform, pod

# Workloads ------------------------------------------------------------------------------------


def test_what_is_submitted_starts_and_is_shown(api: Api) -> None:
    said = api.submit(job("llm", 4, 2))
    (named,) = said["workloads"]
    assert (named["namespace"], named["name"], said["hints"]) == ("default", "llm", [])
    shown = api.ask(f"/workloads/{named['id']}")
    assert (shown["state"], shown["queue"], shown["devices"]) == ("running", "vision", 8)
    assert shown["created_at"] == shown["started_at"] == "2026-11-29T10:00:00Z"
    assert [each["node"] for each in shown["placements"]] == ["n1", "n2"]
    assert api.ask("/workloads")["items"] == [shown]


def test_all_of_a_submission_is_taken_or_nothing(api: Api) -> None:
    bad = pod("bad", memory="much")
    ((document, field, said),) = api.refused(job("good"), bad)
    assert (document, field) == (2, "shoal.dev/memory")
    assert "'much'" in said
    assert api.ask("/workloads")["items"] == []


def test_documents_without_pods_are_left_out_and_said(api: Api) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    said = api.submit(service, job("j"))
    assert [each["name"] for each in said["workloads"]] == ["j"]
    assert said["hints"] == ["document 1: a Service has no pods and was left out"]
    assert api.refused(service) == [(None, "", "no document has pods; there is nothing to do")]


def test_replicas_are_workloads_of_their_own_and_share_a_name(api: Api) -> None:
    web = job("web") | {"apiVersion": "apps/v1", "kind": "Deployment"}
    web["spec"] = {"replicas": 2, "template": web["spec"]["template"]}
    said = api.submit(web)
    assert [each["name"] for each in said["workloads"]] == ["web/0", "web/1"]
    found = api.ask("/workloads", name="web")["items"]
    assert [each["name"] for each in found] == ["web/0", "web/1"]
    assert [each["id"].endswith(f"~1{n}") for n, each in enumerate(found)] == [True, True]
    assert api.ask(f"/workloads/{found[1]['id']}")["name"] == "web/1"
    assert api.ask("/workloads", name="we")["items"] == []


def test_documents_wait_in_the_order_in_which_they_are_written(api: Api) -> None:
    api.submit(*(job(f"j{n}", 4, 2, accelerators="H100") for n in range(6)))
    found = api.ask("/workloads", state="waiting")["items"]
    assert [(each["name"], each["position"]) for each in found] == [
        ("j1", 1),
        ("j2", 2),
        ("j3", 3),
        ("j4", 4),
        ("j5", 5),
    ]


def test_a_name_that_is_in_use_is_refused(api: Api) -> None:
    api.submit(job("j"))
    said = "there is a workload j in namespace default; cancel it first, or write another name"
    assert api.refused(job("j")) == [(None, "metadata.name", said)]
    assert api.refused(job("j"), dry_run=True) == [(None, "metadata.name", said)]
    api.submit(job("j"), namespace="other")
    two = [(2, "metadata.name", "k is written twice; rename one")]
    assert api.refused(job("k"), job("k")) == two


def test_a_dry_run_takes_nothing_in(api: Api) -> None:
    assert api.submit(job("j"), dry_run=True)["workloads"][0]["name"] == "j"
    assert api.ask("/workloads")["items"] == []


@pytest.mark.parametrize(
    ("manifest", "field", "said"),
    [
        (job("j", queue="visoin"), "shoal.dev/queue", "there is no queue visoin; write one of"),
        (job("j", queue="research"), "shoal.dev/queue", "research has queues below it"),
        (job("../../etc/passwd"), "metadata.name", "is no name; write lower-case letters"),
        (job("a/b"), "metadata.name", "is no name"),
        (job("a\nb"), "metadata.name", "is no name"),
        (job(""), "metadata.name", "is missing; write a name"),
        (job("j") | {"kind": "DaemonSet"}, "", "are not known; write one of Pod, Job"),
        (job("j") | {"spec": 3}, "", "Kubernetes would not take this manifest"),
        ({}, "", "names no apiVersion; write it"),
        (
            job("j") | {"metadata": {"name": "j", "annotations": {"shoal.dev/queue": "vision"}}},
            "metadata.annotations.shoal.dev/queue",
            "write it under the pod's annotations",
        ),
        (
            job("j") | {"metadata": {"name": "j", "namespace": "../x"}},
            "metadata.namespace",
            "is no namespace",
        ),
    ],
)
def test_what_is_wrong_with_a_manifest_is_said(
    api: Api, manifest: dict[str, Any], field: str, said: str
) -> None:
    ((document, where, message),) = api.refused(manifest)
    assert (document, where) == (1, field)
    assert said in message


def test_refusals_are_told_in_the_language_of_who_asks(api: Api) -> None:
    body = {"manifests": [pod("p", memory="much")]}
    answer = api.post(f"{PREFIX}/workloads", json=body, headers={"Accept-Language": "zh-CN,zh"})
    assert "请写" in answer.json()["errors"][0]["message"]
    for queue, said in (("visoin", "没有队列 visoin"), ("research", "research 下还有队列")):
        body = {"manifests": [pod("p", queue=queue)]}
        answer = api.post(f"{PREFIX}/workloads", json=body, headers={"Accept-Language": "zh"})
        message = answer.json()["errors"][0]["message"]
        assert said in message
        assert "serving, vision, nlp" in message


def test_an_accelerator_like_no_other_is_refused_with_some_that_there_are(api: Api) -> None:
    ((_, _, message),) = api.refused(pod("p", accelerators="Q"))
    near = message.partition("Nearest: ")[2].split(", ")
    assert len(near) == 3
    assert all(near)


def test_work_without_a_queue_takes_the_one_of_the_submission(api: Api) -> None:
    bare = job("j")
    del bare["spec"]["template"]["metadata"]
    assert "names no queue; write one of" in api.refused(bare)[0][2]
    (named,) = api.submit(bare, queue="nlp")["workloads"]
    assert api.ask(f"/workloads/{named['id']}")["queue"] == "nlp"


def test_cancelled_work_ends_and_is_remembered(api: Api) -> None:
    api.submit(job("runs", 4, 2), job("waits", 4, 2, accelerators="H100"))
    for name in ("waits", "runs"):
        (found,) = api.ask("/workloads", name=name)["items"]
        answer = api.delete(f"{PREFIX}/workloads/{found['id']}")
        assert answer.json()["workloads"][0]["name"] == name
        again = api.delete(f"{PREFIX}/workloads/{found['id']}")
        assert (again.status_code, again.json()["detail"]) == (404, f"{name} has ended already")
    assert api.ask("/workloads")["items"] == []
    ended = api.ask("/workloads", state="ended")["items"]
    assert [(each["name"], each["outcome"]) for each in ended] == [
        ("runs", "cancelled"),
        ("waits", "cancelled"),
    ]


def test_lists_come_in_pages_that_neither_lose_nor_repeat(api: Api) -> None:
    api.submit(*(job(f"j{n:02}") for n in range(25)))
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.ask("/workloads", limit=7, cursor=cursor)
        assert len(page["items"]) <= 7
        seen += [each["name"] for each in page["items"]]
        cursor = page["next"]
        if len(seen) == 7:
            api.delete(f"{PREFIX}/workloads/{page['items'][0]['id']}")
    assert seen == [f"j{n:02}" for n in range(25)]


def test_workloads_are_found_by_what_they_are(api: Api) -> None:
    api.submit(
        job("a"), job("b", queue="nlp", type="batch"), pod("c", queue="serving", type="inference")
    )
    names = {
        "research": ["a", "b"],
        "vision": ["a"],
        "acme": ["a", "b", "c"],
        "none": [],
    }
    for queue, found in names.items():
        assert [each["name"] for each in api.ask("/workloads", queue=queue)["items"]] == found
    assert [each["name"] for each in api.ask("/workloads", type="batch")["items"]] == ["b"]
    assert api.ask("/workloads", namespace="other")["items"] == []


# Fleet and queues -----------------------------------------------------------------------------


def test_queues_count_what_is_used_waited_for_and_borrowed(api: Api) -> None:
    api.submit(job("s", 2, queue="nlp", type="batch", accelerators="A100"))
    api.submit(job("v", 4, 1, accelerators="H100"), job("w", 4, 2, accelerators="H100"))
    queues = {each["name"]: each for each in api.ask("/queues")["items"]}
    assert list(queues) == ["acme", "research", "vision", "nlp", "serving"]
    assert queues["acme"]["running"] == 2
    assert (queues["research"]["waiting"], queues["research"]["waiting_devices"]) == (1, 8)
    nlp = {each["accelerator"]: each for each in queues["nlp"]["quotas"]}
    assert nlp["H100"]["borrowed"] == 0
    assert nlp[A100]["borrowed"] == 2
    vision = {each["accelerator"]: each for each in queues["vision"]["quotas"]}
    assert vision["H100"] == {
        "accelerator": "H100",
        "used": 4.0,
        "guarantee": 16,
        "limit": 32,
        "borrowed": 0.0,
        "kept": 0.0,
    }


def test_where_nobody_is_guaranteed_anything_nobody_borrows(tmp_path: Path) -> None:
    only = "apiVersion: shoal.dev/v1alpha1\nkind: AcceleratorQueue\nmetadata: {name: vision}\n"
    (tmp_path / "queues.yaml").write_text(only)
    with platform(tmp_path, queues=tmp_path / "queues.yaml") as rig:
        api = Api(make_app(rig.standing))
        api.submit(job("j", 2, accelerators="H100"))
        (queue,) = api.ask("/queues")["items"]
        assert queue["quotas"] == [
            {
                "accelerator": H100,
                "used": 2.0,
                "guarantee": None,
                "limit": None,
                "borrowed": 0.0,
                "kept": 0.0,
            }
        ]


def test_a_share_counts_as_the_larger_of_its_fractions(api: Api) -> None:
    half = {"memory": "20Gi", "compute": "50", "accelerators": "A100", "isolation": "shared"}
    api.submit(pod("s", 1, type="batch", **half))
    queues = {each["name"]: each for each in api.ask("/queues")["items"]}
    assert queues["vision"]["used"] == [{"accelerator": "A100-SXM4-80GB", "devices": 0.5}]


def test_queues_that_only_work_names_are_shown_too(tmp_path: Path) -> None:
    with platform(tmp_path, queues=None) as rig:
        api = Api(make_app(rig.standing))
        api.submit(job("j", queue="anything"))
        (queue,) = api.ask("/queues")["items"]
        assert (queue["name"], queue["written"], queue["running"]) == ("anything", False, 1)
        assert queue["quotas"][0]["guarantee"] is None


def test_pools_nodes_and_devices_are_counted(api: Api) -> None:
    api.submit(job("j", 3))
    api.rig.step(ev.DeviceLost(NOW_US, "n2", "n2-3"))
    pools = {each["name"]: each for each in api.ask("/pools")["items"]}
    assert pools["training"]["accelerators"] == [
        {"accelerator": H100, "devices": 8, "healthy": 7, "free": 4, "kept": 0}
    ]
    assert (pools["no pool"]["written"], pools["no pool"]["nodes"]) == (False, 1)
    nodes = api.ask("/nodes", pool="training")["items"]
    assert [(each["name"], each["pools"]) for each in nodes] == [
        ("n1", ["training"]),
        ("n2", ["training"]),
    ]
    states = {
        each["name"]: each["state"] for each in api.ask("/devices", accelerator="H100")["items"]
    }
    assert states["n2-3"] == "lost"
    assert sorted(states.values()).count("held") == 3
    (lost,) = api.ask("/devices", state="lost")["items"]
    assert lost["leaves"][0]["memory_free_mib"] == 0


# Decisions ------------------------------------------------------------------------------------


def test_decisions_are_listed_and_gone_on_with(api: Api) -> None:
    api.submit(job("a", 4, 2))
    first = api.ask("/decisions")
    assert [each["text"] for each in first["items"]] == ["Starts default/a on n1, n2."]
    assert first["items"][0]["workloads"][0]["name"] == "a"
    assert api.ask("/decisions", after=first["next"])["items"] == []
    api.submit(job("b", 4, 2, accelerators="H100"))
    later = api.ask("/decisions", after=first["next"])
    assert [each["kind"] for each in later["items"]] == ["wait"]
    assert api.ask("/decisions", limit=1)["items"] == later["items"]
    only = api.ask("/decisions", workload=api.rig.uid("a"))["items"]
    assert [each["kind"] for each in only] == ["start"]


def test_release_ends_deciding_until_resume(api: Api) -> None:
    assert api.post(f"{PREFIX}/release").json()["acting"] is False
    api.submit(job("j"))
    assert api.ask("/workloads")["items"][0]["state"] == "waiting"
    assert why(api, "j")["summary"].startswith("Nothing is decided since Shoal was released.")
    assert api.post(f"{PREFIX}/resume").json() == {"acting": True, "evictions_resumed": False}
    assert api.ask("/workloads")["items"][0]["state"] == "running"


def test_status_and_metrics_agree(api: Api) -> None:
    api.submit(job("a", 4, 2), job("b", 4, 2, accelerators="H100"))
    status = api.ask("/status")
    assert (status["running"], status["waiting"], status["free_devices"]) == (1, 1, 2)
    metrics = api.get(f"{PREFIX}/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'shoal_workloads{state="waiting"} 1.0' in metrics.text
    assert f'shoal_devices{{accelerator="{H100}",state="held"}} 8.0' in metrics.text


def test_the_loop_tells_of_itself(api: Api) -> None:
    def told() -> dict[str, float]:
        text = api.get(f"{PREFIX}/metrics").text
        lines = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in lines}

    before = told()
    api.submit(job("a", 4, 2))
    after = told()
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    assert grown['shoal_events_total{kind="WorkloadSubmitted"}'] == 1
    assert grown['shoal_decisions_total{kind="Start"}'] == 1
    for name in ("step", "cycle", "answer"):
        assert grown[f"shoal_{name}_seconds_count"] >= 1
        assert (
            after[f'shoal_{name}_seconds_bucket{{le="+Inf"}}']
            == after[f"shoal_{name}_seconds_count"]
        )
        assert grown[f"shoal_{name}_seconds_sum"] > 0
    assert grown["shoal_recorded_total"] >= 3  # the workload, its start, the cycle
    assert after["shoal_replica_behind"] == 0
    assert after["shoal_lag_seconds"] == 0
    assert after["shoal_asking"] == 0


def test_a_divided_device_shows_its_leaves(tmp_path: Path) -> None:
    leaves = (Leaf("d/1", 20_000, 250), Leaf("d/2", 40_000, 500))
    node = Node("n", 8000, 65_536, 110, (Device("d", H100, leaves),))
    with platform(tmp_path, fleet=(node,)) as rig:
        api = Api(make_app(rig.standing))
        api.submit(pod("p", memory="30Gi", isolation="hardware"))
        (device,) = api.ask("/devices")["items"]
        held = {
            leaf["name"]: [each["name"] for each in leaf["held_by"]] for leaf in device["leaves"]
        }
        assert held == {"d/1": [], "d/2": ["p"]}
