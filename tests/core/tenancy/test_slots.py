"""Guarantees that are kept placeable: so many devices on one node."""

import random
from dataclasses import replace
from itertools import product, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.arrays.charges import Charge
from shoal.core.tenancy.accounts import Bound
from shoal.core.tenancy.slots import Promise
from shoal.core.world import World
from shoal.model.fractions import UNIT
from shoal.model.node import Node
from shoal.model.queue import Queue, QueueTree
from shoal.model.verdict import OverQuota, Reason
from shoal.model.workload import Outcome, WorkloadType
from tests.core.build import device, node, share, whole
from tests.core.cases import Case, batch, queue, tree, work

NOTEBOOK = WorkloadType.NOTEBOOK


def eight(name: str, guarantee: int = 8, devices: int = 8) -> Queue:
    """A queue whose guarantee lies on nodes of eight."""
    return replace(queue(name, guarantee), placeable=(("H100", devices),))


def test_what_is_not_returned_is_kept_off_a_node_of_eight() -> None:
    """The small nodes have room for two notebooks by their CPU; the third waits."""
    nodes = [node("n", 8), node("m", 4, cpu=1), node("o", 4, cpu=1)]
    case = Case(nodes, tree(eight("a"), queue("b", 8)))
    notebooks = [work(f"b/{k}", type_=NOTEBOOK) for k in range(3)]
    notebooks = [
        replace(each, pod_sets=(replace(each.pod_sets[0], request=whole(1)),)) for each in notebooks
    ]
    case.submit(*notebooks)
    assert [case.nodes_of(f"b/{k}") for k in range(2)] in ([["m"], ["o"]], [["o"], ["m"]])
    over = case.verdict("b/2").over_quota
    assert over == OverQuota(Reason.PLACEABLE, "a", "H100", 0, UNIT, 8 * UNIT)
    case.submit(work("a/0", 8))
    assert case.starts("a/0") == ["0:00"]
    case.end("b/0")
    assert case.starts("b/2") == ["0:00"]


@pytest.mark.parametrize("closed", [{"cordoned": True}, {"labels": {}}])
def test_who_is_in_the_way_on_one_node_starts_when_another_may_be_used(
    closed: dict[str, Any],
) -> None:
    """Nothing ends and no device comes: the other node, with one device, is opened."""
    n, m = (node(name, size, labels={"a": "b"}) for name, size in (("n", 8), ("m", 1)))
    case = Case([n, replace(m, **closed)], tree(eight("a"), queue("b", 1)))
    (asked,) = work("b/0").pod_sets
    asked = replace(asked, request=replace(asked.request, selector=(("a", "b"),)))
    case.submit(replace(work("b/0", type_=NOTEBOOK), pod_sets=(asked,)))
    over = case.verdict("b/0").over_quota
    assert over == OverQuota(Reason.PLACEABLE, "a", "H100", 0, UNIT, 8 * UNIT)
    case.happen(ev.NodeSeen(0, m))
    assert case.nodes_of("b/0") == ["m"]


def test_borrowed_devices_may_be_anywhere() -> None:
    """Batch jobs fill both nodes, and make room on one of them."""
    case = Case([node("n", 8), node("m", 8)], tree(eight("a"), queue("b", 2)))
    case.submit(*(batch(f"b/{k}") for k in range(16)))
    assert case.holds("b") == 16_000
    case.submit(work("a/0", 8))
    assert case.starts("a/0") == ["0:00"]
    assert len(case.evictions) == 8


def test_what_began_on_borrowed_devices_goes_although_its_queue_holds_less_by_now() -> None:
    """b is guaranteed four and has ended the four that were no loan; those on a's node go."""
    case = Case([node("n", 4), node("m", 4)], tree(eight("a", 4, 4), queue("b", 4)))
    case.submit(*(work(f"b/{k}", 1) for k in range(4)))
    case.submit(*(batch(f"b/x{k}") for k in range(4)))
    case.end("b/0", "b/1", "b/2", "b/3")
    lent = case.nodes_of("b/x0")
    assert {case.nodes_of(f"b/x{k}")[0] for k in range(4)} == set(lent)
    other = next(iter({"n", "m"} - set(lent)))
    case.happen(ev.NodeCordoned(0, other, cordoned=True))
    case.submit(work("a/0", 4))
    assert case.nodes_of("a/0") == lent
    assert len(case.evictions) == 4
    case.happen(ev.NodeCordoned(0, other, cordoned=False))
    assert case.holds("b") == 4000


