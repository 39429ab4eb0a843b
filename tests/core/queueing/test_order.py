"""Whose turn it is: the orders of queues, users, aging, past use and changed priorities."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.decisions import Start
from shoal.core.queueing.order import in_turn
from shoal.core.queueing.precedence import priority_of
from shoal.core.tenancy.past import Past
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.queue import EvictionBounds, Order, Priority, Queue, QueueTree
from shoal.model.workload import Outcome, Workload
from tests.core.build import decide, node, world_of
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work

HOUR_US = 60 * MINUTE_US


def submit(world: World, *workloads: Workload) -> list[str]:
    """Submit work in this order of age, let all of it wait, and return it in its turn."""
    for number, workload in enumerate(workloads):
        made = replace(workload, created_us=workload.created_us or number + 1)
        world.apply(ev.WorkloadSubmitted(number + 1, made))
    waiting = [entry for entry in world.entries.values() if entry.group is not None]
    return [entry.workload.uid for entry in in_turn(world, "q", waiting)]


def starts(world: World, nodes: int) -> list[str]:
    """Give a world devices one by one, and return who started, in order."""
    order = []
    for number in range(nodes):
        world.apply(ev.NodeSeen(1000 + number, node(f"n{number}", 1)))
        came = decide(world, now_us=2000 + number)
        order += [each.workload for each in came.decisions if isinstance(each, Start)]
    return order


def in_order(
    order: Order,
    *workloads: Workload,
    aging_us: int | None = None,
) -> list[str]:
    """Return in which order work of a queue starts, which is what `in_turn` says.

    Nobody could be evicted as soon as he started.
    """
    protected = EvictionBounds(minimum_run_us=HOUR_US)
    world = World()
    q = queue("q", order=order, aging_us=aging_us, eviction=protected)
    world.apply(ev.QueuesSet(0, tree(q)))
    said = submit(world, *workloads)
    assert starts(world, len(workloads)) == said
    return said


LONG = work("q/long", run_us=100, priority=5)
SHORT = work("q/short", run_us=10)
UNKNOWN = work("q/unknown", priority=9)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.FIFO, ["q/long", "q/unknown", "q/short"]),
        (Order.PRIORITY, ["q/unknown", "q/long", "q/short"]),
        (Order.SHORTEST, ["q/short", "q/long", "q/unknown"]),
        (Order.LEAST_ATTAINED_SERVICE, ["q/long", "q/unknown", "q/short"]),
    ],
)
def test_the_orders_of_a_queue(order: Order, expected: list[str]) -> None:
    """By age; by priority; by declared run time, unknown last; nobody had a device yet."""
    assert in_order(order, LONG, UNKNOWN, SHORT) == expected


@pytest.mark.parametrize(
    ("ahead_us", "first"), [(2 * HOUR_US - 1, "q/new"), (2 * HOUR_US, "q/old")]
)
def test_waiting_counts_like_priority(ahead_us: int, first: str) -> None:
    """Two points are worth two hours; at the same worth the older one goes first."""
    old = work("q/old", created_us=HOUR_US)
    new = work("q/new", created_us=HOUR_US + ahead_us, priority=2)
    assert in_order(Order.PRIORITY, new, old, aging_us=HOUR_US)[0] == first


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(-3, 3)), min_size=2, max_size=6))
def test_aging_never_reorders_who_waits(arrivals: list[tuple[int, int]]) -> None:
    """The order of two is the same whenever they are looked at, and whoever else came between."""
    workloads = [
        work(f"q/{number}", created_us=created_us, priority=priority)
        for number, (created_us, priority) in enumerate(arrivals)
    ]
    world = World()
    world.apply(ev.QueuesSet(0, tree(queue("q", order=Order.PRIORITY, aging_us=7))))
    whole = submit(world, *workloads)
    for pair in permutations(workloads, 2):
        alone = World()
        alone.apply(ev.QueuesSet(10**9, tree(queue("q", order=Order.PRIORITY, aging_us=7))))
        assert submit(alone, *pair) == [uid for uid in whole if uid in {each.uid for each in pair}]


def test_users_have_their_turns() -> None:
    """Ann came with four before Ben and Cleo; each start makes it the next user's turn."""
    workloads = [
        *(work(f"q/ann{number}", user="ann") for number in range(4)),
        *(work(f"q/ben{number}", user="ben") for number in range(2)),
        work("q/cleo0", user="cleo"),
    ]
    assert in_order(Order.FAIR, *workloads) == [
        "q/ann0",
        "q/ben0",
        "q/cleo0",
        "q/ann1",
        "q/ben1",
        "q/ann2",
        "q/ann3",
    ]


