"""Who shares a device with whom, and how much a shared device isolates."""

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Start
from shoal.core.validate import InvariantError, Validator, check
from shoal.loop.records import decode, encode
from shoal.model.isolation import PRESETS
from shoal.model.modes import Cap
from shoal.model.node import Node
from shoal.model.pool import Pool
from shoal.model.queue import Queue, QueueTree
from shoal.model.request import DeviceRequest, Operator, Request, Requirement
from shoal.model.selector import Selector
from shoal.model.verdict import Obstacle, Reason
from shoal.model.workload import Outcome, Placement, PodSet, Workload, WorkloadType
from tests.core.build import device, divided, world_of
from tests.core.cases import Case, queue, tree

QUEUES = tree(queue("red", 8), queue("blue", 8), Queue("red/a", "red"), Queue("red/b", "red"))
BATCH, INFERENCE = WorkloadType.BATCH, WorkloadType.INFERENCE


def share(
    uid: str,
    floor: str = "shared",
    *,
    pods: int = 1,
    type_: WorkloadType = BATCH,
    apart: str = "",
    keeps: bool = False,
) -> Workload:
    """Work in the queue that its uid begins with; each pod asks for a tenth of a device."""
    asked = DeviceRequest(1, False, 0, 100, floor=PRESETS[floor], apart=apart, keeps_to_party=keeps)
    sets = (PodSet("main", pods, Request(devices=asked)),)
    return Workload(uid, sets, queue=uid.rpartition("/")[0], type=type_)


def shared_node(name: str, devices: int = 1, cap: Cap = Cap.NONE) -> Node:
    """A node whose devices take eight tenants each."""
    cards = tuple(device(f"{name}/{number}", cap=cap) for number in range(devices))
    return Node(name, 100_000, 1_000, 110, cards, {"kubernetes.io/hostname": name})


def leaves_of(case: Case, uid: str) -> list[str]:
    """The leaves that a workload holds."""
    held = case.world.entries[uid].held
    return [leaf for _, place in sorted(held.items()) for leaf in place.leaves]


def mixing(name: str) -> Pool:
    """A pool of one node on which queues may share devices."""
    chosen = Selector((Requirement("kubernetes.io/hostname", Operator.IN, (name,)),))
    return Pool(name, chosen, tuple(WorkloadType), (), mixes_queues=True)


@pytest.mark.parametrize(
    ("floor", "holds"),
    [
        ("shared", "abcde"),
        ("soft", "bcde"),
        ("driver", "cde"),
        ("hardware", "de"),
    ],
)
def test_a_share_is_on_a_leaf_that_isolates_as_much_as_it_asks_for(floor: str, holds: str) -> None:
    """Nothing, a library, the driver, a partition, a device of one tenant: from weak to strong."""
    cards = {
        "a": device("a"),
        "b": device("b", cap=Cap.LIBRARY),
        "c": device("c", cap=Cap.DRIVER),
        "d": divided("d", 2, "H100"),
        "e": device("e", tenants=1),
    }
    for name, card in cards.items():
        case = Case([Node(name, 8_000, 100, 9, (card,))], QUEUES)
        case.submit(share("red/a/w", floor))
        assert bool(case.starts("red/a/w")) == (name in holds), name
        if name not in holds:
            assert case.verdict("red/a/w").obstacles == (Obstacle(Reason.ISOLATION, 1),)


def test_whole_devices_are_alone_wherever_they_are() -> None:
    case = Case([shared_node("n")], QUEUES)
    whole = Request(devices=DeviceRequest(1, floor=PRESETS["device"]))
    case.submit(Workload("w", (PodSet("main", 1, whole),), queue="blue"))
    assert leaves_of(case, "w") == ["n/0"]


