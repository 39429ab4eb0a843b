"""Admission in a real cluster: what is gated, what is refused and with which words."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.catalog.load import load_catalog
from shoal.kubernetes.executing.claims import Pin, claim_body, requests_of
from shoal.kubernetes.watching.asks import NOTES, without
from shoal.kubernetes.wire.kinds import PODS
from shoal.model.modes import Channel
from shoal.objects.devices import claimed_of
from shoal.objects.pods import Reading, Rules, reading_of
from tests.cluster.admission import ACCOUNT, MANAGED, MANAGED_DRA, Admission
from tests.cluster.harness.api import ApiError, Client, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import allocated, job, pod, pod_spec, running

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("admission")]

POD = "v1/Pod"
JOB = "batch/v1/Job"
CLAIM = "resource.k8s.io/v1/ResourceClaim"
GATE = [{"name": "shoal.dev/plan"}]
CATALOG = load_catalog()
Body = dict[str, Any]


@pytest.fixture(scope="module")
def admission(shared_cluster: Cluster) -> Iterator[Admission]:
    """Admission on a cluster with two nodes of each channel, set up once for all tests here."""
    shared_cluster.reset()
    shared_cluster.fake_nodes.add("gpu", count=2, devices=8)
    shared_cluster.fake_nodes.add("dra", count=2, devices=8, channels=["dra"])
    with Admission(shared_cluster) as admission:
        admission.grant("scheduler", ACCOUNT)
        yield admission
    shared_cluster.end_guests()


@pytest.fixture
def api(admission: Admission) -> Client:
    return admission.cluster.api


@pytest.fixture
def shoal(admission: Admission) -> Iterator[Client]:
    """The API server as Shoal's scheduler may use it, with its rights and no more."""
    client = Client(admission.cluster.user(ACCOUNT))
    yield client
    client.close()


@pytest.fixture
def user(admission: Admission) -> Iterator[Client]:
    """A person who may do everything in the managed namespaces, and nothing else."""
    rbac = "rbac.authorization.k8s.io"
    for namespace in (MANAGED, MANAGED_DRA):
        admission.cluster.api.apply(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "ann", "namespace": namespace},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "admin"},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": "ann"}],
            }
        )
    client = Client(admission.cluster.user("ann"))
    eventually(lambda: client.list(POD, MANAGED) is not None, 10, "ann may not read pods")
    yield client
    client.close()


def gates(body: Body) -> list[Body]:
    found: list[Body] = body["spec"].get("schedulingGates", [])
    return found


def patch_refused(api: Client, name: str, body: Body, namespace: str = MANAGED) -> str:
    with pytest.raises(ApiError) as refused:
        api.patch(POD, name, body, namespace)
    return refused.value.message


def test_only_pods_that_ask_for_accelerators_in_managed_namespaces_are_gated(
    admission: Admission, api: Client
) -> None:
    admission.cluster.namespace("seen", {"shoal.dev/mode": "observe"})
    for namespace in ("default", "seen", "shoal", "kube-system"):
        assert gates(api.create(pod("scope", 1, namespace=namespace))) == []
    assert gates(api.create(pod("plain", namespace=MANAGED))) == []
    assert gates(api.create(pod("scope", 1, namespace=MANAGED))) == GATE
    api.wait(POD, "plain", MANAGED, until=running)
    api.wait(POD, "scope", "default", until=running)
    held = api.get(POD, "scope", MANAGED)
    assert held["spec"].get("nodeName") is None