def test_a_user_who_holds_less_goes_first_whatever_the_age() -> None:
    """A job of three devices puts Ann behind three jobs of one device of Ben."""
    case = Case([node("n", 8)], tree(queue("q", order=Order.FAIR)))
    case.submit(work("q/a0", 3, user="ann"), work("q/x", 5, user="cleo"))
    case.to(1)
    case.submit(work("q/a1", user="ann"), *(work(f"q/b{n}", user="ben") for n in range(4)))
    case.to(2)
    case.end("q/x")
    assert [case.starts(f"q/b{n}") for n in range(4)] == [["2:00"]] * 4
    assert case.starts("q/a1") == ["2:00"]
    waiting = [each for each in case.world.entries.values() if each.group is not None]
    assert waiting == []


def test_within_a_users_work_priority_counts() -> None:
    """It orders what is one's own, and nobody else's."""
    low, high = work("q/low", user="ann"), work("q/high", user="ann", priority=9)
    assert in_order(Order.FAIR, low, high, work("q/ben", user="ben")) == [
        "q/high",
        "q/ben",
        "q/low",
    ]


def test_least_attained_service_counts_all_starts() -> None:
    """What was evicted after an hour is behind what never ran, and keeps that in a snapshot."""
    lender = queue("a", 1, reclaim_within_us=0)
    case = Case([node("n", 1)], tree(lender, queue("q", order=Order.LEAST_ATTAINED_SERVICE)))
    case.submit(batch("q/ran"))
    case.to(60)
    case.submit(work("a/w"))
    case.submit(batch("q/new"))
    assert case.evictions == [("60:00", "q/ran", (0,))]
    assert case.world.entries["q/ran"].served_device_us == HOUR_US
    again = World()
    for event in case.world.snapshot(case.now_us):
        again.apply(event)
    assert again.entries["q/ran"].order == case.world.entries["q/ran"].order
    case.end("a/w")
    assert (case.starts("q/new"), case.starts("q/ran")) == (["60:00"], ["0:00"])


def test_a_changed_order_counts_from_the_next_cycle() -> None:
    """The same work, sorted anew: groups that users had together come apart, and together again."""
    world = World()
    world.apply(ev.QueuesSet(0, tree(queue("q", order=Order.FIFO))))
    workloads = [
        work("q/1", user="ann", run_us=30),
        work("q/2", user="ann", run_us=20),
        work("q/3", user="ben", run_us=10),
    ]
    assert submit(world, *workloads) == ["q/1", "q/2", "q/3"]
    decide(world)
    for order, expected in (
        (Order.SHORTEST, ["q/3", "q/2", "q/1"]),
        (Order.FAIR, ["q/1", "q/3", "q/2"]),
        (Order.PRIORITY, ["q/1", "q/2", "q/3"]),
    ):
        world.apply(ev.QueuesSet(1, tree(queue("q", order=order))))
        waiting = list(world.entries.values())
        assert [each.workload.uid for each in in_turn(world, "q", waiting)] == expected
        decide(world)


def test_q07_changed_priorities_count_from_the_next_cycle() -> None:
    """Q07: job-1 comes to count 3000; job-3, given p1 later, is second of two behind it."""

    def named(p1: int, p2: int) -> QueueTree:
        table = (Priority("p1", p1), Priority("p2", p2))
        protected = EvictionBounds(minimum_run_us=30 * MINUTE_US)
        return tree(queue("q", priorities=table, eviction=protected))

    case = Case([node("n1", 1)], named(1000, 2000))
    case.submit(work("job-2", name="q", priority_name="p2"))
    case.to(1)
    case.submit(work("job-1", name="q", priority_name="p1"))
    case.to(10)
    case.set_queues(named(3000, 500))
    worth = {
        uid: priority_of(case.world.tenants.tree, entry.workload)
        for uid, entry in case.world.entries.items()
    }
    assert worth == {"job-1": 3000, "job-2": 500}
    case.to(12)
    case.submit(work("job-3", name="q"))
    case.to(13)
    case.happen(ev.PrioritySet(0, "job-3", "p1"))
    assert priority_of(case.world.tenants.tree, case.world.entries["job-3"].workload) == 3000
    waiting = [each for each in case.world.entries.values() if each.group is not None]
    order = [each.workload.uid for each in in_turn(case.world, "q", waiting)]
    assert order == ["job-1", "job-3"]
    case.to(30)
    assert case.evicted == [("30:00", "job-2", 30)]
    assert case.starts("job-1") == ["30:00"]
    case.run_on()


