"""Before Kubernetes 1.36 the webhook notes who created what, and judges what persons ask for."""

import json
from typing import Any

import pytest

from shoal.catalog.load import load_catalog
from shoal.kubernetes.admission.review import Answer, Judging, judge, response, stamp
from shoal.kubernetes.admission.stamps import Stamping, read_owner_question
from shoal.kubernetes.watching.controllers import Controllers
from shoal.model.queue import Priority, Queue, QueueTree
from shoal.objects.pods import Rules
from shoal.texts.refusals import refusal_text
from tests.kubernetes.admission.test_review import GPU, patched, question
from tests.objects.small import manifest

CATALOG = load_catalog()
CONTROLLERS = "system:serviceaccount:kube-system:"
KEPT = Priority("urgent", 100, ("group:leads", "serviceaccount:ci:builder"))
WORK = Queue("work", "root", priorities=(KEPT,))
TREE = QueueTree((Queue("root"), WORK))
TWO = QueueTree((Queue("root"), WORK, Queue("lab", "root")))
STAMPING = Stamping(Controllers(("jobset-system:manager",)), ("leads", "oncall"))
ANN = {"username": "ann", "groups": ["leads", "system:authenticated"]}
BOB = {"username": "bob", "groups": ["system:authenticated"]}
OWNED = [{"kind": "Job", "name": "j", "uid": "uid-j", "controller": True}]
Body = dict[str, Any]


def judged(body: Body, who: Body, tree: QueueTree = TREE, *, gates: bool = True) -> Answer:
    rules = Rules(queues=("work", "lab"))
    asked = question(body, userInfo=who)
    return judge(asked, CATALOG, rules, Judging.by(tree, Controllers()), gates=gates)


def notes(body: Body, said: Answer) -> Body:
    found: Body = patched(body, said)["metadata"].get("annotations", {})
    return {key.removeprefix("shoal.dev/"): value for key, value in found.items()}


def test_a_pod_is_noted_as_its_creators_whatever_was_written() -> None:
    body = manifest({GPU: "1"})
    assert notes(body, judged(body, ANN)) == {"user": "ann", "groups": "leads"}
    forged = {"shoal.dev/user": "boss", "shoal.dev/groups": "leads", "shoal.dev/owner": "x"}
    body = manifest({GPU: "1"}, forged)
    assert notes(body, judged(body, BOB)) == {"user": "bob", "groups": "", "owner": ""}
    # Where policies note it, the webhook takes what it finds for theirs.
    assert judged(body, BOB, gates=False).patch == ()
    # A pod that asks for nothing is left alone.
    assert judged(manifest({"cpu": "1"}, forged), BOB).patch == ()


def test_only_what_a_controller_creates_is_noted_as_made_for_its_owner() -> None:
    body = manifest({GPU: "1"})
    body["metadata"]["ownerReferences"] = OWNED
    controller = {"username": f"{CONTROLLERS}job-controller"}
    assert notes(body, judged(body, controller))["owner"] == "uid-j"
    assert "owner" not in notes(body, judged(body, BOB))


def asked(
    who: Body, new: Body, old: Body | None = None, resource: str = "jobs"
) -> tuple[Body, Answer]:
    """What becomes of an owner that is created, or changed from `old`."""
    request = {
        "uid": "u",
        "operation": "CREATE" if old is None else "UPDATE",
        "resource": {"resource": resource},
        "userInfo": who,
        "object": new,
        "oldObject": old,
    }
    read = read_owner_question(json.dumps({"request": request}).encode())
    said = stamp(read, STAMPING)
    assert json.loads(response(read, said))["response"]["allowed"]
    return new, said


def job(user: str = "", groups: str = "", prefix: str = "", **spec: Any) -> Body:
    found = {f"shoal.dev/{prefix}user": user, f"shoal.dev/{prefix}groups": groups}
    return {
        "metadata": {"name": "j", "annotations": {k: v for k, v in found.items() if v}},
        "spec": spec,
    }


def test_an_owner_is_noted_as_its_creators() -> None:
    assert notes(*asked(ANN, job("boss"))) == {"user": "ann", "groups": "leads"}
    assert notes(*asked(BOB, job("ann", "leads"))) == {"user": "bob", "groups": ""}
    made = job()
    made["metadata"]["ownerReferences"] = OWNED
    account = "system:serviceaccount:jobset-system:manager"
    assert notes(*asked({"username": account}, made)) == {"user": account, "owner": "uid-j"}
    # Nobody but a controller makes an object for another.
    assert notes(*asked(BOB, made)) == {"user": "bob"}


@pytest.mark.parametrize("who", ["bob", f"{CONTROLLERS}x", "system:kube-controller-manager"])
def test_what_is_noted_stays_whoever_changes_something_else(who: str) -> None:
    old = job("ann", "leads", parallelism=1)
    for forged in (job("boss", "oncall", parallelism=1), job(parallelism=1)):
        kept = notes(*asked({"username": who}, forged, old))
        assert kept == {"user": "ann", "groups": "leads"}
    assert asked({"username": who}, old, old)[1].patch == ()


def test_who_changes_what_it_asks_for_has_asked_for_it_and_no_controller_does() -> None:
    old, new = job("ann", "leads", parallelism=1), job("ann", "leads", parallelism=2)
    assert notes(*asked(BOB, new, old)) == {"user": "bob", "groups": ""}
    for controller in (f"{CONTROLLERS}cronjob-controller", "system:kube-controller-manager"):
        assert asked({"username": controller}, new, old)[1].patch == ()
    # For whom it was made does not change by that.
    for each in (old, new):
        each["metadata"]["annotations"]["shoal.dev/owner"] = "uid-set"
    assert notes(*asked(BOB, new, old))["owner"] == "uid-set"


def test_deployments_have_keys_of_their_own() -> None:
    body, said = asked(ANN, job("x"), resource="deployments")
    assert notes(body, said) == {
        "user": "x",
        "deployment-user": "ann",
        "deployment-groups": "leads",
    }
    old = job("ann", "leads", "deployment-", replicas=1)
    assert asked(BOB, old, old, "deployments")[1].patch == ()
    new = job("ann", "leads", "deployment-", replicas=2)
    assert notes(*asked(BOB, new, old, "deployments"))["deployment-user"] == "bob"


URGENT = {"shoal.dev/priority": "urgent", "shoal.dev/queue": "work"}


def test_a_person_who_may_not_ask_for_a_priority_is_told_so_at_once() -> None:
    for annotations in (URGENT, {"shoal.dev/priority": "urgent"}):
        said = judged(manifest({GPU: "1"}, annotations), BOB, gates=False)
        assert said.refusal is not None
        assert refusal_text(said.refusal) == (
            "shoal.dev/priority is 'urgent', for which only group:leads, serviceaccount:ci:builder"
            " may ask in queue work"
        )


@pytest.mark.parametrize(
    ("who", "annotations", "tree"),
    [
        (ANN, URGENT, TREE),
        ({"username": "system:serviceaccount:ci:builder"}, URGENT, TREE),
        # What a controller makes is judged when it is known for whom.
        ({"username": f"{CONTROLLERS}job-controller"}, URGENT, TREE),
        (BOB, {"shoal.dev/queue": "work"}, TREE),
        # Which of two queues it will wait in is not known here.
        (BOB, {"shoal.dev/priority": "urgent"}, TWO),
        ({}, URGENT, TREE),
    ],
)
def test_others_pass(who: Body, annotations: dict[str, str], tree: QueueTree) -> None:
    assert judged(manifest({GPU: "1"}, annotations), who, tree, gates=False).refusal is None
