"""Changed pools and queues: what they will mean, and that they count at once or not at all."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.core import events as ev
from shoal.core.tenancy.inside import inside_of
from shoal.model.fractions import UNIT
from shoal.model.meaning import Inside, QueueGone
from shoal.model.workload import Outcome
from shoal.server.app import PREFIX, make_app
from shoal.texts.language import Language
from shoal.texts.meanings import meaning_text
from tests.objects.written import pool, queue
from tests.server.client import Api, why
from tests.server.rig import job, platform, pod

ZH = Language.CHINESE

TOP = queue("acme", "guarantee: {H100: 8}")
LAB = queue("lab", "parent: acme, guarantee: {H100: 4}")
OTHER = queue("other", "parent: acme, guarantee: {H100: 4}")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Api]:
    """A platform whose queues are acme, and below it lab and other."""
    with platform(tmp_path, queues=None) as rig:
        client = Api(make_app(rig.standing), raise_server_exceptions=False)
        client.rig = rig
        take(client, TOP, LAB, OTHER)
        yield client


def post(api: Api, *texts: str, dry_run: bool = False, **headers: str) -> Any:
    body = {"files": [{"name": "q.yaml", "text": "".join(texts)}], "dry_run": dry_run}
    return api.post(f"{PREFIX}/objects", json=body, headers=headers)


def take(api: Api, *texts: str, dry_run: bool = False) -> Any:
    answer = post(api, *texts, dry_run=dry_run)
    assert answer.status_code == 200, answer.text
    return answer.json()


def said(answer: Any) -> list[str]:
    return [each["text"] for each in answer["meanings"]]


def names(api: Api) -> list[str]:
    return [each["name"] for each in api.ask("/queues")["items"]]


def end(api: Api, name: str) -> None:
    api.rig.step(ev.WorkloadEnded(api.rig.now_us, api.rig.uid(name), Outcome.COMPLETED))


def test_a_dry_run_says_what_it_would_mean_and_changes_nothing(lab: Api) -> None:
    before = (names(lab), lab.rig.replica.offset)
    answer = take(lab, TOP, OTHER.replace("H100: 4", "H100: 8"), dry_run=True)
    assert (answer["applied"], answer["queues"], answer["pools"]) == (False, 2, 0)
    assert said(answer) == [
        "Queue other: the guarantee of H100 changes from 4 to 8.",
        "Queue lab goes; nothing runs in it.",
    ]
    assert (names(lab), lab.rig.replica.offset) == before


def test_what_is_wrong_changes_nothing_and_is_said_with_its_line(lab: Api) -> None:
    answer = post(lab, TOP, LAB, OTHER.replace("H100: 4", "H100: 5"))
    assert answer.status_code == 422
    assert [each["message"] for each in answer.json()["errors"]] == [
        (
            "q.yaml:5: spec.guarantee.H100: its children are guaranteed lab 4 + other 5 = 9, and"
            " acme only 8; raise it to 9 or lower theirs"
        )
    ]
    broken = post(lab, "a: [")
    assert (broken.status_code, broken.json()["errors"][0]["message"][:7]) == (422, "q.yaml:")
    assert names(lab) == ["acme", "lab", "other"]


def test_a_node_in_two_pools_is_refused_with_its_name(lab: Api) -> None:
    everywhere = "nodes: {matchExpressions: [{key: none, operator: DoesNotExist}]}"
    answer = post(lab, TOP, pool("p", everywhere), pool("q", everywhere))
    assert answer.status_code == 422
    assert "node n1 is in the pools p and q;" in answer.json()["errors"][0]["message"]


def test_debts_are_listed_before_they_are_made(lab: Api) -> None:
    lab.submit(job("big", 4, 1, queue="lab", accelerators="H100"))
    less = LAB.replace("guarantee", "limit").replace("H100: 4", "H100: 1")
    answer = take(lab, TOP, less, OTHER, dry_run=True)
    assert [each["debt"] for each in answer["meanings"]] == [False, False, True]
    assert "queue lab holds 4 H100, 3 above its limit of 1." in said(answer)[-1]
    # Once it is there, it is not listed again.
    take(lab, TOP, less, OTHER)
    assert said(take(lab, TOP, less, OTHER)) == []


def test_what_it_means_is_said_in_the_readers_language(lab: Api) -> None:
    answer = post(lab, TOP, OTHER, dry_run=True, **{"Accept-Language": "zh-CN"})
    assert answer.json()["meanings"][0]["text"] == meaning_text(QueueGone("lab", 0), ZH)


def test_O03_a_deleted_queue_closes_and_opens_again(lab: Api) -> None:
    lab.submit(job("a", 1, queue="lab"), job("b", 2, queue="lab"))
    waiting = [job(name, 4, 9, queue="lab", accelerators="H100") for name in "cde"]
    lab.submit(*waiting)
    assert said(take(lab, TOP, OTHER)) == [
        (
            "Queue lab closes: what runs in it and below it goes on and is charged to it, 2 in it;"
            " nothing new starts, and it goes when it is empty. 3 that wait in it need another"
            " queue."
        )
    ]
    queues = {each["name"]: each for each in lab.ask("/queues")["items"]}
    assert list(queues) == ["acme", "other", "lab"]
    assert [(each["written"], each["closing"]) for each in queues.values()] == [
        *((True, False), (True, False), (False, True))
    ]
    assert queues["lab"]["running"] == 2
    assert queues["lab"]["waiting"] == 3
    (quota,) = (q for q in queues["lab"]["quotas"] if q["accelerator"] == "H100")
    assert (quota["guarantee"], quota["used"]) == (quota["used"], quota["used"])
    wait = {each["name"]: each["wait"] for each in lab.ask("/workloads", state="waiting")["items"]}
    assert wait["c"]["reason"] == "queue-closing"
    ((_, field, message),) = lab.refused(pod("new", queue="lab"))
    assert (field, message) == (
        "shoal.dev/queue",
        "queue lab is being deleted, and nothing new starts in it; write one of other",
    )
    # It is written again: the same work waits there, in its old order.
    take(lab, TOP, LAB, OTHER)
    again = lab.ask("/workloads", state="waiting")["items"]
    assert [(each["name"], each["position"]) for each in again] == [("c", 1), ("d", 2), ("e", 3)]
    assert again[0]["wait"]["reason"] != "queue-closing"


def test_without_queues_there_are_no_priorities(tmp_path: Path) -> None:
    with platform(tmp_path, queues=None) as rig:
        api = Api(make_app(rig.standing))
        api.rig = rig
        ((_, field, message),) = api.refused(pod("p", priority="urgent"))
    assert field == "shoal.dev/priority"
    assert message.endswith("'urgent', which is no priority of queue vision; it has: -")


def test_what_counts_in_units_is_shown_in_units(lab: Api) -> None:
    lab.submit(job("a", 2, queue="lab", accelerators="H100"))
    sxm = "H100-SXM5-80GB"
    take(lab, queue("acme", "guarantee: {units: 20}"), queue("lab", "parent: acme"))
    (acme, below) = lab.ask("/queues")["items"]
    held = {each["accelerator"]: each["devices"] for each in acme["used"]}
    rate = dict(lab.rig.standing.written.tree.rates)
    units = round(sum(number * rate.get(name, 1000) / 1000 for name, number in held.items()), 2)
    (quota,) = acme["quotas"]
    assert (quota["accelerator"], quota["guarantee"]) == ("units", 20)
    assert (quota["used"], quota["borrowed"]) == (units, 0)
    assert sxm in rate
    assert below["parent"] == "acme"


def test_a_queue_in_which_nothing_runs_goes_at_once(lab: Api) -> None:
    lab.submit(job("a", 1, queue="lab"))
    end(lab, "a")
    take(lab, TOP, OTHER)
    assert names(lab) == ["acme", "other"]


def test_what_was_taken_in_is_kept_as_it_was_written(tmp_path: Path) -> None:
    kept: list[Sequence[tuple[str, str]]] = []
    with platform(tmp_path, queues=None) as rig:
        rig.standing.keep = kept.append
        api = Api(make_app(rig.standing))
        api.rig = rig
        take(api, TOP, LAB, dry_run=True)
        assert kept == []
        take(api, TOP, LAB)
    assert kept == [[("q.yaml", f"{TOP}{LAB}")]]


def test_what_is_inside_counts_a_device_once(lab: Api) -> None:
    share = {"memory": "20Gi", "devices": None, "accelerators": "A100"}
    notes = {key: value for key, value in share.items() if value is not None}
    lab.submit(
        pod("n", 0, queue="lab", type="notebook", **notes),
        job("t", 1, queue="lab", accelerators="H100"),
        job("w", 4, 9, queue="other", accelerators="H100"),
    )
    inside = inside_of(lab.rig.writer.world)
    assert inside["other"] == Inside(0, 1)
    lab_inside = inside["lab"]
    assert lab_inside.running + lab_inside.waiting == 2
    assert all(0 < units <= 8 * UNIT for units in lab_inside.units.values())


# Pools ----------------------------------------------------------------------------------------

NOTEBOOKS = "nodes: {matchLabels: {kubernetes.io/hostname: n1}}, types: [notebook]"
ON_N1 = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}


def on_n1(body: dict[str, Any]) -> dict[str, Any]:
    """A Job whose pods may run on the node n1 only."""
    body["spec"]["template"]["spec"] |= ON_N1
    return body


def test_pools_that_are_taken_in_decide_where_work_starts(lab: Api) -> None:
    lab.submit(on_n1(job("runs", 2, queue="lab", type="batch")))
    answer = take(lab, TOP, LAB, OTHER, pool("books", NOTEBOOKS), dry_run=True)
    assert said(answer) == [
        "Pool books is new.",
        (
            "A debt: workloads on nodes of pool books that it does not serve: 1 of type batch."
            " Nothing is ended for it; no such work starts there, and it falls as work ends."
        ),
    ]
    assert [(each["about"], each["debt"]) for each in answer["meanings"]] == [
        ("books", False),
        ("books", True),
    ]
    assert [each["name"] for each in lab.ask("/pools")["items"]] == ["no pool"]
    take(lab, TOP, LAB, OTHER, pool("books", NOTEBOOKS))
    assert [each["name"] for each in lab.ask("/pools")["items"]] == ["books", "no pool"]
    assert said(take(lab, TOP, LAB, OTHER, pool("books", NOTEBOOKS))) == []
    lab.submit(on_n1(job("waits", 1, queue="lab", type="batch")))
    states = {each["name"]: each["state"] for each in lab.ask("/workloads")["items"]}
    assert states == {"runs": "running", "waits": "waiting"}
    said_of = why(lab, "waits")
    assert {each["reason"]: each["nodes"] for each in said_of["obstacles"]}["pool"] == 1
    take(lab, TOP, LAB, OTHER)
    assert lab.ask("/workloads", name="waits")["items"][0]["state"] == "running"


def test_pools_show_what_they_serve_and_whether_queues_share(lab: Api) -> None:
    shares = NOTEBOOKS + ", sharedBetweenQueues: true"
    take(lab, TOP, LAB, OTHER, pool("books", shares))
    books, rest = lab.ask("/pools")["items"]
    assert (books["types"], books["shared_between_queues"]) == (["notebook"], True)
    assert rest["types"] == ["training", "inference", "notebook", "batch"]
    assert rest["shared_between_queues"] is False
    assert [each["name"] for each in lab.ask("/nodes", pool="no pool")["items"]] == [
        *("n2", "n3", "n4")
    ]
    assert [each["node"] for each in lab.ask("/devices", pool="books")["items"]] == ["n1"] * 4


def test_queues_that_share_devices_are_a_debt_when_their_pool_allows_it_no_longer(
    lab: Api,
) -> None:
    shares = "nodes: {matchLabels: {kubernetes.io/hostname: n3}}, sharedBetweenQueues: true"
    take(lab, TOP, LAB, OTHER, pool("books", shares))
    asked = {"memory": "10Gi", "accelerators": "A100", "type": "batch", "isolation": "shared"}
    names = [("a", "lab"), ("b", "lab"), ("c", "other"), ("d", "other")]
    lab.submit(*(pod(name, 1, queue=queue, recreate="true", **asked) for name, queue in names))
    meant = said(take(lab, TOP, LAB, OTHER, pool("books", shares.partition(",")[0]), dry_run=True))
    assert meant[0] == "Pool books is changed."
    assert meant[1].startswith(
        "A debt: workloads on nodes of pool books that share devices with other queues, which it"
        " does not allow: 4."
    )


def priorities(api: Api) -> dict[str, tuple[str, int]]:
    return {each["name"]: (each["state"], each["priority"]) for each in items(api)}


def items(api: Api) -> Any:
    return api.ask("/workloads")["items"]


def graded(**values: int) -> str:
    table = ", ".join(f"{name}: {{value: {value}}}" for name, value in values.items())
    return queue(
        "lab",
        f"parent: acme, guarantee: {{H100: 8}}, priorities: {{{table}}},"
        " eviction: {minimumRun: 30m}",
    )


def test_q07_changed_priorities_count_for_who_waits_and_who_runs(lab: Api) -> None:
    """Whoever runs keeps its minimum run, and then goes for work that has become more urgent."""
    take(lab, TOP, graded(p1=1000, p2=2000))
    lab.submit(job("job-2", 4, 2, queue="lab", accelerators="H100", priority="p2"))
    lab.submit(job("job-1", 4, 2, queue="lab", accelerators="H100", priority="p1"))
    assert priorities(lab) == {"job-1": ("waiting", 1000), "job-2": ("running", 2000)}

    lab.rig.now_us += 600_000_000
    assert said(take(lab, TOP, graded(p1=3000, p2=500))) == [
        "Queue lab: priorities.p1 changes from 1,000 to 3,000.",
        "Queue lab: priorities.p2 changes from 2,000 to 500.",
    ]
    lab.rig.step()
    assert priorities(lab) == {"job-1": ("waiting", 3000), "job-2": ("running", 500)}
    lab.submit(job("job-3", 4, 2, queue="lab", accelerators="H100", priority="p1"))
    positions = {each["name"]: each["position"] for each in items(lab)}
    assert positions == {"job-1": 1, "job-2": None, "job-3": 2}

    lab.rig.now_us += 1_200_000_000
    lab.rig.step()
    assert priorities(lab)["job-2"] == ("evicting", 500)


def test_of_several_priorities_of_one_gang_the_highest_counts(lab: Api) -> None:
    take(lab, TOP, graded(p1=1000, p2=2000))
    roles = {
        name: {"replicas": 1, "template": job("x", 1, 1, queue="lab", priority=priority)["spec"]}
        for name, priority in (("Master", "p1"), ("Worker", "p2"))
    }
    for role in roles.values():
        role["template"] = role["template"]["template"]
    lab.submit(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "gang"},
            "spec": {"pytorchReplicaSpecs": roles},
        }
    )
    assert priorities(lab)["gang"] == ("running", 2000)


def test_an_accelerator_that_a_rule_forbids_is_named_beside_what_the_others_lack(lab: Api) -> None:
    """Four of H100 are free, so "too few devices" alone would not be true."""
    take(lab, TOP, queue("lab", "parent: acme, guarantee: {H100: 1}, limit: {H100: 2}"))
    lab.submit(job("big", 4, 2, queue="lab", type="training", accelerators="H100|A100"))
    said = why(lab, "big")
    assert said["headline"] == (
        "H100-SXM5-80GB may not be used: Queue lab holds 0 H100; with 4 more it would hold 4 of"
        " limit 2. All 2 pods start together, and only 0 of them find a node. Nodes with room for"
        " one: 0."
    )
    assert {each["reason"]: each["nodes"] for each in said["obstacles"]} == {
        "taint": 1,
        "accelerator": 2,
        "whole-devices": 1,
    }
    assert "quota" in said["wakes"]
    chinese = why(lab, "big", **{"accept-language": "zh"})["headline"]
    assert "不能使用 H100-SXM5-80GB" in chinese
    assert "队列 lab 已占用 0 个 H100" in chinese
