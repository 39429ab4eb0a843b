"""Namespaces and their queues, types and priorities: what cases O03 and O04 ask of names."""

import pytest

from shoal.model.meaning import Inside
from shoal.model.queue import QueueTree
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.workload import WorkloadType
from shoal.objects.meaning import closing_kept
from shoal.objects.quotas import names_of
from shoal.objects.rights import (
    named_groups,
    open_queues,
    priority_in,
    queue_for,
    queues_of,
    subjects_of,
    type_in,
)
from shoal.texts.language import Language
from shoal.texts.refusals import refusal_text
from tests.objects.written import CATALOG, only, queue, read

TEAMS = [
    queue("acme", "guarantee: {H100: 8}"),
    queue(
        "vision", "parent: acme, namespaces: {matchLabels: {team: vision}}, guarantee: {H100: 4}"
    ),
    queue("nlp", "parent: acme, namespaces: {matchLabels: {team: nlp}}, guarantee: {H100: 4}"),
    queue("both", "parent: acme, namespaces: {matchExpressions: [{key: team, operator: Exists}]}"),
    queue("lab", "parent: acme"),
]
TREE = read([TEAMS[0], TEAMS[1], TEAMS[2]]).tree


def refused(said: str | int | Refusal | None) -> Refusal:
    assert isinstance(said, Refusal), said
    return said


def test_O04_the_labels_of_a_namespace_say_its_queue_and_a_change_moves_it() -> None:
    assert queue_for(TREE, "ns", {"team": "vision"}, None) == "vision"
    assert queue_for(TREE, "ns", {"team": "nlp"}, None) == "nlp"


def test_O04_a_namespace_without_a_queue_is_told_which_label_helps() -> None:
    said = refused(queue_for(TREE, "ns", {}, None))
    assert said.code is RefusalCode.NO_QUEUE_OF_NAMESPACE
    assert refusal_text(said) == (
        "namespace ns belongs to no queue; have it labelled (team=vision, team=nlp), or write"
        " shoal.dev/queue (it may use: -)"
    )
    assert "team=vision" in refusal_text(said, Language.CHINESE)


def test_O04_the_old_queue_cannot_be_named_after_the_namespace_has_moved() -> None:
    said = refused(queue_for(TREE, "ns", {"team": "nlp"}, "vision"))
    assert (said.code, dict(said.details)["near"]) == (RefusalCode.UNKNOWN_QUEUE, "nlp")


def test_a_namespace_of_several_queues_has_to_say_which() -> None:
    tree = read(TEAMS).tree
    assert queues_of(tree, {"team": "nlp"}) == ("nlp", "both")
    said = refused(queue_for(tree, "ns", {"team": "nlp"}, None))
    assert refusal_text(said) == (
        "namespace ns belongs to the queues nlp, both; write one of them in shoal.dev/queue"
    )
    assert queue_for(tree, "ns", {"team": "nlp"}, "both") == "both"


def test_a_queue_that_chooses_no_namespaces_may_be_named_by_all() -> None:
    tree = read(TEAMS).tree
    assert open_queues(tree) == ("lab",)
    assert queue_for(tree, "ns", {}, "lab") == "lab"


def test_a_queue_above_others_is_nobodys_to_wait_in() -> None:
    tree = read(TEAMS).tree
    assert refused(queue_for(tree, "ns", {}, "acme")).code is RefusalCode.UNKNOWN_QUEUE
    assert open_queues(QueueTree()) == ()


def test_O03_a_queue_that_is_being_deleted_says_so_and_which_may_be_used() -> None:
    old = read([*TEAMS[:3], TEAMS[4]]).tree
    inside = {"lab": Inside(running=2, waiting=3, units={"H100-SXM5-80GB": 3 * 840_000})}
    tree = closing_kept(old, TREE, inside, names_of(CATALOG))
    said = refused(queue_for(tree, "ns", {"team": "nlp"}, "lab"))
    assert refusal_text(said) == (
        "shoal.dev/queue is 'lab', and that queue is being deleted; nothing new starts in it. This"
        " namespace may use: nlp"
    )
    # Once it is gone, the same work is told that there is no such queue.
    assert refused(queue_for(TREE, "ns", {"team": "nlp"}, "lab")).code is RefusalCode.UNKNOWN_QUEUE


def test_what_a_queue_was_not_granted_does_not_run_in_it() -> None:
    serving = only([queue("serving", "types: [inference]")], "serving")
    assert type_in(serving, WorkloadType.INFERENCE) is None
    assert refusal_text(refused(type_in(serving, WorkloadType.BATCH))) == (
        "shoal.dev/type is 'batch', which queue serving may not run; it may run: inference"
    )


PRIORITIES = (
    "priorities: {urgent: {value: 100, subjects: [group:leads, user:ann]}, low: {value: -5}}"
)


@pytest.mark.parametrize(
    ("written", "subjects", "value"),
    [
        ("", (), 0),
        ("low", (), -5),
        ("urgent", ("user:ann",), 100),
        ("urgent", ("user:bob", "group:leads"), 100),
        ("urgent", None, 100),
    ],
)
def test_a_priority_has_the_value_of_the_queue(
    written: str, subjects: tuple[str, ...] | None, value: int
) -> None:
    assert priority_in(only([queue("a", PRIORITIES)], "a"), written, subjects) == value


def test_only_those_who_are_named_may_ask_for_a_priority() -> None:
    one = only([queue("a", PRIORITIES)], "a")
    assert refusal_text(refused(priority_in(one, "urgent", ("user:bob",)))) == (
        "shoal.dev/priority is 'urgent', for which only group:leads, user:ann may ask in queue a"
    )
    unknown = refusal_text(refused(priority_in(one, "urgent", ())))
    assert "only group:leads, user:ann may ask in queue a, and it is not known who" in unknown
    assert refusal_text(refused(priority_in(one, "top", None))) == (
        "shoal.dev/priority is 'top', which is no priority of queue a; it has: low, urgent"
    )


def test_users_of_kubernetes_are_named_as_subjects() -> None:
    assert subjects_of("ann@example.com", ["leads", "oncall"]) == {
        *("user:ann@example.com", "group:leads", "group:oncall")
    }
    assert "serviceaccount:ci:builder" in subjects_of("system:serviceaccount:ci:builder", [])
    tree = read([queue("a", PRIORITIES), queue("b", "parent: a")]).tree
    assert named_groups(tree) == ("leads",)
