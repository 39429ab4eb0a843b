"""Admission when something is missing: the webhook away, others in between, Shoal leaving."""

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from shoal.kubernetes.admission.certificates import issue, server_context, use
from shoal.kubernetes.release import release
from tests.cluster.admission import MANAGED, MANAGED_DRA, SIGNS, Admission, serving
from tests.cluster.harness.api import ApiError, Client, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import job, pod, running

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("admission")]

POD = "v1/Pod"
JOB = "batch/v1/Job"
GATE = [{"name": "shoal.dev/plan"}]
Body = dict[str, Any]
UNREACHABLE = "Shoal is unreachable"
TRIES_AGAIN = "its controller will try again by itself"


@pytest.fixture
def nodes(cluster: Cluster) -> list[str]:
    names = cluster.fake_nodes.add("gpu", count=2)
    return names + cluster.fake_nodes.add("dra", count=2, channels=["dra"])


def gates(body: Body) -> list[Body]:
    found: list[Body] = body["spec"].get("schedulingGates", [])
    return found


def daemons(name: str, namespace: str, nodes: int, api: Client) -> None:
    """A DaemonSet that asks for what a vendor's own pods may ask for, on every node."""
    meta = {"labels": {"app": name}}
    limits = {"resources": {"limits": {"cpu": "1"}}}
    spec = {"containers": [{"name": "c", "image": "none", **limits}]}
    api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": meta, "spec": spec},
            },
        }
    )

    def all_run() -> bool:
        found = api.list(POD, namespace, labels=f"app={name}")
        return len(found) == nodes and all(running(each) for each in found)

    eventually(all_run, 60, f"the daemons {name} do not run")


def untouched_by_the_outage(api: Client, nodes: list[str]) -> None:
    """What runs although nobody answers: everything without accelerators, and foreign places."""
    api.create(pod("plain", namespace=MANAGED))  # (1)
    api.create(pod("device", 1, namespace="free"))  # (2)
    api.create(pod("webhook", 0, namespace="shoal"))  # (4)
    daemons("device-plugin", "kube-system", len(nodes), api)  # (5)
    api.create(job("cpu", namespace=MANAGED_DRA))  # (6)
    for name, namespace in (("plain", MANAGED), ("device", "free"), ("webhook", "shoal")):
        api.wait(POD, name, namespace, until=running)
    eventually(
        lambda: any(running(each) for each in api.list(POD, MANAGED_DRA, labels="job-name=cpu")),
        30,
        "the job without accelerators does not run",
    )


def nothing_unplanned(api: Client) -> None:
    """No pod of a managed namespace that asks for accelerators has a node."""
    for namespace in (MANAGED, MANAGED_DRA):
        for each in api.list(POD, namespace):
            limits = each["spec"]["containers"][0].get("resources", {}).get("limits", {})
            if "nvidia.com/gpu" in limits or each["spec"].get("resourceClaims"):
                assert "nodeName" not in each["spec"], each["metadata"]["name"]


def restart_all_nodes(cluster: Cluster, nodes: list[str]) -> None:
    cluster.fake_nodes.lose(*nodes)
    cluster.fake_nodes.recover(*nodes)
    for name in nodes:
        cluster.api.wait("v1/Node", name, until=lambda it: it["status"]["conditions"])


def told_by_the_controller(api: Client, name: str, namespace: str, *words: str) -> None:
    def told() -> bool:
        events = api.list("v1/Event", namespace, fields=f"involvedObject.name={name}")
        return any(all(word in each["message"] for word in words) for each in events)

    eventually(told, 30, f"no event of {name} says {words}")


def test_O05_the_webhook_is_away(cluster: Cluster, nodes: list[str]) -> None:
    api = cluster.api
    cluster.namespace("free")
    with Admission(cluster) as admission:
        admission.stop()
        untouched_by_the_outage(api, nodes)
        # (3) on the device-plugin channel: created, and gated by the policy.
        assert gates(api.create(pod("held", 1, namespace=MANAGED))) == GATE
        marked = pod("marked", 1, namespace=MANAGED, annotations={"shoal.dev/memory": "5Gi"})
        assert gates(api.create(marked)) == GATE
        # What policies know by themselves is refused all the same.
        wrong = pod("wrong", 1, namespace=MANAGED, annotations={"shoal.dev/memory": "5Gx"})
        assert "shoal.dev/memory: write a quantity" in admission.refusal(wrong)
        # (3) on the DRA channel: refused, with a sentence.
        sentence = admission.refusal(pod("held", 1, namespace=MANAGED_DRA))
        assert UNREACHABLE in sentence
        assert TRIES_AGAIN in sentence
        api.create(job("later", 1, namespace=MANAGED_DRA))
        told_by_the_controller(api, "later", MANAGED_DRA, UNREACHABLE, TRIES_AGAIN)
        restart_all_nodes(cluster, nodes)
        untouched = ("plain", MANAGED), ("device", "free"), ("webhook", "shoal")
        for name, namespace in untouched:
            api.wait(POD, name, namespace, until=running)
        nothing_unplanned(api)
        # Shoal is back; the Job controller tries again by itself.
        admission.start()
        eventually(
            lambda: (
                [gates(each) for each in api.list(POD, MANAGED_DRA, labels="job-name=later")]
                == [GATE]
            ),
            60,
            "the job has no gated pod after the webhook came back",
        )
        nothing_unplanned(api)


