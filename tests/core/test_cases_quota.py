"""The cases Q01, Q04, Q08 and O03: what never starts, what is charged, what is being deleted."""

from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.model.fractions import UNIT
from shoal.model.node import Node
from shoal.model.request import Request
from shoal.model.verdict import Obstacle, OverQuota, Reason, Stage, Wake
from shoal.model.workload import PodSet, Workload, WorkloadType
from tests.core.build import device, node, share, whole
from tests.core.cases import Case, batch, queue, tree, work


def test_q01_what_can_never_fit_neither_blocks_nor_thrashes() -> None:
    case = Case([node("n1", 3)], tree(queue("a", 3, 3), queue("b", limit=3)))
    case.submit(batch("b/w1"))
    case.to(1)
    case.submit(work("a/w4", pods=4))
    verdict = case.verdict("a/w4")
    assert verdict.never
    assert verdict.over_quota == OverQuota(Reason.LIMIT, "a", "H100", 0, 4 * UNIT, 3 * UNIT)
    case.to(2)
    case.submit(work("a/w3", 3))
    assert case.evicted == [("2:00", "b/w1", 2)]
    assert case.starts("a/w3") == ["2:00"]
    assert case.verdict("b/w1").obstacles == (Obstacle(Reason.WHOLE_DEVICES, 1),)
    assert (case.holds("a"), case.holds("b")) == (3000, 0), "three of three are held by a/w3"
    case.run_on()
    case.to(10)
    case.happen(ev.NodeSeen(0, node("n2", 4)))
    case.set_queues(tree(queue("a", 3, 4), queue("b", limit=3)))
    verdict = case.verdict("a/w4")
    assert not verdict.never
    assert verdict.over_quota == OverQuota(Reason.LIMIT, "a", "H100", 3 * UNIT, 4 * UNIT, 4 * UNIT)
    assert (case.starts("b/w1"), case.nodes_of("b/w1")) == (["0:00", "10:00"], ["n2"])
    case.end("a/w3")
    assert case.starts("a/w4") == ["10:00"]
    assert len(case.evictions) == 1