def test_queues_below_one_queue_share_a_device_and_others_do_not() -> None:
    case = Case([shared_node("n", 2)], QUEUES)
    case.submit(share("red/a/1"), share("red/b/1"), share("blue/1"), share("blue/2"))
    red, blue = leaves_of(case, "red/a/1"), leaves_of(case, "blue/1")
    assert red == leaves_of(case, "red/b/1") != blue == leaves_of(case, "blue/2")


def test_who_has_room_only_beside_others_is_told_so_and_starts_when_they_are_gone() -> None:
    case = Case([shared_node("n")], QUEUES)
    case.submit(share("red/a/1"), share("red/b/1"), share("blue/1"))
    assert case.verdict("blue/1").obstacles == (Obstacle(Reason.NEIGHBOURS, 1),)
    case.end("red/a/1")
    assert not case.starts("blue/1")
    case.end("red/b/1")
    assert leaves_of(case, "blue/1") == ["n/0"]


def test_queues_mix_where_the_pool_says_so() -> None:
    case = Case([shared_node("n"), shared_node("m")], QUEUES)
    case.submit(share("red/a/1"), share("red/a/2"))
    case.happen(ev.PoolsSet(0, (mixing("n"), mixing("m"))))
    case.submit(share("blue/1"))
    assert leaves_of(case, "blue/1") == leaves_of(case, "red/a/1")
    case.happen(ev.PoolsSet(0, ()))
    (debt,) = case.validator.debts
    assert (debt.kind, debt.amount) == ("neighbours", 3), "what is there is let be"
    case.submit(share("red/b/3"))
    assert leaves_of(case, "red/b/3") != leaves_of(case, "blue/1")
    case.end("blue/1")
    assert not case.validator.debts


def test_who_keeps_to_its_queue_shares_with_no_other_where_queues_mix() -> None:
    case = Case([shared_node("n", 1, Cap.DRIVER), shared_node("m", 1, Cap.DRIVER)], QUEUES)
    case.happen(ev.PoolsSet(0, (mixing("n"), mixing("m"))))
    case.submit(share("red/a/1", "driver", keeps=True))
    case.submit(share("blue/1", "driver"))
    assert leaves_of(case, "blue/1") != leaves_of(case, "red/a/1"), "it lets no other come to it"
    case.submit(share("red/b/1", "driver", keeps=True))
    assert leaves_of(case, "red/b/1") == leaves_of(case, "red/a/1"), "and goes to no other"
    case.submit(share("red/b/2"))
    case.submit(share("blue/2", "driver", keeps=True))
    assert leaves_of(case, "blue/2") == leaves_of(case, "blue/1")
    case.happen(ev.NodeCordoned(0, case.nodes_of("red/a/1")[0], True))
    case.submit(share("red/a/3"))
    assert not case.starts("red/a/3")
    case.end("blue/2")
    assert leaves_of(case, "red/a/3") == leaves_of(case, "blue/1"), "and without it they mix again"


def test_who_keeps_to_its_queue_has_a_partition_beside_others() -> None:
    card = divided("n/0", 2, "H100")
    case = Case([Node("n", 8_000, 100, 9, (card,))], QUEUES)
    case.submit(share("blue/1"), share("red/a/1", "driver", keeps=True))
    assert case.starts("red/a/1")


def test_who_kept_to_its_queue_and_has_others_beside_it_is_a_debt() -> None:
    case = Case([shared_node("n")], QUEUES)
    case.happen(ev.PoolsSet(0, (mixing("n"),)))
    case.submit(share("blue/1"))
    held = (Placement(0, "n", ("n/0",)),)
    case.happen(ev.WorkloadAdopted(0, share("red/a/1", keeps=True), held))
    assert [(debt.kind, debt.amount) for debt in case.validator.debts] == [("neighbours", 2)]
    case.submit(share("blue/2"))
    assert case.verdict("blue/2").obstacles == (Obstacle(Reason.NEIGHBOURS, 1),)
    case.end("red/a/1")
    assert case.starts("blue/2")


