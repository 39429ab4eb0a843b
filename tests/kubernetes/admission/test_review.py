"""What the webhook answers: refused with a sentence, swapped, gated, or let through unchanged."""

import copy
import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.load import load_catalog
from shoal.kubernetes.admission.review import Answer, Question, judge, read_question, response
from shoal.kubernetes.wire.kinds import PODS
from shoal.model.modes import Channel
from shoal.objects import annotations as keys
from shoal.objects.manifests import read_pod
from shoal.objects.pods import Reading, Rules, reading_of
from shoal.texts.language import Language
from shoal.texts.refusals import refusal_text
from tests.objects.small import container, manifest

GPU = "nvidia.com/gpu"
CATALOG = load_catalog()
PLUGIN, DRA = Rules(), Rules(Channel.DRA)


def question(
    body: dict[str, Any], uid: str = "review-1", operation: str = "CREATE", **request: Any
) -> Question:
    asked = {"uid": uid, "namespace": "ns", "operation": operation, "object": body}
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": asked | request,
    }
    return read_question(json.dumps(review).encode())


def answer(
    body: dict[str, Any], rules: Rules = DRA, *, gates: bool = False, uid: str = "review-1"
) -> Answer:
    return judge(question(body, uid), CATALOG, rules, gates=gates)


def patched(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    """The document after the patch (RFC 6902, the operations that the webhook uses)."""
    result = copy.deepcopy(body)
    for operation in said.patch:
        *path, last = [
            part.replace("~1", "/").replace("~0", "~")
            for part in operation["path"].lstrip("/").split("/")
        ]
        there: Any = result
        for part in path:
            there = there[int(part)] if isinstance(there, list) else there[part]
        if operation["op"] == "remove":
            del there[last]
        elif isinstance(there, list):
            assert last == "-"
            there.append(operation["value"])
        else:
            there[last] = operation["value"]
    return result


def sentence(body: dict[str, Any], rules: Rules) -> str:
    said = answer(body, rules)
    assert said.refusal is not None
    assert said.patch == ()
    return refusal_text(said.refusal)


def test_a_pod_is_swapped_for_a_claim_that_does_not_exist_yet() -> None:
    body = manifest({"cpu": "1", GPU: "2"})
    after = patched(body, answer(body))
    (entry,) = after["spec"]["resourceClaims"]
    resources = after["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "1"}, "claims": [{"name": "shoal"}]}
    assert entry["name"] == "shoal"
    assert entry["resourceClaimName"].startswith("p-")
    note = json.loads(after["metadata"]["annotations"][keys.CLAIM])
    assert note == {"name": entry["resourceClaimName"], "asked": {"main": {GPU: "2"}}}


def test_requests_are_taken_out_with_their_limits() -> None:
    body = manifest({GPU: "2"})
    body["spec"]["containers"][0]["resources"]["requests"] = {GPU: "2", "cpu": "1"}
    resources = patched(body, answer(body))["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "1"}
    assert resources["limits"] == {}


def test_what_was_swapped_reads_as_it_was_written() -> None:
    body = manifest(
        {GPU: "1"},
        {keys.MEMORY: "5Gi"},
        initContainers=[container("i", {GPU: "3"})],
    )
    after = patched(body, answer(body))
    before = reading_of(read_pod(body), CATALOG, DRA)
    assert isinstance(before, Reading)
    assert reading_of(read_pod(after), CATALOG, DRA) == before
    assert after["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "shoal", "request": "devices-0"}
    ]
    assert after["spec"]["initContainers"][0]["resources"]["claims"] == [{"name": "shoal"}]


def test_claims_that_the_pod_has_already_are_kept() -> None:
    body = manifest({GPU: "1"}, resourceClaims=[{"name": "net", "resourceClaimName": "nic"}])
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "net"}]
    after = patched(body, answer(body))
    assert [entry["name"] for entry in after["spec"]["resourceClaims"]] == ["net", "shoal"]
    claims = after["spec"]["containers"][0]["resources"]["claims"]
    assert claims == [{"name": "net"}, {"name": "shoal"}]


def test_annotations_alone_give_the_only_container_a_claim() -> None:
    body = manifest(annotations={keys.MEMORY: "5Gi"})
    after = patched(body, answer(body))
    assert after["spec"]["containers"][0]["resources"] == {"claims": [{"name": "shoal"}]}


def test_K09_f_pods_without_a_name_get_names_of_their_own() -> None:
    body = manifest({GPU: "1"})
    body["metadata"] = {"generateName": "web-7d9f-"}
    names = {
        patched(body, answer(body, uid=uid))["spec"]["resourceClaims"][0]["resourceClaimName"]
        for uid in ("a", "b")
    }
    assert len(names) == 2
    assert all(name.startswith("web-7d9f-") for name in names)


def test_equal_questions_have_equal_answers() -> None:
    body = manifest({GPU: "1"})
    assert answer(body) == answer(copy.deepcopy(body))


@pytest.mark.parametrize("rules", [PLUGIN, DRA])
def test_pods_without_devices_pass_unchanged(rules: Rules) -> None:
    for gates in (False, True):
        assert answer(manifest({"cpu": "1", GPU: "0"}), rules, gates=gates) == Answer()


def test_other_operations_pass_unchanged() -> None:
    body = manifest({GPU: "1"}, {keys.MEMORY: "nonsense"})
    said = judge(question(body, operation="UPDATE"), CATALOG, DRA, gates=True)
    assert said == Answer()


def test_the_gate_is_added_once_and_only_where_no_policy_does_it() -> None:
    body = manifest({GPU: "1"})
    assert answer(body, PLUGIN) == Answer()
    after = patched(body, answer(body, PLUGIN, gates=True))
    assert after["spec"]["schedulingGates"] == [{"name": "shoal.dev/plan"}]
    assert answer(after, PLUGIN, gates=True) == Answer()
    body["spec"]["schedulingGates"] = [{"name": "example.com/other"}]
    after = patched(body, answer(body, PLUGIN, gates=True))
    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == [
        "example.com/other",
        "shoal.dev/plan",
    ]
    # A gate beside a node name is refused by the API server; the policy's sentence says more.
    assert answer(manifest({GPU: "1"}, nodeName="n1"), PLUGIN, gates=True) == Answer()


def test_pods_with_claims_of_their_own_are_gated_and_left_as_they_are() -> None:
    body = manifest(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
    assert answer(body) == Answer()
    assert len(answer(body, PLUGIN, gates=True).patch) == 1


@pytest.mark.parametrize("rules", [PLUGIN, DRA])
def test_S07_bad_annotations_are_refused_with_a_sentence(rules: Rules) -> None:
    said = sentence(manifest({GPU: "1"}, {"shoal.dev/memroy": "5Gi"}), rules)
    assert said == "shoal.dev/memroy is not known; did you mean shoal.dev/memory?"


def test_K03_h_i_and_K04_d_forged_fields_are_refused() -> None:
    claim = {"name": "x", "resourceClaimName": "other-0123456789.shoal.dev"}
    for body in (
        manifest({GPU: "1"}, {keys.CLAIM: "{}"}),
        manifest({GPU: "1"}, resourceClaims=[claim]),
        manifest({GPU: "1"}, resourceClaims=[{"name": "shoal", "resourceClaimName": "mine"}]),
    ):
        for rules in (PLUGIN, DRA):
            assert "is written by Shoal; leave it out" in sentence(body, rules)
    labelled = manifest({GPU: "1"})
    labelled["metadata"]["labels"] = {keys.QUEUE: "r"}
    assert "the pod's annotations" in sentence(labelled, PLUGIN)
    assert "no queue of this namespace" in sentence(manifest({GPU: "1"}, {keys.QUEUE: "r"}), PLUGIN)


def test_a_refusal_is_an_answer_of_the_api() -> None:
    asked = question(manifest({GPU: "1"}, {keys.MEMORY: "0"}))
    said = json.loads(response(asked, judge(asked, CATALOG, DRA, gates=False)))
    assert said["kind"] == "AdmissionReview"
    body = said["response"]
    assert (body["uid"], body["allowed"], body["status"]["code"]) == ("review-1", False, 403)
    assert "must be more than 0" in body["status"]["message"]
    assert body["status"]["details"]["causes"][0]["reason"] == "not-positive"
    chinese = response(asked, judge(asked, CATALOG, DRA, gates=False), Language.CHINESE)
    assert "必须大于 0" in json.loads(chinese)["response"]["status"]["message"]


def test_a_patch_and_hints_are_an_answer_of_the_api() -> None:
    asked = question(manifest({GPU: "1"}, {keys.MEMORY: "5G"}))
    body = json.loads(response(asked, judge(asked, CATALOG, DRA, gates=False)))["response"]
    assert body["allowed"]
    assert body["patchType"] == "JSONPatch"
    assert {each["op"] for each in json.loads(b64decode(body["patch"]))} == {"add", "remove"}
    assert body["warnings"] == ["shoal.dev/memory 5G counts as 4,769 MiB"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": {"object": 1, "uid": 2}}'])
def test_what_is_no_review_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_question(body)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=3),
)
def test_a_swapped_pod_asks_for_the_same_and_passes_no_second_time(
    apps: list[int], inits: list[tuple[int, bool]]
) -> None:
    body = manifest(
        containers=[container(f"a{n}", {GPU: str(c)}) for n, c in enumerate(apps)],
        initContainers=[
            container(f"i{n}", {GPU: str(c)}, sidecar=s) for n, (c, s) in enumerate(inits)
        ],
    )
    said = answer(body)
    after = patched(body, said)
    before, then = (reading_of(read_pod(each), CATALOG, DRA) for each in (body, after))
    assert before == then
    if said.patch:
        # Were it ever called again, nothing would be swapped twice.
        assert answer(after).refusal is not None
    for each in [*after["spec"]["containers"], *after["spec"]["initContainers"]]:
        claims = each.get("resources", {}).get("claims", [])
        assert len({json.dumps(use) for use in claims}) == len(claims)
    PODS.read(json.dumps(after).encode())
