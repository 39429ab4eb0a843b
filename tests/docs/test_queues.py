"""The worked examples of the page on queues: the core decides in the numbers that stand there."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.placing.spreading import ZONE
from shoal.model.fractions import UNIT
from shoal.model.isolation import PRESETS
from shoal.model.modes import Cap
from shoal.model.node import Node
from shoal.model.pool import Pool
from shoal.model.queue import Queue
from shoal.model.request import DeviceRequest, Request
from shoal.model.selector import Selector
from shoal.model.verdict import Obstacle, OverQuota, Reason, Wake
from shoal.model.workload import PodSet, Workload, WorkloadType
from shoal.texts.verdicts import over_quota_text
from tests.core.build import device, node, share
from tests.core.cases import Case, batch, queue, tree, work
from tests.docs.page import Page

PAGE = Page("queues.md")
NOTEBOOK, INFERENCE = WorkloadType.NOTEBOOK, WorkloadType.INFERENCE


def told(case: Case, uid: str) -> str:
    """What somebody who waits is told of the rule that he would break."""
    over = case.verdict(uid).over_quota
    assert over is not None
    return over_quota_text(over)


def below(parent: str, made: Queue) -> Queue:
    """The queue under another one than the root."""
    return replace(made, parent=parent)


def promised(name: str, guarantee: int, together: int = 8) -> Queue:
    """A queue whose guarantee lies together on nodes."""
    return replace(queue(name, guarantee), placeable=(("H100", together),))


# Charges and neighbours ---------------------------------------------------------------------------


def test_a_share_is_charged_the_larger_of_its_two_fractions() -> None:
    PAGE.says(
        "A share of 40 GiB of an 80 GiB card with 10 % of its compute is charged half a device.",
        "rounded up to 1/840,000 of a device",
    )
    card = Node("n", 8_000, 0, 110, (device("n/0", memory_mib=80 * 1024),))
    case = Case([card], tree(queue("a", 1)))
    for uid, compute_milli, memory_mib in (("a/x", 100, 40 * 1024), ("a/y", 0, 1)):
        request = share(compute_milli, memory_mib)
        case.submit(Workload(uid, (PodSet("main", 1, request),), "a", WorkloadType.BATCH))
    assert case.holds("a") == 500
    last = -(-UNIT // (80 * 1024))
    assert sum(case.world.tenants.used_units("a").values()) == UNIT // 2 + last


def beside(uid: str, type_: WorkloadType, *, floor: str = "", apart: str = "") -> Workload:
    """A tenth of a device, with the floor of its type unless it writes one."""
    default = {NOTEBOOK: "soft", INFERENCE: "driver"}[type_]
    keeps = type_ is INFERENCE and not floor
    asked = DeviceRequest(
        1, False, 0, 100, floor=PRESETS[floor or default], keeps_to_party=keeps, apart=apart
    )
    return Workload(uid, (PodSet("main", 1, Request(devices=asked)),), uid.partition("/")[0], type_)


def of_two(cap: Cap = Cap.DRIVER, *pools: Pool) -> Case:
    """Two devices, and `research` with `vision` and `speech` below it beside `product`."""
    cards = tuple(device(f"n/{number}", cap=cap) for number in range(2))
    teams = [below("research", Queue(name)) for name in ("vision", "speech")]
    top = Queue("root", guarantee=(("H100", 2),))
    queues = [Queue(name, "root") for name in ("research", "product")]
    case = Case([Node("n", 100_000, 1_000, 110, cards)], tree(*queues, *teams, root=top))
    case.happen(ev.PoolsSet(0, pools))
    return case


def leaf(case: Case, uid: str) -> str:
    """The device that a pod is on."""
    return case.world.entries[uid].held[0].leaves[0]


def test_only_teams_of_one_part_of_the_organisation_share_a_device() -> None:
    PAGE.says("a notebook of vision and one of speech may lie on one device, and neither ever lies")
    case = of_two()
    case.submit(beside("vision/x", NOTEBOOK), beside("speech/y", NOTEBOOK))
    assert leaf(case, "vision/x") == leaf(case, "speech/y")
    case.submit(beside("product/s", INFERENCE))
    assert leaf(case, "product/s") != leaf(case, "vision/x")
    case.submit(beside("product/n", NOTEBOOK))
    assert leaf(case, "product/n") == leaf(case, "product/s")
    full = of_two()
    full.submit(beside("vision/x", NOTEBOOK), work("vision/whole", type_=WorkloadType.BATCH))
    full.submit(beside("product/s", INFERENCE))
    assert full.verdict("product/s").obstacles == (Obstacle(Reason.NEIGHBOURS, 1),)


@pytest.mark.parametrize(
    ("cap", "floor", "waits"),
    [(Cap.LIBRARY, "", True), (Cap.DRIVER, "", False), (Cap.LIBRARY, "soft", False)],
)
def test_work_whose_floor_is_reached_nowhere_is_told_so(cap: Cap, floor: str, waits: bool) -> None:
    PAGE.says("is told that devices isolate too little")
    case = of_two(cap)
    case.submit(beside("product/s", INFERENCE, floor=floor))
    assert bool(case.starts("product/s")) is not waits
    if waits:
        assert case.verdict("product/s").obstacles == (Obstacle(Reason.ISOLATION, 1),)


def test_where_an_administrator_says_so_queues_share_devices_but_for_inference() -> None:
    PAGE.says("Where an administrator has written `sharedBetweenQueues: true`")
    pool = Pool("p", Selector(()), tuple(WorkloadType), (), mixes_queues=True)
    case = of_two(Cap.DRIVER, pool)
    case.submit(beside("vision/x", NOTEBOOK), beside("product/n", NOTEBOOK))
    case.submit(beside("product/soft", INFERENCE, floor="soft"))
    assert leaf(case, "vision/x") == leaf(case, "product/n") == leaf(case, "product/soft")
    case.submit(beside("product/s", INFERENCE))
    assert leaf(case, "product/s") != leaf(case, "vision/x")
    case.submit(*(beside(f"vision/{k}", NOTEBOOK) for k in range(6)))
    assert all(leaf(case, f"vision/{k}") != leaf(case, "product/s") for k in range(5))


def test_two_replicas_of_a_service_share_no_device() -> None:
    PAGE.says("Two replicas of one inference service never share a device at all")
    case = of_two()
    case.submit(*(beside(f"product/{k}", INFERENCE, apart="service") for k in range(3)))
    assert leaf(case, "product/0") != leaf(case, "product/1")
    assert case.starts("product/2") == []


def test_replicas_are_spread_over_zones_and_then_over_nodes() -> None:
    PAGE.says(
        "Of four replicas in zones a, with three nodes, and b, with one, two run in a, on different"
        " nodes, and two in b.",
        "where only one node has room, they run side by side there, on devices of their own",
    )
    zones = {"a1": "a", "a2": "a", "a3": "a", "b1": "b"}
    nodes = [node(name, 4, labels={ZONE: zone}) for name, zone in zones.items()]
    case = Case(nodes, tree(queue("team", 16)))
    case.submit(work("team/s", pods=4, type_=INFERENCE))
    first, second, *rest = sorted(case.nodes_of("team/s"))
    assert (first[0], second[0], rest) == ("a", "a", ["b1", "b1"])
    assert first != second
    alone = Case([node("n", 4)], tree(queue("team", 4)))
    alone.submit(work("team/s", pods=4, type_=INFERENCE))
    held = alone.world.entries["team/s"].held.values()
    assert len({place.leaves for place in held}) == 4


# Limits -------------------------------------------------------------------------------------------


def test_one_who_would_exceed_a_limit_is_told_by_how_much_and_whose() -> None:
    case = Case([node("n", 8), node("m", 16)], tree(queue("vision", limit=20)))
    case.submit(work("vision/x", 8))
    case.submit(work("vision/y", 16))
    PAGE.says(told(case, "vision/y"))
    assert told(case, "vision/y") == (
        "Queue vision holds 8 H100; with 16 more it would hold 24 of limit 20."
    )


def test_a_gang_counts_whole() -> None:
    PAGE.says("with 18 of 20 held, a gang of four one-device pods waits, and a single pod starts.")
    case = Case([node("n", 24)], tree(queue("vision", limit=20)))
    case.submit(work("vision/x", 18))
    case.submit(work("vision/gang", pods=4), work("vision/one"))
    assert case.starts("vision/one") == ["0:00"]
    assert case.starts("vision/gang") == []
    PAGE.says("looked at again when something that the limit counts has ended, or when the queues")
    assert case.verdict("vision/gang").wakes == (Wake.QUOTA,)
    case.to(1)
    case.end("vision/one")
    assert case.verdict("vision/gang").over_quota == OverQuota(
        Reason.LIMIT, "vision", "H100", 18 * UNIT, 4 * UNIT, 20 * UNIT
    )
    case.set_queues(tree(queue("vision", limit=22)))
    assert case.starts("vision/gang") == ["1:00"]


def test_a_limit_of_a_team_binds_its_projects_together_and_one_accelerator_leaves_others() -> None:
    PAGE.says("so a team's limit binds its projects together", "is placed on the other")
    team = replace(queue("team"), limit=(("A100", 9), ("H100", 4)))
    nodes = [node("h", 8), node("a", 8, accelerator="A100")]
    projects = [below("team", queue(name)) for name in ("p", "q")]
    case = Case(nodes, tree(team, *projects))
    case.submit(work("p/x", 4, accelerators=("H100",)))
    case.submit(work("q/h", 2, accelerators=("H100",)))
    assert told(case, "q/h") == "Queue team holds 4 H100; with 2 more it would hold 6 of limit 4."
    case.submit(work("q/either", 2, accelerators=("A100", "H100")))
    assert case.nodes_of("q/either") == ["a"]


@pytest.mark.parametrize(("devices", "begins"), [(3, True), (4, False)])
def test_units_count_each_accelerator_by_its_exchange_rate(devices: int, begins: bool) -> None:
    PAGE.says(
        "holds 20 H100-SXM5-80GB at 1.734, so 34.68 units, may start three more, and not four"
    )
    name = "H100-SXM5-80GB"
    queues = tree(replace(queue("q"), limit=(("units", 40),)))
    nodes = [node("n", 24, accelerator=name)]
    case = Case(nodes, replace(queues, rates=((name, 1_734),)))
    case.submit(work("q/x", 20, accelerators=(name,)))
    case.submit(work("q/more", devices, accelerators=(name,)))
    assert bool(case.starts("q/more")) is begins
    if not begins:
        assert "holds 34.680" in told(case, "q/more")


def test_what_can_never_start_is_told_so_at_once_and_stands_in_nobody_s_way() -> None:
    PAGE.says("four devices in a queue of limit three are one too many, whatever is free.")
    case = Case([node("n", 8)], tree(queue("a", limit=3)))
    case.submit(work("a/four", 4), work("a/one"))
    assert case.verdict("a/four").never
    assert told(case, "a/four") == "Queue a holds 0 H100; with 4 more it would hold 4 of limit 3."
    assert case.starts("a/one") == ["0:00"]
    case.set_queues(tree(queue("a", limit=5)))
    assert case.starts("a/four") == ["0:00"]


def test_a_lowered_limit_ends_nothing_and_only_lets_nothing_be_added() -> None:
    PAGE.says("A limit that is lowered below what is held ends nothing.")
    case = Case([node("n", 8)], tree(queue("a", limit=6)))
    case.submit(work("a/x", 3), work("a/y", 3))
    case.set_queues(tree(queue("a", limit=4)))
    case.submit(work("a/z"))
    assert (case.holds("a"), case.evictions, case.starts("a/z")) == (6000, [], [])
    assert case.world.tenants.debts() == {("limit", "a\0H100"): 2 * UNIT}
    case.end("a/x")
    assert case.starts("a/z") == ["0:00"]


# Guarantees, and who may borrow -------------------------------------------------------------------


def test_a_second_notebook_waits_and_a_training_borrows() -> None:
    PAGE.says("With a guarantee of one device, a team's second notebook waits, and says so;")
    case = Case([node("n", 4)], tree(queue("a", 1), queue("b", 3)))
    case.submit(work("a/1", type_=NOTEBOOK), work("a/2", type_=NOTEBOOK), work("a/training"))
    assert case.starts("a/1") == case.starts("a/training") == ["0:00"]
    assert told(case, "a/2") == (
        "What cannot be returned has to fit a guarantee: queue a would need 2 H100 and is"
        " guaranteed 1."
    )


def test_what_a_queue_above_has_beyond_its_other_children_may_be_used_as_well() -> None:
    PAGE.says("what a queue above it is guaranteed beyond the guarantees of its other children")
    team, p, q = queue("team", 3), queue("p", 1), queue("q", 1)
    case = Case([node("n", 4)], tree(team, below("team", p), below("team", q), queue("b", 1)))
    case.submit(*(work(f"p/{k}", type_=NOTEBOOK) for k in range(3)))
    assert case.holds("p") == 2000
    case.submit(work("q/0", type_=NOTEBOOK))
    assert case.starts("q/0") == ["0:00"]


def lending() -> tuple[Case, int]:
    """a is guaranteed four of eight and lends one; b fills what it may; how many that are."""
    a = replace(queue("a", 4), lend=(("H100", 1),))
    case = Case([node("n", 8)], tree(a, queue("b")))
    case.submit(*(batch(f"b/{k}") for k in range(6)))
    return case, case.holds("b") // 1000


def test_of_four_of_which_one_is_lent_others_hold_five_of_eight() -> None:
    PAGE.says("Others may hold five together; the sixth waits, although three devices are free")
    case, others = lending()
    assert others == 5
    PAGE.says(told(case, "b/5"))
    case.submit(*(work(f"a/{k}") for k in range(3)))
    assert [case.starts(f"a/{k}") for k in range(3)] == [["0:00"]] * 3
    assert case.evictions == []
    case.to(15)
    case.submit(work("a/3"))
    PAGE.says("a starts three at once, and for its fourth device one that it lent is taken back.")
    assert case.starts("a/3") == ["15:00"]
    assert (len(case.evictions), case.holds("b")) == (1, 4000)


@pytest.mark.parametrize(("uses", "free"), [(0, 3), (2, 1), (3, 0)])
def test_what_is_not_lent_stays_free_for_who_lends(uses: int, free: int) -> None:
    PAGE.says(
        "of four devices of which one is lent, three stay free while the queue uses none, one while"
        " it uses two, and none from three on.",
        "While it uses two, others may hold five still",
    )
    case, _ = lending()
    case.submit(*(work(f"a/{k}") for k in range(uses)))
    assert case.holds("b") == 5000
    assert 8 - uses - 5 == free
    assert case.starts("b/5") == []


def test_what_a_team_keeps_and_what_its_projects_keep_is_not_added_up() -> None:
    PAGE.says("is not added up, the larger counts")
    team = replace(queue("team", 4), lend=(("H100", 2),))
    p = below("team", replace(queue("p", 4), lend=(("H100", 1),)))
    case = Case([node("n", 8)], tree(team, p, queue("b")))
    case.submit(*(batch(f"b/{k}") for k in range(8)))
    assert case.holds("b") == 5000


# Together on one node -----------------------------------------------------------------------------


def test_who_would_break_a_promise_of_devices_together_waits_and_is_told_so() -> None:
    case = Case([node("n", 8), node("m", 8)], tree(promised("vision", 8), queue("desk", 8)))
    case.happen(ev.NodeCordoned(0, "m", cordoned=True))
    case.submit(work("desk/x", type_=NOTEBOOK))
    PAGE.says(told(case, "desk/x"))
    case.happen(ev.NodeCordoned(0, "m", cordoned=False))
    assert case.starts("desk/x") == ["0:00"]


def test_sixteen_with_eight_together_are_two_nodes() -> None:
    PAGE.says("`placeable: {H100: 8}` beside `guarantee: {H100: 16}` promises two nodes with eight")
    nodes = [node(name, 8) for name in "nmo"]
    case = Case(nodes, tree(promised("vision", 16), queue("desk", 8)))
    case.submit(*(work(f"desk/{k}", type_=NOTEBOOK) for k in range(8)))
    assert len({case.nodes_of(f"desk/{k}")[0] for k in range(8)}) == 1
    case.submit(work("vision/x", 8), work("vision/y", 8))
    assert case.starts("vision/x") == case.starts("vision/y") == ["0:00"]


def test_notebooks_gather_on_one_of_two_nodes_and_batch_fills_both() -> None:
    PAGE.says(
        "notebooks of another queue with a guarantee of eight gather on one of them, and batch jobs"
        " may fill both."
    )
    queues = tree(promised("vision", 8), queue("desk", 8))
    case = Case([node("n", 8), node("m", 8)], queues)
    case.submit(*(work(f"desk/{k}", type_=NOTEBOOK) for k in range(8)))
    assert len({case.nodes_of(f"desk/{k}")[0] for k in range(8)}) == 1
    other = Case([node("n", 8), node("m", 8)], queues)
    other.submit(*(batch(f"desk/{k}") for k in range(16)))
    assert other.holds("desk") == 16_000
    other.submit(work("vision/x", 8))
    assert other.starts("vision/x") == ["0:00"]


def test_of_a_team_s_two_nodes_one_may_be_a_project_s() -> None:
    PAGE.says("of a team's two nodes of eight, one may be a project's")
    team, one = promised("team", 16), below("team", promised("one", 8))
    other = below("team", queue("other", 8))
    case = Case([node("n", 8), node("m", 8)], tree(team, one, other))
    case.submit(*(work(f"other/{k}", type_=NOTEBOOK) for k in range(8)))
    assert len({case.nodes_of(f"other/{k}")[0] for k in range(8)}) == 1
    case.submit(work("one/x", 8))
    assert case.starts("one/x") == ["0:00"]


# When the fleet shrinks ---------------------------------------------------------------------------


def guaranteed(case: Case, *names: str) -> list[float]:
    """Devices that queues are guaranteed now."""
    return [case.world.tenants.guarantee(name, "H100").units / UNIT for name in names]


def test_guarantees_shrink_in_proportion_and_grow_again() -> None:
    PAGE.says("With 10 of 16 devices left, guarantees of 8, 5 and 3 are worth 5, 3 and 2.")
    queues = tree(queue("a", 8), queue("b", 5), queue("c", 3))
    case = Case([node("n", 10), node("m", 6)], queues)
    case.happen(*(ev.DeviceLost(0, "m", f"m/{k}") for k in range(6)))
    case.to("4:59")
    assert guaranteed(case, "a", "b", "c") == [8, 5, 3]
    case.to(5)
    assert guaranteed(case, "a", "b", "c") == [5, 3, 2]
    case.happen(ev.NodeLost(0, "m"))
    assert guaranteed(case, "a", "b", "c") == [5, 3, 2]
    case.happen(ev.NodeSeen(0, node("m", 6)))
    assert guaranteed(case, "a", "b", "c") == [8, 5, 3]


@pytest.mark.parametrize(("left", "worth"), [(6, [6, 2, 2]), (4, [4, 2, 2]), (3, [3, 2, 1])])
def test_what_a_team_has_beyond_its_projects_goes_first(left: int, worth: list[int]) -> None:
    PAGE.says("a team with 6, of which two projects are promised 2 each, may fall to 4 before")
    projects = [below("team", queue(name, 2)) for name in "pq"]
    case = Case([node("n", left), node("m", 1)], tree(queue("team", 6), *projects))
    case.happen(ev.NodeLost(0, "m"))
    assert guaranteed(case, "team", "p", "q") == worth


# Who waits longest --------------------------------------------------------------------------------


def test_what_a_limit_leaves_is_kept_for_who_has_waited_longest() -> None:
    case = Case([node("n1", 8)], tree(queue("lab", limit=4)))
    case.submit(*(batch(f"lab/{number}") for number in range(4)))
    case.to(1)
    case.submit(work("lab/gang", 4))
    case.to(24 * 60 + 1)
    case.end("lab/0")
    case.submit(batch("lab/next"))
    PAGE.says(told(case, "lab/next"))
    case.end("lab/1", "lab/2", "lab/3")
    assert case.nodes_of("lab/gang") == ["n1"]
