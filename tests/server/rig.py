"""A platform in one process for tests: a real writer and replica, a clock that stands still."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.catalog.load import load_catalog
from shoal.core import events as ev
from shoal.core.decisions import Decision, Evict, Resize, Start
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.loop.disk import FastDisk
from shoal.loop.doors import Doors
from shoal.loop.engine import Loop
from shoal.loop.inbox import Inbox
from shoal.loop.recording import FolderRecorder
from shoal.loop.records import Header
from shoal.loop.replica import Replica
from shoal.loop.writer import Writer
from shoal.model.modes import Cap
from shoal.model.node import Device, Leaf, Node, Taint, TaintEffect
from shoal.model.workload import Outcome
from shoal.objects.files import Written, read_objects
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved
from shoal.server import serving as server
from shoal.server.serving import serving
from shoal.server.standing import Standing

NOW_US = 1_795_946_400_000_000
"""2026-11-29 10:00:00 UTC."""

MINUTE_US = 60_000_000
SECOND_US = 1_000_000
CATALOG = load_catalog()
EXAMPLE = Path(__file__).parents[2] / "docs/examples/organisation"
H100, A100 = "H100-SXM5-80GB", "A100-SXM4-80GB"


def node(name: str, accelerator: str, devices: int, pool: str, memory_mib: int = 81_559) -> Node:
    """A node with 32 CPUs and 256 GiB of memory."""
    return Node(
        name,
        32_000,
        262_144,
        110,
        tuple(
            Device(
                f"{name}-{n}",
                accelerator,
                (Leaf(f"{name}-{n}", memory_mib, tenants=4, cap=Cap.LIBRARY),),
            )
            for n in range(devices)
        ),
        {"shoal.dev/pool": pool, "kubernetes.io/hostname": name},
    )


FLEET = (
    node("n1", H100, 4, "training"),
    node("n2", H100, 4, "training"),
    node("n3", A100, 2, "shared"),
    Node("n4", 16_000, 65_536, 110, taints=(Taint("spare", TaintEffect.NO_SCHEDULE),)),
)


@dataclass
class Rig:
    """The platform, and what tests do to it."""

    folder: Path
    written: Written = field(default_factory=Written)
    fleet: tuple[Node, ...] = FLEET
    now_us: int = NOW_US

    def __post_init__(self) -> None:
        self._world = World()
        self.inbox = Inbox()
        self._leaving: list[tuple[str, int]] = []
        self._events: list[ev.Event] = [ev.NodeSeen(self.now_us, each) for each in self.fleet]
        if self.written.pools:
            self._events.append(ev.PoolsSet(self.now_us, self.written.pools))
        if self.written.tree.queues:
            tree = resolved(self.written.tree, names_of(CATALOG))
            self._events.append(ev.QueuesSet(self.now_us, tree))
        recorder = FolderRecorder(
            self.folder / "recording", Header("7", Policy("pack")), disk=FastDisk()
        )
        loop = Loop(self._world, Policy("pack"), 7, self, recorder)
        self.writer = Writer(loop, recorder, self.inbox, self)
        self._recorder = recorder
        self._turn = threading.Lock()
        self.step()
        self.replica = Replica(self.folder / "recording")
        doors = Doors(self.replica, self.inbox, lambda: self.now_us, self.writer.metrics, list)
        self.standing = Standing(doors, CATALOG, self.written, "0.0.0")
        self.step()

    def carry_out(self, decision: Decision) -> None:
        """Start every pod at the next step; those that are evicted leave when a test says so."""
        if isinstance(decision, Start | Resize):
            self._events += [
                ev.PodStarted(self.now_us, decision.workload, each.pod)
                for each in decision.placements
            ]

        if isinstance(decision, Evict):
            self._leaving += [(decision.workload, pod) for pod in decision.pods]

    def leave(self, most: int = 1_000) -> None:
        """Let pods stop that are evicted, so many at most, in the order of their evictions."""
        gone, self._leaving = self._leaving[:most], self._leaving[most:]
        self.step(*(ev.PodEnded(self.now_us, uid, pod) for uid, pod in gone))

    def stop(self, uid: str, now_us: int) -> None:
        """End a workload at the next step."""
        self._events.append(ev.WorkloadEnded(now_us, uid, Outcome.CANCELLED))

    def step(self, *events: ev.Event) -> None:
        """Take in events and what is asked, until nothing is left to do."""
        with self._turn:
            self._events += events
            for _ in range(3):
                taken, self._events = self._events, []
                self.writer.step(self.now_us, taken)
            if hasattr(self, "replica"):
                self.replica.catch_up()

    def uid(self, name: str) -> str:
        """The uid of the workload of that name."""
        lives = (*self.replica.story.lives.values(), *self.replica.story.ended.values())
        return next(life.workload.uid for life in lives if life.workload.name == name)

    @contextmanager
    def running(self) -> Iterator["Rig"]:
        """Answer what is asked while the context lasts."""
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                if self.inbox.wait(0.05) and not stop.is_set():
                    self.step()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            self.inbox.ring()
            thread.join()

    def close(self) -> None:
        """Close the files."""
        self.inbox.close()
        self._recorder.close()


@contextmanager
def platform(
    folder: Path, *, queues: Path | None = EXAMPLE, fleet: tuple[Node, ...] = FLEET
) -> Iterator[Rig]:
    """A running platform, with the example's pools and queues unless others are named."""
    written = read_objects([queues], CATALOG) if queues is not None else Written()
    rig = Rig(folder, written, fleet)
    with rig.running():
        yield rig
    rig.close()