def test_a_name_that_no_table_has_is_worth_nothing() -> None:
    """The table above is asked where the queue has none of its own; without a name, nobody is."""
    above = Queue("root", priorities=(Priority("high", 7),))
    world = World()
    world.apply(ev.QueuesSet(0, tree(queue("q"), root=above)))
    known = work("q/1", priority_name="high", priority=1)
    unknown = work("q/2", priority_name="gone", priority=2)
    nameless, elsewhere = work("q/3", priority=3), work("other/4", priority_name="gone", priority=4)
    named = (known, unknown, nameless, elsewhere)
    assert [priority_of(world.tenants.tree, each) for each in named] == [7, 0, 3, 4]


def test_a_name_that_is_granted_no_longer_evicts_nobody() -> None:
    """What comes under that name counts like what has none."""
    before = tree(queue("q", priorities=(Priority("urgent", 100), Priority("normal", 0))))
    case = Case([node("n", 1)], before)
    case.submit(work("q/runs", priority_name="normal"))
    case.set_queues(tree(queue("q", priorities=(Priority("normal", 0),))))
    case.to(1)
    case.submit(work("q/new", priority=100, priority_name="urgent"))
    case.to(60)
    assert case.evictions == []
    assert case.starts("q/new") == []


def test_what_no_table_names_may_be_evicted_by_the_least_that_one_does() -> None:
    """The least of the table is worth 5, and what runs without a name nothing."""
    q = queue(
        "q", priorities=(Priority("least", 5),), eviction=EvictionBounds(minimum_run_us=HOUR_US)
    )
    case = Case([node("n", 1)], tree(q))
    case.submit(work("q/nameless"))
    case.to(1)
    case.submit(work("q/least", priority_name="least"))
    case.to(90)
    assert case.evicted == [("60:00", "q/nameless", 60)]


def test_among_users_who_hold_the_same_the_more_urgent_work_goes_first() -> None:
    """As it does in a queue without users; here nobody could be evicted at once."""
    assert in_order(
        Order.FAIR, work("q/ann", user="ann"), work("q/ben", user="ben", priority=1)
    ) == [
        "q/ben",
        "q/ann",
    ]


# Between queues -------------------------------------------------------------------------------


def test_a_lowered_weight_counts_a_tenth() -> None:
    """Nine for b before a has its next."""
    case = Case([node("n", 12)], tree(queue("a"), queue("b")))
    case.world.tenants.lowered.add("a")
    case.submit(work("a/all", 12))
    for number in range(12):
        case.submit(work(f"a/{number}"), work(f"b/{number}"))
    case.end("a/all")
    assert (case.holds("a"), case.holds("b")) == (2000, 10_000)


def test_past_use_counts_and_is_forgotten() -> None:
    """a held all four devices for long; what is freed goes to b until a's past is forgotten."""
    root = Queue("root", usage_half_life_us=HOUR_US)
    case = Case([node("n", 4)], tree(queue("a"), queue("b"), root=root))
    case.submit(*(work(f"a/{number}") for number in range(4)))
    case.to(600)
    case.submit(*(work(f"a/w{number}") for number in range(4)))
    case.submit(*(work(f"b/w{number}") for number in range(4)))
    case.end(*(f"a/{number}" for number in range(4)))
    assert (case.holds("a"), case.holds("b")) == (0, 4000)
    assert 3_990_000 < case.world.tenants.past_units("a")["H100"] * 1_000_000 // UNIT <= 4_000_000
    case.to(660)
    case.end(*(f"b/w{number}" for number in range(3)))
    assert case.world.tenants.past_units("a")["H100"] * 100 // UNIT in {199, 200}
    assert (case.holds("a"), case.holds("b")) == (3000, 1000)


def test_past_use_survives_snapshots_and_changed_queues() -> None:
    """To the last unit, so that a restored world decides as the one that went on."""
    root = Queue("root", usage_half_life_us=HOUR_US)
    case = Case([node("n", 4)], tree(queue("a"), queue("b"), root=root))
    case.submit(work("a/0", 3), work("b/0", 1))
    case.to(77)
    case.end("a/0")
    again = World()
    for event in case.world.snapshot(case.now_us):
        again.apply(event)
    for world in (case.world, again):
        changed = tree(queue("a", weight=3), queue("b"), queue("c"), root=root)
        world.apply(ev.QueuesSet(case.now_us, changed))
        world.apply(ev.WorkloadEnded(90 * MINUTE_US, "b/0", Outcome.COMPLETED))
    for name in ("root", "a", "b", "c"):
        past = case.world.tenants.past_units(name)
        assert past == again.tenants.past_units(name)
        assert bool(past) == (name != "c")
    other = replace(root, usage_half_life_us=3 * HOUR_US)
    before = again.tenants.past_units("a")["H100"]
    again.apply(ev.QueuesSet(90 * MINUTE_US, tree(queue("a"), queue("b"), root=other)))
    assert abs(again.tenants.past_units("a")["H100"] - before) <= 2


