"""Who is evicted on random fleets: held against every choice of victims, counted out one by one."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, permutations
from random import Random

import pytest
from hypothesis import settings

from shoal.core.decisions import Evict, Reserve
from shoal.core.entry import Entry
from shoal.model.fractions import UNIT
from shoal.model.node import Node
from shoal.model.queue import Queue, QueueTree, Quota
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType
from tests.core.build import node, whole
from tests.core.cases import MINUTE_US, Case, work

NODES, DEVICES = 3, 4
STEPS = 30
TYPES = (WorkloadType.TRAINING, WorkloadType.BATCH, WorkloadType.BATCH, WorkloadType.INFERENCE)

Choice = tuple[Entry, ...]
Cost = tuple[int, int, int, int]
Devices = Counter[tuple[str, str]]
"""By queue and accelerator."""


def a_tree(chance: Random, devices: int, *names: str) -> QueueTree:
    """Two teams, of which one has two projects, and one queue without a guarantee.

    So many devices there are of each accelerator, and no more of them are guaranteed.
    """

    def quota(least: int, most: int) -> Quota:
        return tuple((name, chance.randint(least, most * devices // 12)) for name in sorted(names))

    first, second = quota(0, 4), quota(0, 3)
    team = tuple(
        (name, one + other + chance.randint(0, devices // 6))
        for (name, one), (_, other) in zip(first, second, strict=True)
    )
    return QueueTree(
        (
            Queue("root"),
            Queue("team", "root", guarantee=team),
            Queue("one", "team", guarantee=first),
            Queue("two", "team", guarantee=second),
            Queue("other", "root", guarantee=quota(0, 3)),
            Queue("guest", "root", limit=quota(4, 12)),
        )
    )


@dataclass
class Oracle:
    """Looks at every choice of victims, with arithmetic of its own."""

    case: Case
    asker: Workload

    def best(self) -> Cost | None:
        """The least that evicting for the asker may cost; None if nothing helps."""
        running = [entry for entry in self.case.world.entries.values() if entry.held]
        costs = [
            self.cost(choice)
            for choice in chain.from_iterable(combinations(running, n) for n in range(1, 5))
            if self.works(choice)
        ]
        return min(costs, default=None)

    def cost(self, choice: Choice) -> Cost:
        lost = [
            (self.case.now_us - min(entry.started.values())) * UNIT * asked(entry.workload).total()
            for entry in choice
        ]
        others = [
            each
            for each, entry in zip(lost, choice, strict=True)
            if entry.workload.type is not WorkloadType.BATCH
        ]
        return sum(others), sum(lost), len(choice), sum(e.workload.priority for e in choice)

    def works(self, choice: Choice) -> bool:
        if any(entry.workload.type is WorkloadType.INFERENCE for entry in choice):
            return False
        mine = [entry for entry in choice if entry.workload.queue == self.asker.queue]
        if any(entry.workload.priority >= self.asker.priority for entry in mine):
            return False
        return any(
            self.fits(choice, reclaimed)
            and self.within(choice, reclaimed)
            and any(self.in_turn(order, reclaimed) for order in permutations(choice))
            for count in range(1, len(asked(self.asker)) + 1)
            for reclaimed in map(set, combinations(asked(self.asker), count))
        )

    def fits(self, choice: Choice, reclaimed: set[str]) -> bool:
        """There is room, and of other queues only what they have to give back is used."""
        free = {
            found.name: len(found.devices)
            for found in self.case.world.fleet.nodes
            if found is not None
        }
        for entry in self.case.world.entries.values():
            for placement in entry.held.values():
                mine = entry.workload.queue == self.asker.queue
                if entry not in choice or not (mine or on(placement.node) in reclaimed):
                    free[placement.node] -= len(placement.leaves)
        pods = [
            (pod_set.request.devices.accelerators, pod_set.request.devices.count)
            for pod_set in self.asker.pod_sets
            for _ in range(pod_set.count)
        ]
        return self.packs(free, pods)

    def packs(self, free: dict[str, int], pods: list[tuple[tuple[str, ...], int]]) -> bool:
        if not pods:
            return True
        (names, count), *rest = pods
        for name, left in free.items():
            does = left >= count and (not names or on(name) in names)
            if does and self.packs(free | {name: left - count}, rest):
                return True
        return False

    def within(self, choice: Choice, reclaimed: set[str]) -> bool:
        """The asker's queues keep their limits, and it takes what is guaranteed and not held."""
        before, after = self.used(()), self.used(choice)
        mine = self.path(self.asker.queue)
        for at in mine:
            for name, count in asked(self.asker).items():
                after[at, name] += count
        for at in mine:
            for name, limit in self.queue(self.tree, at).limit:
                if after[at, name] > limit:
                    return False
        for entry in choice:
            if entry.workload.queue == self.asker.queue:
                continue
            names = asked(entry.workload).keys() & reclaimed
            own = [at for at in mine if at not in self.path(entry.workload.queue)]
            if not any(before[at, n] < self.guarantee(at, n) for n in names for at in mine):
                return False
            for name in names:
                if all(after[at, name] > self.guarantee(at, name) for at in own):
                    return False
        return True

    def in_turn(self, order: Choice, reclaimed: set[str]) -> bool:
        """Each is taken from queues that hold more than they are guaranteed at that moment."""
        above = self.path(self.asker.queue)
        for number, entry in enumerate(order):
            if entry.workload.queue == self.asker.queue:
                continue
            used = self.used(order[:number])
            names = asked(entry.workload).keys() & reclaimed
            for at in self.path(entry.workload.queue):
                if at in above:
                    break
                if any(used[at, name] <= self.guarantee(at, name) for name in names):
                    return False
        return True

    def used(self, without: Iterable[Entry]) -> Devices:
        gone = tuple(without)
        used: Devices = Counter()
        for entry in self.case.world.entries.values():
            if entry.held and entry not in gone:
                for at in self.path(entry.workload.queue):
                    for name, count in asked(entry.workload).items():
                        used[at, name] += count
        return used

    @property
    def tree(self) -> QueueTree:
        return self.case.world.tenants.tree

    def path(self, name: str) -> list[str]:
        return list(reversed(self.tree.path(name)))

    def guarantee(self, at: str, name: str) -> int:
        own = self.queue(self.tree, at).guarantee
        if own is not None:
            return dict(own).get(name, 0)
        return sum(self.guarantee(child.name, name) for child in self.tree.children(at))

    @staticmethod
    def queue(tree: QueueTree, name: str) -> Queue:
        found = tree.get(name)
        assert found is not None
        return found


