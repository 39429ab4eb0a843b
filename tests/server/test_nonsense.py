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