def test_a_policy_that_spreads_is_overruled() -> None:
    """Work within a guarantee goes where it leaves the slot, whatever scores best."""
    nodes = [node("n", 4, cpu=64), node("m", 8, cpu=8)]
    case = Case(nodes, tree(eight("a"), queue("b", 4)))
    case.submit(*(work(f"b/{k}") for k in range(4)))
    assert {case.nodes_of(f"b/{k}")[0] for k in range(4)} == {"n"}


def test_the_own_work_is_in_the_way_of_nobody() -> None:
    case = Case([node("n", 8), node("m", 8)], tree(eight("a", 16), queue("b", 0)))
    case.submit(*(work(f"a/{k}", type_=NOTEBOOK) for k in range(16)))
    assert case.holds("a") == 16_000


def test_slots_of_two_queues_do_not_overlap() -> None:
    """a and b are promised four together each, and c gets eight beside them."""
    nodes = [node("n", 7), node("m", 7), node("o", 2)]
    case = Case(nodes, tree(eight("a", 4, 4), eight("b", 4, 4), queue("c", 8)))
    case.submit(*(work(f"c/{k}", type_=NOTEBOOK) for k in range(8)))
    assert case.holds("c") == 8000
    case.submit(work("a/0", 4), work("b/0", 4))
    assert (case.holds("a"), case.holds("b")) == (4000, 4000)


def test_shares_on_a_device_that_is_held_anyway_break_no_slot() -> None:
    case = Case([node("n", 4)], tree(eight("a", 3, 3), queue("b", 1)))
    requests = [work(f"b/{k}", type_=NOTEBOOK) for k in range(3)]
    shared = [
        replace(each, pod_sets=(replace(each.pod_sets[0], request=share(300)),))
        for each in requests
    ]
    case.submit(*shared)
    assert case.holds("b") == 900
    case.submit(work("a/0", 3))
    assert case.starts("a/0") == ["0:00"]


def test_a_device_that_is_lost_is_a_debt_that_only_falls() -> None:
    case = Case([node("n", 9)], tree(eight("a", 8), queue("b", 1)))
    case.happen(ev.DeviceLost(0, "n", "n/0"), ev.DeviceLost(0, "n", "n/1"))
    assert case.world.tenants.debts() == {("placeable", "a\0H100"): 8 * UNIT}
    case.submit(work("b/0", type_=NOTEBOOK))
    assert case.starts("b/0") == ["0:00"], "there is no slot that it could break"
    case.to(5)
    assert case.world.tenants.debts() == {}, "six devices are no promise of eight"


def test_a_device_that_is_lost_with_who_holds_it_is_no_loss_to_a_slot() -> None:
    case = Case([node("n", 9)], tree(eight("a"), queue("b", 1)))
    case.submit(work("b/0", type_=NOTEBOOK))
    (held,) = case.world.entries["b/0"].held.values()
    case.happen(ev.DeviceLost(0, "n", held.leaves[0]))
    assert case.world.tenants.debts() == {}


def test_what_a_project_is_promised_is_part_of_what_its_team_is() -> None:
    """Two nodes are the team's, and of these one is a's; for its other work b has the other."""
    queues = (
        eight("team", 16),
        replace(eight("a"), parent="team"),
        replace(queue("b", 8), parent="team"),
        queue("c", 8),
    )
    case = Case([node("n", 8), node("m", 8), node("o", 8)], tree(*queues))
    assert case.world.tenants.debts() == {}
    case.submit(*(work(f"c/{k}", type_=NOTEBOOK) for k in range(8)))
    case.submit(*(work(f"b/{k}", type_=NOTEBOOK) for k in range(8)))
    assert (case.holds("c"), case.holds("b")) == (8000, 8000)
    assert len({name for k in range(8) for name in case.nodes_of(f"b/{k}")}) == 1
    case.submit(work("a/0", 8))
    assert (case.starts("a/0"), case.evictions) == (["0:00"], [])
    case.end("a/0")
    assert case.world.tenants.debts() == {}


