"""The API: what it answers, and what it makes of nonsense."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.model.node import Device, Leaf, Node
from shoal.model.workload import Outcome
from shoal.server.app import PREFIX, make_app
from shoal.server.limits import LARGEST_BODY
from tests.server.rig import H100, NOW_US, Rig, job, platform, pod

PROBLEM = "application/problem+json"


class Api(TestClient):
    """A client that knows the prefix, and the platform behind it."""

    rig: Rig

    def ask(self, path: str, **query: Any) -> Any:
        answer = self.get(PREFIX + path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def submit(self, *manifests: Any, **more: Any) -> Any:
        body = {"manifests": list(manifests), **more}
        answer = self.post(f"{PREFIX}/workloads", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def refused(self, *manifests: Any, **more: Any) -> list[tuple[int | None, str, str]]:
        body = {"manifests": list(manifests), **more}
        answer = self.post(f"{PREFIX}/workloads", json=body)
        assert answer.status_code in (400, 409, 422), answer.text
        assert answer.headers["content-type"] == PROBLEM
        return [
            (each.get("document"), each["field"], each["message"])
            for each in answer.json()["errors"]
        ]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with platform(tmp_path) as rig:
        client = Api(make_app(rig.standing), raise_server_exceptions=False)
        client.rig = rig
        yield client


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
        ({}, "", "are not known; write one of"),
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
    api.submit(job("a"), job("b", queue="nlp", type="batch"), pod("c", queue="serving"))
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


# Why ------------------------------------------------------------------------------------------


def why(api: Api, name: str, **headers: str) -> Any:
    path = f"{PREFIX}/workloads/{api.rig.uid(name)}/why"
    answer = api.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_wait_is_explained_with_numbers_that_are_true_now(api: Api) -> None:
    big = job("big", 4, 2, accelerators="H100")
    api.submit(job("llm", 4), job("small", 2, accelerators="H100"), big)
    said = why(api, "big")
    assert (said["placed_pods"], said["fitting_nodes"]) == (0, 0)
    assert [(each["reason"], each["nodes"]) for each in said["obstacles"]] == [
        ("whole-devices", 2),
        ("accelerator", 1),
        ("taint", 1),
    ]
    assert [
        (each["node"], each["free"]["devices"], each["needed"]["devices"], each["short_of"])
        for each in said["candidates"]
    ] == [("n2", 2, 4, ["devices"]), ("n1", 0, 4, ["devices"])]
    assert [(each["name"], each["devices"], each["nodes"]) for each in said["holders"]] == [
        ("llm", 4.0, ["n1"]),
        ("small", 2.0, ["n2"]),
    ]
    assert said["workload"]["position"] == said["workload"]["waiting_in_queue"] == 1
    api.rig.step(ev.WorkloadEnded(NOW_US, api.rig.uid("small"), Outcome.COMPLETED))
    said = why(api, "big")
    assert (said["placed_pods"], said["fitting_nodes"]) == (1, 1)
    assert said["obstacles"][0] == {
        "reason": "whole-devices",
        "nodes": 1,
        "text": "1 node has too few devices that are wholly free",
    }


def test_X05_nodes_are_not_blamed_for_the_workloads_own_trial(api: Api) -> None:
    api.submit(job("gang", 4, 3, accelerators="H100"))
    said = why(api, "gang")
    assert (said["placed_pods"], said["fitting_nodes"]) == (2, 2)
    assert [each["reason"] for each in said["obstacles"]] == ["accelerator", "taint"]
    assert said["headline"] == (
        "All 3 pods start together, and only 2 of them find a node. Nodes with room for one: 2."
    )


def test_X02_what_is_short_is_named(api: Api) -> None:
    greedy = pod("greedy", 0)
    greedy["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "32"}
    greedy["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n3"}
    needs = pod("needs", 1, accelerators="A100")
    needs["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "8"}
    api.submit(greedy, needs)
    said = why(api, "needs")
    assert said["obstacles"][0]["reason"] == "cpu"
    (near,) = said["candidates"]
    assert near["short_of"] == ["cpu_milli"]
    assert (near["free"]["cpu_milli"], near["free"]["devices"]) == (0, 2)


def test_X03_position_counts_those_of_the_queue_that_are_ahead(api: Api) -> None:
    api.submit(
        job("r", 4, 2),
        job("a", 4, 2, accelerators="H100"),
        job("other", 4, 2, queue="nlp", accelerators="H100"),
        job("b", 3, 2, accelerators="H100"),
    )
    found = api.ask("/workloads", state="waiting")["items"]
    assert {each["name"]: (each["position"], each["waiting_in_queue"]) for each in found} == {
        "a": (1, 2),
        "b": (2, 2),
        "other": (1, 1),
    }


def test_a_share_is_explained_by_the_devices_that_have_room_for_it(api: Api) -> None:
    api.submit(*(pod(f"s{n}", memory="70Gi", accelerators="A100") for n in range(3)))
    said = why(api, "s2")
    assert said["obstacles"][0]["reason"] == "leaf-room"
    assert said["candidates"][0]["free"]["devices"] == 0
    assert [each["name"] for each in said["holders"]] == ["s0", "s1"]


def test_a_limit_is_explained_in_the_words_of_who_wrote_it(tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    head = "apiVersion: shoal.dev/v1alpha1\nkind: AcceleratorQueue\n"
    queues.write_text(
        f"{head}metadata: {{name: top}}\nspec: {{limit: {{H100: 5}}}}\n---\n"
        f"{head}metadata: {{name: vision}}\nspec: {{parent: top}}\n"
    )
    with platform(tmp_path, queues=queues) as rig:
        api = Api(make_app(rig.standing))
        api.rig = rig
        api.submit(job("a", 4, accelerators="H100"), job("b", 2, accelerators="H100"))
        said = why(api, "b")
        assert said["stage"] == "quota"
        assert said["over_quota"] == {
            "reason": "limit",
            "queue": "top",
            "accelerators": "H100",
            "used": 4.0,
            "asked": 2.0,
            "bound": 5.0,
        }
        assert said["headline"] == (
            "Queue top holds 4 H100; with 2 more it would hold 6 of limit 5."
        )
        assert [each["name"] for each in said["holders"]] == ["a"]
        assert (said["obstacles"], said["candidates"]) == ([], [])
        before = list(rig.replica.world.snapshot(0))
        why(api, "b")
        assert list(rig.replica.world.snapshot(0)) == before


def test_running_and_ended_work_is_explained_too(api: Api) -> None:
    api.submit(job("j", 4, 2))
    assert why(api, "j")["summary"] == "It runs on n1, n2."
    api.rig.step(ev.WorkloadEnded(NOW_US, api.rig.uid("j"), Outcome.FAILED))
    said = why(api, "j")
    assert said["summary"] == "It has failed."
    assert [each["step"] for each in said["moments"]][-1] == "ended"
    assert said["obstacles"] == said["holders"] == []


def test_explaining_leaves_the_replica_as_it_was(api: Api) -> None:
    api.submit(job("llm", 4, 2), job("gang", 4, 3, accelerators="H100"))
    before = list(api.rig.replica.world.snapshot(0))
    why(api, "gang")
    assert list(api.rig.replica.world.snapshot(0)) == before


# Fleet and queues -----------------------------------------------------------------------------


def test_queues_count_what_is_used_waited_for_and_borrowed(api: Api) -> None:
    api.submit(job("s", 2, queue="serving", type="inference", accelerators="H100"))
    api.submit(job("v", 4, 1), job("w", 4, 2, accelerators="H100"))
    queues = {each["name"]: each for each in api.ask("/queues")["items"]}
    assert list(queues) == ["acme", "research", "vision", "nlp", "serving"]
    assert queues["acme"]["running"] == 2
    assert (queues["research"]["waiting"], queues["research"]["waiting_devices"]) == (1, 8)
    serving = {each["accelerator"]: each for each in queues["serving"]["quotas"]}
    assert serving["A100-80GB"]["borrowed"] == 0
    assert serving[H100]["borrowed"] == 2
    vision = {each["accelerator"]: each for each in queues["vision"]["quotas"]}
    assert vision["H100"] == {
        "accelerator": "H100",
        "used": 4.0,
        "guarantee": 16,
        "limit": 32,
        "borrowed": 0.0,
    }


def test_where_nobody_is_guaranteed_anything_nobody_borrows(tmp_path: Path) -> None:
    only = "apiVersion: shoal.dev/v1alpha1\nkind: AcceleratorQueue\nmetadata: {name: vision}\n"
    (tmp_path / "queues.yaml").write_text(only)
    with platform(tmp_path, queues=tmp_path / "queues.yaml") as rig:
        api = Api(make_app(rig.standing))
        api.submit(job("j", 2, accelerators="H100"))
        (queue,) = api.ask("/queues")["items"]
        assert queue["quotas"] == [
            {"accelerator": H100, "used": 2.0, "guarantee": None, "limit": None, "borrowed": 0.0}
        ]


def test_a_share_counts_as_the_larger_of_its_fractions(api: Api) -> None:
    api.submit(pod("s", memory="20Gi", compute="50", accelerators="A100", type="notebook"))
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
        {"accelerator": H100, "devices": 8, "healthy": 7, "free": 4}
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
    assert api.post(f"{PREFIX}/release").json() == {"acting": False}
    api.submit(job("j"))
    assert api.ask("/workloads")["items"][0]["state"] == "waiting"
    assert why(api, "j")["summary"].startswith("Nothing is decided since Shoal was released.")
    assert api.post(f"{PREFIX}/resume").json() == {"acting": True}
    assert api.ask("/workloads")["items"][0]["state"] == "running"


def test_status_and_metrics_agree(api: Api) -> None:
    api.submit(job("a", 4, 2), job("b", 4, 2, accelerators="H100"))
    status = api.ask("/status")
    assert (status["running"], status["waiting"], status["free_devices"]) == (1, 1, 2)
    metrics = api.get(f"{PREFIX}/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'shoal_workloads{state="waiting"} 1.0' in metrics.text
    assert f'shoal_devices{{accelerator="{H100}",state="held"}} 8.0' in metrics.text


# Nonsense -------------------------------------------------------------------------------------


def test_the_description_of_the_api_loads_nothing_from_elsewhere(api: Api) -> None:
    described = api.ask("/openapi.json")
    assert set(described["paths"]) >= {
        f"{PREFIX}/workloads/{{identity}}/why",
        f"{PREFIX}/decisions/stream",
    }
    for page in ("/docs", "/redoc", f"{PREFIX}/docs"):
        assert api.get(page).status_code == 404


def test_a_body_that_is_too_large_is_not_read(api: Api) -> None:
    answer = api.post(f"{PREFIX}/workloads", content=b"x" * (LARGEST_BODY + 1))
    assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)

    def chunks() -> Iterator[bytes]:
        for _ in range(LARGEST_BODY // 65536 + 2):
            yield b"y" * 65536

    assert api.post(f"{PREFIX}/workloads", content=chunks()).status_code == 413


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/workloads?limit=0", "limit: input should be greater than or equal to 1"),
        ("/workloads?limit=1001", "limit: input should be less than or equal to 1000"),
        ("/workloads?limt=3", "limt: is not known here; leave it out"),
        ("/workloads?state=happy", "state: input should be 'live', 'waiting'"),
        ("/workloads?cursor=%00", "cursor: is none that this API sent"),
        ("/workloads?cursor=W10", None),
        ("/workloads?cursor=WzEsW11d", "cursor: is none that this API sent"),
        ("/nodes?cursor=WzFd", "cursor: is none that this API sent"),
        ("/decisions?after=-1", "after: input should be greater than or equal to 0"),
    ],
)
def test_bad_questions_are_answered_with_what_is_allowed(
    api: Api, path: str, said: str | None
) -> None:
    answer = api.get(PREFIX + path)
    if said is None:
        assert answer.status_code == 200
        return
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert answer.json()["detail"].startswith(said)


def test_other_ways_are_problems_too(api: Api) -> None:
    nothing = api.get(f"{PREFIX}/nothing")
    assert (nothing.status_code, nothing.headers["content-type"]) == (404, PROBLEM)
    put = api.put(f"{PREFIX}/workloads")
    assert (put.status_code, put.json()["type"]) == (405, "urn:shoal:problem:method-not-allowed")
    unknown = api.get(f"{PREFIX}/workloads/..%2F..%2Fetc")
    assert unknown.status_code == 404
    text = api.post(
        f"{PREFIX}/workloads", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert text.status_code == 400
    assert text.json()["detail"].startswith("the body is not JSON")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.data())
def test_no_question_is_answered_with_a_defect(api: Api, data: st.DataObject) -> None:
    text = st.text(max_size=12)
    keys = st.sampled_from(["limit", "cursor", "after", "name", "state", "queue", "node", "x"])
    path = data.draw(
        st.sampled_from(["workloads", "queues", "pools", "nodes", "devices", "decisions", "status"])
        | text.map(lambda t: f"workloads/{quote(t)}")
        | text.map(lambda t: f"workloads/{quote(t)}/why")
    )
    query = data.draw(st.dictionaries(keys, text | st.integers().map(str), max_size=3))
    answer = api.get(f"{PREFIX}/{path}", params=query)
    assert answer.status_code in (200, 400, 404, 405), answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == PROBLEM


_KINDS = st.sampled_from(
    [
        ("v1", "Pod"),
        ("batch/v1", "Job"),
        ("apps/v1", "StatefulSet"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("kubeflow.org/v1", "PyTorchJob"),
        ("ray.io/v1", "RayJob"),
        ("kubeflow.org/v1", "Notebook"),
    ]
)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(kind=_KINDS, spec=_JSON, metadata=_JSON, where=st.sampled_from(["", "template"]))
@example(("batch/v1", "Job"), {"parallelism": 10**30}, {"name": "x"}, "")
@example(("apps/v1", "StatefulSet"), {"replicas": 10**9, "template": {}}, {"name": "x"}, "")
@example(
    ("v1", "Pod"), {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1e36"}}}]}, {}, ""
)
def test_no_manifest_is_answered_with_a_defect(
    api: Api, kind: tuple[str, str], spec: Any, metadata: Any, where: str
) -> None:
    inside = {where: {"spec": spec}} if where else spec
    manifest = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": inside}
    body = json.dumps({"manifests": [manifest], "dry_run": True})
    answer = api.post(
        f"{PREFIX}/workloads", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (201, 400, 422), answer.text


def test_a_fleet_without_any_node_is_explained(tmp_path: Path) -> None:
    with platform(tmp_path, fleet=()) as rig:
        api = Api(make_app(rig.standing))
        api.rig = rig
        api.submit(job("j"))
        said = why(api, "j")
        assert said["obstacles"] == [{"reason": "no-nodes", "nodes": 0, "text": "there is no node"}]


def test_a_divided_device_shows_its_leaves(tmp_path: Path) -> None:
    leaves = (Leaf("d/1", 20_000, 250), Leaf("d/2", 40_000, 500))
    node = Node("n", 8000, 65_536, 110, (Device("d", H100, leaves),))
    with platform(tmp_path, fleet=(node,)) as rig:
        api = Api(make_app(rig.standing))
        api.submit(pod("p", memory="30Gi"))
        (device,) = api.ask("/devices")["items"]
        held = {
            leaf["name"]: [each["name"] for each in leaf["held_by"]] for leaf in device["leaves"]
        }
        assert held == {"d/1": [], "d/2": ["p"]}
