"""Busy days of a small fleet, drawn from seeds: much runs, much fails, in whatever order.

Unlike `test_stateful` it tries for nothing in particular, so that every kind of thing happens often
and in each other's midst. What is asserted holds in every world at every time.

The days are those of the first seeds. To live through 20,000, and then through the next 20,000:

    make soak SOAK="properties -k test_random_days --examples 20000"
    SHOAL_FIRST_SEED=20000 make soak SOAK="properties -k test_random_days --examples 20000"

The first day that fails ends it and names its seed; `lived(seed)` lives through that one again.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings

from shoal.core import events as ev
from shoal.core.arrays import fleet
from shoal.core.arrays.changes import ChangeLog
from shoal.core.budget import Budget
from shoal.core.cycle import Cycle, cycle
from shoal.core.decisions import Decision, Resize, Retract, Start, Wait
from shoal.core.demand import ClassPrice, Prices
from shoal.core.placing import board, eligibility
from shoal.core.policies import POLICIES, Policy
from shoal.core.validate import Validator, check, check_answers
from shoal.core.world import World
from shoal.loop.engine import Loop
from shoal.loop.replay import replay
from shoal.loop.story import Story
from shoal.model.isolation import PRESETS
from shoal.model.modes import Cap
from shoal.model.node import Node, Taint, TaintEffect
from shoal.model.pool import PlacementPolicy, Pool
from shoal.model.queue import UNITS, Queue, QueueTree, Quota
from shoal.model.request import (
    AffinityTerm,
    DeviceRequest,
    Operator,
    Request,
    Requirement,
    Toleration,
    TolerationOperator,
)
from shoal.model.selector import Selector
from shoal.model.workload import Outcome, Placement, PodSet, Workload, WorkloadType
from tests.core.build import DEMAND, SEED, device, divided

STEPS = 80
NAMES = [f"n{number}" for number in range(6)]
TAINT = Taint("kept", TaintEffect.NO_SCHEDULE)
ZONE_A = (("zone", "a"),)
LARGE = (AffinityTerm((Requirement("size", Operator.GT, ("1",)),)),)
PATIENT = (Toleration("kept", TolerationOperator.EXISTS),)
QUEUES = (("root", ""), ("team", "root"), ("a", "team"), ("b", "team"), ("c", "root"))
AMPLE = 1_000_000

happened: Counter[str] = Counter()


class Day:
    """A world, its loop, and somebody who does random things to it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - a day has to come again
        self.policy = Policy(POLICIES[seed % len(POLICIES)], DEMAND)
        self.world = World()
        self.story = Story()
        self.recorded: list[ev.Event] = []
        self.keys: set[str] = set()
        self.time = 0
        self.numbers = 0
        self.restarted = False
        self.looked_at: dict[str, int] = {}
        """When those who wait were looked at last, in vain."""
        self.taken_at = 0
        """When anybody was last given room."""
        self._go_on_with(self.world)
        for name in NAMES[:4]:
            self.feed(ev.NodeSeen(0, self.some_node(name)))

    def _go_on_with(self, world: World) -> None:
        self.world = world
        self.validator = Validator(world)
        self.loop = Loop(world, self.policy, SEED, self, self, self.validator.applied)

    # The loop's doors -------------------------------------------------------------------------

    def record(self, event: ev.Event) -> None:
        """Keep an event."""
        self.recorded.append(event)
        self.story.apply(len(self.recorded), event)

    def sync(self) -> None:
        """Nothing has to be made safe."""

    def settle(self, at_us: int, world: World) -> None:
        """No snapshots are made."""

    def carry_out(self, decision: Decision) -> None:
        """No key comes twice."""
        assert decision.key not in self.keys, decision
        self.keys.add(decision.key)

    # What is drawn ----------------------------------------------------------------------------

    def now(self) -> int:
        """Return the next instant."""
        self.time += 1
        return self.time

    def feed(self, event: ev.Event) -> None:
        """Let something happen."""
        happened[type(event).__name__] += 1
        self.loop.feed(event)

    def some_node(self, name: str) -> Node:
        """Return a node, which may be tainted, cordoned, mixed or divided."""
        pick = self.chance.choice
        cards = []
        mostly = pick(["H100", "A100"])
        for number in range(pick([0, 1, 2, 2, 3, 4])):
            kind = pick([mostly] * 6 + ["H100", "A100", "A100/2", "A100/7"])
            accelerator, _, parts = kind.partition("/")
            card = f"{name}/{number}"
            shared = device(card, accelerator, tenants=pick([1, 3, 3]), cap=pick(list(Cap)))
            cards.append(divided(card, int(parts)) if parts else shared)
        return Node(
            name=name,
            cpu_milli=1000 * pick([2, 8, 16]),
            memory_mib=pick([8, 64]),
            pods=pick([2, 8, 8]),
            devices=tuple(cards),
            labels={"zone": pick("ab"), "size": pick("0123")},
            taints=(TAINT,) if self.chance.random() < 0.1 else (),
            cordoned=self.chance.random() < 0.1,
        )

    def some_request(self) -> Request:
        """Return what a pod asks for; most are not particular about nodes."""
        pick = self.chance.choice
        count = pick([0, 1, 1, 1, 2, 3])
        accelerators = pick([(), (), (), ("H100",), ("A100",), ("H100", "A100")]) if count else ()
        devices = DeviceRequest(count, accelerators=accelerators)
        if count and self.chance.random() < 0.5:
            memory, compute = pick([0, 10, 20]), pick([0, 100, 300, 500, 900])
            floor = PRESETS[pick(["shared", "shared", "soft", "driver", "hardware"])]
            keeps = floor == PRESETS["driver"]
            devices = DeviceRequest(
                count, False, memory, compute, accelerators, floor, keeps_to_party=keeps
            )
        return Request(
            cpu_milli=1000 * pick([0, 1, 2, 4]),
            memory_mib=pick([0, 0, 4, 16]),
            devices=devices,
            selector=pick([()] * 5 + [ZONE_A]),
            affinity=pick([()] * 6 + [LARGE]),
            tolerations=pick([()] * 4 + [PATIENT]),
            mask=pick([""] * 7 + ["m"]),
        )

    def some_leaves(self, name: str, count: int) -> tuple[str, ...]:
        """Return leaves of a node, made up where it has fewer."""
        row = self.world.fleet.row_of.get(name)
        known = self.world.fleet.leaves[row] if row is not None else ()
        return (*known, *(f"{name}/unknown{number}" for number in range(count)))[:count]

    def some_pod(self) -> tuple[str, int] | None:
        """Return some workload that holds something, and one of its pods."""
        uids = [uid for uid, entry in self.world.entries.items() if entry.held]
        if not uids:
            return None
        uid = self.chance.choice(uids)
        return uid, self.chance.choice(sorted(self.world.entries[uid].held))

    # What happens -----------------------------------------------------------------------------

    def kinds(self) -> dict[Callable[[], None], float]:
        """Return what may happen, and how often."""
        return {
            self.node_changes: 5,
            self.device_changes: 2,
            self.mask_changes: 1,
            self.prices_change: 1,
            self.queues_change: 1,
            self.pools_change: 1,
            self.arrives: 14,
            self.is_adopted: 1,
            self.ends: 6,
            self.pod_ends: 3,
            self.pod_starts: 4,
            self.start_fails: 5,
            self.pod_moves: 1,
            self.cycle_with_ample_budget: 8,
            self.cycle_with_small_budget: 4,
            self.restart: 1,
        }

    def step(self) -> None:
        """Let one thing happen, and check everything."""
        kinds = self.kinds()
        self.chance.choices(list(kinds), list(kinds.values()))[0]()
        debts = check(self.world)
        assert {(d.kind, d.where): d.amount for d in self.validator.debts} == debts
        self.story_is_that_of_the_world()

    def node_changes(self) -> None:
        """One appears, changes in any way, vanishes, or is closed or opened."""
        name, kind = self.chance.choice(NAMES), self.chance.random()
        if kind < 0.6:
            self.feed(ev.NodeSeen(self.now(), self.some_node(name)))
        elif kind < 0.8:
            self.feed(ev.NodeLost(self.now(), name))
        else:
            self.feed(ev.NodeCordoned(self.now(), name, self.chance.random() < 0.3))

    def device_changes(self) -> None:
        """One breaks or works again."""
        event = ev.DeviceLost if self.chance.random() < 0.4 else ev.DeviceReturned
        name = self.chance.choice(NAMES)
        self.feed(event(self.now(), name, f"{name}/{self.chance.randrange(4)}"))

    def mask_changes(self) -> None:
        """An adapter says where pods that name it may run."""
        names = self.chance.sample(NAMES, self.chance.randrange(6))
        self.feed(ev.MaskSet(self.now(), "m", tuple(sorted(names))))

    def prices_change(self) -> None:
        """Room is worth something else, for those who have come so far."""
        classes = tuple(
            ClassPrice(each, 1000 * self.chance.randrange(4000))
            for each in self.world.demand.classes()
        )
        self.feed(ev.PricesSet(self.now(), Prices(classes, (("A100", 2000),))))

    def queues_change(self) -> None:
        """Another tree is written, or none."""
        words = [("H100",), ("H100|A100",), ("H100", "A100"), (UNITS,)]
        names = self.chance.choice(words)

        def quota(most: int, often: float = 0.7) -> Quota:
            mine = names if self.chance.random() < 0.8 else self.chance.choice(words)
            written = mine if self.chance.random() < often else ()
            return tuple((name, self.chance.randrange(most)) for name in written)

        tree = tuple(
            Queue(
                name,
                parent,
                guarantee=quota(4) or None,
                limit=quota(8),
                weight=self.chance.randrange(1, 4),
                borrow=quota(3, 0.2),
                lend=quota(3, 0.2),
                placeable=tuple(
                    (name, self.chance.randrange(1, 4))
                    for name in names
                    if name != UNITS and self.chance.random() < 0.3
                ),
                types=self.chance.choice([tuple(WorkloadType)] * 9 + [(WorkloadType.BATCH,)]),
                shrink_after_us=self.chance.choice([0, 5, 30]),
                closing=self.chance.random() < 0.05,
            )
            for name, parent in QUEUES
        )
        rates = (("A100", self.chance.choice([400, 577, 1000])),)
        written = QueueTree(tree, rates) if self.chance.random() < 0.8 else QueueTree()
        self.feed(ev.QueuesSet(self.now(), written))

    def pools_change(self) -> None:
        """Zones are for other types of work, or for all; now and then two pools choose a node."""
        pools = tuple(
            Pool(
                zones,
                Selector((Requirement("zone", Operator.IN, tuple(zones)),)),
                tuple(each for each in WorkloadType if self.chance.random() < 0.7),
                (),
                self.chance.choice([None, *PlacementPolicy]),
                ("size", "zone"),
                mixes_queues=self.chance.random() < 0.3,
            )
            for zones, often in (("a", 0.4), ("ab", 0.1), ("b", 0.4))
            if self.chance.random() < often
        )
        self.feed(ev.PoolsSet(self.now(), pools))

    def arrives(self) -> None:
        """A workload arrives, which may ask for the same as another; uids tell no order."""
        self.numbers += 1
        sets = tuple(
            PodSet(
                "set",
                self.chance.choice([1, 1, 2, 3, 5]),
                self.some_request(),
                self.chance.choice([None, 1]),
            )
            for _ in range(self.chance.choice([1, 1, 1, 2]))
        )
        if self.world.entries and self.chance.random() < 0.4:
            sets = self.chance.choice(list(self.world.entries.values())).workload.pod_sets
        uid = f"w{self.chance.randrange(1000):03}-{self.numbers}"
        workload = Workload(
            uid,
            sets,
            queue=self.chance.choice(["a", "a", "b", "c", "default"]),
            type=self.chance.choice(list(WorkloadType)),
            priority=self.chance.randrange(3),
            created_us=self.now(),
            spare=self.chance.random() < 0.3,
        )
        self.feed(ev.WorkloadSubmitted(self.time, workload))

    def is_adopted(self) -> None:
        """A pod of somebody else is found running, whether or not there is room."""
        self.numbers += 1
        request, name = self.some_request(), self.chance.choice(NAMES)
        workload = Workload(f"adopted{self.numbers}", (PodSet("set", 1, request),), queue="b")
        place = Placement(0, name, self.some_leaves(name, request.devices.count))
        self.feed(ev.WorkloadAdopted(self.now(), workload, (place,)))

    def ends(self) -> None:
        """A workload ends or is cancelled."""
        if self.world.entries:
            uid = self.chance.choice(list(self.world.entries))
            self.feed(ev.WorkloadEnded(self.now(), uid, Outcome.COMPLETED))

    def pod_ends(self) -> None:
        """A pod is gone."""
        if (pod := self.some_pod()) is not None:
            self.feed(ev.PodEnded(self.now(), *pod))

    def pod_starts(self) -> None:
        """A pod runs, as it may have done already."""
        if (pod := self.some_pod()) is not None:
            self.feed(ev.PodStarted(self.now(), *pod))

    def start_fails(self) -> None:
        """A pod does not start; the news may be late or wrong."""
        if (pod := self.some_pod()) is not None:
            attempt = self.world.entries[pod[0]].attempt - (self.chance.random() < 0.1)
            self.feed(ev.StartFailed(self.now(), pod[0], attempt, pod[1]))

    def pod_moves(self) -> None:
        """A pod is elsewhere now."""
        if (pod := self.some_pod()) is not None:
            held = self.world.entries[pod[0]].held[pod[1]]
            name = self.chance.choice(NAMES)
            place = Placement(pod[1], name, self.some_leaves(name, len(held.leaves)))
            self.feed(ev.PodMoved(self.now(), pod[0], place))

    def cycle_with_ample_budget(self) -> None:
        """Whatever can be decided is."""
        self.decide(AMPLE)

    def cycle_with_small_budget(self) -> None:
        """Some of it is."""
        self.decide(self.chance.choice([1, 2, 4]))

    def decide(self, budget: int) -> Cycle:
        """Run a cycle, which leaves the world as it was, and what is decided changes it."""
        before = {name: array.copy() for name, array in self.world.fleet.arrays().items()}
        came = cycle(self.world, self.policy, self.now(), SEED, Budget(budget))
        for name, array in self.world.fleet.arrays().items():
            assert np.array_equal(before[name], array), name
        assert self.loop.turn(self.time, budget) == came
        for examined in came.examined:
            entry = self.world.entries.get(examined.uid)  # it may be refused
            group = entry.group if entry is not None else None
            for _, _, uid in group.members if group is not None else ():
                self.looked_at[uid] = self.time
        if any(isinstance(each, Start | Resize) for each in came.decisions):
            self.taken_at = self.time
        self.nobody_hears_twice(came)
        if came.complete:
            check_answers(self.world)
            self.nobody_who_fits_waits(came)
        return came

    def nobody_hears_twice(self, came: Cycle) -> None:
        """Who starts is not told to wait, and nobody is told two things."""
        heard: list[str] = []
        for decision in came.decisions:
            happened[type(decision).__name__] += 1
            if isinstance(decision, Wait):
                heard += decision.workloads
            elif isinstance(decision, Start):
                heard.append(decision.workload)
        assert len(heard) == len(set(heard))

    def nobody_who_fits_waits(self, came: Cycle) -> None:
        """After a complete cycle another has nothing to say, even if it looks at everyone.

        Unless it asked to look again by then.
        """
        again_us = self.now()
        if came.look_again_us is not None and came.look_again_us <= again_us:
            return
        again = cycle(self.world, self.policy, again_us, SEED, Budget(AMPLE))
        assert tuple(filter(self.is_late, again.decisions)) == ()
        afresh = World()
        for event in self.world.snapshot(self.time):
            if isinstance(event, ev.GroupRestored):
                event = replace(event, asleep=False)  # noqa: PLW2901
            if isinstance(event, ev.RoomRestored):
                event = replace(event, freed=True)  # noqa: PLW2901
            afresh.apply(event)
        look = cycle(afresh, self.policy, self.time, SEED, Budget(AMPLE))
        late = [each for each in look.decisions if isinstance(each, Start | Resize | Retract)]
        assert all(map(self.by_chance, late))

    def is_late(self, _: Decision) -> bool:
        """Whether a decision ought to have been made in the cycle before."""
        return True

    def by_chance(self, decision: Start | Resize | Retract) -> bool:
        """Whether a gang starts only as others have taken room since it was looked at.

        One pod is placed after the other, so that it may be laid out better in less room.
        """
        gang = isinstance(decision, Start) and len(decision.placements) > 1
        return gang and self.looked_at.get(decision.workload, 0) <= self.taken_at

    def restart(self) -> None:
        """A snapshot makes an equal world, which decides alike and may go on in its place."""
        events = tuple(self.world.snapshot(self.time))
        again = World()
        for event in events:
            again.apply(event)
        assert tuple(again.snapshot(self.time)) == events
        mine = cycle(self.world, self.policy, self.time, SEED, Budget(AMPLE))
        assert cycle(again, self.policy, self.time, SEED, Budget(AMPLE)) == mine
        if self.chance.random() < 0.5:
            self.restarted = True
            self._go_on_with(again)

    def story_is_that_of_the_world(self) -> None:
        """It has the same workloads, in the same places."""
        assert self.story.lives.keys() == self.world.entries.keys()
        for uid, entry in self.world.entries.items():
            life = self.story.lives[uid]
            assert {place.pod: place for place in life.placements} == entry.held
            assert life.attempt == entry.attempt

    def is_replayed(self) -> None:
        """The recording decides alike and ends in the same world."""
        if self.restarted:
            return
        world, differences = replay(self.recorded, self.policy, SEED)
        assert not differences
        assert list(world.snapshot(self.time)) == list(self.world.snapshot(self.time))


