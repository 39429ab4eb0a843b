"""Who asked for a pod, by what admission noted when it and its owners were created.

A note says who created an object; it is written by the API server's own admission, and nobody may
change it (`admission.stamps`). What a controller created is asked for by whoever asked for its
owner, up the chain. Nothing else is believed:

- a reference to an owner counts only if a controller made the object for just that owner, as the
  note says; so neither writing nor changing a reference, nor having an object adopted, helps;
- a note counts only on what was created after admission acted in its namespace.

Jobs, ReplicaSets and pods are watched anyway. Of any other owner the metadata is read, by one call
for all that was created for it and seen since the last one: what it says then is not older than
what they were made of. Until that call is answered, whose a pod is is not known *yet*.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import structlog

from shoal.kubernetes.admission.names import MODE, STAMPS_OF_DEPLOYMENTS, STAMPS_POLICY
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.errors import KubernetesError, NotFoundError
from shoal.kubernetes.watching.controllers import KUBERNETES_OWN, Controllers
from shoal.kubernetes.watching.owners import DEPLOYMENT, WATCHED, group_of, kind_of
from shoal.kubernetes.watching.truth import Truth, managed
from shoal.kubernetes.wire.kinds import VALIDATING_POLICIES, Kind
from shoal.kubernetes.wire.meta import Object, ObjectMeta, OwnerReference
from shoal.kubernetes.wire.node import Namespace
from shoal.kubernetes.wire.pod import Pod
from shoal.objects.annotations import GROUPS, OWNER, STAMPS, USER
from shoal.objects.rights import subjects_of

SETTLES: Final = timedelta(seconds=10)
"""How long after it was installed, or a namespace was labelled, every API server surely acts."""

RETRY_S: Final = 30.0
"""How long an owner that could not be read is left alone."""

DEEPEST: Final = 8
"""So many owners are followed, one above the other."""

REMEMBERED: Final = 65_536
"""So many owners' metadata are remembered, by what was created for them."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asked, as Kubernetes names users, with the groups that a priority names.

    Empty: nobody knows who.
    """

    user: str = ""
    groups: tuple[str, ...] = ()

    @property
    def subjects(self) -> frozenset[str]:
        """What it is called where subjects of priorities are named."""
        return subjects_of(self.user, self.groups) if self.user else frozenset()


NOBODY: Final = Asker()

_KEYS: Final = {key: key for key in STAMPS}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An owner that is to be read."""

    kind: Kind[Object]
    namespace: str
    name: str
    uid: str


_Root = tuple[str, str, str]
"""What was created for an owner: its uid, in which version, and the owner's uid."""


