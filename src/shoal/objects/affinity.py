"""Where a pod may run: node selector, required node affinity and tolerations, in model words.

Preferences are left to kube-scheduler. Rules that depend on other pods (pod affinity, spreading)
are not read here: an adapter turns them into the request's mask.
"""

from collections.abc import Sequence

import msgspec

from shoal.model.node import TaintEffect
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.request import (
    AffinityTerm,
    Operator,
    Requirement,
    Toleration,
    TolerationOperator,
)
from shoal.objects.manifests import PodSpecLike, TolerationLike

_FIELD = "spec.affinity.nodeAffinity"


class _Requirement(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: tuple[_Requirement, ...] | None = None
    match_fields: tuple[_Requirement, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[_Term, ...] = ()


class _NodeAffinity(msgspec.Struct, frozen=True):
    required: _Selector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


_affinity = msgspec.json.Decoder(_Affinity)


def selector_of(spec: PodSpecLike) -> tuple[tuple[str, str], ...]:
    """The node selector, sorted by key."""
    return tuple(sorted(spec.node_selector.items()))


def affinity_of(spec: PodSpecLike) -> tuple[AffinityTerm, ...] | Refusal:
    """The required terms; a refusal for what Kubernetes itself would not take."""
    if not spec.affinity:
        return ()
    try:
        affinity = _affinity.decode(spec.affinity)
        if affinity.node_affinity is None or affinity.node_affinity.required is None:
            return ()
        return tuple(map(_term, affinity.node_affinity.required.node_selector_terms))
    except ValueError as error:
        details = (("detail", str(error)),)
        return Refusal(RefusalCode.UNSUPPORTED_AFFINITY, _FIELD, "", details)


def tolerations_of(spec: PodSpecLike) -> tuple[Toleration, ...]:
    """The tolerations that the model has words for; one that it has none for tolerates nothing."""
    return _tolerations(spec.tolerations)


def _tolerations(written: Sequence[TolerationLike]) -> tuple[Toleration, ...]:
    read = []
    for each in written:
        try:
            operator = TolerationOperator(each.operator or "Equal")
            effect = TaintEffect(each.effect) if each.effect else None
        except ValueError:
            continue
        read.append(Toleration(each.key, operator, each.value, effect))
    return tuple(read)


def _term(term: _Term) -> AffinityTerm:
    return AffinityTerm(
        tuple(map(_requirement, term.match_expressions or ())),
        tuple(map(_requirement, term.match_fields or ())),
    )


def _requirement(written: _Requirement) -> Requirement:
    return Requirement(written.key, Operator(written.operator), written.values)
