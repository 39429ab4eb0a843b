"""What the API makes of nonsense."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shoal.server.app import PREFIX
from shoal.server.limits import LARGEST_BODY
from tests.server.client import PROBLEM, Api
from tests.server.rig import job, pod


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
        ("/decisions?cursor=W10", "cursor: is not known here; leave it out"),
        ("/decisions/stream?limit=2", "limit: is not known here; leave it out"),
        ("/status?verbose=1", "verbose: is not known here; leave it out"),
        ("/metrics?name=up", "name: is not known here; leave it out"),
        ("/workloads/x?full=1", "full: is not known here; leave it out"),
        ("/workloads/x/why?full=1", "full: is not known here; leave it out"),
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


def test_nothing_is_done_where_it_is_asked_with_words_that_are_not_known(api: Api) -> None:
    """A dry run that is asked for in the wrong place must not be one in earnest."""
    for path, body in (
        ("/objects", {"files": [{"name": "q.yaml", "text": ""}]}),
        ("/workloads", {"manifests": [pod("a")]}),
        ("/release", None),
        ("/resume", None),
    ):
        answer = api.post(f"{PREFIX}{path}?dry_run=true", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
        assert answer.json()["detail"] == "dry_run: is not known here; leave it out"
    for path in ("/release", "/resume"):
        answer = api.post(PREFIX + path, json={"by": "ann"})
        assert answer.json()["detail"] == "by: is not known here; leave it out"
        assert api.post(PREFIX + path, json={}).status_code == 200
    api.submit(pod("a"))
    assert api.delete(f"{PREFIX}/workloads/{api.rig.uid('a')}?dry_run=true").status_code == 400
    assert len(api.ask("/workloads")["items"]) == 1
    assert len(api.ask("/queues")["items"]) == 5


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/objects", {"files": [{"name": "q.yaml", "text": "\ud800"}]}, "files.0.text"),
        ("/objects", {"files": [{"name": "\udfff", "text": ""}]}, "files.0.name"),
        ("/workloads", {"manifests": [{"kind": "\ud800", "apiVersion": "v1"}]}, "manifests.0"),
        ("/workloads", {"manifests": [{"spec": {"\ud800": 1}}]}, "manifests.0"),
    ],
)
def test_half_a_character_is_said_to_be_one(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = api.post(PREFIX + path, content=json.dumps(body), headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    said = "has half of a character (a surrogate); write whole ones"
    assert answer.json()["detail"] == f"{field}: {said}"


@pytest.mark.parametrize("seconds", [-1, 0, 2**31, 2**63 - 1, 10**30])
def test_the_platform_outlives_every_time_that_a_manifest_can_say(api: Api, seconds: int) -> None:
    times = {"terminationGracePeriodSeconds": seconds, "activeDeadlineSeconds": seconds}
    alone = pod("alone")
    alone["spec"] |= times
    together = job("together", pods=2)
    together["spec"]["activeDeadlineSeconds"] = seconds
    together["spec"]["template"]["spec"] |= times
    api.submit(alone, together)
    assert len(api.ask("/workloads")["items"]) == 2


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


UNCHECKED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
"""What is named for a test stands for all that is left unchecked; a busy machine is slow."""


@settings(max_examples=150, suppress_health_check=UNCHECKED)
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


@settings(max_examples=150, suppress_health_check=UNCHECKED)
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
