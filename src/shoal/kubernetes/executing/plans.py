"""What Shoal writes on pods: the plan as an annotation, and the pin.

One annotation, `shoal.dev/plan`, says which start a pod belongs to and what it was given; it is
written in the same patch that pins the pod and takes its gate away, and refused on pods that people
create. So every pod carries what a new leader has to know. A start of several pods is written as a
whole before the first of them is let go: its parts lie in the annotation of the start's first pods,
beside their own.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec

from shoal.core.decisions import Start
from shoal.core.eviction.underway import Underway
from shoal.kubernetes.api.client import JsonObject
from shoal.kubernetes.wire.pod import Pod
from shoal.model.verdict import Reason
from shoal.model.workload import Placement
from shoal.objects.annotations import PLAN

TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer by which the Job controller counts a pod (KEP-2307)."""

PODS_PER_PART: Final = 250
"""So many pods' places fit an annotation (256 KiB in all on one object, with 8 uuids each)."""


MOST_PODS: Final = 150_000
"""As many pods as Kubernetes supports in one cluster; a note of more is none of Shoal's."""

Number = Annotated[int, msgspec.Meta(ge=0, lt=MOST_PODS)]
"""The number of a pod in its workload, or of a part."""


class PodPlan(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Where one pod of a start goes; `pod` is its number in the workload."""

    pod: Number
    node: str
    leaves: tuple[str, ...] = ()
    uid: str = ""
    """The uid of the pod, in the part of a whole; the pod itself need not be told."""

    def placement(self) -> Placement:
        """The same as the core says it."""
        return Placement(self.pod, self.node, self.leaves)


class Part(msgspec.Struct, frozen=True, gc=False):
    """One of `of` parts of a start's whole plan."""

    part: Number
    of: Number
    plans: tuple[PodPlan, ...]


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The places that are kept for a workload for which others are evicted."""

    workload: str
    plans: tuple[PodPlan, ...]
    evicted: tuple[str, ...]
    reason: Reason


class Eviction(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a pod is evicted and for whom; written on it before the Eviction API is asked.

    One pod of every workload that goes says the rest: the numbers of all `pods` that go of it, what
    is kept for whom, and how it was counted, which is taken back if it is refused. An eviction that
    is not written whole has not begun.
    """

    beneficiaries: tuple[str, ...]
    reason: Reason
    grace_s: int
    pods: tuple[Number, ...] = ()
    kept: tuple[Kept, ...] = ()
    at_us: int = 0
    """When it was decided."""
    counted: Underway | None = None


class PlanNote(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The content of the annotation: the workload, which of its starts, and what the pod got."""

    workload: Annotated[str, msgspec.Meta(pattern="/[0-9]{1,9}$")]
    attempt: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    pods: Annotated[int, msgspec.Meta(ge=1, le=MOST_PODS)]
    """How many pods start together."""
    own: PodPlan
    whole: Part | None = None
    eviction: Eviction | None = None
    queue: str = ""
    """In which it started: it stays charged to that, whatever its namespace says later."""

    @property
    def start(self) -> tuple[str, int]:
        """Which start of which workload it belongs to."""
        return self.workload, self.attempt


_decoder = msgspec.json.Decoder(PlanNote)


def read_note(pod: Pod) -> PlanNote | None:
    """The plan that a pod carries, or None; one that cannot be was not written by Shoal.

    People can write it where Shoal does not act, and Shoal may come to act there later.
    """
    text = pod.metadata.annotations.get(PLAN)
    if text is None:
        return None
    try:
        note = _decoder.decode(text)
    except msgspec.DecodeError:
        return None
    planned = (note.own, *(note.whole.plans if note.whole is not None else ()))
    return note if all(each.pod < note.pods for each in planned) else None


def write_note(note: PlanNote) -> str:
    """The annotation's text."""
    return msgspec.json.encode(note).decode()


def attempt_of(start: Start) -> int:
    """Which start of its workload a decision is, by its key (`start/UID/ATTEMPT`)."""
    return int(start.key.rpartition("/")[2])


def parts_of(plans: Sequence[PodPlan]) -> list[Part]:
    """A start's whole plan, cut into what annotations hold."""
    cuts = range(0, len(plans), PODS_PER_PART)
    return [
        Part(number, len(cuts), tuple(plans[at : at + PODS_PER_PART]))
        for number, at in enumerate(cuts)
    ]


def whole_plan(notes: Iterable[PlanNote]) -> tuple[PodPlan, ...] | None:
    """The whole plan of one start from its pods' notes; None unless every part is there."""
    parts = {note.whole.part: note.whole for note in notes if note.whole is not None}
    first = next(iter(parts.values()), None)
    if first is None or len(parts) != first.of:
        return None
    return tuple(plan for number in sorted(parts) for plan in parts[number].plans)


def metadata_patch(pod: Pod, field: str, value: object) -> JsonObject:
    """The merge patch that writes one field of a pod's metadata, if the pod is still as known."""
    version = pod.metadata.resource_version
    return {"metadata": {"uid": pod.uid, "resourceVersion": version, field: value}}


def note_patch(pod: Pod, note: PlanNote) -> JsonObject:
    """The merge patch that only writes a note."""
    return metadata_patch(pod, "annotations", {PLAN: write_note(note)})


def release_patch(pod: Pod, note: PlanNote) -> JsonObject:
    """The one merge patch that pins a pod to its node, notes its plan and takes all gates away.

    It holds only for the version of the pod that it was made from.
    """
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": pinned_terms(pod, note.own.node)
            }
        }
    }
    body = dict(note_patch(pod, note))
    body["spec"] = {"schedulingGates": None, "affinity": affinity}
    return body