def test_smaller_slots_of_projects_lie_inside_those_of_the_team() -> None:
    """Neither project is promised a whole node, and together they need no more than the team."""
    below = [replace(eight(name, 8, 4), parent="team") for name in "ab"]
    queues = (eight("team", 16), *below, eight("c"))
    case = Case([node("n", 8), node("m", 8), node("o", 8)], tree(*queues))
    assert case.world.tenants.debts() == {}
    case.submit(*(work(f"a/{k}", 4) for k in range(2)), *(work(f"b/{k}", 4) for k in range(2)))
    case.submit(work("c/0", 8))
    assert case.starts("c/0") == ["0:00"]
    assert case.world.tenants.debts() == {}


def test_a_snapshot_remembers_what_began_on_borrowed_devices() -> None:
    case = Case([node("n", 4), node("m", 4)], tree(eight("a", 4, 4), queue("b", 2)))
    case.submit(*(batch(f"b/{k}") for k in range(5)))
    case.end("b/0", "b/1", "b/2")
    events = tuple(case.world.snapshot(case.now_us))
    again = World()
    for event in events:
        again.apply(event)
    assert tuple(again.snapshot(case.now_us)) == events
    assert again.tenants.slots.pins() == case.world.tenants.slots.pins()


def slots_there(world: World, devices: int) -> int:
    """Slots for queue a, counted from what the workloads say of themselves."""
    count = 0
    for name, row in world.fleet.row_of.items():
        seen = world.fleet.nodes[row]
        assert seen is not None
        free = len(seen.devices)
        for entry in world.entries.values():
            good = entry.workload.queue != "a" and (entry.borrowed is None or entry.borrowed < 1)
            for placement in entry.held.values():
                if good and placement.node == name:
                    free -= len(placement.leaves)
        count += free // devices
    return count