def test_init_containers_sidecars_and_shares_are_gated_too(api: Client) -> None:
    limits = {"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}
    inits = [{"name": "i", "image": "none", **limits}]
    created = api.create(pod("init", namespace=MANAGED, initContainers=inits))
    assert gates(created) == GATE
    for limit in ("nvidia.com/gpumem", "volcano.sh/vgpu-number", "amd.com/gpu"):
        spec = {"name": "c", "image": "none", "resources": {"limits": {limit: "1"}}}
        body = pod(limit.replace("/", "-").replace(".", "-"), namespace=MANAGED, containers=[spec])
        assert gates(api.create(body)) == GATE
    zero = {"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "0"}}}
    assert gates(api.create(pod("zero", namespace=MANAGED, containers=[zero]))) == []


def test_pods_of_controllers_are_gated(api: Client) -> None:
    api.create(job("train", 1, parallelism=3, namespace=MANAGED))

    def pods() -> list[Body]:
        return api.list(POD, MANAGED, labels="job-name=train")

    eventually(lambda: len(pods()) == 3, 30, "the job has no pods")
    assert [gates(each) for each in pods()] == [GATE] * 3


def test_other_gates_stay_beside_ours(api: Client) -> None:
    body = pod("gates", 1, namespace=MANAGED, schedulingGates=[{"name": "example.com/a"}])
    assert sorted(each["name"] for each in gates(api.create(body))) == [
        "example.com/a",
        "shoal.dev/plan",
    ]


def test_K03_e_nobody_but_shoal_lifts_the_gate(api: Client, shoal: Client, user: Client) -> None:
    user.create(pod("guarded", 1, namespace=MANAGED))
    for who in (api, user):
        sentence = patch_refused(who, "guarded", {"spec": {"schedulingGates": None}})
        assert "spec.schedulingGates: the gate shoal.dev/plan is lifted by Shoal" in sentence
        assert "`shoal why`" in sentence
    # Everything else about the pod may be changed as ever.
    user.patch(POD, "guarded", {"metadata": {"labels": {"app": "x"}}}, MANAGED)
    shoal.patch(POD, "guarded", {"spec": {"schedulingGates": None}}, MANAGED)
    user.wait(POD, "guarded", MANAGED, until=running)


def test_what_was_planned_with_stays_as_it_was_created(user: Client, shoal: Client) -> None:
    body = pod("marks", 1, namespace=MANAGED, annotations={"shoal.dev/memory": "5Gi"})
    user.create(body)
    for change in (
        {"shoal.dev/memory": "1Gi"},
        {"shoal.dev/memory": None},
        {"shoal.dev/plan": "x"},
    ):
        sentence = patch_refused(user, "marks", {"metadata": {"annotations": change}})
        assert "stay as they were created" in sentence
    patch_refused(user, "marks", {"metadata": {"labels": {"shoal.dev/queue": "r"}}})
    shoal.patch(POD, "marks", {"metadata": {"annotations": {"shoal.dev/plan": "x"}}}, MANAGED)


def test_a_pod_says_its_checkpoints_by_itself_with_the_rights_that_the_docs_give_it(
    admission: Admission, api: Client, repository: Path
) -> None:
    """The Role of the docs, applied as it stands there for the service account `trainer`."""
    page = (repository / "docs" / "kubernetes.md").read_text()
    role = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    role["metadata"]["namespace"] = MANAGED
    api.apply(role)
    account = {"kind": "ServiceAccount", "name": "trainer", "namespace": MANAGED}
    binding = {
        "apiVersion": role["apiVersion"],
        "kind": "RoleBinding",
        "metadata": {"name": "trainer", "namespace": MANAGED},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role"},
        "subjects": [account],
    }
    binding["roleRef"]["name"] = role["metadata"]["name"]
    api.apply(binding)
    api.create(pod("trains", 1, namespace=MANAGED))
    client = Client(admission.cluster.user(f"system:serviceaccount:{MANAGED}:trainer"))
    try:
        eventually(lambda: client.list(POD, MANAGED) is not None, 10, "it may not read pods")
        for value in ("2026-11-29T21:04:05Z", "2026-11-29T23:04:05.5+02:00", None):
            change = {"metadata": {"annotations": {"shoal.dev/checkpoint": value}}}
            client.patch(POD, "trains", change, MANAGED)
        for value in ("now", "2026-11-29 21:04:05"):
            change = {"metadata": {"annotations": {"shoal.dev/checkpoint": value}}}
            assert "such as 2026-11-29T21:04:05Z" in patch_refused(client, "trains", change)
    finally:
        client.close()


def test_K03_f_a_waiting_job_keeps_its_queue(user: Client) -> None:
    body = job("queued", 1, namespace=MANAGED, fields={"suspend": True})
    body["metadata"]["labels"] = {"shoal.dev/queue": "default"}
    user.create(body)
    change = {"metadata": {"labels": {"shoal.dev/queue": None}}, "spec": {"suspend": False}}
    with pytest.raises(ApiError, match="stay as they were created"):
        user.patch(JOB, "queued", change, MANAGED)
    # Started without that change, its pod still waits at the gate.
    user.patch(JOB, "queued", {"spec": {"suspend": False}}, MANAGED)
    eventually(lambda: user.list(POD, MANAGED, labels="job-name=queued"), 30, "no pod")
    (made,) = user.list(POD, MANAGED, labels="job-name=queued")
    assert gates(made) == GATE


def env(name: str, value: str) -> Body:
    return {"containers": [{"name": "c", "image": "none", "env": [{"name": name, "value": value}]}]}


def test_K03_ways_round_the_queue_in_the_pod_are_refused(
    admission: Admission, user: Client
) -> None:
    def said(**more: Any) -> str:
        devices = more.pop("devices", 1)
        body = pod("round", devices, namespace=MANAGED, **more)
        return admission.refusal(body, user=user)

    assert "spec.nodeName" in said(nodeName="gpu-0")  # (a)
    variables = "NVIDIA_VISIBLE_DEVICES and its like"
    assert variables in said(devices=0, **env("NVIDIA_VISIBLE_DEVICES", "all"))  # (c)
    assert variables in said(
        devices=0, initContainers=env("NVIDIA_VISIBLE_DEVICES", "0")["containers"]
    )
    marks = "marks by which another scheduler"
    assert marks in said(annotations={"hami.io/vgpu-devices-to-allocate": "x"})  # (d)
    assert marks in said(labels={"hami.io/webhook": "ignore"})
    assert "shoal.dev/skip is not known" in said(annotations={"shoal.dev/skip": "true"})
    assert "shoal.dev/plan is written by Shoal" in said(annotations={"shoal.dev/plan": "x"})  # (h)
    assert "no queue of this namespace" in said(annotations={"shoal.dev/queue": "r"})  # (i)
    assert "the pod's annotations" in said(labels={"shoal.dev/queue": "r"})
    limits = {"resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}}}
    named = [{"name": "c", "image": "none", **limits}]
    assert "write the vendor's resource" in said(devices=0, containers=named)
    # None of them exists, so none of them runs.
    assert user.find(POD, "round", MANAGED) is None


def test_K03_b_another_schedulers_pods_wait_at_the_gate_too(user: Client) -> None:
    created = user.create(pod("other", 1, namespace=MANAGED, schedulerName="my-scheduler"))
    assert gates(created) == GATE


def test_harmless_values_of_device_variables_pass(user: Client) -> None:
    for value in ("void", "none", ""):
        name = f"env-{value or 'empty'}"
        user.create(pod(name, namespace=MANAGED, **env("NVIDIA_VISIBLE_DEVICES", value)))


def test_a_debug_container_takes_no_devices(api: Client) -> None:
    api.create(pod("debugged", namespace=MANAGED))
    api.wait(POD, "debugged", MANAGED, until=running)

    def debug(value: str) -> None:
        container = env("NVIDIA_VISIBLE_DEVICES", value)["containers"][0] | {"name": f"d-{value}"}
        api.patch(
            POD,
            "debugged",
            {"spec": {"ephemeralContainers": [container]}},
            MANAGED,
            content_type="application/strategic-merge-patch+json",
            subresource="ephemeralcontainers",
        )

    with pytest.raises(ApiError, match="NVIDIA_VISIBLE_DEVICES and its like"):
        debug("all")
    debug("void")


def test_S07_bad_annotations_are_refused_with_what_to_write(admission: Admission) -> None:
    for namespace in (MANAGED, MANAGED_DRA):
        for key, value, words in (
            ("memory", "5", "is '5', which is less than 1 MiB; write 5Gi or 5Mi"),
            ("memory", "9223372036854775807Gi", "more than the largest device has"),
            ("compute", "30%", "a whole number from 1 to 100, in digits 0-9"),
            ("devices", "1.5", "write 1, and shoal.dev/memory or shoal.dev/compute"),
            ("memroy", "5Gi", "did you mean shoal.dev/memory?"),
        ):
            body = pod("bad", 1, namespace=namespace, annotations={f"shoal.dev/{key}": value})
            assert words in admission.refusal(body)


def test_a_jobs_bad_annotation_is_told_in_the_jobs_events(api: Client) -> None:
    api.create(job("bad", 1, namespace=MANAGED, annotations={"shoal.dev/memory": "5"}))

    def told() -> bool:
        events = api.list("v1/Event", MANAGED, fields="involvedObject.name=bad")
        return any("write 5Gi or 5Mi" in each["message"] for each in events)

    eventually(told, 30, "the job's events do not say why it has no pods")


def test_K09_d_names_of_queues(admission: Admission) -> None:
    body = pod("script", 1, namespace=MANAGED, annotations={"shoal.dev/queue": "视觉"})
    sentence = admission.refusal(body)
    assert "lower-case letters, digits and '-'" in sentence
    assert "default" in sentence


def a_namespace(**labels: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "odd", "labels": labels},
    }


def test_labels_of_namespaces_are_spelt_right(admission: Admission, api: Client) -> None:
    odd = {"shoal.dev/mode": "manged", "shoal.dev/channel": "plugin"}
    for label, value in odd.items():
        body = a_namespace(**{label: value})
        assert f"{label} is" in admission.refusal(body)
    with pytest.raises(ApiError, match="observe or manage"):
        api.patch("v1/Namespace", "default", {"metadata": {"labels": {"shoal.dev/mode": "on"}}})


def test_K09_e_kubernetes_itself_refuses_other_scripts_in_labels(admission: Admission) -> None:
    assert "a valid label must" in admission.refusal(a_namespace(team="\u00c9quipe-1"))


def release(api: Client, shoal: Client, name: str, uuids: list[str], node: str) -> None:
    """What the executor does with a pod on the DRA channel: its claim, its pin, its gate."""
    wire = PODS.read(json.dumps(api.get(POD, name, MANAGED_DRA)).encode())
    claimed = claimed_of(wire)
    reading = reading_of(without(wire, NOTES), CATALOG, Rules(Channel.DRA))
    assert claimed is not None
    assert isinstance(reading, Reading)
    driver = "gpu.nvidia.com"
    body = claim_body(
        claimed.name,
        wire.metadata,
        requests_of(reading.spans),
        driver,
        pin=Pin(driver, "uuid", tuple(uuids)),
    )
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    shoal.create({**kind, **body})
    shoal.patch(
        POD,
        name,
        {
            "spec": {
                "schedulingGates": None,
                "nodeSelector": {"kubernetes.io/hostname": node},
            }
        },
        MANAGED_DRA,
    )


def test_on_the_dra_channel_a_pod_waits_for_its_claim_and_gets_the_devices_of_the_plan(
    admission: Admission, api: Client, user: Client, shoal: Client
) -> None:
    created = user.create(pod("swapped", 2, namespace=MANAGED_DRA))
    assert gates(created) == GATE
    (entry,) = created["spec"]["resourceClaims"]
    assert created["spec"]["containers"][0]["resources"] == {"claims": [{"name": "shoal"}]}
    assert user.find(CLAIM, entry["resourceClaimName"], MANAGED_DRA) is None
    wanted = admission.cluster.fake_nodes.devices("dra-1")[3:5]
    release(user, shoal, "swapped", wanted, "dra-1")
    user.wait(POD, "swapped", MANAGED_DRA, until=running)
    claim = user.get(CLAIM, entry["resourceClaimName"], MANAGED_DRA)
    (offered,) = [
        each["spec"]["devices"]
        for each in api.list("resource.k8s.io/v1/ResourceSlice")
        if each["spec"].get("nodeName") == "dra-1"
    ]
    uuids = {each["name"]: each["attributes"]["uuid"]["string"] for each in offered}
    held = allocated(claim)
    assert {pool for pool, _ in held} == {"dra-1"}
    assert sorted(uuids[device] for _, device in held) == sorted(wanted)


def test_S06_init_and_app_containers_hand_devices_on_in_claims(
    admission: Admission, user: Client, shoal: Client
) -> None:
    init = pod_spec(2)["containers"][0] | {"name": "i"}
    user.create(pod("inits", 1, namespace=MANAGED_DRA, initContainers=[init]))
    devices = admission.cluster.fake_nodes.devices("dra-0")[:2]
    release(user, shoal, "inits", devices, "dra-0")
    there = user.wait(POD, "inits", MANAGED_DRA, until=running)
    assert there["spec"]["containers"][0]["resources"]["claims"] == [
        {"name": "shoal", "request": "devices-0"}
    ]


def test_several_requests_of_one_claim_in_one_container_are_taken(
    admission: Admission, user: Client
) -> None:
    containers = [pod_spec(n)["containers"][0] | {"name": f"c{n}"} for n in (1, 3)]
    init = pod_spec(2)["containers"][0] | {"name": "i"}
    created = user.create(
        pod("many", namespace=MANAGED_DRA, containers=containers, initContainers=[init])
    )
    claims = [each["resources"]["claims"] for each in created["spec"]["containers"]]
    assert [[use["request"] for use in each] for each in claims] == [
        ["devices-0"],
        ["devices-1", "devices-2"],
    ]
    # An apply by somebody else, which merges lists by their keys, leaves it whole.
    meta = {"name": "many", "namespace": MANAGED_DRA, "labels": {"app": "x"}}
    applied = user.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    assert applied["spec"]["containers"] == created["spec"]["containers"]


def test_K09_long_names_and_none(user: Client) -> None:
    user.create(pod("n" * 253, 1, namespace=MANAGED_DRA))
    for n in (1, 2):
        user.create(job("j" * 60 + f"-{n}", 1, namespace=MANAGED_DRA))
    eventually(
        lambda: len(user.list(POD, MANAGED_DRA, labels="batch.kubernetes.io/job-name")) == 2,
        30,
        "jobs with long names have no pods",
    )
    names = [
        entry["resourceClaimName"]
        for each in user.list(POD, MANAGED_DRA)
        for entry in each["spec"].get("resourceClaims", [])
    ]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= 63


def test_K04_d_claims_of_shoals_are_nobody_elses(admission: Admission, user: Client) -> None:
    theirs = "other-0123456789.shoal.dev"
    for namespace in (MANAGED, MANAGED_DRA):
        for name in ("mine", "shoal"):
            entry = {"name": name, "resourceClaimName": theirs}
            body = pod("thief", namespace=namespace, resourceClaims=[entry])
            said = admission.refusal(body, user=user)
            assert "made by Shoal for one pod" in said or "written by Shoal" in said
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": theirs, "namespace": MANAGED_DRA},
        "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "x"}}]}},
    }
    assert "names of ResourceClaims that end in .shoal.dev" in admission.refusal(claim, user=user)
    forged = {"shoal.dev/claim": '{"asked":{},"name":"a.shoal.dev"}'}
    for namespace in (MANAGED, MANAGED_DRA):
        body = pod("forger", 1, namespace=namespace, annotations=forged)
        assert "written by Shoal" in admission.refusal(body, user=user)


def test_a_dry_run_leaves_nothing_behind(api: Client) -> None:
    before = len(api.list(CLAIM)), len(api.list(POD))
    path = f"/api/v1/namespaces/{MANAGED_DRA}/pods?dryRun=All"
    body = api.call("POST", path, pod("dry", 1, namespace=MANAGED_DRA))
    assert gates(body) == GATE
    assert body["spec"]["resourceClaims"]
    assert (len(api.list(CLAIM)), len(api.list(POD))) == before


def test_installing_again_keeps_what_the_webhook_announced(admission: Admission) -> None:
    def announced() -> list[str]:
        kind = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration"
        found = admission.cluster.api.get(kind, "shoal", "")
        return [each["clientConfig"]["caBundle"] for each in found["webhooks"]]

    before = announced()
    admission.install()
    assert announced() == before
    admission.wait_until_it_acts()


def test_the_certificate_is_renewed_while_pods_are_created(admission: Admission) -> None:
    api = admission.cluster.api
    # So short-lived that every step has something to renew.
    short = timedelta(minutes=2)
    api.delete("v1/Secret", "shoal-webhook-tls", "shoal")
    seen = {admission.renew(short)}
    for _ in range(6):
        admission.wait_until_it_acts()
        seen.add(admission.renew(short))
    assert len(seen) == 4
    admission.wait_until_it_acts()