@pytest.mark.parametrize(
    ("type_", "memory_mib", "starts"),
    [
        (WorkloadType.INFERENCE, 49_152, False),
        (WorkloadType.INFERENCE, 40_961, False),
        (WorkloadType.INFERENCE, 40_960, True),
        (WorkloadType.BATCH, 49_152, True),
    ],
)
def test_q04_what_may_not_be_evicted_fits_the_guarantee(
    type_: WorkloadType, memory_mib: int, starts: bool
) -> None:
    cards = tuple(device(f"n1/{i}", "A100-80GB", memory_mib=81_920) for i in range(2))
    queues = (
        queue("serve", 1, 2, accelerator="A100-80GB"),
        queue("lab", 1, accelerator="A100-80GB"),
    )
    case = Case([Node("n1", 32_000, 0, 110, cards)], tree(*queues))
    pods = (PodSet("main", 1, share(0, memory_mib, count=2)),)
    case.submit(Workload("s", pods, "serve", type_))
    assert bool(case.starts("s")) is starts
    if starts:
        assert case.holds("serve") == {40_960: 1000, 49_152: 1200}[memory_mib]
        bound = case.world.tenants.guarantee("serve", "A100-80GB")
        borrowed = case.world.tenants.held("serve", bound) - bound.units
        assert max(0, borrowed) * 1000 // UNIT == {40_960: 0, 49_152: 200}[memory_mib]
        return
    asked = 2 * -(-memory_mib * UNIT // 81_920)
    expected = OverQuota(Reason.GUARANTEE, "serve", "A100-80GB", 0, asked, UNIT)
    assert case.verdict("s").over_quota == expected
    assert case.verdict("s").never, "nothing that ends would help"
    if memory_mib == 49_152:
        assert (asked * 1000 // UNIT, (asked - UNIT) * 1000 // UNIT) == (1200, 200)


def test_q08_a_gang_starts_whole_or_not_at_all_its_head_included() -> None:
    case = Case([node("n1", 8)], tree(queue("ray", limit=4)))
    sets = (PodSet("head", 1, Request(2000)), PodSet("workers", 6, whole(1, 0)))
    case.submit(Workload("rc", sets, "ray", WorkloadType.TRAINING))
    assert case.starts("rc") == []
    verdict = case.verdict("rc")
    assert verdict.never
    assert verdict.over_quota == OverQuota(Reason.LIMIT, "ray", "H100", 0, 6 * UNIT, 4 * UNIT)
    assert case.holds("ray") == 0
    case.to(5)
    case.set_queues(tree(queue("ray", limit=6)))
    assert case.starts("rc") == ["5:00"]
    assert len(case.nodes_of("rc")) == 7
    entry = case.world.entries["rc"]
    entry.started.pop(3)  # it was never bound
    case.to(6)
    case.feed(ev.StartFailed(case.now_us, "rc", entry.attempt, 3))
    case.turn()
    assert case.holds("ray") == 0
    assert not case.world.entries["rc"].held


def test_o03_a_queue_that_is_deleted_with_work_in_it() -> None:
    lab, other = queue("lab", 4), queue("other", 4)
    case = Case([node("n1", 8)], tree(lab, other))
    case.submit(work("lab/a", 1), work("lab/b", 2))
    case.submit(*(work(f"lab/{name}", 6) for name in "cde"))
    case.submit(*(batch(f"other/{k}") for k in range(9)))
    assert case.holds("other") == 5000
    case.to(10)
    case.set_queues(tree(replace(lab, closing=True), other))
    verdict = case.verdict("lab/c")
    assert verdict.over_quota == OverQuota(Reason.CLOSING, "lab")
    assert (verdict.stage, verdict.wakes) == (Stage.QUOTA, (Wake.QUEUES,))
    assert case.holds("lab") == 3000
    assert case.world.tenants.guarantee("lab", "H100").units == 3 * UNIT
    case.to(20)
    case.end("lab/a")
    assert (case.holds("lab"), case.holds("other")) == (2000, 6000)
    case.to(21)
    assert case.world.tenants.guarantee("lab", "H100").units == 2 * UNIT
    case.to(30)
    case.end("lab/b")
    case.set_queues(tree(other))
    assert case.verdict("lab/c").over_quota == OverQuota(Reason.NO_QUEUE, "lab")
    assert case.holds("other") == 8000
    case.to(40)
    case.set_queues(tree(lab, other))
    assert [case.starts(f"lab/{name}") for name in "cde"] == [[], [], []]
    case.end(*(f"other/{k}" for k in range(8)))
    assert [case.starts(f"lab/{name}") for name in "cde"] == [["40:00"], [], []]


def test_a_type_that_a_queue_does_not_grant_waits_until_the_queue_changes() -> None:
    lab = queue("lab", 2, types=(WorkloadType.BATCH,))
    case = Case([node("n1", 2)], tree(lab))
    case.submit(work("lab/n", type_=WorkloadType.NOTEBOOK), batch("lab/b"))
    assert case.starts("lab/b") == ["0:00"]
    assert case.verdict("lab/n").over_quota == OverQuota(Reason.TYPE, "lab")
    assert case.verdict("lab/n").never
    case.set_queues(tree(replace(lab, types=(WorkloadType.BATCH, WorkloadType.NOTEBOOK))))
    assert case.starts("lab/n") == ["0:00"]


def test_never_is_only_said_where_no_accelerator_would_do() -> None:
    """Of two accelerators one is limited; a gang that may use both is limited together."""
    nodes = [node("h", 4), node("a", 4, accelerator="A100")]
    narrow = replace(queue("q"), limit=(("H100", 1), ("A100", 2)))
    case = Case(nodes, tree(narrow))
    case.submit(work("q/x", 3, accelerators=("A100", "H100")), work("q/y", pods=3))
    assert case.verdict("q/x").never
    assert not case.verdict("q/y").never, "one H100 and two A100 might do"
    case.set_queues(tree(replace(narrow, limit=(("A100|H100", 2),))))
    assert case.verdict("q/y").never


@pytest.mark.parametrize("accelerator", ["H100", "units"])
@pytest.mark.parametrize("devices", [9, 999_999, 10**9, 1 << 62])
def test_what_is_more_than_can_be_counted_is_never_started_and_stops_nobody(
    accelerator: str, devices: int
) -> None:
    """By devices as by exchange rates, whole gangs too."""
    queues = replace(tree(queue("q", 0, 8, accelerator=accelerator)), rates=(("H100", 1_734),))
    case = Case([node("n", 8)], queues)
    case.submit(work("q/huge", devices, pods=20_000), work("q/one"))
    assert case.verdict("q/huge").never
    assert case.starts("q/one") == ["0:00"]


def test_what_a_queue_above_has_no_use_for_does_not_run_below_it() -> None:
    above = queue("team", types=(WorkloadType.BATCH,))
    case = Case([node("n", 2)], tree(above, replace(queue("a"), parent="team")))
    case.submit(work("a/training"), batch("a/batch"))
    over = case.verdict("a/training").over_quota
    assert over is not None
    assert (over.reason, over.queue) == (Reason.TYPE, "team")
    assert case.starts("a/batch") == ["0:00"]


def test_a_limit_further_up_binds_a_gang_that_may_have_several_accelerators() -> None:
    """Two are held of four; three pods that may lie on either would make it five."""
    team = replace(queue("team"), limit=(("A100|H100", 4),))
    nodes = [node("h", 4), node("a", 4, accelerator="A100")]
    case = Case(nodes, tree(team, replace(queue("x"), parent="team")))
    case.submit(work("x/h", 2, accelerators=("H100",)))
    case.submit(work("x/gang", pods=3, accelerators=("A100", "H100")))
    over = case.verdict("x/gang").over_quota
    assert over is not None
    assert (over.queue, over.used_units, over.asked_units) == ("team", 2 * UNIT, 3 * UNIT)
    case.submit(work("x/two", pods=2, accelerators=("A100", "H100")))
    assert case.starts("x/two") == ["0:00"]
