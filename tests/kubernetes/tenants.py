"""Two queues on a cluster in memory: one that is guaranteed devices, and one that borrows them."""

from shoal.core.validate import check
from shoal.kubernetes.scheduler import SchedulerOptions
from shoal.kubernetes.wire.kinds import PODS, REPLICA_SETS
from shoal.model.queue import Queue, QueueTree
from shoal.objects.files import Written
from tests.kubernetes.manifests import Body, replica_set
from tests.kubernetes.rig import Rig, Shoal

H100 = "H100-SXM5-80GB"
TREE = QueueTree(
    (
        Queue("root"),
        Queue("owner", "root", guarantee=((H100, 2),)),
        Queue("borrower", "root"),
    )
)
OPTIONS = SchedulerOptions(tick_s=0.0, written=Written((), TREE))


def in_queue(body: Body, queue: str) -> Body:
    body["metadata"]["annotations"] |= {"shoal.dev/queue": queue, "shoal.dev/type": "batch"}
    return body


class Owners:
    """Controllers whose pods wait in a queue."""

    def __init__(self, rig: Rig, *owners: tuple[Body, str, str]) -> None:
        self.rig = rig
        self.owners = owners

    def make(self) -> None:
        for owner, kind, queue in self.owners:
            known = {p["metadata"]["name"] for p in self.rig.pods()}
            self.rig.replace(owner, kind)
            for each in self.rig.pods():
                if each["metadata"]["name"] not in known:
                    self.rig.put(PODS, in_queue(each, queue))


async def settle(rig: Rig, shoal: Shoal, owners: Owners) -> None:
    for _ in range(30):
        before = rig.version
        owners.make()
        await shoal.step()
        rig.kube_schedule()
        await shoal.step()
        if rig.version == before:
            check(shoal.world)
            return
    raise AssertionError("it does not come to rest")


def web(rig: Rig, replicas: int = 2) -> Owners:
    owner = rig.put(REPLICA_SETS, replica_set("web", replicas))
    return Owners(rig, (owner, "ReplicaSet", "borrower"))


def names(rig: Rig) -> list[str]:
    return sorted(rig.bound())