@given(st.randoms(use_true_random=False))
def test_the_promised_slots_are_there_at_every_instant(chance: random.Random) -> None:
    """Whatever comes and goes: given that all that began on borrowed devices may be evicted."""
    nodes: list[Node] = [node(f"n{i}", chance.choice([2, 4, 8]), cpu=99) for i in range(4)]
    devices = chance.choice([2, 4])
    total = sum(len(each.devices) for each in nodes)
    fits = sum(len(each.devices) // devices for each in nodes)
    promised = chance.randint(0, fits)
    others = total - promised * devices
    given_b = chance.randint(0, others)
    queues = (
        eight("a", promised * devices, devices),
        queue("b", given_b),
        queue("c", others - given_b),
    )
    case = Case(nodes, tree(*queues))
    for step in range(30):
        if chance.random() < 0.65 or not case.world.entries:
            name = chance.choice("abbcc")
            type_ = chance.choice([NOTEBOOK, WorkloadType.TRAINING, WorkloadType.BATCH])
            pods, each = chance.choice([(1, 1), (1, 1), (1, 2), (2, 1), (3, 1), (1, devices)])
            case.submit(work(f"{name}/{step}", each, pods=pods, type_=type_))
        else:
            uid = chance.choice(sorted(case.world.entries))
            case.feed(ev.WorkloadEnded(case.now_us, uid, Outcome.COMPLETED))
            case.turn()
        assert case.world.tenants.missing_slots() == {}
        assert slots_there(case.world, devices) >= promised
    case.end(*(uid for uid, each in case.world.entries.items() if each.workload.queue == "a"))
    for number in range(promised):
        case.happen(ev.EvictionsResumed(0, "a person"))
        case.submit(work(f"a/last{number}", devices))
        assert len(case.starts(f"a/last{number}")) == 1


TREE = (("root", ""), ("team", "root"), ("a", "team"), ("b", "team"), ("c", "root"))


@given(st.randoms(use_true_random=False))
def test_on_one_node_there_are_as_many_slots_as_there_can_be(chance: random.Random) -> None:
    """Each promise in turn has as many as it can, given those before: all ways are tried."""
    cards = [chance.choice(["H100", "A100"]) for _ in range(chance.randint(1, 5))]
    made = [device(f"n/{k}", accelerator) for k, accelerator in enumerate(cards)]
    world = World()
    world.apply(ev.NodeSeen(0, Node("n", 1000, 1000, 110, tuple(made))))
    words = chance.sample(["H100", "A100", "H100|A100"], 1)
    queues = [
        Queue(
            name,
            parent,
            placeable=tuple(
                (word, chance.randint(1, 3)) for word in words if chance.random() < 0.7
            ),
        )
        for name, parent in TREE
    ]
    world.tenants.set_tree(QueueTree(tuple(queues)))
    slots = world.tenants.slots
    held = []
    for number in [k for k in range(len(cards)) if chance.random() < 0.5]:
        queue_of, borrowed = chance.choice("abc"), chance.choice([-1, 0, 1, 2])
        charges = (Charge(cards[number], f"n/{number}", UNIT, "n"),)
        slots.pin(queue_of, charges, borrowed, 1)
        held.append((number, queue_of, borrowed))
    worth = {each.queue: chance.randint(0, 5) * UNIT for each in slots.promises}
    missing = slots.missing(lambda name, word: Bound(word, (word,), worth.get(name, 0)))
    usable = [
        [
            number
            for number, promise in enumerate(slots.promises)
            if card in promise.accelerators and not _in_the_way(promise, k, held)
        ]
        for k, card in enumerate(cards)
    ]
    taken: list[int] = []
    for number, promise in enumerate(slots.promises):
        wanted = worth[promise.queue] // (promise.devices * UNIT)
        most = max(
            count
            for count in range(wanted + 1)
            if _have_room(slots.promises, usable, [*taken, count * promise.devices])
        )
        taken.append(most * promise.devices)
        assert missing.get(number, 0) == wanted - most


def _in_the_way(promise: Promise, device: int, held: list[tuple[int, str, int]]) -> bool:
    """Whether somebody holds a device for good, as seen from a promise's queue."""
    parents = dict(TREE)
    for number, name, borrowed in held:
        path = [name, *takewhile(bool, (parents[name], parents.get(parents[name], "")))]
        common = next(height for height, at in enumerate(path) if at in promise.path)
        if number == device and promise.queue not in path and borrowed < common:
            return True
    return False


def _have_room(promises: list[Promise], usable: list[list[int]], needed: list[int]) -> bool:
    """Whether each promise may have so many devices; those of queues above share theirs."""
    for way in product(*([None, *each] for each in usable)):
        counts = [
            sum(
                1
                for device, at in enumerate(way)
                if at is not None
                and number in usable[device]
                and promise.queue in promises[at].path
            )
            for number, promise in enumerate(promises)
        ]
        if all(count >= need for count, need in zip(counts, needed, strict=False)):
            return True
    return False


@pytest.mark.parametrize("filled", [0, 7, 8])
@pytest.mark.parametrize("type_", [WorkloadType.NOTEBOOK, WorkloadType.TRAINING])
def test_others_take_their_guarantee_back_beside_a_node_that_is_promised(
    filled: int, type_: WorkloadType
) -> None:
    """Devices are free on the node that is promised to v, and on the other one a job has to go."""
    queues = tree(eight("v"), queue("other", 8), queue("b"))
    case = Case([node("n1", 8), node("n2", 8)], queues)
    case.adopt(work("other/n0", type_=WorkloadType.NOTEBOOK), "n2")
    for at, count in (("n2", 7), ("n1", filled)):
        for number in range(count):
            case.adopt(batch(f"b/{at}-{number}"), at)
    case.to(30)
    case.submit(work("other/w", type_=type_))
    assert case.starts("other/w") == ["30:00"]
    assert len(case.evicted) == 1
