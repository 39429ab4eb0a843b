"""Random fleets, arrivals, departures and losses, with every invariant checked at every step."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import Cycle, cycle
from shoal.core.decisions import Decision, Resize, Start
from shoal.core.demand import ClassPrice, Prices, TaskClass
from shoal.core.foreseen import foreseen
from shoal.core.placing.defragment import propose
from shoal.core.policies import POLICIES, Policy
from shoal.core.validate import Validator, check, check_answers
from shoal.core.world import State, World
from shoal.loop.engine import Loop
from shoal.loop.records import decode, encode
from shoal.loop.replay import replay
from shoal.model.node import Node, Taint, TaintEffect
from shoal.model.queue import UNITS, Period, Queue, QueueTree, WhenSpent
from shoal.model.queue import Budget as Spending
from shoal.model.request import (
    AffinityTerm,
    DeviceRequest,
    Operator,
    Request,
    Requirement,
    Toleration,
    TolerationOperator,
)
from shoal.model.workload import Outcome, Placement, PodSet, Workload, WorkloadType
from tests.core.build import DEMAND, SEED, device, divided, share, whole
from tests.core.build import node as node_of

NAMES = [f"n{i}" for i in range(4)]
LASTING = ["lasting0", "lasting1"]
"""Nodes that stay, so that there is somewhere to run."""
ZONES = ["a", "b"]
TAINT = Taint("kept", TaintEffect.NO_SCHEDULE)

devices = st.lists(st.sampled_from(["H100", "A100", "A100/2", "A100/7"]), min_size=0, max_size=4)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node of a small fleet, sometimes tainted, cordoned, mixed or divided."""
    name = draw(st.sampled_from(NAMES))
    cards = []
    for number, kind in enumerate(draw(devices)):
        card = f"{name}/{number}"
        accelerator, _, parts = kind.partition("/")
        cards.append(divided(card, int(parts)) if parts else device(card, accelerator, tenants=3))
    return Node(
        name=name,
        cpu_milli=1000 * draw(st.integers(0, 16)),
        memory_mib=draw(st.integers(0, 64)),
        pods=draw(st.integers(0, 8)),
        devices=tuple(cards),
        labels={"zone": draw(st.sampled_from(ZONES)), "size": str(draw(st.integers(0, 3)))},
        taints=(TAINT,) if draw(st.integers(0, 4)) == 0 else (),
        cordoned=draw(st.integers(0, 4)) == 0,
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A request of any form."""
    accelerators = draw(st.sampled_from([(), ("H100",), ("A100",), ("H100", "A100")]))
    count = draw(st.integers(0, 3))
    if count and draw(st.booleans()):
        asked = DeviceRequest(
            count,
            whole=False,
            memory_mib=draw(st.integers(0, 40)),
            compute_milli=draw(st.sampled_from([0, 100, 300, 500, 900])),
            accelerators=accelerators,
        )
    else:
        asked = DeviceRequest(count, accelerators=accelerators if count else ())
    sized = Requirement("size", Operator.GT, (str(draw(st.integers(0, 2))),))
    return Request(
        cpu_milli=1000 * draw(st.integers(0, 6)),
        memory_mib=draw(st.integers(0, 24)),
        devices=asked,
        selector=draw(st.sampled_from([(), (("zone", "a"),)])),
        affinity=draw(st.sampled_from([(), (AffinityTerm((sized,)),)])),
        tolerations=draw(st.sampled_from([(), (Toleration("kept", TolerationOperator.EXISTS),)])),
        mask=draw(st.sampled_from(["", "", "", "m"])),
    )


plain = st.sampled_from([whole(1), whole(2), share(300), share(500, 20), Request(2000)])
"""Requests that often meet their like, and find a place where there is room."""

pod_sets = st.lists(
    st.builds(
        PodSet,
        st.just("set"),
        st.integers(1, 3),
        st.one_of(plain, plain, requests()),
        st.sampled_from([None, None, 1]),
    ),
    min_size=1,
    max_size=2,
).map(tuple)


def quota(maximum: int) -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    """What may be written as a guarantee or limit."""
    return st.one_of(
        st.just(()),
        st.tuples(st.tuples(st.just("H100"), st.integers(0, maximum))),
        st.tuples(st.tuples(st.just("H100|A100"), st.integers(0, maximum))),
        st.tuples(
            st.tuples(st.just("H100"), st.integers(0, maximum)),
            st.tuples(st.just("A100"), st.integers(0, maximum)),
        ),
        st.tuples(st.tuples(st.just(UNITS), st.integers(0, maximum))),
    )


HOUR_US = 3_600_000_000

spendings = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        Spending,
        st.just(Period.DAY),
        st.integers(0, 9),
        st.sampled_from([WhenSpent.NO_NEW_STARTS, *WhenSpent]),
    ),
)
"""Budgets of device hours."""

limits = st.one_of(
    st.just(()),
    st.just(()),
    st.just(tuple((type_, 3 * HOUR_US) for type_ in WorkloadType)),
)
"""The longest time that work may run, or wait."""


@st.composite
def trees(draw: st.DrawFn) -> QueueTree:
    """Queues a and b under team, c beside it, and now and then no tree at all."""
    if draw(st.integers(0, 4)) == 0:
        return QueueTree()
    return QueueTree(
        tuple(
            Queue(
                name,
                parent,
                guarantee=draw(quota(3)) or None,
                limit=draw(quota(5)),
                weight=draw(st.integers(1, 3)),
                borrow=draw(st.one_of(st.just(()), quota(2))),
                lend=draw(st.one_of(st.just(()), quota(2))),
                placeable=tuple(
                    (word, each)
                    for word, each in draw(st.one_of(st.just(()), quota(3)))
                    if word != UNITS
                ),
                shrink_after_us=draw(st.integers(0, 9)),
                closing=draw(st.integers(0, 9)) == 0,
                budget=draw(spendings),
                maximum_run_us=draw(limits),
                maximum_wait_us=draw(limits),
            )
            for name, parent in (
                ("root", ""),
                ("team", "root"),
                ("a", "team"),
                ("b", "team"),
                ("c", "root"),
            )
        ),
        rates=(("A100", draw(st.sampled_from([400, 577, 1000]))),),
    )


class CoreMachine(RuleBasedStateMachine):
    """Drives a world through its loop, as an unreliable cluster would."""

    @initialize(name=st.sampled_from(POLICIES))
    def begin(self, name: str) -> None:
        """Take any policy."""
        self.policy = Policy(name, DEMAND)
        self.world = World()
        self.validator = Validator(self.world)
        self.loop = Loop(self.world, self.policy, SEED, self, self, self.validator.applied)
        self.recorded: list[ev.Event] = []
        self.carried_out: set[str] = set()
        self.time = 0
        self.numbers = 0
        for lasting in LASTING:
            self.loop.feed(ev.NodeSeen(0, node_of(lasting, 2, cpu=8, labels={"zone": "a"})))

    def record(self, event: ev.Event) -> None:
        """Be the recorder."""
        self.recorded.append(event)

    def sync(self) -> None:
        """Be the recorder."""

    def settle(self, at_us: int, world: World) -> None:
        """Be the recorder."""

    def carry_out(self, decision: Decision) -> None:
        """Be the executor: no key may come twice."""
        assert decision.key not in self.carried_out, decision.key
        self.carried_out.add(decision.key)

    def now(self) -> int:
        """Return the next instant."""
        self.time += 1
        return self.time

    def some(self, data: st.DataObject, *states: State) -> str | None:
        """Return the uid of some workload in one of these states."""
        uids = [uid for uid, entry in self.world.entries.items() if entry.state in states]
        return data.draw(st.sampled_from(uids)) if uids else None

    @rule(node=nodes())
    def node_seen(self, node: Node) -> None:
        """A node appears, or changes in any way, its devices and what is on them included."""
        self.loop.feed(ev.NodeSeen(self.now(), node))

    @rule(name=st.sampled_from(NAMES))
    def node_lost(self, name: str) -> None:
        """A node is gone."""
        self.loop.feed(ev.NodeLost(self.now(), name))

    @rule(name=st.sampled_from(NAMES + LASTING), cordoned=st.booleans())
    def node_cordoned(self, name: str, cordoned: bool) -> None:
        """A node is closed or opened."""
        self.loop.feed(ev.NodeCordoned(self.now(), name, cordoned))

    @rule(name=st.sampled_from(NAMES + LASTING), number=st.integers(0, 3), lost=st.booleans())
    def device_changes(self, name: str, number: int, lost: bool) -> None:
        """A device breaks or works again."""
        event = ev.DeviceLost if lost else ev.DeviceReturned
        self.loop.feed(event(self.now(), name, f"{name}/{number}"))

    @rule(allowed=st.sets(st.sampled_from(NAMES + LASTING)))
    def mask_set(self, allowed: set[str]) -> None:
        """An adapter says where pods with a mask may run."""
        self.loop.feed(ev.MaskSet(self.now(), "m", tuple(sorted(allowed))))

    @rule(tree=trees())
    def queues_set(self, tree: QueueTree) -> None:
        """Somebody writes other queues."""
        self.loop.feed(ev.QueuesSet(self.now(), tree))

    @rule(tree=trees())
    def other_queues_are_foreseen(self, tree: QueueTree) -> None:
        """What is said before of other queues is what the world finds when it keeps to them."""
        told = tuple(self.world.snapshot(self.time))
        before, after = foreseen(self.world, self.world.tenants.tree, tree, self.time)
        assert tuple(self.world.snapshot(self.time)) == told, "to ask changes nothing"
        for queues, said in ((None, before), (tree, after)):
            then = World()
            for event in told:
                then.apply(event)
            if queues is not None:
                then.apply(ev.QueuesSet(self.time, queues))
            then.tenants.bring_up_to_date()
            assert said.owed == then.tenants.owed()
            due = {uid for _, uid in then.limits.running.due(self.time)}
            assert due <= said.ended.keys() <= due | then.limits.again_us.keys()
            assert said.refused.keys() == {uid for _, uid in then.limits.waiting.due(self.time)}

    @rule(
        name=st.sampled_from(["root", "team", "a", "c"]),
        ahead=st.integers(-1, 1),
        hours=st.integers(1, 4),
    )
    def period_began(self, name: str, ahead: int, hours: int) -> None:
        """A period is said to have begun, at once or late."""
        begin_us = self.now() + min(0, ahead) * HOUR_US
        self.loop.feed(ev.PeriodBegan(self.time, name, begin_us, begin_us + hours * HOUR_US))

    @rule(minutes=st.sampled_from([1, 20, 59, 60, 61, 200]))
    def time_passes(self, minutes: int) -> None:
        """Nothing happens for a while."""
        self.time += minutes * HOUR_US // 60

    @rule(
        classes=st.lists(st.tuples(plain, st.integers(1, 9), st.integers(0, 2000)), max_size=4),
        scarce=st.integers(0, 2000),
    )
    def prices_set(self, classes: list[tuple[Request, int, int]], scarce: int) -> None:
        """Prices were made anew, from whatever demand."""
        priced = tuple(
            ClassPrice(TaskClass(request, weight), 1000 * worth, (("A100", 1000 * scarce),))
            for request, weight, worth in classes
        )
        self.loop.feed(ev.PricesSet(self.now(), Prices(priced, (("H100", scarce),))))

    @rule(data=st.data(), most=st.integers(0, 3))
    def moved(self, data: st.DataObject, most: int) -> None:
        """Room is made for a pod that waits by the moves that are proposed: then it fits."""
        uid = self.some(data, State.WAITING)
        if uid is None:
            return
        before = {name: array.copy() for name, array in self.world.fleet.arrays().items()}
        moves = propose(self.world, self.policy, SEED, uid, most)
        for name, array in self.world.fleet.arrays().items():
            assert np.array_equal(before[name], array), name
        assert len(moves) <= most
        for move in moves:
            assert self.world.entries[move.uid].held[move.pod] == move.source
            self.loop.feed(ev.PodMoved(self.now(), move.uid, move.target))
        if moves:
            entry = self.world.entries[uid]
            board = self.world.board(self.policy, SEED)
            (shape,) = self.world.shapes_of(entry)
            assert board.best(shape, uid, entry.refused) is not None

    @rule(
        sets=pod_sets,
        priority=st.integers(0, 2),
        queue=st.sampled_from(["a", "b", "c", "default"]),
        type_=st.sampled_from(WorkloadType),
        run_us=st.sampled_from([None, None, HOUR_US // 2, 2 * HOUR_US]),
    )
    def submitted(
        self,
        sets: tuple[PodSet, ...],
        priority: int,
        queue: str,
        type_: WorkloadType,
        run_us: int | None,
    ) -> None:
        """A workload arrives, and is decided upon."""
        self.submit(sets, priority, queue, type_, run_us)
        self.turn(1000)

    def submit(
        self,
        sets: tuple[PodSet, ...],
        priority: int,
        queue: str,
        type_: WorkloadType,
        run_us: int | None = None,
    ) -> None:
        """Feed an arrival."""
        self.numbers += 1
        uid = f"w{self.numbers}"
        workload = Workload(uid, sets, queue, type_, priority, self.now(), run_us=run_us)
        self.loop.feed(ev.WorkloadSubmitted(self.time, workload))

    @rule(data=st.data(), priority=st.integers(0, 2))
    def submitted_alike(self, data: st.DataObject, priority: int) -> None:
        """A workload arrives that asks for the same as one that is here."""
        uid = self.some(data, *State)
        if uid is not None:
            like = self.world.entries[uid].workload
            self.submit(like.pod_sets, priority, like.queue, like.type)

    @rule(request=requests(), name=st.sampled_from(NAMES), queue=st.sampled_from(["a", "c", "x"]))
    def adopted(self, request: Request, name: str, queue: str) -> None:
        """A pod of somebody else is found running, whether or not there is room."""
        self.numbers += 1
        uid = f"w{self.numbers}"
        wanted = request.devices.count
        row = self.world.fleet.row_of.get(name)
        known = self.world.fleet.leaves[row] if row is not None else ()
        leaves = (*known, *(f"{name}/unknown{i}" for i in range(wanted)))[:wanted]
        workload = Workload(uid, (PodSet("set", 1, request),), queue, WorkloadType.NOTEBOOK)
        self.loop.feed(ev.WorkloadAdopted(self.now(), workload, (Placement(0, name, leaves),)))

    @rule(data=st.data())
    def ended(self, data: st.DataObject) -> None:
        """A workload ends or is cancelled."""
        uid = self.some(data, *State)
        if uid is not None:
            self.loop.feed(ev.WorkloadEnded(self.now(), uid, Outcome.COMPLETED))

    @rule(data=st.data(), pod=st.integers(0, 5), twice=st.booleans())
    def pod_ended(self, data: st.DataObject, pod: int, twice: bool) -> None:
        """A pod ends; the event may come twice, or be about a pod that is long gone."""
        uid = self.some(data, State.STARTING, State.RUNNING)
        if uid is not None:
            for _ in range(1 + twice):
                self.loop.feed(ev.PodEnded(self.now(), uid, pod))

    @rule(data=st.data(), pod=st.integers(0, 5))
    def pod_started(self, data: st.DataObject, pod: int) -> None:
        """A pod runs."""
        uid = self.some(data, State.STARTING)
        if uid is not None:
            self.loop.feed(ev.PodStarted(self.now(), uid, pod))

    @rule(data=st.data(), late=st.booleans(), gone=st.booleans())
    def start_failed(self, data: st.DataObject, late: bool, gone: bool) -> None:
        """A pod does not start as planned, and may be gone at once; old news may come late."""
        uid = self.some(data, State.STARTING, State.RUNNING)
        if uid is not None:
            entry = self.world.entries[uid]
            pod = data.draw(st.sampled_from(sorted(entry.held)))
            self.loop.feed(ev.StartFailed(self.now(), uid, entry.attempt - late, pod))
            if gone:
                self.loop.feed(ev.PodEnded(self.now(), uid, pod))

    @rule(budget=st.sampled_from([1, 3, 1000, 1000]))
    def decided(self, budget: int) -> None:
        """A cycle runs, with whatever budget."""
        self.turn(budget)

    def turn(self, budget: int) -> None:
        """Run a cycle: the world is the same after it, and a second one has nothing to add."""
        before = {name: array.copy() for name, array in self.world.fleet.arrays().items()}
        came = cycle(self.world, self.policy, self.now(), SEED, Budget(budget))
        for name, array in self.world.fleet.arrays().items():
            assert np.array_equal(before[name], array), name
        assert self.loop.turn(self.time, budget) == came
        if came.complete:
            check_answers(self.world)
            again = self.loop.turn(self.now(), 1000)
            assert not [d for d in again.decisions if isinstance(d, Start)] or came.decisions
        self.nothing_fits_that_waits(came)

    def nothing_fits_that_waits(self, came: Cycle) -> None:
        """After a complete cycle no workload waits that a fresh look would start."""
        if not came.complete or self.world.failed:
            return
        fresh = World()
        for event in self.world.snapshot(self.time):
            if isinstance(event, ev.GroupRestored):
                event = replace(event, asleep=False)  # noqa: PLW2901
            if isinstance(event, ev.RoomRestored):
                event = replace(event, freed=True)  # noqa: PLW2901
            fresh.apply(event)
        look = cycle(fresh, self.policy, self.time, SEED, Budget(1000))
        mine = cycle(self.world, self.policy, self.time, SEED, Budget(1000))
        assert [d for d in look.decisions if isinstance(d, Start)] == [
            d for d in mine.decisions if isinstance(d, Start)
        ]
        if not self.world.spending.accounts:  # what budgets have left changes by time alone
            assert not [d for d in look.decisions if isinstance(d, Resize)]

    @rule()
    def restart(self) -> None:
        """The process ends and comes back from a snapshot: an equal world, the same decisions."""
        events = tuple(self.world.snapshot(self.time))
        again = World()
        for event in events:
            again.apply(event)
        assert tuple(again.snapshot(self.time)) == events
        check(again)
        mine = cycle(self.world, self.policy, self.time, SEED, Budget(1000))
        theirs = cycle(again, self.policy, self.time, SEED, Budget(1000))
        assert theirs == mine, (theirs, mine)

    @invariant()
    def the_books_are_right(self) -> None:
        """Everything free is what nobody holds, and all debts are known to the validator."""
        if hasattr(self, "world"):
            debts = check(self.world)
            assert {(d.kind, d.where): d.amount for d in self.validator.debts} == debts

    def teardown(self) -> None:
        """What was recorded is read back equal and decides equally."""
        if not hasattr(self, "world"):
            return
        read_back = list(decode(b"".join(map(encode, self.recorded))))
        assert read_back == self.recorded
        world, differences = replay(self.recorded, self.policy, SEED)
        assert not differences
        assert list(world.snapshot(0)) == list(self.world.snapshot(0))


TestCore = CoreMachine.TestCase
