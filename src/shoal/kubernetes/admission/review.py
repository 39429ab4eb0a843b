"""What the webhook answers to an AdmissionReview: a pure function of the question.

Equal questions have equal answers, and answering changes nothing anywhere, so that dry runs and
repeated calls need no care. On the DRA channel a pod's device resources are replaced by a claim
that does not exist yet: its name is made from the pod's and the question's uid, because a pod from
`generateName` has neither name nor uid here. What was replaced is noted in `shoal.dev/claim`.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

import msgspec

from shoal.catalog.catalog import Catalog
from shoal.kubernetes.admission.names import CLAIM_ENTRY, CLAIM_SUFFIX, GATE
from shoal.kubernetes.admission.stamps import (
    DEFAULT_STAMPING,
    OwnerQuestion,
    Stamping,
    UserInfo,
    missing,
    new_stamps,
    owner_stamps,
)
from shoal.kubernetes.executing.claims import claim_name, requests_of, uses_of
from shoal.kubernetes.watching.asks import without
from shoal.kubernetes.watching.controllers import Controllers
from shoal.kubernetes.wire.kinds import PODS
from shoal.kubernetes.wire.meta import ObjectMeta
from shoal.kubernetes.wire.pod import Container, Pod
from shoal.model.modes import Channel
from shoal.model.queue import QueueTree
from shoal.model.refusal import Hint, Refusal, RefusalCode
from shoal.objects.annotations import CLAIM, DEFAULT_QUEUE, QUEUE, STAMPS, Annotations
from shoal.objects.devices import Claimed, device_names
from shoal.objects.pods import Reading, Rules, reading_of
from shoal.objects.rights import named_groups, priority_in, subjects_of
from shoal.texts.language import Language
from shoal.texts.refusals import hint_text, refusal_text

Operation = dict[str, Any]
"""One operation of a JSON patch (RFC 6902)."""

FORBIDDEN: Final = 403
_STAMPS: Final = frozenset(STAMPS)
_LONGEST_WARNING: Final = 250
"""Longer ones are cut by clients; the API asks for 120 or less where that is possible."""


class Question(msgspec.Struct, frozen=True, rename="camel"):
    """The request of an AdmissionReview, `admission.k8s.io/v1`."""

    uid: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True):
    request: Question


_review = msgspec.json.Decoder(_Review)


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of the pod.

    Attributes:
        refusal: why it is refused; `None`: it may be created.
        patch: how it is changed; empty: not at all.
        hints: what the person should know.
    """

    refusal: Refusal | None = None
    patch: tuple[Operation, ...] = ()
    hints: tuple[Hint, ...] = ()


PASSES: Final = Answer()


def read_question(body: bytes) -> Question:
    """The question in a request's body. Raises ValueError for anything else."""
    return _review.decode(body).request


@dataclass(frozen=True)
class Judging:
    """What the webhook judges by: the queues, and what decides on stamps."""

    tree: QueueTree = field(default_factory=QueueTree)
    stamping: Stamping = DEFAULT_STAMPING

    @cached_property
    def queues(self) -> tuple[str, ...]:
        """Those that work can wait in."""
        return tuple(queue.name for queue in self.tree.leaves()) or (DEFAULT_QUEUE,)

    @classmethod
    def by(cls, tree: QueueTree, controllers: Controllers) -> Self:
        """By the queues in files and the accounts that make objects for others."""
        return cls(tree, Stamping(controllers, named_groups(tree)))


DEFAULT_JUDGING: Final = Judging()


def judge(
    question: Question,
    catalog: Catalog,
    rules: Rules,
    judging: Judging = DEFAULT_JUDGING,
    *,
    gates: bool,
) -> Answer:
    """Refuse a pod that cannot be read, with a sentence that helps; else give it what it needs.

    Args:
        question: about the creation of a pod; about anything else there is nothing to say.
        catalog: names that ask for devices.
        rules: of the namespace. On the DRA channel resources become a claim.
        judging: what else it is judged by.
        gates: whether the gate and the stamps are added here, because no policy adds them.
    """
    if question.operation != "CREATE":
        return PASSES
    pod = PODS.read(bytes(question.object))
    plain = without(pod, _STAMPS)
    reading = _misplaced_label(pod) or _forged(pod) or reading_of(plain, catalog, rules)
    if isinstance(reading, Refusal):
        return Answer(reading)
    refusal = _not_granted(question.user_info, plain, reading.annotations, judging)
    if refusal is not None:
        return Answer(refusal)
    patch: list[Operation] = []
    notes: dict[str, str] = {}
    if rules.channel is Channel.DRA and reading.request.devices.count:
        swap, note = _swap(question, pod, reading, catalog)
        patch += swap
        notes[CLAIM] = note
    asks = reading.request.devices.count or pod.spec.resource_claims
    if gates and asks and not pod.spec.node_name:
        stamps = new_stamps(question.user_info, pod.metadata, judging.stamping)
        notes |= missing(pod.metadata.annotations, stamps)
        if not pod.has_gate(GATE):
            gate = {"name": GATE}
            patch += _add_to_list("/spec/schedulingGates", pod.spec.scheduling_gates, gate)
    patch += _annotated(pod.metadata, notes)
    return Answer(patch=tuple(patch), hints=reading.hints)