def pinned_terms(pod: Pod, node: str) -> list[dict[str, Any]]:
    """The pod's required node selector terms, each narrowed to one node.

    Terms are alternatives, so a pin must stand in every one of them; while a pod is gated, terms
    may be narrowed and none may be added beside others (KEP-3838).
    """
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [dict(term) for term in node_terms(pod)] or [{}]
    for term in terms:
        term["matchFields"] = [*(term.get("matchFields") or ()), pin]
    return terms


def node_terms(pod: Pod) -> list[dict[str, Any]]:
    """The pod's required node selector terms as they are, empty where there are none."""
    if not pod.spec.affinity:
        return []
    affinity = msgspec.json.decode(pod.spec.affinity)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found = ((affinity.get("nodeAffinity") or {}).get(required) or {}).get("nodeSelectorTerms")
    return list(found or ())


def pinned_node(pod: Pod) -> str:
    """The one node that a pod was pinned to; empty if it is not."""
    found: set[str] = set()
    for term in node_terms(pod):
        names = [
            tuple(field.get("values") or ())
            for field in term.get("matchFields") or ()
            if field.get("key") == "metadata.name" and field.get("operator") == "In"
        ]
        found |= {values[0] for values in names if len(values) == 1} or {""}
    return found.pop() if len(found) == 1 else ""


class DevicePin(msgspec.Struct, frozen=True, gc=False):
    """How claims name one device: by its driver and its uuid. Its own name is hidden from CEL."""

    driver: str
    uuid: str


def untracked_patch(pod: Pod) -> JsonObject:
    """The patch by which the Job controller no longer counts a pod: it removes a finalizer.

    The controller itself does so with pods that it deletes on purpose, so that they use up no
    retries.
    """
    kept = [each for each in pod.metadata.finalizers if each != TRACKING]
    return metadata_patch(pod, "finalizers", kept)


def eviction_patch(pod: Pod, note: PlanNote) -> JsonObject:
    """The patch that notes an eviction, or that there is none, and whether a Job counts the pod.

    A Job does not count what makes room for others; it counts what ran for longer than it may.
    """
    body: dict[str, Any] = dict(note_patch(pod, note))
    known = pod.metadata.finalizers
    owner = pod.metadata.controller
    kept = [each for each in known if each != TRACKING]
    counts = note.eviction is None or note.eviction.reason == Reason.MAXIMUM_RUN
    if counts and owner is not None and owner.kind == "Job":
        kept.append(TRACKING)
    if sorted(kept) != sorted(known):
        body["metadata"] = body["metadata"] | {"finalizers": kept}
    return body


def tracked_patch(pod: Pod) -> JsonObject:
    """The patch that has the Job controller count a pod again."""
    return metadata_patch(pod, "finalizers", [*pod.metadata.finalizers, TRACKING])