def on(name: str) -> str:
    """The accelerator of a node of these tests."""
    return "A100" if name.startswith("a") else "H100"


def nodes_of(kind: str, count: int) -> list[Node]:
    """So many nodes whose names begin with the kind."""
    return [node(f"{kind}{n}", DEVICES, accelerator=on(kind)) for n in range(count)]


def asked(workload: Workload) -> Counter[str]:
    """How many devices a workload of these tests asks for, by accelerator."""
    count: Counter[str] = Counter()
    for pod_set in workload.pod_sets:
        name = "".join(pod_set.request.devices.accelerators) or "H100"
        count[name] += pod_set.count * pod_set.request.devices.count
    return count


def answered(case: Case, asker: Workload) -> bool:
    """Whether it fitted as it was, or asks for what no guarantee may cover: rules of their own."""
    return bool(case.world.entries[asker.uid].held) or asker.type is WorkloadType.INFERENCE


def a_pod(chance: Random, uid: str) -> Workload:
    """One pod of up to four devices."""
    return work(
        uid,
        chance.choice([1, 1, 2, 3, 4]),
        type_=chance.choice(TYPES),
        priority=chance.choice([0, 0, 1, 2]),
    )


def a_gang(chance: Random, uid: str) -> Workload:
    """Trainers on one accelerator and a reward model on another, or pods on one of both."""
    sets = [
        PodSet("trainer", chance.choice([1, 1, 2]), whole(chance.choice([1, 1, 2]), 0, "H100")),
        PodSet("reward", 1, whole(chance.choice([1, 2]), 0, "A100")),
    ]
    some = chance.choice([sets, sets, sets[:1], sets[1:]])
    made = a_pod(chance, uid)
    return replace(made, pod_sets=tuple(some))


