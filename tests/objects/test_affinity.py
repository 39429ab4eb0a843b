"""Node selector, required affinity and tolerations in the model's words."""

from typing import Any

from shoal.model.node import TaintEffect
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.request import (
    AffinityTerm,
    Operator,
    Requirement,
    Toleration,
    TolerationOperator,
)
from shoal.objects.affinity import affinity_of, selector_of, tolerations_of
from tests.objects.small import pod


def required(terms: list[dict[str, Any]]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def test_terms_keep_expressions_and_fields() -> None:
    terms: list[dict[str, Any]] = [
        {
            "matchExpressions": [
                {"key": "zone", "operator": "NotIn", "values": ["a", "b"]},
                {"key": "gpu", "operator": "Exists"},
            ]
        },
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    assert affinity_of(pod(affinity=required(terms)).spec) == (
        AffinityTerm(
            (
                Requirement("zone", Operator.NOT_IN, ("a", "b")),
                Requirement("gpu", Operator.EXISTS),
            )
        ),
        AffinityTerm((), (Requirement("metadata.name", Operator.IN, ("n1",)),)),
        AffinityTerm(),
    )


def test_preferences_and_rules_about_other_pods_restrict_no_node() -> None:
    preferred: dict[str, Any] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
    }
    others: list[dict[str, Any]] = [{}, {"podAntiAffinity": {}}, {"nodeAffinity": None}]
    for affinity in [preferred, *others]:
        assert affinity_of(pod(affinity=affinity).spec) == ()
    assert affinity_of(pod().spec) == ()


def test_what_kubernetes_would_not_take_is_refused() -> None:
    for terms in ([{"matchExpressions": [{"key": "a", "operator": "Like"}]}], "all"):
        said = affinity_of(pod(affinity=required(terms)).spec)  # type: ignore[arg-type]
        assert isinstance(said, Refusal)
        assert said.code is RefusalCode.UNSUPPORTED_AFFINITY


def test_the_selector_is_sorted() -> None:
    assert selector_of(pod(nodeSelector={"b": "1", "a": "2"}).spec) == (("a", "2"), ("b", "1"))


def test_tolerations_that_the_model_has_no_word_for_tolerate_nothing() -> None:
    written = [
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"operator": "Exists"},
        {"key": "n", "operator": "Gt", "value": "5"},
        {"key": "e", "operator": "Exists", "effect": "Later"},
    ]
    assert tolerations_of(pod(tolerations=written).spec) == (
        Toleration("a", TolerationOperator.EQUAL, "b", TaintEffect.NO_SCHEDULE),
        Toleration("", TolerationOperator.EXISTS),
    )
