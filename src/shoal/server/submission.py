"""From manifests as people have them to workloads, all of them or none."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

from shoal.catalog.catalog import Catalog
from shoal.model.modes import Channel
from shoal.model.queue import Queue, QueueTree
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.workload import Workload, WorkloadType
from shoal.objects.annotations import DEFAULT_QUEUE, PREFIX, PRIORITY, QUEUE, refuse
from shoal.objects.owners import read_group
from shoal.objects.pods import Rules, reading_of
from shoal.objects.rights import priority_in, type_in
from shoal.objects.workloads import Group, is_spare, workload_of
from shoal.server.models import ProblemPart
from shoal.texts.answers import answer_text
from shoal.texts.language import Language
from shoal.texts.refusals import hint_text, refusal_text

WITHOUT_PODS: Final = frozenset(
    {
        *("Service", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "Namespace"),
        *("Role", "RoleBinding", "NetworkPolicy", "Ingress", "PodDisruptionBudget"),
        *("HorizontalPodAutoscaler", "PriorityClass", "LimitRange", "ResourceQuota"),
    }
)
"""Kinds that lie beside work in people's files and have no pods of their own."""

MOST_WORKLOADS: Final = 20_000
"""Workloads of one submission."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class NotTakenError(Exception):
    """Some of the manifests cannot be taken in; nothing was."""

    def __init__(self, parts: Sequence[ProblemPart]) -> None:
        super().__init__(parts[0].message)
        self.parts = tuple(parts)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a submission becomes, with what a person should know about it."""

    workloads: tuple[Workload, ...]
    hints: tuple[str, ...]


