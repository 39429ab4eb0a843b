"""Who asked for work, on a real cluster: noted by the API server, read through controllers."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.catalog.load import load_catalog
from shoal.cli.cluster import read_written
from shoal.kubernetes.admission.names import STAMPS_POLICY
from shoal.kubernetes.watching.askers import SETTLES
from tests.cluster.admission import MANAGED, Admission
from tests.cluster.harness.api import ApiError, Client, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.objects import job, pod
from tests.cluster.way import DEPLOYMENT, JOB, POD, Shoal, account, ask, events_of, wait_bound

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("admission")]

REPLICA_SET = "apps/v1/ReplicaSet"
POLICY = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
QUEUES = """
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: work}
spec:
  order: fair
  priorities: {urgent: {value: 100, subjects: ["group:leads"]}, normal: {value: 0}}
"""
URGENT = {"shoal.dev/priority": "urgent", "shoal.dev/queue": "work"}
ONLY_LEADS = "for which only group:leads may ask in queue work"
NORMAL = {"shoal.dev/queue": "work"}
CONTROLLERS = "system:serviceaccount:kube-system:"
Body = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Admission that has settled, a scheduler, Ann, who is one of the leads, and Bob."""

    cluster: Cluster
    admission: Admission
    shoal: Shoal
    queues: Path
    ann: Client
    bob: Client

    def wait_said(self, pod: str, words: str) -> None:
        """Wait until Shoal has told a pod something."""

        def said() -> str:
            return " ".join(note for _, note in events_of(self.cluster, pod, MANAGED))

        eventually(lambda: words in said(), 20, said)


def person(admission: Admission, name: str, *groups: str) -> Client:
    """Somebody who may do everything in the managed namespace, and nothing else."""
    cluster, rbac = admission.cluster, "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "admin"}
    cluster.api.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": MANAGED},
            "roleRef": role,
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
        }
    )
    client = Client(cluster.user(name, *groups))
    eventually(lambda: client.list(POD, MANAGED) is not None, 10, f"{name} may not read pods")
    return client