def test_without_queues_everybody_is_one() -> None:
    case = Case([shared_node("n")], QueueTree())
    case.submit(share("red/1"), share("blue/1"))
    assert leaves_of(case, "red/1") == leaves_of(case, "blue/1")


def test_another_tree_makes_other_neighbours_of_what_runs() -> None:
    case = Case([shared_node("n"), shared_node("m")], QUEUES)
    case.submit(share("red/a/1"), share("red/b/1"))
    assert leaves_of(case, "red/a/1") == leaves_of(case, "red/b/1")
    case.set_queues(tree(queue("red/a", 8), queue("red/b", 8)))
    assert [debt.kind for debt in case.validator.debts] == ["neighbours"]
    case.submit(share("red/b/2"))
    assert leaves_of(case, "red/b/2") != leaves_of(case, "red/b/1")
    case.set_queues(QUEUES)
    assert check(case.world) == {}


def test_replicas_of_one_inference_workload_are_on_different_devices() -> None:
    case = Case([shared_node("n", 2)], QUEUES)
    case.submit(share("red/a/s", pods=2, type_=INFERENCE), share("red/a/n", pods=2))
    assert sorted(leaves_of(case, "red/a/s")) == ["n/0", "n/1"]
    assert len(set(leaves_of(case, "red/a/n"))) == 1
    case.submit(share("red/a/t", pods=3, type_=INFERENCE))
    assert case.verdict("red/a/t").obstacles == (Obstacle(Reason.NEIGHBOURS, 1),)


def test_replicas_that_are_workloads_of_their_own_are_kept_apart_by_their_owner() -> None:
    case = Case([shared_node("n", 2)], QUEUES)
    case.submit(*(share(f"red/a/{k}", type_=INFERENCE, apart="owner") for k in range(3)))
    assert {*leaves_of(case, "red/a/0"), *leaves_of(case, "red/a/1")} == {"n/0", "n/1"}
    assert not case.starts("red/a/2")
    case.end("red/a/0")
    assert case.starts("red/a/2")


def forced(floor: str) -> tuple[Case, Validator, ev.Decided]:
    """A share of blue's that is started beside one of red's, whatever the rules say."""
    case = Case([shared_node("n")], QUEUES)
    case.submit(share("red/a/1"), share("blue/1", floor))
    validator = Validator(case.world)
    entry = case.world.entries["blue/1"]
    case.world.wait_no_more(entry)
    case.world.hold(entry, Placement(0, "n", ("n/0",)))
    case.world.begins(entry, 0)
    start = Start("start/blue/1/1", "blue/1", (Placement(0, "n", ("n/0",)),), borrowed=1)
    return case, validator, ev.Decided(0, start)


def test_a_start_beside_strangers_is_found_out() -> None:
    _, validator, event = forced("shared")
    with pytest.raises(InvariantError, match="neighbours"):
        validator.applied(event)


def test_a_start_on_too_little_isolation_is_found_out() -> None:
    case, validator, event = forced("soft")
    case.world.apply(ev.PoolsSet(0, (mixing("n"),)))
    with pytest.raises(InvariantError, match="isolates too little"):
        validator.applied(event)


def test_floors_and_neighbours_are_recorded_and_remembered() -> None:
    case = Case([shared_node("n", 2, Cap.DRIVER)], QUEUES)
    case.happen(ev.PoolsSet(0, (mixing("n"),)))
    kept = share("red/a/1", "driver", pods=2, type_=INFERENCE, keeps=True)
    case.submit(kept, share("red/b/1", "soft"))
    events = tuple(case.world.snapshot(0))
    assert tuple(decode(b"".join(map(encode, events)))) == events
    again = world_of()
    for event in events:
        again.apply(event)
    assert tuple(again.snapshot(0)) == events
    assert check(again) == check(case.world) == {}
    again.apply(ev.WorkloadEnded(1, "red/a/1", Outcome.COMPLETED))
    assert not again.fleet.replicas
