"""A service on a cluster in memory: what its controller does, and what Shoal makes of it."""

from typing import Any

from shoal.core import events as ev
from shoal.core.validate import check
from shoal.kubernetes.executing.deadlines import DeadlineOptions
from shoal.kubernetes.scheduler import SchedulerOptions
from shoal.kubernetes.wire.kinds import NAMESPACES, NODES, PODS, REPLICA_SETS, STATEFUL_SETS, Kind
from shoal.model.queue import Queue, QueueTree
from shoal.objects.files import Written
from tests.kubernetes.manifests import Body, namespace, node, pod, replica_set
from tests.kubernetes.rig import Rig, Shoal
from tests.kubernetes.tenants import H100

TREE = QueueTree(
    (
        Queue("root"),
        Queue("lender", "root", guarantee=((H100, 3),)),
        Queue("services", "root", guarantee=((H100, 2),)),
    )
)
OPTIONS = SchedulerOptions(tick_s=0.0, written=Written((), TREE))
QUICK = SchedulerOptions(
    tick_s=0.0, deadlines=DeadlineOptions(refused_us=0, claim_us=0), written=OPTIONS.written
)
KINDS = ("ReplicaSet", "StatefulSet")
STORES: dict[str, Kind[Any]] = {"ReplicaSet": REPLICA_SETS, "StatefulSet": STATEFUL_SETS}


def five_devices() -> Rig:
    """One node, of whose devices services are guaranteed two and a lender three."""
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1", 5))
    return rig


def notes(queue: str, minimum: int | None = None, type_: str = "inference") -> Body:
    said = {"shoal.dev/queue": queue, "shoal.dev/type": type_}
    return said | ({"shoal.dev/minimum": str(minimum)} if minimum else {})


class Service:
    """A controller whose pods wait in the queue `services`."""

    def __init__(
        self, rig: Rig, kind: str = "ReplicaSet", replicas: int = 5, minimum: int | None = 2
    ) -> None:
        self.rig, self.kind = rig, kind
        self.notes = notes("services", minimum)
        rig.put(STORES[kind], replica_set("web", replicas))

    def scale(self, replicas: int) -> None:
        self.rig.change(STORES[self.kind], "web", "ns", spec={"replicas": replicas})

    def make(self) -> None:
        """What its controller does: a StatefulSet waits until a pod of that name is gone."""
        owner = self.rig.get(STORES[self.kind], "web", "ns")
        if self.kind == "ReplicaSet":
            self.rig.replace(owner | {"make": {"notes": self.notes}}, self.kind)
            return
        for number in range(owner["spec"]["replicas"]):
            if ("ns", f"web-{number}") not in self.rig.objects[PODS.resource]:
                self.rig.version += 1
                made = pod(f"web-{number}", owner=owner, owner_kind=self.kind, notes=self.notes)
                made["metadata"]["uid"] = f"uid-web-{number}-{self.rig.version}"
                self.rig.put(PODS, made)

    async def settle(self, shoal: Shoal) -> None:
        for _ in range(30):
            before = self.rig.version
            self.make()
            await shoal.step()
            self.rig.kube_schedule()
            await shoal.step()
            if self.rig.version == before:
                check(shoal.world)
                return
        raise AssertionError("it does not come to rest")

    def pod_in(self, shoal: Shoal, slot: int) -> str:
        """The name of the pod in a slot."""
        return str(shoal.scheduler.source.flights[f"uid-web/{slot}"].seats[0].name)


def about(event: ev.Event) -> str:
    if isinstance(event, ev.WorkloadRestored | ev.WorkloadSubmitted):
        return event.workload.uid
    return event.uid if isinstance(event, ev.WorkloadEnded) else ""


def told(shoal: Shoal) -> list[ev.Event]:
    """Events from now on that say what a workload is."""
    found: list[ev.Event] = []
    loop = shoal.scheduler.loop
    check_event = loop._check
    assert check_event is not None

    def note(event: ev.Event) -> None:
        check_event(event)
        if about(event).startswith("uid-web/"):
            found.append(event)

    loop._check = note
    return found


def slots(shoal: Shoal) -> dict[int, bool]:
    """Of each slot whether it is spare."""
    return {
        int(uid.rpartition("/")[2]): entry.workload.spare
        for uid, entry in sorted(shoal.world.entries.items())
        if uid.startswith("uid-web/")
    }


def floor(shoal: Shoal) -> list[int]:
    return sorted(slot for slot, spare in slots(shoal).items() if not spare)


def states(shoal: Shoal) -> list[str]:
    return [shoal.states()[f"uid-web/{slot}"] for slot in sorted(slots(shoal))]


def shrunk(rig: Rig, service: Service, shoal: Shoal) -> None:
    service.scale(3)
    for slot in (0, 2):
        rig.remove(PODS, service.pod_in(shoal, slot), "ns")


def closing(rig: Rig, service: Service, shoal: Shoal) -> None:
    service.scale(3)
    for slot in (0, 2):
        name = service.pod_in(shoal, slot)
        rig.change(PODS, name, "ns", metadata={"deletionTimestamp": rig.stamp()})


def replaced(rig: Rig, service: Service, shoal: Shoal) -> None:
    rig.remove(PODS, service.pod_in(shoal, 0), "ns")


def reclaimed(rig: Rig, service: Service, shoal: Shoal) -> None:
    rig.lingers = True
    rig.put(PODS, pod("asker", 2, notes=notes("lender", type_="batch")))
