"""Who waits: gated pods as workloads, and those that are held back from being planned.

A Job's pods start together, as many as it lacks at that moment: `OWNER/WAVE`, with a new number for
each such wave. Pods of every other controller start one by one, each in the lowest free slot of its
owner: `OWNER/SLOT`. A pod without a controller is `POD/0`. Numbers come from what the API server
has (pods carry the workload that they belong to), so they are the same after a restart.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from shoal.core import events as ev
from shoal.core.world import Entry, State
from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.watching.book import Book
from shoal.kubernetes.watching.due import Due
from shoal.kubernetes.watching.flights import (
    created_us,
    in_order,
    reservation_of,
    workload_of,
)
from shoal.kubernetes.watching.history import NO_PAST, Mark, Past, past_of, past_of_rest
from shoal.kubernetes.watching.holding import hold_of, strange
from shoal.kubernetes.watching.numbers import Numbers, uid_in
from shoal.kubernetes.watching.timed_out import TimedOut
from shoal.kubernetes.watching.truth import NAMESPACE, OWNER, Stage, owner_uid
from shoal.kubernetes.wire.pod import Pod
from shoal.model.hold import Hold, HoldReason
from shoal.model.workload import Outcome, Workload
from shoal.objects.quantity import QuantityError, ceiling, floor

SETTLE_US: Final = 2_000_000
"""How long after its last change an incomplete later wave of a Job is planned as it is."""

REFUSED_US: Final = 300_000_000
"""How long a node is not planned again for those whom it refused, if it does not change."""


@dataclass(slots=True)
class Unit:
    """A workload that waits, and its pods in the order of their seats."""

    workload: Workload
    owner: str
    pods: tuple[str, ...]


class Units:
    """The workloads that wait."""

    def __init__(self, book: Book) -> None:
        self.numbers = Numbers()
        self.waiting: dict[str, Unit] = {}
        """By workload uid."""
        self.unit_of: dict[str, str] = {}
        """The workload uid of each pod in a unit."""
        self.holds: dict[str, Hold] = {}
        """By pod for those that start one by one, by owner for those that start together."""
        self.due = Due()
        self.refusals: dict[str, dict[str, int]] = {}
        """Nodes that refused pods of an owner, and until when they are not tried again (us)."""
        self.gangs: dict[str, str] = {}
        """The uid of the workload that waits for each owner whose pods start together."""
        self.leaving: dict[str, dict[str, str]] = defaultdict(dict)
        """By owner: workloads that were evicted, and the pod that takes the place of each."""
        self.returning: dict[str, int] = {}
        """Workloads whose evicted pods are gone and not made again yet, and until when that is
        waited for (us)."""
        self.pasts: dict[str, Past] = {}
        """What is remembered of workloads that have not been submitted since."""
        self._quota_seen: dict[str, tuple[str, str, str, str]] = {}
        """Owners whose claim a quota refused: namespace, quota, its version then, the message."""
        self._book = book
        self.timed_out = TimedOut(book, self.waits, self.lacking)

    # Which pods wait

    def waits(self, pod: Pod | None) -> bool:
        """Whether a pod waits for a plan and has no place in a start."""
        if pod is None or self._book.is_seated(pod.uid):
            return False
        stage = self._book.truth.stage(pod)
        return stage is Stage.GATED or (stage is Stage.RELEASED and pod.uid in self._book.replans)

    def one(self, uid: str, pod: Pod | None, now_us: int) -> Iterator[ev.Event]:
        """Bring a pod that starts by itself up to date."""
        if pod is None or not self.waits(pod):
            yield from self._drop_one(uid, now_us)
            return
        if self._book.is_strange(pod):
            yield from self._drop_one(uid, now_us)
            self.holds[uid] = strange(pod)
            return
        if not self._book.fill(owner_uid(pod), [pod], now_us):
            yield from self._drop_one(uid, now_us)
            return
        ask = self._book.ask(pod)
        owner = owner_uid(pod)
        # Who waits already takes no other place: its own may be that of a workload evicted before.
        known = self.unit_of.get(uid) or self._inherits(owner, pod)
        hold = self._follows(known, [uid]) or self._hold([(pod, ask)], owner)
        if hold is not None:
            yield from self._drop_one(uid, now_us)
            self.holds[uid] = hold
            return
        self.holds.pop(uid, None)
        workload_uid = known or uid_in(owner, self._new_number(owner, pod))
        workload = self._workload(workload_uid, [(pod, ask)])
        yield from self._submit(Unit(workload, owner, (uid,)), now_us)

    def together(self, owner: str, now_us: int) -> Iterator[ev.Event]:
        """Bring the pods of an owner whose pods start together up to date."""
        book = self._book
        pods = list(book.truth.pods.by(OWNER, owner))
        left = book.fill(owner, self._made_for_it(pods), now_us)
        if not left:
            if self.gangs.get(owner) not in self.returning:
                yield from self._drop_gang(owner, now_us)
            return
        leaving = next((uid for uid in self.leaving.get(owner, ()) if uid not in self.waiting), "")
        if (hold := self._follows(leaving, [pod.uid for pod in left])) is not None:
            self.holds[owner] = hold
            return
        lacks = self._lacks(owner, pods, left)
        if lacks is not None and len(left) < lacks and not self._settled(owner, left, now_us):
            yield from self._incomplete(owner, left, lacks, now_us)
            return
        pairs = in_order((pod, book.ask(pod)) for pod in left)
        hold = self._hold(pairs, owner)
        if hold is not None:
            yield from self._drop_gang(owner, now_us)
            self.holds[owner] = hold
            return
        self.holds.pop(owner, None)
        known = self.gangs.get(owner)
        workload = self._workload(known or uid_in(owner, self.numbers.next(owner)), pairs)
        self.gangs[owner] = workload.uid
        yield from self._submit(Unit(workload, owner, tuple(p.uid for p, _ in pairs)), now_us)

    def _made_for_it(self, pods: Sequence[Pod]) -> list[Pod]:
        """Pods of one owner that wait, but for those that it did not make, which are held back."""
        made = []
        for pod in pods:
            self.holds.pop(pod.uid, None)
            if self.waits(pod):
                if self._book.is_strange(pod):
                    self.holds[pod.uid] = strange(pod)
                else:
                    made.append(pod)
        return made

    def lacking(self, owner: str) -> int:
        """How many pods an owner still has to make; 0 where nobody knows it."""
        pods = list(self._book.truth.pods.by(OWNER, owner))
        if owner in self._book.jobs:
            return self._lacks(owner, pods, []) or 0
        found = self._book.replica_sets.get(owner) or self._book.stateful_sets.get(owner)
        if found is None or found.metadata.deletion_timestamp is not None:
            return 0
        return max(0, found.spec.replicas - self._alive(pods))

    # Evictions

    def leaves(self, workload: Workload, owner: str) -> None:
        """Note that the pods of a workload are evicted, so that those made instead wait for it."""
        self.leaving[owner].setdefault(workload.uid, "")

    def stays(self, uid: str, owner: str) -> None:
        """Note that a workload is evicted no longer, or that it came back."""
        self.leaving[owner].pop(uid, None)
        if not self.leaving[owner]:
            del self.leaving[owner]

    def returns(self, workload: Workload, owner: str, until_us: int) -> None:
        """Let a workload wait whose evicted pods are gone; its new pods take its place."""
        self.waiting[workload.uid] = Unit(workload, owner, ())
        self.returning[workload.uid] = until_us
        self.numbers.take(workload.uid)
        if owner in self._book.jobs:
            self.gangs[owner] = workload.uid

    def recall(self, uid: str, past: Past, now_us: int) -> Iterator[ev.Event]:
        """Remember the past of a workload, which may wait already."""
        self.pasts[uid] = past
        unit = self.waiting.get(uid)
        if unit is not None:
            unit.workload = replace(unit.workload, created_us=past.came_us)
            yield from self.submit_again(uid, now_us)

    def submit_again(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        """Have a workload that waits already wait with the places that are kept for it."""
        unit = self.waiting.get(uid)
        if unit is not None:
            yield from self._renew(uid, now_us)
            yield from self._submit(unit, now_us)

    def refuse(self, uid: str, mark: Mark) -> str:
        """Let a workload wait no more; returns its owner, empty if it is no unit."""
        unit = self.take_out(uid)
        if unit is None:
            return ""
        self.numbers.free(uid)
        self.timed_out.waited(unit.pods, mark)
        return unit.owner

    def expire(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        """Give up a workload whose evicted pods nobody makes again."""
        unit = self.waiting.get(uid)
        self.returning.pop(uid, None)
        if unit is not None and not unit.pods:
            self.stays(uid, unit.owner)
            if self.gangs.get(unit.owner) == uid:
                del self.gangs[unit.owner]
            yield from self._cancel(uid, now_us)

    def _inherits(self, owner: str, pod: Pod) -> str:
        """The evicted workload whose place a pod takes; empty if there is none."""
        leaving = {} if self.timed_out.mark_of(pod) else self.leaving.get(owner, {})
        for uid, heir in leaving.items():
            if heir == pod.uid:
                return uid
        for uid, heir in leaving.items():
            if not heir or not self.waits(self._book.truth_of(heir)):
                leaving[uid] = pod.uid
                return uid
        return ""

    def _follows(self, uid: str, pods: Sequence[str]) -> Hold | None:
        """What holds the heirs of a workload back until its own pods are gone."""
        if not uid or uid in self.waiting:
            return None
        return Hold(HoldReason.FOLLOWS, tuple(pods), (("workload", uid),))

    def take_out(self, uid: str) -> Unit | None:
        """Take a unit out that waits no longer; its number stays in use."""
        unit = self.waiting.pop(uid, None)
        if unit is not None:
            self._forget_pods(unit)
            self._came_back(unit)
            self.gangs.pop(unit.owner, None)
        return unit

    # Refusals and quotas

    def refused(self, owner: str, node: str, now_us: int) -> None:
        """Remember that a node refused a pod of an owner."""
        self.refusals.setdefault(owner, {})[node] = now_us + REFUSED_US
        self.due.add(owner, now_us + REFUSED_US)

    def refused_now(self, now_us: int) -> dict[str, dict[str, int]]:
        """Nodes that are not tried again for now, by owner, and until when (us)."""
        found = {
            owner: {node: until for node, until in nodes.items() if until > now_us}
            for owner, nodes in self.refusals.items()
        }
        return {owner: nodes for owner, nodes in found.items() if nodes}

    def forgive(self, node: str) -> list[str]:
        """Forget what a node refused, as it has changed; returns whom that concerns."""
        owners = [owner for owner, nodes in self.refusals.items() if nodes.pop(node, None)]
        for owner in [owner for owner, nodes in self.refusals.items() if not nodes]:
            del self.refusals[owner]
        return owners

    def quota_refused(self, owner: str, namespace: str, quota: str, message: str) -> None:
        """Remember that a quota refused a claim; until it changes nothing is tried again."""
        found = self._book.truth.quotas.get(quota, namespace)
        version = found.metadata.resource_version if found is not None else ""
        self._quota_seen[owner] = (namespace, quota, version, message)

    def held_by_quota(self, namespace: str) -> list[str]:
        """Keys of what quotas of a namespace hold back."""
        reasons = (HoldReason.QUOTA, HoldReason.QUOTA_REFUSED)
        return [
            key
            for key, hold in self.holds.items()
            if hold.reason in reasons and dict(hold.details).get("namespace") == namespace
        ]

    # Parts

    def _workload(self, uid: str, pairs: Sequence[tuple[Pod, Ask]]) -> Workload:
        known = self.waiting.get(uid)
        # What waits keeps its place in the queue while single pods of it are replaced.
        if known is not None:
            came_us = known.workload.created_us
        elif uid in self.pasts:
            came_us = self.pasts[uid].came_us
        else:
            came_us = created_us(pod for pod, _ in pairs)
        spare = self._book.is_spare(uid, pairs[0][1])
        return replace(workload_of(uid, pairs, came_us, self._book.jobs), spare=spare)

    def _submit(self, unit: Unit, now_us: int) -> Iterator[ev.Event]:
        uid = unit.workload.uid
        known = self.waiting.get(uid)
        self.waiting[uid] = unit
        if unit.pods:
            self._came_back(unit)
        if known is not None and known.pods != unit.pods:
            self._forget_pods(known)
        self.unit_of.update(dict.fromkeys(unit.pods, uid))
        self.numbers.take(uid)
        refused = self._refused_now(unit.owner, now_us)
        entry = self._book.world.entries.get(uid)
        if entry is not None and _is_the_same(entry, unit.workload, refused):
            return
        yield from self._renew(uid, now_us)
        reserved = reservation_of(self._book.world, unit.workload, self._book.kept.pop(uid, None))
        past = self.pasts.pop(uid, None) or self._past_of_rest(unit)
        if refused or reserved or past is not NO_PAST:
            yield ev.WorkloadRestored(
                *(now_us, unit.workload, 0, (), (), None, refused),
                was_evicted=past.was_evicted,
                evictions_us=past.evictions_us,
                reserved=reserved,
                served_device_us=past.served_device_us,
            )
        else:
            yield ev.WorkloadSubmitted(now_us, unit.workload)

    def _past_of_rest(self, unit: Unit) -> Past:
        """The past of a Job's later wave: others may have been evicted whom its pods replace."""
        flights = self._book.flights_of.get(unit.owner, ())
        rest = (self._book.world.entries.get(uid) for uid in flights)
        together = self.gangs.get(unit.owner) == unit.workload.uid
        return past_of_rest(rest, unit.workload) if together else NO_PAST

    def _renew(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        """End a workload that is submitted anew at once, with its past."""
        entry = self._book.world.entries.get(uid)
        if entry is not None:
            if entry.was_evicted:
                self.pasts.setdefault(uid, past_of(entry))
            yield ev.WorkloadEnded(now_us, uid, Outcome.CANCELLED)

    def _came_back(self, unit: Unit) -> None:
        """Note that a workload that was evicted has pods again, or a place for them."""
        uid = unit.workload.uid
        self.returning.pop(uid, None)
        if uid in self.leaving.get(unit.owner, ()):
            self.stays(uid, unit.owner)

    def _refused_now(self, owner: str, now_us: int) -> tuple[str, ...]:
        nodes = self.refusals.get(owner)
        if not nodes:
            return ()
        for node in [node for node, until in nodes.items() if until <= now_us]:
            del nodes[node]
        return tuple(sorted(nodes))

    def _drop_one(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        self.holds.pop(uid, None)
        known = self.unit_of.get(uid)
        if known is not None:
            yield from self._cancel(known, now_us)

    def _drop_gang(self, owner: str, now_us: int) -> Iterator[ev.Event]:
        self.holds.pop(owner, None)
        known = self.gangs.pop(owner, None)
        if known is not None:
            yield from self._cancel(known, now_us)

    def _cancel(self, uid: str, now_us: int) -> Iterator[ev.Event]:
        unit = self.waiting.pop(uid, None)
        if unit is None:
            return
        self._forget_pods(unit)
        self.numbers.free(uid)
        yield ev.WorkloadEnded(now_us, uid, Outcome.CANCELLED)

    def _forget_pods(self, unit: Unit) -> None:
        for pod in unit.pods:
            if self.unit_of.get(pod) == unit.workload.uid:
                del self.unit_of[pod]

    def _new_number(self, owner: str, pod: Pod) -> int:
        numbers = self.numbers
        return numbers.next(owner) if owner == pod.uid else numbers.lowest(owner)

    # Completeness

    def _alive(self, pods: Iterable[Pod]) -> int:
        stage = self._book.truth.stage
        return sum(1 for p in pods if not p.is_terminating and stage(p) is not Stage.GONE)

    def _lacks(self, owner: str, pods: Sequence[Pod], left: Sequence[Pod]) -> int | None:
        """How many pods a Job needs beside those that have a place; None where it is unknown."""
        job = self._book.jobs.get(owner)
        if job is None or job.metadata.deletion_timestamp is not None:
            return None
        wanted = 0 if job.spec.suspend else job.spec.parallelism
        if job.spec.completions is not None:
            wanted = min(wanted, job.spec.completions - job.status.succeeded)
        mine = {pod.uid for pod in left}
        return max(0, wanted - self._alive(pod for pod in pods if pod.uid not in mine))

    def _settled(self, owner: str, left: Sequence[Pod], now_us: int) -> bool:
        """Whether an incomplete wave is planned as it is: never a Job's first one."""
        job = self._book.jobs.get(owner)
        ran = job is not None and (job.status.succeeded or job.status.failed)
        if not ran and not self._book.flights_of.get(owner):
            return False
        ready_us = max(created_us([pod]) for pod in left) + SETTLE_US
        if now_us < ready_us:
            self.due.add(owner, ready_us)
        return now_us >= ready_us

    def _incomplete(
        self, owner: str, left: Sequence[Pod], lacks: int, now_us: int
    ) -> Iterator[ev.Event]:
        """Hold a gang back. One that waits already goes on waiting: a pod is being replaced."""
        known = self.gangs.get(owner)
        unit = self.waiting.get(known) if known is not None else None
        if unit is not None and unit.workload.pods == lacks:
            unit.pods = tuple(pod.uid for pod in left)
            self.unit_of.update(dict.fromkeys(unit.pods, unit.workload.uid))
            self._came_back(unit)
            return
        yield from self._drop_gang(owner, now_us)
        job = self._book.jobs[owner]
        self.holds[owner] = Hold(
            HoldReason.INCOMPLETE,
            tuple(pod.uid for pod in left),
            (("owner", f"Job {job.metadata.name}"), ("pods", len(left)), ("wanted", lacks)),
        )

    # Holding back

    def _hold(self, pairs: Sequence[tuple[Pod, Ask]], owner: str) -> Hold | None:
        """Why these pods may not be planned, or None."""
        uids = tuple(pod.uid for pod, _ in pairs)
        timed_out = self.timed_out.hold(pairs, owner)
        if timed_out is not None:
            return timed_out
        for pod, ask in pairs:
            hold = hold_of(self._book, pod, ask, uids)
            if hold is not None:
                return hold
        return self._quota_hold(pairs, owner, uids)

    def _quota_hold(
        self, pairs: Sequence[tuple[Pod, Ask]], owner: str, uids: tuple[str, ...]
    ) -> Hold | None:
        """The quota that has no room for these pods' claims; only claims are charged so late."""
        claimed = [(pod, ask) for pod, ask in pairs if ask.claimed is not None]
        if not claimed:
            return None
        namespace = claimed[0][0].metadata.namespace
        asked: dict[str, int] = defaultdict(int)
        for _, ask in claimed:
            if self._book.truth.claims.get(ask.claimed.name if ask.claimed else "", namespace):
                continue  # it exists, so it is charged already
            chosen = self._book.fleet.class_of(ask) or ask.driver
            asked[f"{chosen}.deviceclass.resource.k8s.io/devices"] += ask.devices
            asked["count/resourceclaims.resource.k8s.io"] += 1
        for quota in self._book.truth.quotas.by(NAMESPACE, namespace):
            for resource, wanted in asked.items():
                hard = quota.status.hard.get(resource) or quota.spec.hard.get(resource)
                if hard is None:
                    continue
                try:
                    allowed = floor(hard)
                    used = ceiling(quota.status.used.get(resource, "0"))
                except QuantityError:
                    continue
                if used + wanted > allowed:
                    details = (
                        ("quota", quota.metadata.name),
                        ("namespace", namespace),
                        ("resource", resource),
                        ("used", used),
                        ("asked", wanted),
                        ("allowed", allowed),
                    )
                    return Hold(HoldReason.QUOTA, uids, details)
        return self._refused_by_quota(owner, uids)

    def _refused_by_quota(self, owner: str, uids: tuple[str, ...]) -> Hold | None:
        seen = self._quota_seen.get(owner)
        if seen is None:
            return None
        namespace, name, version, message = seen
        quota = self._book.truth.quotas.get(name, namespace)
        if quota is None or quota.metadata.resource_version != version:
            del self._quota_seen[owner]
            return None
        details = (("quota", name), ("namespace", namespace), ("message", message))
        return Hold(HoldReason.QUOTA_REFUSED, uids, details)


def _is_the_same(entry: Entry, workload: Workload, refused: tuple[str, ...]) -> bool:
    """Whether a workload waits in the world just as it would be submitted now."""
    waits = entry.state is State.WAITING and entry.refused == frozenset(refused)
    return waits and entry.workload == workload
