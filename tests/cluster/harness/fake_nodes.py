"""Fake nodes in thousands, in one asyncio process: what kubelets and drivers would write, no more.

    python -m tests.cluster.harness.fake_nodes --kubeconfig FILE --groups GROUPS.json

Each node registers, renews its lease, offers its devices, runs the pods that are bound to it and
lets deleted ones go. A pod costs one status write when it starts, one when it ends by itself, and
one call when it is deleted. All state can be read back from the API server, so that the process
may be killed and started again.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.cluster.harness import control, fake_objects, fake_pods
from tests.cluster.harness.api import STRATEGIC, Api, ApiError
from tests.cluster.harness.fake_objects import LEASES, RESOURCE, Group
from tests.cluster.harness.fake_pods import ListMeta, Pod, PodList

log = logging.getLogger("fake-nodes")

# Whoever deletes a pod that never ended writes its end first: controllers that count pods by
# finalizer (Job) judge by the phase. 137 is what SIGKILL leaves.
KILLED = 137

# Every Node is created with this taint, which goes when the controller manager finds it ready.
NOT_READY = "node.kubernetes.io/not-ready"
SCHEDULABLE_S = 60

NODE_KIND = "v1/Node"
LEASE_KIND = "coordination.k8s.io/v1/Lease"
SLICE_KIND = "resource.k8s.io/v1/ResourceSlice"
PODS = "/api/v1/pods"


class FakeNode:
    """One node and the pods that are bound to it."""

    def __init__(self, group: Group, name: str, number: int) -> None:
        self.group = group
        self.name = name
        self.number = number
        self.ids = fake_objects.device_ids(name, group.devices)
        self.count = group.devices
        self.unhealthy: set[int] = set()
        self.lost = False
        self.reference: dict[str, Any] = {}
        self.generation = 1
        self.pods: dict[str, Pod] = {}
        self.held: dict[str, dict[str, list[str]]] = {}
        self.addresses = 0

    @property
    def healthy(self) -> dict[int, str]:
        """The devices that are offered, by index."""
        return {
            index: each
            for index, each in enumerate(self.ids[: self.count])
            if index not in self.unhealthy
        }

    def free(self) -> list[str]:
        """Healthy devices that no pod of the device-plugin channel holds."""
        taken = {each for pod in self.held.values() for ids in pod.values() for each in ids}
        return [each for each in self.healthy.values() if each not in taken]


class FakeNodeProcess:
    """All nodes, one watch over their pods, and the calls that follow from it."""

    def __init__(self, api: Api, renew_s: float) -> None:
        self.api = api
        self.renew_s = renew_s
        self.nodes: dict[str, FakeNode] = {}
        self.counts = dict.fromkeys(("nodes", "renewals", "status writes", "deletions"), 0)
        self._numbers = 0
        self._begun: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # Commands

    async def add(self, group: dict[str, Any]) -> list[str]:
        """Register the nodes of a group; ones that exist already are taken over."""
        wanted = msgspec.convert(group, Group)
        made = []
        for index in range(wanted.count):
            name = f"{wanted.name}-{index}"
            if name in self.nodes:
                raise ValueError(f"there is a fake node {name} already")
            made.append(FakeNode(wanted, name, self._numbers))
            self._numbers += 1
        # Before they are registered: a pod may be bound to a node as soon as it is.
        self.nodes |= {node.name: node for node in made}
        if "dra" in wanted.channels:
            await self._create(fake_objects.device_class())
        there_before = await self.api.every(self._register(node) for node in made)
        if any(there_before):
            await self._list()
        await self._schedulable({node.name for node in made})
        return [node.name for node in made]

    async def _schedulable(self, names: set[str]) -> None:
        """Wait until the controller manager has taken the taint from nodes that a new node has."""
        path = await self.api.path(NODE_KIND)
        deadline = asyncio.get_running_loop().time() + SCHEDULABLE_S
        while True:
            # From the API server's cache, as this asks for all nodes.
            answer = await self.api.send("GET", path, params={"resourceVersion": "0"})
            nodes = msgspec.json.decode(answer, type=_NodeList).items
            tainted = {
                node.metadata["name"]
                for node in nodes
                if any(taint.get("key") == NOT_READY for taint in node.spec.taints)
            }
            # A cache that does not have a node yet has none of its taints either.
            missing = names - {node.metadata["name"] for node in nodes}
            if not (names & tainted or missing):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(
                    f"after {SCHEDULABLE_S} s, {len(names & tainted)} new nodes still have the "
                    f"taint {NOT_READY}; does the controller manager run?"
                )
            await asyncio.sleep(0.05 + len(nodes) / 2000)

    async def _register(self, node: FakeNode) -> bool:
        body = fake_objects.node(node.group, node.name, node.number, len(node.healthy))
        made = await self._create(body)
        there_before = made is None
        if made is None:
            made = await self.api.get(NODE_KIND, node.name)
        node.reference = fake_objects.owner(node.name, made["metadata"]["uid"])
        await self._create(fake_objects.lease(node.name, node.reference))
        if "dra" in node.group.channels:
            await self._create(self._slice(node))
        self.counts["nodes"] += 1
        return there_before

    def _slice(self, node: FakeNode) -> dict[str, Any]:
        return fake_objects.resource_slice(
            node.group, node.name, node.reference, node.healthy, node.generation
        )

    async def _create(self, body: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return await self.api.create(body)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return None
            raise

    async def remove(self, names: list[str]) -> None:
        """Delete nodes and what they own."""
        gone = [self.nodes.pop(name) for name in names]
        self.counts["nodes"] -= len(gone)
        await self.api.every(self.api.delete(NODE_KIND, node.name) for node in gone)
        # The garbage collector would do it, some seconds later.
        await self.api.every(self.api.delete(LEASE_KIND, node.name, LEASES) for node in gone)
        await self.api.every(
            self.api.delete(SLICE_KIND, fake_objects.slice_name(node.name))
            for node in gone
            if "dra" in node.group.channels
        )

    async def clear(self) -> None:
        """Remove all nodes."""
        await self.remove(list(self.nodes))

    async def lose(self, names: list[str]) -> None:
        """Stop everything that these nodes do."""
        for name in names:
            self.nodes[name].lost = True

    async def recover(self, names: list[str]) -> None:
        """Go on as a kubelet does that reaches the API server again."""
        for name in names:
            self.nodes[name].lost = False
        await self.api.every(self._renew(self.nodes[name]) for name in names)
        await self.set_ready(names, ready=True)
        for name in names:
            for pod in list(self.nodes[name].pods.values()):
                self._consider(self.nodes[name], pod)

    async def set_ready(self, names: list[str], ready: bool) -> None:
        """Report the condition Ready."""
        status = {"conditions": fake_objects.conditions(ready=ready)}
        await self.api.every(self._report(self.nodes[name], status) for name in names)

    async def _report(self, node: FakeNode, status: dict[str, Any]) -> None:
        await self.api.patch(
            NODE_KIND, node.name, {"status": status}, content_type=STRATEGIC, subresource="status"
        )

    async def set_devices(self, names: list[str], count: int | None, unhealthy: list[int]) -> None:
        """Report other devices."""
        for name in names:
            node = self.nodes[name]
            node.unhealthy = set(unhealthy)
            if count is not None:
                node.count = count
                node.ids = fake_objects.device_ids(name, max(count, len(node.ids)))
            status = fake_objects.resources(node.group, node.count, len(node.healthy))
            await self._report(node, status)
            if "dra" in node.group.channels:
                node.generation += 1
                spec = self._slice(node)["spec"]
                await self.api.patch(SLICE_KIND, fake_objects.slice_name(name), {"spec": spec})

    async def devices(self, name: str) -> list[str]:
        """The uuids of a node's devices."""
        node = self.nodes[name]
        return node.ids[: node.count]

    async def held(self, name: str) -> dict[str, list[str]]:
        """The devices that each pod holds."""
        return {
            uid: [each for ids in containers.values() for each in ids]
            for uid, containers in self.nodes[name].held.items()
        }

    async def tell_counts(self) -> dict[str, int]:
        """What was done so far."""
        return {**self.counts, "pods": sum(len(node.pods) for node in self.nodes.values())}

    # Leases

    async def renew(self) -> None:
        """Renew every node's lease once in `renew_s`, spread evenly."""
        while True:
            turn = list(self.nodes.values())
            random.shuffle(turn)
            began = asyncio.get_running_loop().time()
            for done, node in enumerate(turn):
                due = began + self.renew_s * done / len(turn)
                await asyncio.sleep(max(0, due - asyncio.get_running_loop().time()))
                if not node.lost and node.reference and node.name in self.nodes:
                    self._run(self._renew(node))
            left = began + self.renew_s - asyncio.get_running_loop().time()
            # New nodes wait for their first turn at most this long; their lease is fresh.
            await asyncio.sleep(max(0.1, left) if turn else 0.5)

    async def _renew(self, node: FakeNode) -> None:
        body = {"spec": fake_objects.renewal()}
        try:
            await self.api.patch(LEASE_KIND, node.name, body, LEASES)
            self.counts["renewals"] += 1
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            # The next turn comes; a real kubelet retries within the same lease, too.
            log.info("lease of %s: %s", node.name, error)

    # Pods

    async def follow(self) -> None:
        """List and watch the pods that are bound to any node, for ever."""
        while True:
            try:
                await self._watch(await self._list())
            except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                log.info("watch of pods: %s", error)
                await asyncio.sleep(random.uniform(0.2, 1))  # noqa: S311 (spread, no secret)

    async def _list(self) -> str:
        params = {"fieldSelector": "spec.nodeName!="}
        pods = msgspec.json.decode(await self.api.send("GET", PODS, params=params), type=PodList)
        there = {pod.metadata.uid for pod in pods.items}
        for node in self.nodes.values():
            for uid in node.pods.keys() - there:
                self._forget(node, uid)
        # What runs already keeps its devices; only then may others be given any.
        for pod in sorted(pods.items, key=lambda pod: pod.status.phase == "Pending"):
            self._see(pod)
        return pods.metadata.resource_version

    async def _watch(self, version: str) -> None:
        event, decode = msgspec.json.Decoder(_Event), msgspec.json.Decoder(Pod).decode
        while True:
            params = {
                "fieldSelector": "spec.nodeName!=",
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
            }
            async for line in self.api.watch(PODS, params):
                change = event.decode(line)
                if change.type == "ERROR":
                    raise ApiError(410, "Expired", line.decode(errors="replace"))
                if change.type == "BOOKMARK":
                    mark = msgspec.json.decode(change.object, type=_Bookmark)
                    version = mark.metadata.resource_version
                    continue
                pod = decode(change.object)
                version = pod.metadata.resource_version
                if change.type == "DELETED":
                    node = self.nodes.get(pod.spec.node_name)
                    if node is not None:
                        self._forget(node, pod.metadata.uid)
                else:
                    self._see(pod)

    def _see(self, pod: Pod) -> None:
        node = self.nodes.get(pod.spec.node_name)
        if node is None:
            return
        node.pods[pod.metadata.uid] = pod
        if pod.terminal:
            node.held.pop(pod.metadata.uid, None)
        elif pod.status.phase == "Running" and pod.metadata.uid not in node.held:
            node.held[pod.metadata.uid] = pod.reported(RESOURCE)
        if not node.lost:
            self._consider(node, pod)

    def _forget(self, node: FakeNode, uid: str) -> None:
        node.pods.pop(uid, None)
        node.held.pop(uid, None)
        self._begun -= {(uid, what) for what in ("start", "end", "stop")}

    def _consider(self, node: FakeNode, pod: Pod) -> None:
        """Begin what this state of a pod asks for, unless it has begun."""
        if pod.metadata.deletion_timestamp is not None:
            self._begin("stop", node, pod)
        elif pod.status.phase == "Pending":
            self._begin("start", node, pod)
        elif pod.status.phase == "Running" and pod.seconds("runs-for"):
            self._begin("end", node, pod)

    def _begin(self, what: str, node: FakeNode, pod: Pod) -> None:
        key = (pod.metadata.uid, what)
        if key not in self._begun:
            self._begun.add(key)
            self._run(self._carry_out(what, node, pod))

    async def _carry_out(self, what: str, node: FakeNode, pod: Pod) -> None:
        uid = pod.metadata.uid
        grace = pod.metadata.deletion_grace_period_seconds or 0
        step: Callable[[FakeNode, Pod], Coroutine[Any, Any, None]]
        match what:
            case "start":
                delay, step = pod.seconds("starts-after"), self._start
            case "end":
                delay, step = pod.seconds("runs-for"), self._end
            case _:
                delay, step = min(grace, pod.seconds("stops-after")), self._stop
        if delay:
            await asyncio.sleep(delay)
        while uid in node.pods:
            if node.lost:
                # Whatever it is, it is begun again when the node comes back.
                self._begun.discard((uid, what))
                return
            try:
                await step(node, node.pods[uid])
                return
            except ApiError as error:
                if error.code == 404:
                    return
                log.info("%s of %s: %s", what, pod.metadata.name, error)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.info("%s of %s: %s", what, pod.metadata.name, error)
            await asyncio.sleep(random.uniform(0.2, 1))  # noqa: S311 (spread, no secret)

    async def _start(self, node: FakeNode, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        uid = pod.metadata.uid
        wanted = pod.wanted(RESOURCE)
        if uid not in node.held:
            free = node.free()
            if sum(wanted.values()) > len(free):
                body = fake_pods.refused(pod, RESOURCE, sum(wanted.values()), len(free))
                await self._write(pod, body)
                return
            node.held[uid] = {name: [free.pop(0) for _ in range(n)] for name, n in wanted.items()}
        node.addresses += 1
        host, own = (fake_pods.address(node.number, n) for n in (0, node.addresses % 253 + 1))
        await self._write(pod, fake_pods.running(pod, host, own, RESOURCE, node.held[uid]))

    async def _end(self, _: FakeNode, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is None:
            await self._write(pod, fake_pods.ended(pod, int(pod.seconds("exit-code"))))

    async def _stop(self, _: FakeNode, pod: Pod) -> None:
        if pod.metadata.finalizers and not pod.terminal:
            await self._write(pod, fake_pods.ended(pod, KILLED))
        path = await self.api.path("v1/Pod", pod.metadata.namespace, pod.metadata.name)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        await self.api.send("DELETE", path, body)
        self.counts["deletions"] += 1

    async def _write(self, pod: Pod, body: dict[str, Any]) -> None:
        path = await self.api.path("v1/Pod", pod.metadata.namespace, pod.metadata.name)
        await self.api.send("PATCH", f"{path}/status", body, STRATEGIC)
        self.counts["status writes"] += 1

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _NodeSpec(msgspec.Struct):
    taints: list[dict[str, str]] = []


class _Node(msgspec.Struct):
    metadata: dict[str, Any]
    spec: _NodeSpec


class _NodeList(msgspec.Struct):
    items: list[_Node]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: ListMeta


async def serve(
    kubeconfig: Path, socket: Path | None, groups: Iterable[dict[str, Any]], renew_s: float
) -> None:
    """Run until SIGTERM or SIGINT; the nodes' objects are left behind."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Api(kubeconfig) as api:
        process = FakeNodeProcess(api, renew_s)
        for group in groups:
            await process.add(group)
        work = [asyncio.create_task(each) for each in (process.follow(), process.renew())]
        if socket is not None:
            handlers: dict[str, control.Handler] = {
                "counts": process.tell_counts,
                **{
                    each.__name__: each
                    for each in (
                        *(process.add, process.remove, process.clear, process.lose),
                        *(process.recover, process.set_ready, process.set_devices),
                        *(process.devices, process.held),
                    )
                },
            }
            server = await control.serve(socket, handlers)
            work.append(asyncio.create_task(server.serve_forever()))
        stopped = asyncio.create_task(stop.wait())
        # A loop that ends by itself has failed; the process must not look alive then.
        done, rest = await asyncio.wait([stopped, *work], return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for task in done - {stopped}:
            task.result()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="fake_nodes", description="Fake nodes for a Kubernetes.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="as the harness writes it")
    parser.add_argument("--groups", type=Path, help="JSON: a list of groups of nodes to begin with")
    parser.add_argument("--control", type=Path, help="unix socket to take commands on")
    parser.add_argument("--renew-s", type=float, default=10, help="seconds between lease renewals")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    groups = msgspec.json.decode(given.groups.read_bytes()) if given.groups else []
    asyncio.run(serve(given.kubeconfig, given.control, groups, given.renew_s))


if __name__ == "__main__":
    main()