class Askers:
    """Knows of every pod who asked for it, or that it is not known yet."""

    def __init__(self, truth: Truth, controllers: Controllers = KUBERNETES_OWN) -> None:
        """Know nobody until `begin`, or `run`, has found that admission notes it."""
        self.guarded_since: datetime | None = None
        """When admission was installed; None: it is not, or it is not known."""
        self._truth = truth
        self._controllers = controllers
        self._since: dict[str, tuple[Namespace | None, datetime | None, datetime | None]] = {}
        self._read: OrderedDict[_Root, ObjectMeta | None] = OrderedDict()
        self._wanted: dict[_Wanted, set[_Root]] = defaultdict(set)
        self._failed: dict[_Wanted, set[_Root]] = {}
        self._failure = ""
        self._wake = asyncio.Event()

    # Asking

    def of(self, pod: Pod) -> Asker | None:
        """Who asked for a pod; None where its owner has not been read yet."""
        since = self._notes_count_since(pod.metadata.namespace)
        if since is None:
            return NOBODY
        return self._of(pod.metadata, since, made_anew=True)

    def of_owner(self, owner: Object) -> Asker | None:
        """Who asked for a Job or a ReplicaSet; likewise."""
        since = self._notes_count_since(owner.metadata.namespace)
        if since is None:
            return NOBODY
        return self._of(owner.metadata, since, made_anew=False)

    def _of(self, meta: ObjectMeta, since: datetime, *, made_anew: bool) -> Asker | None:
        """Who asked for an object; `made_anew`: it is never changed into something else."""
        keys, root = _KEYS, meta
        for _ in range(DEEPEST):
            notes, owner = meta.annotations, meta.controller
            user, created = notes.get(keys[USER], ""), meta.creation_timestamp
            if not user or created is None or created < since:
                return NOBODY
            if not self._controllers.include(user):
                return _asker(user, notes.get(keys[GROUPS], ""))
            if (owner.uid if owner is not None else "") != notes.get(keys[OWNER], ""):
                return NOBODY
            if owner is None:
                return _asker(user, "")
            watched = self._watched(owner, meta.namespace)
            if watched is not None:
                if not watched:
                    return None
                meta, keys, root = watched[0], _KEYS, watched[0]
                made_anew = owner.kind == "Pod"
                continue
            version = "" if made_anew else _version(root)
            known = self._known((root.uid, version, owner.uid), owner, meta.namespace)
            if known is None:
                return None
            if not known:
                return NOBODY
            keys, child, meta = _KEYS, meta, known[0]
            if owner.kind == DEPLOYMENT.name:
                keys = STAMPS_OF_DEPLOYMENTS
                if _copied(child) != _copied(meta):
                    return NOBODY  # it was made of what somebody else asked for before
        return NOBODY

    def _watched(self, owner: OwnerReference, namespace: str) -> tuple[ObjectMeta, ...] | None:
        """The metadata of an owner of a kind that is watched, empty while it is not seen.

        None for other kinds.
        """
        if (group_of(owner), owner.kind) not in WATCHED:
            return None
        truth = self._truth
        found: Object | None
        if owner.kind == "Job":
            found = truth.jobs.get(owner.name, namespace)
        elif owner.kind == "ReplicaSet":
            found = truth.replica_sets.get(owner.name, namespace)
        else:
            found = truth.pods.get(owner.name, namespace)
        return (found.metadata,) if found is not None and found.uid == owner.uid else ()

    def _known(
        self, root: _Root, owner: OwnerReference, namespace: str
    ) -> tuple[ObjectMeta, ...] | None:
        """The metadata of an owner that is read, empty where there is none that could be.

        None until it has been.
        """
        if root in self._read:
            found = self._read[root]
            return (found,) if found is not None else ()
        kind = kind_of(owner)
        if kind is None:
            return ()
        self._wanted[_Wanted(kind, namespace, owner.name, owner.uid)].add(root)
        self._wake.set()
        return None

    def _notes_count_since(self, namespace: str) -> datetime | None:
        """From when on what is created in a namespace has notes that count; None: never."""
        found = self._truth.namespaces.get(namespace)
        known = self._since.get(namespace)
        if known is not None and known[0] is found and known[1] is self.guarded_since:
            return known[2]
        since = _managed_since(found) if found is not None else None
        if since is not None and self.guarded_since is not None:
            since = max(since, self.guarded_since + SETTLES)
        else:
            since = None
        self._since[namespace] = found, self.guarded_since, since
        return since

    # Reading

    async def begin(self, client: Client) -> None:
        """Find out whether notes count, and whose all pods are that there are."""
        await self._look_at_guard(client)
        for _ in range(DEEPEST):
            for pod in self._truth.pods.values():
                self.of(pod)
            if not self._wanted:
                return
            await self._read_wanted(client)

    async def run(self, client: Client, told: Callable[[Iterable[str] | None], None]) -> None:
        """Read what is wanted, until cancelled.

        Args:
            client: to read by.
            told: called with the uids of pods and owners whose asker is known now; None: all.
        """
        while True:
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._wake.wait()
            except TimeoutError:
                before = self.guarded_since
                await self._look_at_guard(client)
                if self.guarded_since != before:
                    told(None)
                self._try_again(told)
            self._wake.clear()
            if self._wanted:
                told(await self._read_wanted(client))

    async def _look_at_guard(self, client: Client) -> None:
        try:
            policy = await client.get(VALIDATING_POLICIES, STAMPS_POLICY)
        except NotFoundError:
            self.guarded_since = None
        except KubernetesError as error:
            self._fails(error)
        else:
            since = policy.metadata.creation_timestamp
            if since != self.guarded_since:
                self.guarded_since = since

    async def _read_wanted(self, client: Client) -> set[str]:
        """Read every owner that is wanted now, once; returns for whom."""
        wanted, self._wanted = self._wanted, defaultdict(set)
        await asyncio.gather(*(self._read_one(client, each, wanted[each]) for each in wanted))
        while len(self._read) > REMEMBERED:
            self._read.popitem(last=False)
        return {root[0] for roots in wanted.values() for root in roots}

    async def _read_one(self, client: Client, wanted: _Wanted, roots: set[_Root]) -> None:
        found: ObjectMeta | None = None
        try:
            read = await client.get(wanted.kind, wanted.name, wanted.namespace)
            found = read.metadata if read.uid == wanted.uid else None
        except NotFoundError:
            pass
        except KubernetesError as error:
            # What cannot be read must not hold work for ever: until it can be it is nobody's.
            self._failed.setdefault(wanted, set()).update(roots)
            self._fails(error)
        self._read.update(dict.fromkeys(roots, found))

    def _try_again(self, told: Callable[[Iterable[str]], None]) -> None:
        failed, self._failed = self._failed, {}
        for roots in failed.values():
            for root in roots:
                self._read.pop(root, None)
            told(root[0] for root in roots)

    def _fails(self, error: KubernetesError) -> None:
        if str(error) != self._failure:
            _log.warning("it is not known who asked for some work", why=str(error))
        self._failure = str(error)


def _copied(meta: ObjectMeta) -> tuple[str, ...]:
    """Who asked for a Deployment, on itself and as its controller copied it to a ReplicaSet."""
    return tuple(meta.annotations.get(key, "") for key in STAMPS_OF_DEPLOYMENTS.values())


def _version(meta: ObjectMeta) -> str:
    """Changes with what an owner asks for, and with whose Deployment it is made of."""
    return " ".join((str(meta.generation), *_copied(meta)))


@lru_cache(maxsize=4096)
def _asker(user: str, groups: str) -> Asker:
    return Asker(user, tuple(sorted(set(groups.split()))))


def _managed_since(namespace: Namespace) -> datetime | None:
    """From when on admission surely acts in a managed namespace; None where it does not.

    Its writers say when they last wrote it: whoever wrote the label did so then, or before.
    """
    meta = namespace.metadata
    if not managed(meta).acts:
        return None
    mark = f'"f:{MODE}"'.encode()
    times = [
        each.time for each in meta.managed_fields if each.time and mark in bytes(each.fields_v1)
    ]
    if not times or meta.creation_timestamp is None:
        return None
    # What was labelled from the start was never there without admission.
    since = max(times)
    return since if since <= meta.creation_timestamp else since + SETTLES
