"""Random days of a service: whatever happens to its pods, its floor is right and found again."""

from functools import partial
from random import Random

import pytest

from shoal.kubernetes.wire.kinds import NODES, PODS
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, node, pod
from tests.kubernetes.rig import Rig, Shoal
from tests.kubernetes.services import (
    KINDS,
    OPTIONS,
    STORES,
    Service,
    about,
    five_devices,
    floor,
    notes,
    slots,
    told,
)


class Day:
    """What people, controllers and nodes may do, one thing at a time."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rig: Rig = five_devices()
        self.rig.put(NODES, node("n2", random.randint(1, 2)))
        self.minimum = random.randint(1, 3)
        self.service = Service(
            self.rig, random.choice(KINDS), random.randint(1, 5), minimum=self.minimum
        )
        self.shoal = Shoal(self.rig, options=OPTIONS)
        self.asked = 0

    def pods(self, name: str) -> list[Body]:
        return [p for p in self.rig.pods() if p["metadata"]["name"].startswith(name)]

    def delete(self, pod: Body, *, at_once: bool) -> None:
        name = pod["metadata"]["name"]
        if at_once or not pod["spec"].get("nodeName"):
            self.rig.remove(PODS, name, "ns")
        else:
            self.rig.change(PODS, name, "ns", metadata={"deletionTimestamp": self.rig.stamp()})

    def scale(self) -> None:
        """Controllers delete what does not run first; of a StatefulSet the last."""
        replicas = self.random.randint(0, 6)
        self.service.scale(replicas)
        alive = [p for p in self.pods("web") if "deletionTimestamp" not in p["metadata"]]
        if self.service.kind == "StatefulSet":
            alive.sort(key=lambda p: str(p["metadata"]["name"]))
        else:
            self.random.shuffle(alive)
            alive.sort(key=lambda p: not p["spec"].get("nodeName"))
        for each in alive[replicas:]:
            self.delete(each, at_once=self.random.random() < 0.5)

    def lose(self) -> None:
        if found := self.pods("web"):
            self.delete(self.random.choice(found), at_once=self.random.random() < 0.5)

    def ask(self) -> None:
        self.asked += 1
        devices = self.random.randint(1, 2)
        self.rig.put(PODS, pod(f"ask{self.asked}", devices, notes=notes("lender", type_="batch")))

    def end(self) -> None:
        if found := self.pods("ask"):
            self.delete(self.random.choice(found), at_once=True)

    def linger(self) -> None:
        self.rig.lingers = not self.rig.lingers

    def cordon(self) -> None:
        self.rig.change(NODES, "n2", spec={"unschedulable": self.random.random() < 0.5})

    async def restart(self) -> None:
        """Whoever starts now finds the same; pods that wait may get other numbers."""
        shoal = self.shoal
        await shoal.step()
        other = Shoal(self.rig, leads=False, options=OPTIONS)
        events = told(other)
        await other.step()
        if slots(other).keys() == slots(shoal).keys():
            assert slots(other) == slots(shoal)
            assert sorted(map(about, events)) == sorted(f"uid-web/{slot}" for slot in slots(other))
        self.rig.truths.remove(other.scheduler.source.truth)


@pytest.mark.parametrize("seed", range(25))
@in_loop
async def test_whatever_happens_the_lowest_slots_are_the_floor(seed: int) -> None:
    day = Day(Random(seed))  # noqa: S311 (a test)
    rig, service, shoal = day.rig, day.service, day.shoal
    at_once = (day.scale, day.lose, day.ask, day.end, day.linger, day.cordon, rig.finish)
    in_time = (shoal.step, day.restart, partial(service.settle, shoal))
    for _ in range(25):
        if day.random.random() < 0.7:
            day.random.choice((*at_once, service.make, rig.kube_schedule))()
        else:
            await day.random.choice(in_time)()
    await service.settle(shoal)
    rig.lingers = False
    rig.finish()
    await service.settle(shoal)
    replicas = rig.get(STORES[service.kind], "web", "ns")["spec"]["replicas"]
    assert len(slots(shoal)) >= replicas
    assert floor(shoal) == sorted(slots(shoal))[: day.minimum]