def lived(
    seed: int,
    nodes: Sequence[Node],
    queues: QueueTree,
    make: Callable[[Random, str], Workload],
) -> tuple[int, int]:
    """A day; how many askers made others go, and how many of these choices were surely best."""
    chance = Random(seed)  # noqa: S311 - a test's
    case = Case(nodes, queues)
    made_room = exact = 0
    for step in range(STEPS):
        case.to(case.now_us / MINUTE_US + chance.randint(1, 9))
        held = sorted(uid for uid, entry in case.world.entries.items() if entry.held)
        if held and chance.random() < 0.2:
            case.end(chance.choice(held))
        queue = chance.choice(["one", "two", "other", "guest", "guest"])
        asker = make(chance, f"{queue}/w{step}")
        before = len(case.seen)
        oracle = Oracle(case, asker)
        best = oracle.best()
        costs = {
            entry.workload.uid: oracle.cost((entry,))
            for entry in case.world.entries.values()
            if entry.held
        }
        case.submit(asker)
        mine = [
            seen.decision
            for seen in case.seen[before:]
            if isinstance(seen.decision, Evict) and asker.uid in seen.decision.for_
        ]
        if not mine:
            assert best is None or answered(case, asker), (seed, step)
        else:
            total = tuple(map(sum, zip(*(costs[evict.workload] for evict in mine), strict=True)))
            assert best is not None, (seed, step)
            assert total == best if mine[0].exact else total >= best, (
                seed,
                step,
                total,
                best,
                mine,
                asker,
                queues,
                case.world.entries,
            )
            made_room += 1
            exact += mine[0].exact
            reserves = [s.decision for s in case.seen[before:] if isinstance(s.decision, Reserve)]
            assert asker.uid in [reserve.workload for reserve in reserves]
            assert case.starts(asker.uid)
        waiting = sorted(uid for uid, entry in case.world.entries.items() if not entry.held)
        if len(waiting) > 6:
            case.end(*waiting[:3], outcome=Outcome.CANCELLED)
    case.run_on(20)
    return made_room, exact


def test_the_victims_are_those_that_every_choice_shows_to_lose_least() -> None:
    made_room = exact = 0
    for seed in range(max(10, settings().max_examples // 5)):
        nodes = nodes_of("n", NODES)
        queues = a_tree(Random(seed), NODES * DEVICES, "H100")  # noqa: S311 - a test's
        one, other = lived(seed, nodes, queues, a_pod)
        made_room, exact = made_room + one, exact + other
    assert made_room > 10
    assert exact > made_room // 2


def test_victims_on_several_accelerators_are_held_against_every_choice_as_well() -> None:
    made_room = exact = 0
    for seed in range(max(10, settings().max_examples // 5)):
        nodes = [*nodes_of("n", 2), *nodes_of("a", 2)]
        queues = a_tree(Random(seed), 2 * DEVICES, "H100", "A100")  # noqa: S311 - a test's
        one, other = lived(seed, nodes, queues, a_gang)
        made_room, exact = made_room + one, exact + other
    assert made_room > 10
    assert exact > 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("names", [("H100",), ("H100", "A100")], ids=["one", "several"])
def test_without_events_evictions_come_to_an_end(names: tuple[str, ...], seed: int) -> None:
    """Work of every queue waits and runs, stops at its own speed, and comes back at once."""
    chance = Random(1000 + seed)  # noqa: S311 - a test's
    queues = a_tree(chance, NODES * DEVICES, *names)
    case = Case([*nodes_of("n", NODES), *nodes_of("a", NODES if len(names) > 1 else 0)], queues)
    submitted = []
    for number in range(40):
        queue = chance.choice(["one", "two", "other", "guest"])
        pods = chance.choice([1, 1, 2, 3])
        uid = f"{queue}/w{number}"
        made = work(
            uid,
            chance.choice([1, 1, 2]),
            type_=chance.choice(TYPES),
            priority=chance.choice([0, 1, 2]),
            pods=pods,
            minimum=chance.choice([None, 1]),
        )
        if len(names) > 1 and chance.random() < 0.7:
            made = replace(made, pod_sets=a_gang(chance, uid).pod_sets)
        submitted.append(made)
        case.stops_us[uid] = chance.choice([0, 1, 20, 90]) * 1_000_000
    for each in submitted:
        case.to(case.now_us / MINUTE_US + chance.random())
        case.submit(replace(each))
        if chance.random() < 0.2:
            case.end(chance.choice(sorted(case.world.entries)))
    case.to(case.now_us / MINUTE_US + 10)
    case.run_on(200)