class Reader:
    """Reads the manifests of one submission."""

    def __init__(
        self,
        catalog: Catalog,
        tree: QueueTree,
        namespace: str,
        queue: str | None,
        language: Language,
    ) -> None:
        self._catalog = catalog
        self._tree = tree
        self._namespace = namespace
        self._queue = queue
        self._language = language
        self._parts: list[ProblemPart] = []
        self._hints: list[str] = []
        self._named: set[tuple[str, str]] = set()

    def read(self, manifests: Sequence[Mapping[str, Any]]) -> Taken:
        """The workloads of all manifests. Raises `NotTakenError`."""
        workloads: list[Workload] = []
        # Work that comes at one time is served in the order of its uids: that of the documents.
        uids = sorted(str(uuid4()) for _ in manifests)
        for number, manifest in enumerate(manifests, start=1):
            workloads += self._manifest(number, manifest, uids[number - 1])
            if len(workloads) > MOST_WORKLOADS:
                said = f"asks for more than {MOST_WORKLOADS:,} workloads; submit it in parts"
                raise NotTakenError([ProblemPart(document=number, message=said)])
        if self._parts:
            raise NotTakenError(self._parts)
        if not workloads:
            raise NotTakenError(
                [ProblemPart(message="no document has pods; there is nothing to do")]
            )
        return Taken(tuple(workloads), tuple(self._hints))

    def _manifest(self, number: int, manifest: Mapping[str, Any], owner: str) -> list[Workload]:
        kind = manifest.get("kind")
        if kind in WITHOUT_PODS:
            self._hints.append(f"document {number}: a {kind} has no pods and was left out")
            return []
        before = len(self._parts)
        try:
            group = read_group(manifest)
        except ValueError as error:
            self._complain(number, "", str(error))
            return []
        name = group.metadata.name
        namespace = group.metadata.namespace or self._namespace
        if not _NAME.fullmatch(name):
            self._complain(
                number,
                "metadata.name",
                f"{name[:80]!r} is no name; write lower-case letters, digits, '-' and '.'"
                if name
                else "is missing; write a name",
            )
        if not _NAME.fullmatch(namespace):
            self._complain(number, "metadata.namespace", f"{namespace[:80]!r} is no namespace")
        if (namespace, name) in self._named:
            self._complain(number, "metadata.name", f"{name} is written twice; rename one")
        self._named.add((namespace, name))
        self._check_owner(number, manifest, group)
        if len(self._parts) > before:
            return []
        return self._workloads(number, group, namespace, owner)

    def _check_owner(self, number: int, manifest: Mapping[str, Any], group: Group) -> None:
        """Refuse Shoal's annotations on an owner, whose pods would not have them."""
        if manifest.get("kind") == "Pod":
            return
        for key, value in sorted(group.metadata.annotations.items()):
            if key.startswith(PREFIX):
                said = refuse(RefusalCode.MISPLACED, key, value, place="annotation", instead="")
                self._complain(number, f"metadata.annotations.{key}", self._said(said))

    def _workloads(self, number: int, group: Group, namespace: str, owner: str) -> list[Workload]:
        rules = self._rules(group)
        made: list[Workload] = []
        slots = 1 if group.together else group.count
        first = workload_of(group, self._catalog, rules)
        if isinstance(first, Refusal):
            self._complain(number, first.field, self._said(first))
            return []
        if not any(each.request.devices.count for each in first.pod_sets):
            self._hints.append(f"document {number}: {group.metadata.name} asks for no device")
        for each in group.sets:
            reading = reading_of(each.template, self._catalog, rules, group.type)
            if not isinstance(reading, Refusal):
                self._hints += [
                    f"document {number}: {hint_text(hint, self._language)}"
                    for hint in reading.hints
                ]
        queue = self._queue_of(number, group, first)
        priority, priority_name = self._priority_in(number, group, queue, first.type)
        for slot in range(slots):
            uid = owner if group.together else f"{owner}/{slot}"
            name = group.metadata.name if group.together else f"{group.metadata.name}/{slot}"
            made.append(
                replace(
                    first,
                    uid=uid,
                    queue=queue,
                    priority=priority,
                    priority_name=priority_name,
                    name=name,
                    namespace=namespace,
                    spare=is_spare(group, slot),
                )
            )
        return made

    def _rules(self, group: Group) -> Rules:
        """Any name will do as a queue's here; `_queue_of` judges which are there."""
        said = [each.template.metadata.annotations.get(QUEUE, "") for each in group.sets]
        formed = [name for name in said if _NAME.fullmatch(name)]
        return Rules(Channel.DRA, queues=(*formed, DEFAULT_QUEUE))

    def _queue_of(self, number: int, group: Group, first: Workload) -> str:
        said = any(QUEUE in each.template.metadata.annotations for each in group.sets)
        queue = first.queue if said or self._queue is None else self._queue
        leaves = [each.name for each in self._tree.leaves() if not each.closing]
        if leaves and queue not in leaves:
            names = ", ".join(leaves[:8]) + (", ..." if len(leaves) > 8 else "")
            known = self._tree.get(queue)
            if known is not None:
                wrong = "queue-closing" if known.closing else "queue-above-others"
            else:
                wrong = "queue-unknown" if said or self._queue is not None else "queue-unnamed"
            text = answer_text(wrong, self._language, queue=queue, names=names)
            self._complain(number, QUEUE, text)
        return queue

    def _priority_in(
        self, number: int, group: Group, name: str, type_: WorkloadType
    ) -> tuple[int, str]:
        """The highest of its priorities, as value and name, which are 0 and empty without one.

        The name stays with the work, as what it is worth changes with the queues. Whoever has the
        socket may ask for every one.
        """
        queue = self._tree.get(name) or Queue(name)
        wrong = type_in(queue, type_)
        if wrong is not None:
            self._complain(number, wrong.field, self._said(wrong))
        said = {each.template.metadata.annotations.get(PRIORITY, "") for each in group.sets} - {""}
        granted: list[tuple[int, str]] = []
        for each in sorted(said):
            value = priority_in(queue, each, None)
            if isinstance(value, Refusal):
                self._complain(number, value.field, self._said(value))
            else:
                granted.append((value, each))
        return max(granted, default=(0, ""))

    def _said(self, refusal: Refusal) -> str:
        return refusal_text(refusal, self._language)

    def _complain(self, number: int, field: str, message: str) -> None:
        self._parts.append(ProblemPart(document=number, field=field, message=message))
