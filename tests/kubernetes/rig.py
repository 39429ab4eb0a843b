"""A cluster in memory that applies what the executor writes, with a small kube-scheduler.

It is no API server: it knows merge patches, preconditions, owner references of claims, and what the
tests need of kube-scheduler and of controllers. Everything runs in one loop, step by step, so that
a crash can be put between any two writes.
"""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from shoal.catalog.load import load_catalog
from shoal.core.policies import Policy
from shoal.core.validate import Validator, check
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    QuotaExceededError,
    Status,
    status_error,
)
from shoal.kubernetes.scheduler import Reach, Scheduler, SchedulerOptions
from shoal.kubernetes.watching.truth import Truth, empty_truth
from shoal.kubernetes.wire.kinds import (
    DEVICE_CLASSES,
    DISRUPTION_BUDGETS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    STATEFUL_SETS,
    Kind,
    WatchEvent,
)
from tests.kubernetes.manifests import PLUGIN, Body, pod

CATALOG = load_catalog()
START = datetime(2026, 11, 29, 12, tzinfo=UTC)


class Crash(BaseException):
    """The process ends here."""


class Rig:
    """Objects by kind, and stores that are told of every change."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[tuple[str, str], Body]] = {}
        self.truths: list[Truth] = []
        self.version = 0
        self.writes: list[str] = []
        self.crash_at: int | None = None
        self.seconds = 0
        self.claim_refusal: str = ""
        self.eviction_refusals: dict[str, Status] = {}
        """What the Eviction API says to evictions of pods of these names."""
        self.lingers = False
        """Whether evicted pods take their time to stop."""
        self._kinds: dict[str, Kind[Any]] = {}
        for kind in (
            *(NODES, RESOURCE_SLICES, PODS, RESOURCE_CLAIMS, DEVICE_CLASSES),
            *(NAMESPACES, RESOURCE_QUOTAS, JOBS, REPLICA_SETS, STATEFUL_SETS, DISRUPTION_BUDGETS),
        ):
            self._kinds[kind.resource] = kind
            self.objects[kind.resource] = {}

    # Objects

    def put(self, kind: Kind[Any], body: Body) -> Body:
        """Create or replace an object; its version grows."""
        self.version += 1
        body = copy.deepcopy(body)
        meta = body["metadata"]
        meta.setdefault("uid", f"uid-{kind.plural}-{meta.get('namespace', '')}-{meta['name']}")
        meta.setdefault("creationTimestamp", self.stamp())
        meta["resourceVersion"] = str(self.version)
        key = (meta.get("namespace", ""), meta["name"])
        known = key in self.objects[kind.resource]
        self.objects[kind.resource][key] = body
        self._tell(kind, "MODIFIED" if known else "ADDED", body)
        return body

    def remove(self, kind: Kind[Any], name: str, namespace: str = "") -> None:
        """Remove an object, and the claims that it owns."""
        body = self.objects[kind.resource].pop((namespace, name), None)
        if body is None:
            return
        self.version += 1
        gone = copy.deepcopy(body)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(kind, "DELETED", gone)
        for claim in list(self.objects[RESOURCE_CLAIMS.resource].values()):
            owners = claim["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == body["metadata"]["uid"] for owner in owners):
                self.remove(RESOURCE_CLAIMS, claim["metadata"]["name"], namespace)

    def get(self, kind: Kind[Any], name: str, namespace: str = "") -> Body:
        return self.objects[kind.resource][namespace, name]

    def change(self, kind: Kind[Any], name: str, namespace: str = "", **parts: Any) -> Body:
        """Merge `parts` into an object."""
        body = copy.deepcopy(self.get(kind, name, namespace))
        merge(body, parts)
        return self.put(kind, body)

    def stamp(self) -> str:
        self.seconds += 1
        return (START + timedelta(seconds=self.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def pods(self) -> list[Body]:
        return list(self.objects[PODS.resource].values())

    def bound(self) -> dict[str, str]:
        """Node by pod name, of pods that are bound."""
        return {
            p["metadata"]["name"]: p["spec"]["nodeName"]
            for p in self.pods()
            if p["spec"].get("nodeName")
        }

    # Stores

    def truth(self) -> Truth:
        """New stores with what there is now, told of what changes."""
        truth = empty_truth()
        for store in truth.stores:
            store.begin_list()
            for body in self.objects[store.kind.resource].values():
                store.put(store.kind.read(msgspec.json.encode(body)))
            store.end_list(str(self.version))
        self.truths.append(truth)
        return truth

    def _tell(self, kind: Kind[Any], type_: str, body: Body) -> None:
        for truth in self.truths:
            self._apply(truth, kind, type_, body)

    @staticmethod
    def _apply(truth: Truth, kind: Kind[Any], type_: str, body: Body) -> None:
        read = kind.read(msgspec.json.encode(body))
        store = next(each for each in truth.stores if each.kind is kind)
        store.apply(WatchEvent(type_, read))

    # What the executor's client does

    def _wrote(self, what: str) -> None:
        if self.crash_at is not None and len(self.writes) >= self.crash_at:
            raise Crash
        self.writes.append(what)

    async def create(self, kind: Kind[Any], body: Body, namespace: str = "") -> Any:
        await asyncio.sleep(0)
        name = body["metadata"]["name"]
        self._wrote(f"create {kind.plural} {name}")
        if (namespace, name) in self.objects[kind.resource]:
            raise AlreadyExistsError(Status(409, "AlreadyExists", "it exists"))
        if kind is RESOURCE_CLAIMS and self.claim_refusal:
            raise QuotaExceededError(Status(403, "Forbidden", self.claim_refusal))
        made = self.put(kind, {"metadata": {"namespace": namespace}} | body)
        return kind.read(msgspec.json.encode(made))

    async def patch(self, kind: Kind[Any], name: str, body: Body, namespace: str = "") -> Any:
        await asyncio.sleep(0)
        self._wrote(f"patch {kind.plural} {name}")
        known = self.objects[kind.resource].get((namespace, name))
        if known is None:
            raise NotFoundError(Status(404))
        self._check(known, body["metadata"])
        fresh = copy.deepcopy(known)
        merge(fresh, body)
        return kind.read(msgspec.json.encode(self.put(kind, fresh)))

    async def get_object(self, kind: Kind[Any], name: str, namespace: str = "") -> Any:
        await asyncio.sleep(0)
        known = self.objects[kind.resource].get((namespace, name))
        if known is None:
            raise NotFoundError(Status(404))
        return kind.read(msgspec.json.encode(known))

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str,
        resource_version: str = "",
    ) -> None:
        await asyncio.sleep(0)
        self._wrote(f"delete {kind.plural} {name}")
        known = self.objects[kind.resource].get((namespace, name))
        if known is None:
            raise NotFoundError(Status(404))
        wanted = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        self._check(known, wanted)
        self.remove(kind, name, namespace)

    async def evict(
        self, name: str, namespace: str, *, uid: str, grace_s: int | None = None
    ) -> None:
        """Evict a pod: at once where nothing lingers, else it terminates until `finish`."""
        await asyncio.sleep(0)
        self._wrote(f"evict pods {name}")
        known = self.objects[PODS.resource].get((namespace, name))
        if known is None:
            raise NotFoundError(Status(404))
        self._check(known, {"uid": uid})
        refusal = self.eviction_refusals.get(name)
        if refusal is not None:
            raise status_error(refusal)
        meta = {"deletionTimestamp": self.stamp(), "deletionGracePeriodSeconds": grace_s}
        self.change(PODS, name, namespace, metadata=meta)
        if not self.lingers:
            self.remove(PODS, name, namespace)

    def finish(self, namespace: str = "ns") -> None:
        """Let every pod go that terminates."""
        for each in self.pods():
            if "deletionTimestamp" in each["metadata"]:
                self.remove(PODS, each["metadata"]["name"], namespace)

    @staticmethod
    def _check(known: Body, wanted: Mapping[str, Any]) -> None:
        for field in ("uid", "resourceVersion"):
            if field in wanted and wanted[field] != known["metadata"][field]:
                raise ConflictError(Status(409, "Conflict", f"another {field}"))

    # kube-scheduler and controllers

    def kube_schedule(self) -> None:
        """Bind what has no gate and fits; say `Unschedulable` of what does not."""
        for each in self.pods():
            spec = each["spec"]
            if spec.get("nodeName") or spec.get("schedulingGates") or "phase" in each["status"]:
                continue
            if "deletionTimestamp" in each["metadata"]:
                continue
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            problem = self._place(each)
            if problem and each["status"].get("conditions", [{}])[0].get("message") != problem:
                condition = {"type": "PodScheduled", "status": "False"}
                said = condition | {"reason": "Unschedulable", "message": problem}
                self.change(PODS, name, namespace, status={"conditions": [said]})

    def _place(self, pod: Body) -> str:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        claims = [
            self.objects[RESOURCE_CLAIMS.resource].get((namespace, each["resourceClaimName"]))
            for each in pod["spec"].get("resourceClaims", ())
        ]
        if None in claims:
            return "a claim does not exist"
        for node in pins(pod) or [each[1] for each in self.objects[NODES.resource]]:
            if self._free(node) < asked(pod):
                continue
            allocations = [self._allocate(claim, node) for claim in claims if claim is not None]
            if None in allocations:
                continue
            for claim, allocation in zip(claims, allocations, strict=True):
                if claim is not None and allocation is not None:
                    consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
                    status = {"allocation": allocation, "reservedFor": [consumer]}
                    meta = claim["metadata"]
                    self.change(RESOURCE_CLAIMS, meta["name"], namespace, status=status)
            self.change(PODS, name, namespace, spec={"nodeName": node}, status={"conditions": []})
            return ""
        return "0/1 nodes are available: cannot allocate"

    def _free(self, node: str) -> int:
        body = self.objects[NODES.resource].get(("", node))
        if body is None or body["spec"].get("unschedulable"):
            return -1
        offered = int(body["status"]["allocatable"].get(PLUGIN, 0))
        return offered - sum(asked(p) for p in self.pods() if p["spec"].get("nodeName") == node)

    def _allocate(self, claim: Body, node: str) -> Body | None:
        if claim.get("status", {}).get("allocation"):
            return dict(claim["status"]["allocation"])
        taken = {
            result["device"]
            for each in self.objects[RESOURCE_CLAIMS.resource].values()
            for result in each.get("status", {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", ())
        }
        results = []
        for request in claim["spec"]["devices"]["requests"]:
            expression = request["exactly"]["selectors"][0]["cel"]["expression"]
            for each in self.objects[RESOURCE_SLICES.resource].values():
                if each["spec"]["nodeName"] != node:
                    continue
                for device in each["spec"]["devices"]:
                    uuid = device["attributes"]["uuid"]["string"]
                    if f'"{uuid}"' in expression and device["name"] not in taken:
                        results.append(
                            {
                                "request": request["name"],
                                "driver": each["spec"]["driver"],
                                "pool": each["spec"]["pool"]["name"],
                                "device": device["name"],
                            }
                        )
            if len(results) < request["exactly"]["count"]:
                return None
        return {"devices": {"results": results}}

    def replace(self, owner: Body, kind: str) -> None:
        """Make the pods that a controller lacks: one that was deleted comes with a new name."""
        wanted = owner["spec"].get("parallelism", owner["spec"].get("replicas", 0))
        uid = owner["metadata"]["uid"]
        mine = [
            p
            for p in self.pods()
            if any(each["uid"] == uid for each in p["metadata"]["ownerReferences"])
            and "deletionTimestamp" not in p["metadata"]
            and p["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        for _ in range(wanted - len(mine)):
            self.version += 1
            name = f"{owner['metadata']['name']}-{self.version}"
            self.put(PODS, pod(name, owner=owner, owner_kind=kind, **owner.get("make", {})))


def merge(body: Body, parts: Mapping[str, Any]) -> None:
    """RFC 7386."""
    for key, value in parts.items():
        if value is None:
            body.pop(key, None)
        elif isinstance(value, dict) and isinstance(body.get(key), dict):
            merge(body[key], value)
        else:
            body[key] = copy.deepcopy(value)


def asked(pod: Body) -> int:
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    return sum(
        int(c["resources"].get("limits", {}).get(PLUGIN, 0)) for c in pod["spec"]["containers"]
    )


def pins(pod: Body) -> list[str]:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", ())
    return [field["values"][0] for term in terms for field in term.get("matchFields", ())]


class _Client:
    """The calls of `Client` that the executor makes, on a rig."""

    def __init__(self, rig: Rig) -> None:
        self.create = rig.create
        self.patch = rig.patch
        self.get = rig.get_object
        self.delete = rig.delete
        self.evict = rig.evict


class _Cache:
    """A cache that sees everything."""

    trouble: dict[str, str]

    def __init__(self) -> None:
        self.trouble = {}

    def troubles(self) -> dict[str, str]:
        return self.trouble


class Leader:
    def __init__(self, leads: bool) -> None:
        self.is_leader = leads


class Shoal:
    """One scheduler process on a rig, with the invariants on."""

    def __init__(
        self,
        rig: Rig,
        leads: bool = True,
        options: SchedulerOptions | None = None,
        policy: str = "fragmentation",
    ) -> None:
        self.rig = rig
        self.leader = Leader(leads)
        self.cache = _Cache()
        self.said: list[tuple[str, str, str]] = []
        self.scheduler = Scheduler(
            Reach(_Client(rig), self.cache, rig.truth()),  # type: ignore[arg-type]
            CATALOG,
            Policy(policy),
            seed=1,
            leadership=self.leader,
            options=options or SchedulerOptions(tick_s=0.0),
        )
        self.scheduler.loop._check = Validator(self.scheduler.world).applied
        self.scheduler._say = (  # type: ignore[method-assign]
            lambda pod, reason, note, **_: self.said.append((pod, reason, note))
        )

    @property
    def world(self) -> Any:
        return self.scheduler.world

    async def step(self) -> None:
        """Decide once and let what was decided be carried out."""
        await self._decide()
        while self.scheduler.executor.running:
            done = list(self.scheduler.executor.running)
            await asyncio.wait(done)
            for error in [task.exception() for task in done]:
                if error is not None:
                    raise error
            await self._decide()

    async def _decide(self) -> None:
        while self.scheduler.step() or self.scheduler.source.is_dirty:  # noqa: ASYNC110 (it works)
            await asyncio.sleep(0)

    async def settle(self, controllers: Sequence[tuple[Body, str]] = ()) -> None:
        """Let Shoal, kube-scheduler and controllers work until nothing changes any more."""
        for _ in range(50):
            before = self.rig.version
            for owner, kind in controllers:
                self.rig.replace(owner, kind)
            await self.step()
            self.rig.kube_schedule()
            await self.step()
            if self.rig.version == before:
                break
        else:
            raise AssertionError("it does not come to rest")
        check(self.world)

    def states(self) -> dict[str, str]:
        """State by workload uid, of our own workloads."""
        return {
            uid: entry.state.value
            for uid, entry in self.world.entries.items()
            if not uid.startswith(("pod/", "claim/"))
        }

    def held(self, node: str) -> int:
        """Devices that are held on a node."""
        return sum(
            len(place.leaves)
            for entry in self.world.entries.values()
            for place in entry.held.values()
            if place.node == node
        )