def test_O05_variant_before_1_36_the_webhook_gates_and_its_absence_closes(
    cluster: Cluster, nodes: list[str]
) -> None:
    api = cluster.api
    cluster.namespace("free")
    with Admission(cluster, version=(1, 34)) as admission:
        assert api.list("admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") == []
        assert gates(api.create(pod("first", 1, namespace=MANAGED))) == GATE
        assert gates(api.create(pod("first", 1, namespace=MANAGED_DRA))) == GATE
        wrong = pod("wrong", 1, namespace=MANAGED, annotations={"shoal.dev/memroy": "5Gi"})
        assert "did you mean shoal.dev/memory?" in admission.refusal(wrong)
        notes_of_the_webhook(api)
        admission.stop()
        untouched_by_the_outage(api, nodes)
        changes_of_notes_are_refused(api)
        for namespace in (MANAGED, MANAGED_DRA):
            sentence = admission.refusal(pod("held", 1, namespace=namespace))
            assert UNREACHABLE in sentence
            assert TRIES_AGAIN in sentence
        api.create(job("later", 1, namespace=MANAGED))
        told_by_the_controller(api, "later", MANAGED, UNREACHABLE)
        restart_all_nodes(cluster, nodes)
        nothing_unplanned(api)
        admission.start()
        eventually(
            lambda: (
                [gates(each) for each in api.list(POD, MANAGED, labels="job-name=later")] == [GATE]
            ),
            60,
            "the job has no gated pod after the webhook came back",
        )


def notes_of_the_webhook(api: Client) -> None:
    """What is created is noted as its creator's, and an owner's note comes back."""
    forged = {"shoal.dev/user": "boss"}
    for namespace in (MANAGED, MANAGED_DRA):
        made = api.create(pod("noted", 1, namespace=namespace, annotations=forged))
        assert made["metadata"]["annotations"]["shoal.dev/user"] == "admin"
    owner = job("noted", 1, namespace=MANAGED, fields={"suspend": True})
    owner["metadata"]["annotations"] = forged
    assert api.create(owner)["metadata"]["annotations"] == {"shoal.dev/user": "admin"}
    change = {"metadata": {"annotations": {"shoal.dev/user": None, "a": "b"}}}
    changed = api.patch(JOB, "noted", change, MANAGED)
    assert changed["metadata"]["annotations"] == {"shoal.dev/user": "admin", "a": "b"}


def changes_of_notes_are_refused(api: Client) -> None:
    for value in ("boss", None):
        change = {"metadata": {"annotations": {"shoal.dev/user": value}}}
        with pytest.raises(ApiError, match="note of who asked for this"):
            api.patch(JOB, "noted", change, MANAGED)
    api.patch(JOB, "noted", {"spec": {"parallelism": 2}}, MANAGED)
    forged = job("forged", 1, namespace=MANAGED)
    forged["metadata"]["annotations"] = {"shoal.dev/user": "boss"}
    with pytest.raises(ApiError, match="note of who asked for this"):
        api.create(forged)


def test_the_api_server_restarts_and_gates_from_its_first_pod_on(
    cluster: Cluster, nodes: list[str]
) -> None:
    with Admission(cluster) as admission:
        cluster.api_server.kill()
        cluster.api_server.start()
        cluster.ready()
        body = pod("early", 1, namespace=MANAGED)
        created = eventually(lambda: attempt(cluster.api, body), 60, "the pod is never created")
        assert gates(created) == GATE
        admission.wait_until_it_acts()


def attempt(api: Client, body: Body) -> Body | None:
    """Create it; None while the API server is not ready to judge it."""
    try:
        return api.create(body)
    except ApiError:
        return None