@given(
    st.lists(st.tuples(st.integers(0, 3 * HOUR_US), st.integers(0, 8)), max_size=12),
    st.integers(0, HOUR_US),
)
def test_past_use_is_the_weighted_average(changes: list[tuple[int, int]], after_us: int) -> None:
    """Within 20 millionths of what floating-point integration says, of eight devices."""
    past = Past(HOUR_US, 0, ["q"], {"H100": 1})
    now_us = held = 0
    expected = 0.0
    for wait_us, devices in (*changes, (after_us, 0)):
        kept = 0.5 ** (wait_us / HOUR_US)
        expected = expected * kept + held * (1 - kept)
        now_us += wait_us
        past.clock(now_us)
        assert abs(past.average(0, [0, held * UNIT])[1] / UNIT - expected) < 8 * 20e-6
        past.book(0, 1, (devices - held) * UNIT)
        held = devices


def test_looking_at_past_use_changes_nothing() -> None:
    """However often a clock is set between two changes, the numbers after them are the same."""
    often, seldom = (Past(1000, 0, ["q"], {"H100": 1}) for _ in range(2))
    for past in (often, seldom):
        past.book(0, 1, 3 * UNIT)
    for now_us in range(0, 9_999, 7):
        often.clock(now_us)
    for past in (often, seldom):
        past.clock(9_999)
        past.book(0, 1, -UNIT)
        past.clock(12_345)
    assert often.average(0, [0, 2 * UNIT]) == seldom.average(0, [0, 2 * UNIT])


def test_work_on_other_devices_does_not_hide_whose_turn_it_is() -> None:
    """Between queues the older next workload goes first where both hold the same."""
    world = world_of()
    world.apply(ev.QueuesSet(0, tree(queue("a"), queue("b"))))
    for uid, created_us in (("a/0", 2), ("b/0", 1)):
        world.apply(ev.WorkloadSubmitted(2, replace(work(uid), created_us=created_us, priority=-1)))
    assert starts(world, 1) == ["b/0"]


def test_whose_work_was_just_evicted_has_its_turn_by_what_is_left() -> None:
    """A queue that held more than another before holds less in the same cycle."""
    case = Case([node("n1", 8)], tree(queue("a", 6), queue("b"), queue("c")))
    case.submit(batch("b/old", 6), batch("c/old", 2))
    case.to(10)
    case.happen(ev.NodeSeen(10 * MINUTE_US, node("n2", 1)))
    case.submit(work("a/new", 6), batch("c/new"), batch("b/new"))
    assert [uid for _, uid, _ in case.evictions] == ["b/old"]
    assert (case.starts("b/new"), case.starts("c/new")) == (["10:00"], [])


def test_waiting_gives_no_right_to_evict() -> None:
    """What has waited for two hours is ahead of what came then, and evicts nobody for it."""
    q = queue("q", 2, order=Order.PRIORITY, aging_us=HOUR_US)
    case = Case([node("n", 2)], tree(q))
    case.submit(work("q/first"), work("q/old", 2))
    case.to(120)
    case.submit(work("q/equal"))
    case.to(130)
    case.end("q/first")
    assert case.starts("q/equal") == ["120:00"]
    case.to(600)
    assert case.evictions == []
    case.submit(work("q/urgent", 2, priority=1))
    assert [uid for _, uid, _ in case.evictions] == ["q/equal"]


def test_the_shortest_is_who_is_expected_to_run_shortest() -> None:
    """Eve, who declared one minute and ran an hour, has five minutes counted as five hours."""
    case = Case([node("n", 1)], tree(queue("q", order=Order.SHORTEST)))
    case.submit(work("q/liar", run_us=MINUTE_US, user="eve"))
    case.to(60)
    case.submit(
        work("q/eve", run_us=5 * MINUTE_US, user="eve"),
        work("q/ben", run_us=HOUR_US, user="ben"),
    )
    case.end("q/liar")
    assert case.starts("q/ben") == ["60:00"]
    assert case.starts("q/eve") == []


def test_of_several_accelerators_the_one_counts_of_which_a_queue_holds_most() -> None:
    """q holds one of eight H100 and six of eight A100, r three H100: the next is for r."""
    nodes = [node("h", 8), node("a", 8, accelerator="A100")]
    case = Case(nodes, tree(queue("q"), queue("r"), queue("s")))
    case.submit(work("q/h", accelerators=("H100",)), work("q/a", 6, accelerators=("A100",)))
    case.submit(work("r/h", 3, accelerators=("H100",)))
    case.submit(work("s/one", accelerators=("H100",)), work("s/h", 3, accelerators=("H100",)))
    case.submit(work("q/next", accelerators=("H100",)), work("r/next", accelerators=("H100",)))
    case.end("s/one")
    assert case.starts("r/next") == ["0:00"]
    assert case.starts("q/next") == []