@contextmanager
def served(standing: Standing, path: Path) -> Iterator[Path]:
    """Serve on a socket; at the end with as much time for what is under way as it may need."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(server, "END_S", 100)
        with serving(standing, path) as bound:
            yield bound


TWO_QUEUES = Path(__file__).with_name("two_queues.yaml")


def reclaim(rig: Rig, submit: Callable[..., None]) -> None:
    """Queue a takes back four devices on which b runs two trainings, after ten minutes.

    `submit` takes in manifests. Of b, x4 to x1 run with two devices each, a second apart, so that
    those that came last cost least; and late waits.
    """
    for number in (4, 3, 2, 1):
        submit(job(f"x{number}", 2, queue="b", accelerators="H100"))
        rig.step()
        rig.now_us += SECOND_US
    rig.now_us += 10 * MINUTE_US
    submit(job("p", 4, queue="a", accelerators="H100"))
    rig.step()
    rig.now_us += SECOND_US
    submit(job("late", 2, queue="b", accelerators="H100"))
    rig.step()


def shrink(rig: Rig, submit: Callable[..., None]) -> None:
    """Of b, a training of eight pods that needs two runs; a takes four of its devices."""
    submit(job("big", 1, 8, queue="b", accelerators="H100", minimum="2"))
    rig.step()
    rig.now_us += 10 * MINUTE_US
    submit(job("p", 4, queue="a", accelerators="H100"))
    rig.step()
    rig.leave()


def pod(name: str, devices: int = 1, **annotations: str) -> dict[str, Any]:
    """A pod that asks for whole devices."""
    return {"apiVersion": "v1", "kind": "Pod", **_template(devices, annotations, name)}


def job(name: str, devices: int = 1, pods: int = 1, **annotations: str) -> dict[str, Any]:
    """A Job whose pods ask for whole devices; annotations without their prefix."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "template": _template(devices, annotations)},
    }


def _template(devices: int, annotations: dict[str, str], name: str = "") -> dict[str, Any]:
    limits = {"nvidia.com/gpu": devices} if devices else {}
    notes = {"shoal.dev/queue": "vision", "shoal.dev/type": "training"} | {
        f"shoal.dev/{key}": value for key, value in annotations.items()
    }
    return {
        "metadata": {"annotations": notes} | ({"name": name} if name else {}),
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