def meddling() -> web.Application:
    """Another party's webhook: it changes every pod, so that admission begins again."""

    async def answer(request: web.Request) -> web.Response:
        review = await request.json()
        patch = [{"op": "add", "path": "/metadata/labels/meddled", "value": "yes"}]
        body = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": b64encode(json.dumps(patch).encode()).decode(),
        }
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**kind, "response": body})

    app = web.Application()
    app.router.add_post("/", answer)
    return app


def test_another_webhook_in_between_changes_nothing(cluster: Cluster, nodes: list[str]) -> None:
    pair, authority = issue(["127.0.0.1"], datetime.now(UTC))
    context = server_context()
    use(context, pair)
    with Admission(cluster) as admission:
        server = serving(meddling(), context)
        port = admission.run(server.__aenter__())
        webhook = {
            "name": "meddler.example.com",
            "clientConfig": {
                "url": f"https://127.0.0.1:{port}/",
                "caBundle": b64encode(authority).decode(),
            },
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
            "sideEffects": "None",
            "reinvocationPolicy": "IfNeeded",
            "admissionReviewVersions": ["v1"],
        }
        # Both before ours and after it, by the order of names.
        for name in ("a-meddler", "z-meddler"):
            cluster.api.create(
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "MutatingWebhookConfiguration",
                    "metadata": {"name": name},
                    "webhooks": [webhook],
                }
            )

        def meddled() -> Body | None:
            for each in cluster.api.list(POD, MANAGED_DRA):
                cluster.api.delete(POD, each["metadata"]["name"], MANAGED_DRA, grace_s=0)
            body = pod("both", 2, namespace=MANAGED_DRA, labels={"app": "x"})
            created = cluster.api.create(body)
            return created if created["metadata"]["labels"].get("meddled") else None

        created = eventually(meddled, 30, "the other webhook is not called")
        assert gates(created) == GATE
        assert len(created["spec"]["resourceClaims"]) == 1
        assert created["spec"]["containers"][0]["resources"] == {"claims": [{"name": "shoal"}]}
        admission.run(server.__aexit__(None, None, None))


def test_a_namespace_that_is_no_longer_managed_is_left_alone(
    cluster: Cluster, nodes: list[str]
) -> None:
    api = cluster.api
    with Admission(cluster) as admission:
        api.create(pod("held", 1, namespace=MANAGED))
        api.patch("v1/Namespace", MANAGED, {"metadata": {"labels": {"shoal.dev/mode": "observe"}}})

        def free() -> Body | None:
            created = attempt(api, pod("free", 1, namespace=MANAGED))
            if created is not None and gates(created):
                api.delete(POD, "free", MANAGED, grace_s=0)
                return None
            return created

        eventually(free, 30, "pods are still gated")
        # A person may lift the gate now.
        api.patch(POD, "held", {"spec": {"schedulingGates": None}}, MANAGED)
        api.wait(POD, "held", MANAGED, until=running)
        admission.uninstall()


@pytest.mark.timeout(600)
def test_release_gives_back_a_cluster_with_5000_gated_pods(cluster: Cluster) -> None:
    api = cluster.api
    cluster.fake_nodes.add("gpu", count=10)
    cluster.fake_nodes.add("dra", count=4, channels=["dra"])
    with Admission(cluster) as admission:
        api.create_all(pod(f"p{n}", 1, namespace=MANAGED) for n in range(5_000))
        api.create_all(pod(f"d{n}", 2, namespace=MANAGED_DRA) for n in range(10))
        waiting = [*api.list(POD, MANAGED), *api.list(POD, MANAGED_DRA)]
        assert len(waiting) == 5_010
        assert all(gates(each) == GATE for each in waiting)
        # By a person, while the guard stands and the webhook is away.
        admission.stop()
        done = admission.run(release(admission.client, admission.catalog))
        assert (done.pods, done.claims, done.left, done.claimless) == (5_010, 10, {}, {})
        assert sorted(done.namespaces) == [SIGNS, MANAGED, MANAGED_DRA]
        assert done.objects == 21
        there = [*api.list(POD, MANAGED), *api.list(POD, MANAGED_DRA)]
        assert not any(gates(each) for each in there)
        assert {each["metadata"]["uid"] for each in there} == {
            each["metadata"]["uid"] for each in waiting
        }
        # kube-scheduler goes on with them.
        for n in range(10):
            api.wait(POD, f"d{n}", MANAGED_DRA, until=running, seconds=120)
        labels = api.get("v1/Namespace", MANAGED, "")["metadata"]["labels"]
        assert labels["shoal.dev/mode"] == "observe"
        assert gates(api.create(pod("new", 1, namespace=MANAGED))) == []