def stamp(question: OwnerQuestion, stamping: Stamping) -> Answer:
    """Put the stamps of an owner of pods right."""
    notes = owner_stamps(question, stamping)
    return Answer(patch=tuple(_annotated(question.object.metadata, notes)))


def _not_granted(who: UserInfo, pod: Pod, written: Annotations, judging: Judging) -> Refusal | None:
    """Why a queue does not grant a person the priority that a pod names.

    What a controller makes is asked for by somebody else, which is judged when it is planned. So
    are pods that name no queue, where there are several: their namespace's labels are not known
    here.
    """
    if not who.username or judging.stamping.controllers.include(who.username):
        return None
    if QUEUE not in pod.metadata.annotations and len(judging.queues) > 1:
        return None
    named = written.queue if QUEUE in pod.metadata.annotations else judging.queues[0]
    queue = judging.tree.get(named)
    if queue is None:
        return None
    granted = priority_in(queue, written.priority, subjects_of(who.username, who.groups))
    return granted if isinstance(granted, Refusal) else None


def response(
    question: Question | OwnerQuestion, answer: Answer, language: Language = Language.ENGLISH
) -> bytes:
    """The AdmissionReview that carries the answer."""
    body: dict[str, Any] = {"uid": question.uid, "allowed": answer.refusal is None}
    if answer.refusal is not None:
        text = refusal_text(answer.refusal, language)
        status = {"code": FORBIDDEN, "reason": "Forbidden", "message": text}
        body["status"] = status | {"details": {"causes": [_cause(answer.refusal)]}}
    if answer.patch:
        body["patchType"] = "JSONPatch"
        body["patch"] = b64encode(msgspec.json.encode(answer.patch)).decode()
    if answer.hints:
        body["warnings"] = [hint_text(hint, language)[:_LONGEST_WARNING] for hint in answer.hints]
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": body}
    return msgspec.json.encode(review)


def _cause(refusal: Refusal) -> dict[str, str]:
    return {"reason": refusal.code.value, "field": refusal.field, "message": refusal.value}


def _misplaced_label(pod: Pod) -> Refusal | None:
    """A queue named by a label would be overlooked, as it is an annotation that names it."""
    if QUEUE not in pod.metadata.labels:
        return None
    details = (("place", "annotation"), ("instead", ""))
    return Refusal(RefusalCode.MISPLACED, QUEUE, pod.metadata.labels[QUEUE], details)


def _forged(pod: Pod) -> Refusal | None:
    """Marks of Shoal's on a pod that comes to the webhook for the first and only time."""
    if CLAIM in pod.metadata.annotations:
        return Refusal(RefusalCode.WRITTEN_BY_SHOAL, CLAIM, pod.metadata.annotations[CLAIM][:100])
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name.endswith(CLAIM_SUFFIX) or entry.name == CLAIM_ENTRY:
            name = entry.resource_claim_name or entry.name
            return Refusal(RefusalCode.WRITTEN_BY_SHOAL, "spec.resourceClaims", name)
    return None


def _swap(
    question: Question, pod: Pod, reading: Reading, catalog: Catalog
) -> tuple[list[Operation], str]:
    """The patch that puts a claim in the place of device resources, and what to note of it."""
    meta = pod.metadata
    name = claim_name(meta.name or meta.generate_name, question.uid)
    requests = requests_of(reading.spans)
    spans = {span.container: span for span in reading.spans}
    patch: list[Operation] = []
    asked: dict[str, dict[str, str]] = {}
    for part, group in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        for index, container in enumerate(group):
            if container.name not in spans:
                continue
            names = device_names(container, catalog.names)
            if isinstance(names, dict) and names:
                asked[container.name] = names
            uses = uses_of(spans[container.name], requests)
            at = f"/spec/{part}/{index}/resources"
            patch += _replace(at, container, asked.get(container.name, {}), uses)
    entry = {"name": CLAIM_ENTRY, "resourceClaimName": name}
    patch += _add_to_list("/spec/resourceClaims", pod.spec.resource_claims, entry)
    return patch, Claimed(name, asked).text()


def _annotated(meta: ObjectMeta, notes: Mapping[str, str]) -> list[Operation]:
    """Add annotations, or put them in the place of what is there."""
    if notes and not meta.annotations:
        return [_add("/metadata/annotations", dict(notes))]
    return [_add(f"/metadata/annotations/{_escaped(key)}", note) for key, note in notes.items()]


def _replace(
    at: str, container: Container, names: Mapping[str, str], uses: Sequence[Mapping[str, str]]
) -> list[Operation]:
    """Take the names out of a container's resources and put its uses of the claim in."""
    resources = container.resources
    if not (resources.requests or resources.limits or resources.claims):
        return [_add(at, {"claims": [*uses]})]
    patch = [
        {"op": "remove", "path": f"{at}/{field}/{_escaped(name)}"}
        for field, given in (("limits", resources.limits), ("requests", resources.requests))
        for name in names
        if name in given
    ]
    for use in uses:
        patch += _add_to_list(f"{at}/claims", resources.claims if use is uses[0] else uses, use)
    return patch


def _add_to_list(at: str, there: Sequence[object], item: Mapping[str, Any]) -> list[Operation]:
    """Append to a list, which the document lacks while it is empty."""
    return [_add(f"{at}/-", dict(item)) if there else _add(at, [dict(item)])]


def _add(at: str, value: object) -> Operation:
    return {"op": "add", "path": at, "value": value}


def _escaped(key: str) -> str:
    """A key inside a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
