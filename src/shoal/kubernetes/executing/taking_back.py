"""Taking back the pods of a start that did not come true."""

import asyncio

import structlog

from shoal.kubernetes.api.errors import ConflictError, DisruptionBlockedError, NotFoundError
from shoal.kubernetes.executing.plans import TRACKING, tracked_patch, untracked_patch
from shoal.kubernetes.executing.writes import PAUSE_S, Writes
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.watching.truth import Stage
from shoal.kubernetes.wire.kinds import PODS
from shoal.kubernetes.wire.pod import Pod

_log = structlog.get_logger(__name__)


class TakingBack:
    """Deletes, evicts and replans pods."""

    def __init__(self, source: Source, writes: Writes) -> None:
        self._source = source
        self._writes = writes

    async def take_back(self, uid: str) -> None:
        """Take back one pod of a start that did not come true.

        A pod with a controller is deleted, so that a new one can be placed elsewhere; if it never
        ran, its Job does not count it. A pod without one keeps its node: on the DRA channel its
        claim goes, and another device of the node is planned.
        """
        while True:
            pod = self._source.pods.get(uid)
            stage = self._source.truth.stage(pod)
            if pod is None or stage not in (Stage.RELEASED, Stage.BOUND) or pod.is_terminating:
                return
            if pod.metadata.controller is None:
                await self._take_back_bare(pod, stage)
                return
            try:
                if await self._delete_pod(pod):
                    return
            except DisruptionBlockedError as blocked:
                _log.info("a disruption budget keeps a pod", pod=uid, why=str(blocked))
            await asyncio.sleep(PAUSE_S)

    async def _take_back_bare(self, pod: Pod, stage: Stage) -> None:
        if stage is Stage.BOUND or self._source.ask(pod).claimed is None:
            return
        for claim in self._source.truth.claims_of(pod):
            if claim.status.allocation is not None:
                return
            await self._writes.delete_claim(claim)
        self._source.replans.add(pod.uid)
        self._source.look_at(pod.uid)

    async def _delete_pod(self, pod: Pod) -> bool:
        """Delete a pod as it is known, uncounted by its Job; False where it changed meanwhile."""
        meta = pod.metadata
        known = pod
        try:
            if TRACKING in meta.finalizers:
                known = await self._writes.write(
                    lambda: self._writes.client.patch(
                        PODS, meta.name, untracked_patch(pod), meta.namespace
                    )
                )
            if _ran(known):
                await self._writes.write(
                    lambda: self._writes.client.evict(meta.name, meta.namespace, uid=pod.uid)
                )
                return True
            version = known.metadata.resource_version
            await self._writes.write(
                lambda: self._writes.client.delete(
                    PODS, meta.name, meta.namespace, uid=pod.uid, resource_version=version
                )
            )
        except NotFoundError:
            return True
        except ConflictError:
            await self.track_again(pod)
            return False
        return True

    async def track_again(self, pod: Pod) -> None:
        """Have a Job count a pod again whose deletion did not come about."""
        found = await self._writes.look(pod)
        if found is not None and is_uncounted(found):
            await self._writes.patch(found, tracked_patch(found))


def _ran(pod: Pod) -> bool:
    """Whether any container of a pod has been started."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any(
        each.state.running is not None
        or each.state.terminated is not None
        or each.restart_count > 0
        for each in statuses
    )


def is_uncounted(pod: Pod) -> bool:
    """Whether a pod is alive that its Job has stopped counting, as only we make it do."""
    owner = pod.metadata.controller
    return (
        owner is not None
        and owner.kind == "Job"
        and owner.api_version == "batch/v1"
        and TRACKING not in pod.metadata.finalizers
        and not pod.is_terminating
        and not pod.is_ended
    )
