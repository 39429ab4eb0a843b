"""Work that came to the end of a limit of its queue, and the pods that are held back for it.

Work that waited for as long as it may is tried no more, and work that ran for as long as it may is
ended; a controller makes its pods again all the same. So such pods stay at their gate, and carry a
mark that says why: `shoal.dev/held`. Whoever leads next reads it there. Where work was ended and
its controller has made no pods since, there is nothing to carry a mark: that much is remembered
beside it, until they come or are no longer wanted.

A pod without the mark runs anew: one that was created again, or that was made when none of those
before it were left, as where a Job is deleted or a notebook is scaled to 0 and back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from shoal.kubernetes.api.client import JsonObject
from shoal.kubernetes.executing.plans import metadata_patch
from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.watching.book import Book
from shoal.kubernetes.watching.flights import Flight, created_us
from shoal.kubernetes.watching.history import Ended, Mark
from shoal.kubernetes.watching.truth import OWNER
from shoal.kubernetes.wire.pod import Pod
from shoal.model.hold import Hold, HoldReason
from shoal.objects.annotations import HELD

SKEW_US: Final = 10_000_000
"""Clocks of Shoal and of the control plane differ by no more than this; the times of objects are
whole seconds."""

_decoder = msgspec.json.Decoder(Mark)


def read_mark(pod: Pod) -> Mark | None:
    """The mark that a pod carries, if it does."""
    text = pod.metadata.annotations.get(HELD)
    if text is None:
        return None
    try:
        mark = _decoder.decode(text)
    except msgspec.DecodeError:
        return None
    return mark if mark.reason in (HoldReason.TOO_LATE, HoldReason.TOO_LONG) else None


def mark_patch(pod: Pod, mark: Mark | None) -> JsonObject:
    """The merge patch that writes a mark on a pod as it is known, or takes it away."""
    text = msgspec.json.encode(mark).decode() if mark is not None else None
    return metadata_patch(pod, "annotations", {HELD: text})


class TimedOut:
    """Whose time is up."""

    def __init__(
        self,
        book: Book,
        waits: Callable[[Pod | None], bool],
        lacking: Callable[[str], int],
    ) -> None:
        """Prepare; `waits`: whether a pod waits; `lacking`: how many pods an owner has to make."""
        self.ended: dict[str, tuple[Ended, ...]] = {}
        """By owner: work that was ended, and for which no new pods have come."""
        self.to_mark: dict[str, Mark | None] = {}
        """Marks that the leader has to write on pods, or to take away (None)."""
        self._marks: dict[str, Mark] = {}
        """By pod; those that are written are on the pods as well."""
        self._book = book
        self._waits = waits
        self._lacking = lacking

    def waited(self, pods: Sequence[str], mark: Mark) -> None:
        """Note that pods have waited for as long as they may."""
        for uid in pods:
            self._marks[uid] = self.to_mark[uid] = mark

    def ran(self, flight: Flight, name: str, at_us: int) -> None:
        """Note that work was ended, at a time, because it ran for as long as it may.

        `name` is that of its pod, which some controllers give to the next one.
        """
        queue, limits = flight.workload.queue, self._book.world.limits
        most_us = limits.maximum_run_us(queue, flight.workload.type)
        if most_us is not None:
            mark = Mark(HoldReason.TOO_LONG, queue, most_us, most_us)
            known = self.ended.get(flight.owner, ())
            self.ended[flight.owner] = (*known, Ended(name, at_us, mark))

    def recall(self, ended: Mapping[str, tuple[Ended, ...]]) -> Iterator[str]:
        """Remember what an earlier leader did; yields the owners that it concerns."""
        for owner, works in ended.items():
            known = self.ended.get(owner, ())
            self.ended[owner] = (*known, *(each for each in works if each not in known))
            yield owner

    def forget_pod(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._marks.pop(uid, None)
        self.to_mark.pop(uid, None)

    def hold(self, pairs: Sequence[tuple[Pod, Ask]], owner: str) -> Hold | None:
        """What holds pods back that start together, if their time is up by limits as they are."""
        pods = [pod for pod, _ in pairs]
        mark = next((mark for pod in pods if (mark := self.mark_of(pod)) is not None), None)
        mark = mark or self._inherited(owner, pods)
        if mark is None:
            return None
        if self._is_lifted(mark, pairs[0][1]):
            for pod in pods:
                self._unmark(pod)
            return None
        for pod in pods:
            if self.mark_of(pod) != mark:
                self._marks[pod.uid] = self.to_mark[pod.uid] = mark
        details = (("queue", mark.queue), ("took_us", mark.took_us))
        return Hold(mark.reason, tuple(pod.uid for pod in pods), details)

    def expire(self, owner: str, now_us: int, keep_us: int) -> int | None:
        """Forget work for which no pods are wanted; returns when to look again (us), if ever.

        What a controller wants is known of Kubernetes' own. Others make pods at once, so after
        `keep_us` they want none.
        """
        works = self.ended.get(owner)
        if works is None or any(map(self._waits, self._book.truth.pods.by(OWNER, owner))):
            return None
        until_us: int | None = max(each.at_us for each in works) + keep_us
        if self._book.wishes_known(owner):
            until_us = None if self._lacking(owner) else now_us
        if until_us is not None and until_us <= now_us:
            del self.ended[owner]
            return None
        return until_us

    def mark_of(self, pod: Pod) -> Mark | None:
        """Why a pod is held back, if its time was up when it was looked at last."""
        return self._marks.get(pod.uid) or read_mark(pod)

    def _unmark(self, pod: Pod) -> None:
        self._marks.pop(pod.uid, None)
        self.to_mark.pop(pod.uid, None)
        if HELD in pod.metadata.annotations:
            self.to_mark[pod.uid] = None

    def _inherited(self, owner: str, pods: Sequence[Pod]) -> Mark | None:
        """The mark of work that was ended and whose place these pods take, which are its heirs.

        A Job's pods are all of one work; every other pod takes the place of one.
        """
        works = self.ended.get(owner, ())
        heirs = [each for each in works if any(_follows(pod, each) for pod in pods)]
        if not heirs:
            return None
        taken = works if owner in self._book.jobs else (heirs[0],)
        self.ended[owner] = tuple(each for each in works if each not in taken)
        if not self.ended[owner]:
            del self.ended[owner]
        return heirs[0].mark

    def _is_lifted(self, mark: Mark, ask: Ask) -> bool:
        """Whether a limit no longer holds, or lets such work go on for longer.

        Of a pod that cannot be read nobody knows that. Whoever looks at a cluster without its
        queues believes what was written on the pods.
        """
        world = self._book.world
        if ask.refusal is not None:
            return False
        if self._book.truth.as_if_managed and not world.tenants.tree.queues:
            return False
        ran = mark.reason is HoldReason.TOO_LONG
        limit = world.limits.maximum_run_us if ran else world.limits.maximum_wait_us
        most_us = limit(ask.queue, ask.type)
        return most_us is None or most_us > mark.maximum_us


def _follows(pod: Pod, work: Ended) -> bool:
    """Whether a pod was made instead of one that was ended: by its name, else since then."""
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "StatefulSet":
        return pod.metadata.name == work.name
    return created_us([pod]) >= work.at_us - SKEW_US