def lived(seed: int, kind: type[Day] = Day, steps: int = STEPS) -> Day:
    """A day, at its end."""
    try:
        day = kind(seed)
        for _ in range(steps):
            day.step()
        day.is_replayed()
    except Exception as error:
        error.add_note(f"That was the {kind.__name__} of seed {seed}.")
        raise
    return day


def live_through(days: int, kind: type[Day] = Day, steps: int = STEPS) -> None:
    """Live through the days of the first seeds and count anew what has `happened`."""
    happened.clear()
    first = int(os.environ.get("SHOAL_FIRST_SEED", "0"))
    for seed in range(first, first + days):
        lived(seed, kind, steps)


@pytest.mark.parametrize("seed", range(len(POLICIES)))
def test_what_caches_forget_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that remember little and caches that hold little cost time, and nothing else."""
    recorded = lived(seed).recorded
    monkeypatch.setattr(fleet, "ChangeLog", lambda: ChangeLog(capacity=2))
    monkeypatch.setattr(eligibility, "CACHED_ANSWERS", 0)
    monkeypatch.setattr(board, "CACHED_SCORES", 32)
    assert lived(seed).recorded == recorded


def test_random_days() -> None:
    """Many days, on which everything that can happen does."""
    days = settings().max_examples
    live_through(days)
    assert happened[Resize.__name__] >= days // 50
    for kind in (Start, Retract, Wait, ev.PodMoved, ev.StartFailed, ev.NodeLost, ev.DeviceReturned):
        assert happened[kind.__name__] >= days // 2, kind