@pytest.fixture(scope="module")
def place(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same for all tests here."""
    cluster = shared_cluster
    cluster.reset()
    cluster.fake_nodes.add("gpu", count=2, devices=8)
    queues = tmp_path_factory.mktemp("askers") / "queues.yaml"
    queues.write_text(QUEUES)
    with Admission(cluster, tree=read_written([queues], load_catalog()).tree) as admission:
        ann, bob = person(admission, "ann", "leads", "others"), person(admission, "bob")
        own: Body = {"kubeconfig": account(admission), "lease_namespace": "shoal"}
        shoal = Shoal(cluster, queues=queues, **own)
        made = cluster.api.get(POLICY, STAMPS_POLICY)["metadata"]["creationTimestamp"]
        settled = datetime.fromisoformat(made) + SETTLES
        time.sleep(max(0.0, (settled - datetime.now(UTC)).total_seconds() + 1))
        yield Place(cluster, admission, shoal, queues, ann, bob)
        ann.close()
        bob.close()
        shoal.process.stop()
    cluster.end_guests()


def deployment(name: str, annotations: Body) -> Body:
    labels = {"app": name}
    template = pod(name, 1, labels=labels, annotations=annotations)
    template["spec"]["restartPolicy"] = "Always"
    metadata = {"labels": labels, "annotations": annotations}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": MANAGED},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": template["spec"]},
        },
    }


def noted(body: Body) -> Body:
    """What is noted on an object of who created it."""
    words = ("user", "groups", "owner")
    found: Body = body["metadata"].get("annotations", {})
    return {key: found[key] for key in found if key.endswith(words)}


def users(cluster: Cluster, queues: Path) -> dict[str, str]:
    """Who asked for each workload, as the commands say it."""
    said = ask(cluster, "get", "workloads", "-o", "json", "--queues", str(queues))
    found = json.loads(said)
    rows = found if isinstance(found, list) else found["items"]
    return {row["name"]: row["user"] for row in rows}


def pods_of(api: Client, name: str) -> list[Body]:
    return [each for each in api.list(POD, MANAGED) if each["metadata"]["name"].startswith(name)]


def of_deployment(api: Client, name: str) -> list[Body]:
    return [
        each
        for each in api.list(REPLICA_SET, MANAGED)
        if each["metadata"]["name"].startswith(f"{name}-")
    ]


def test_work_is_of_whoever_made_it_and_priorities_are_kept_for_those_named(place: Place) -> None:
    cluster, ann, bob = place.cluster, place.ann, place.bob
    forged = {"shoal.dev/user": "boss", "shoal.dev/groups": "boss"}
    hers = job("hers", 1, parallelism=2, namespace=MANAGED, annotations=URGENT)
    hers["metadata"]["annotations"] = forged
    assert noted(ann.create(hers)) == {"shoal.dev/user": "ann", "shoal.dev/groups": "leads"}
    his = job("his", 1, parallelism=2, namespace=MANAGED, annotations=URGENT)
    his["metadata"]["annotations"] = {"shoal.dev/user": "ann", "shoal.dev/groups": "leads"}
    bob.create(his)
    ann.create(deployment("web", URGENT))
    assert len(wait_bound(cluster, 3, MANAGED)) == 3
    (web,) = pods_of(cluster.api, "web")
    assert noted(web)["shoal.dev/user"] == f"{CONTROLLERS}replicaset-controller"
    seen = users(cluster, place.queues)
    assert {name.partition("-")[0]: user for name, user in seen.items()} == {
        "hers": "ann",
        "web": "ann",
    }
    held = pods_of(cluster.api, "his")[0]["metadata"]["name"]
    place.wait_said(held, ONLY_LEADS)
    why = ask(cluster, "why", held, "-n", MANAGED, "--queues", str(place.queues))
    assert "asked by bob" in why
    place.shoal.check()


def test_a_person_is_refused_at_once(place: Place) -> None:
    body = pod("p", 1, namespace=MANAGED, annotations=URGENT)
    assert ONLY_LEADS in place.admission.refusal(body, user=place.bob)
    mine = pod("mine", 1, namespace=MANAGED, annotations=URGENT | {"shoal.dev/user": "boss"})
    made = place.ann.create(mine)
    assert noted(made) == {"shoal.dev/user": "ann", "shoal.dev/groups": "leads"}


def test_nobody_changes_what_is_noted_but_whoever_asks_for_something_else(place: Place) -> None:
    ann, bob = place.ann, place.bob
    ann.create(pod("kept", 1, namespace=MANAGED, annotations=NORMAL))
    with pytest.raises(ApiError, match="stay as they"):
        bob.patch(POD, "kept", {"metadata": {"annotations": {"shoal.dev/user": "bob"}}}, MANAGED)
    ann.create(job("train", 1, namespace=MANAGED, annotations=NORMAL))
    for value in ("bob", None):
        change: Body = {"metadata": {"annotations": {"shoal.dev/user": value, "a": "b"}}}
        changed = bob.patch(JOB, "train", change, MANAGED)
        assert noted(changed) == {"shoal.dev/user": "ann", "shoal.dev/groups": "leads"}
    changed = bob.patch(JOB, "train", {"spec": {"parallelism": 2}}, MANAGED)
    assert noted(changed) == {"shoal.dev/user": "bob", "shoal.dev/groups": ""}
    ann.create(deployment("api", NORMAL))
    key = "shoal.dev/deployment-user"
    eventually(lambda: pods_of(place.cluster.api, "api"), 30, "no pod")
    assert noted(ann.get(DEPLOYMENT, "api", MANAGED))[key] == "ann"
    (made,) = of_deployment(ann, "api")
    assert noted(made)[key] == "ann"  # as the Deployment controller copies it
    assert noted(made)["shoal.dev/user"] == f"{CONTROLLERS}deployment-controller"
    forged: Body = {"metadata": {"annotations": {key: "bob"}}}
    with pytest.raises(ApiError, match="note of who asked for this"):
        bob.patch(REPLICA_SET, made["metadata"]["name"], forged, MANAGED)
    change = {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}
    assert noted(bob.patch(DEPLOYMENT, "api", change, MANAGED))[key] == "bob"
    both = ["ann", "bob"]
    eventually(
        lambda: sorted(noted(each)[key] for each in of_deployment(ann, "api")) == both,
        20,
        "the new ReplicaSet is not his",
    )


def test_a_pod_that_is_pushed_under_anothers_owner_starts_nowhere(place: Place) -> None:
    api, ann, bob = place.cluster.api, place.ann, place.bob
    other = ann.create(job("other", 1, namespace=MANAGED, annotations=NORMAL))["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "other", "uid": other["uid"]}
    owners: Body = {"ownerReferences": [reference | {"controller": True}]}
    guest = pod("guest", 1, namespace=MANAGED, annotations=NORMAL)
    guest["metadata"] |= owners
    assert noted(bob.create(guest))["shoal.dev/user"] == "bob"
    # Nor does it help to hand over a pod that a controller made for oneself.
    bob.create(job("sly", 1, namespace=MANAGED, annotations=URGENT))
    sly = eventually(lambda: pods_of(api, "sly"), 20, "no pod")[0]["metadata"]["name"]
    bob.patch(POD, sly, {"metadata": owners}, MANAGED)
    for name in ("guest", sly):
        place.wait_said(name, "It names Job other as its controller")
    place.shoal.check()
