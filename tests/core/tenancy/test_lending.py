"""Exchange rates, and limits on what is borrowed and lent."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.model.fractions import UNIT
from shoal.model.queue import UNITS, Queue, QueueTree, Quota
from shoal.model.verdict import OverQuota, Reason
from shoal.model.workload import WorkloadType
from tests.core.build import node
from tests.core.cases import Case, batch, queue, tree, work

NOTEBOOK = WorkloadType.NOTEBOOK
RATES = (("A100", 400), ("H100", 1000))
MIXED = [node("h", 4), node("a", 8, accelerator="A100")]


def rated(*queues: Queue, root: Queue | None = None) -> QueueTree:
    """A tree with exchange rates: an A100 counts two fifths of an H100."""
    return replace(tree(*queues, root=root), rates=RATES)


def of(name: str, guarantee: Quota | None = None, limit: Quota = (), parent: str = "root") -> Queue:
    """A queue with quotas in any words."""
    return Queue(name, parent, guarantee=guarantee, limit=limit)


def test_a_limit_in_units_counts_all_accelerators_by_their_rates() -> None:
    """Three units: two H100 and two A100 are 2.8; another A100 would make 3.2."""
    case = Case(MIXED, rated(of("q", limit=((UNITS, 3),))))
    case.submit(batch("q/h", 2, accelerators=("H100",)), batch("q/a", 2, accelerators=("A100",)))
    assert (case.starts("q/h"), case.starts("q/a")) == (["0:00"], ["0:00"])
    case.submit(batch("q/x", accelerators=("A100",)))
    expected = OverQuota(Reason.LIMIT, "q", UNITS, 28 * UNIT // 10, 4 * UNIT // 10, 3 * UNIT)
    assert case.verdict("q/x").over_quota == expected


def test_what_units_bar_on_a_dear_accelerator_starts_on_a_cheap_one() -> None:
    case = Case(MIXED, rated(of("q", limit=((UNITS, 1),))))
    case.submit(batch("q/x", 2))
    assert case.nodes_of("q/x") == ["a"]


def test_a_guarantee_in_units_covers_children_guaranteed_in_accelerators() -> None:
    """Root 3 units, of which x is promised one H100: two units are left, five A100 for y."""
    queues = (of("x", (("H100", 1),)), of("y", ()))
    case = Case(MIXED, rated(*queues, root=Queue("root", guarantee=((UNITS, 3),))))
    case.submit(*(work(f"y/{k}", accelerators=("A100",), type_=NOTEBOOK) for k in range(6)))
    assert case.holds("y") == 5000
    case.submit(work("x/0", accelerators=("H100",), type_=NOTEBOOK))
    assert case.starts("x/0") == ["0:00"]


def test_a_promise_in_a_group_counts_as_its_dearest_accelerator() -> None:
    """x may hold its one device as an H100, so y gets one unit of two, and no more."""
    queues = (of("x", (("A100|H100", 1),)), of("y", ()))
    case = Case(MIXED, rated(*queues, root=Queue("root", guarantee=((UNITS, 2),))))
    case.submit(*(work(f"y/{k}", accelerators=("A100",), type_=NOTEBOOK) for k in range(4)))
    assert case.holds("y") == 2000
    case.submit(work("x/0", accelerators=("A100",), type_=NOTEBOOK))
    assert case.starts("x/0") == ["0:00"]
    assert case.holds("y") == 2000, "x may hold it as an H100 the next time"


def test_what_is_not_held_needs_no_cover() -> None:
    """Two H100 are the team's to give; that none of a's one unit is left for A100 harms nobody."""
    queues = (of("team", (("H100", 3),)), of("a", ((UNITS, 1),), parent="team"))
    case = Case(MIXED, rated(*queues))
    case.submit(work("a/0", 2, type_=NOTEBOOK, accelerators=("H100",)))
    assert case.starts("a/0") == ["0:00"]
    assert case.world.tenants.debts() == {}


def test_what_covers_one_accelerator_is_not_used_up_by_another() -> None:
    """The team's A100 would cover b's, but then a's notebook on H100 had nothing that covers it."""
    group = (("A100|H100", 2),)
    queues = (
        of("team", (("A100", 2),)),
        of("lab", group, parent="team"),
        of("a", (), parent="lab"),
        of("b", (), parent="lab"),
    )
    case = Case(MIXED, rated(*queues))
    case.submit(work("a/0", 1, type_=NOTEBOOK, accelerators=("H100",)))
    case.submit(work("b/0", 2, type_=NOTEBOOK, accelerators=("A100",)))
    assert case.holds("b") == 0
    over = OverQuota(Reason.GUARANTEE, "lab", "A100|H100", UNIT, 2 * UNIT, 2 * UNIT)
    assert case.verdict("b/0").over_quota == over
    case.submit(work("b/1", 1, type_=NOTEBOOK, accelerators=("A100",)))
    assert case.starts("b/1") == ["0:00"], "the group has one left"
    case.end("a/0", "b/1")
    assert case.starts("b/0") == ["0:00"]


def test_a_debt_on_one_accelerator_is_made_no_larger_by_another() -> None:
    """a holds three A100 where its unit covers two; H100 that the team covers come elsewhere."""
    queues = (of("team", (("H100", 3),)), of("a", ((UNITS, 1),), parent="team"))
    case = Case(MIXED, rated(*queues))
    for number in range(3):
        case.adopt(work(f"a/{number}", type_=NOTEBOOK, accelerators=("A100",)), "a")
    debts = case.world.tenants.debts()
    assert debts == {("guarantee", "a\0A100"): UNIT // 5}
    case.submit(work("a/new", type_=NOTEBOOK, accelerators=("H100",)))
    assert (case.starts("a/new"), case.world.tenants.debts()) == ([], debts)
    case.end("a/0", "a/1", "a/2")
    assert case.starts("a/new") == ["0:00"]


def test_a_queue_borrows_up_to_its_limit() -> None:
    """Guaranteed two, may borrow one: the fourth waits, with the sum."""
    case = Case([node("n", 8)], tree(replace(queue("q", 2), borrow=(("H100", 1),)), queue("r", 2)))
    case.submit(*(batch(f"q/{k}") for k in range(4)))
    assert case.holds("q") == 3000
    expected = OverQuota(Reason.BORROW_LIMIT, "q", "H100", UNIT, UNIT, UNIT)
    assert case.verdict("q/3").over_quota == expected
    case.end("q/0")
    assert case.starts("q/3") == ["0:00"]


def test_a_team_borrows_up_to_its_limit_whichever_project_it_is() -> None:
    queues = (
        Queue("team", "root", borrow=(("H100", 1),)),
        Queue("x", "team", guarantee=(("H100", 2),)),
        Queue("y", "team"),
    )
    case = Case([node("n", 8)], tree(*queues))
    case.submit(*(batch(f"y/{k}") for k in range(5)))
    assert case.holds("y") == 3000, "two that are guaranteed to x, one from outside"
    over = case.verdict("y/3").over_quota
    assert over is not None
    assert (over.reason, over.queue) == (Reason.BORROW_LIMIT, "team")


def test_what_is_not_lent_stays_free_for_its_queue() -> None:
    """Guaranteed four and lending one of eight: others hold at most five."""
    lender = replace(queue("a", 4), lend=(("H100", 1),))
    case = Case([node("n", 8)], tree(lender, queue("b")))
    case.submit(*(batch(f"b/{k}") for k in range(7)))
    assert case.holds("b") == 5000
    expected = OverQuota(Reason.LEND_LIMIT, "a", "H100", 5 * UNIT, UNIT, 5 * UNIT)
    assert case.verdict("b/5").over_quota == expected
    case.submit(*(batch(f"a/{k}") for k in range(3)))
    assert case.holds("a") == 3000, "at once, without an eviction"
    assert not case.evictions
    case.submit(work("a/3"))
    assert case.holds("a") == 4000
    assert len(case.evictions) == 1, "the one that it lent"


def test_used_devices_need_not_be_kept() -> None:
    """Of four, two are used: with one lent, one stays free."""
    lender = replace(queue("a", 4), lend=(("H100", 1),))
    case = Case([node("n", 8)], tree(lender, queue("b")))
    case.submit(batch("a/0"), batch("a/1"))
    case.submit(*(batch(f"b/{k}") for k in range(7)))
    assert case.holds("b") == 5000
    case.end("a/0")
    assert case.holds("b") == 5000
    case.submit(batch("a/2"), batch("a/3"))
    assert case.holds("a") == 3000


def test_a_project_keeps_what_it_does_not_lend_from_its_own_team() -> None:
    queues = (
        Queue("team", "root", guarantee=(("H100", 6),), lend=(("H100", 2),)),
        Queue("x", "team", guarantee=(("H100", 3),), lend=(("H100", 0),)),
        Queue("y", "team", guarantee=(("H100", 3),)),
        Queue("z", "root"),
    )
    case = Case([node("n", 8)], tree(*queues))
    case.submit(*(batch(f"z/{k}") for k in range(8)))
    assert case.holds("z") == 4000, "eight less the four that the team does not lend"
    case = Case([node("n", 8)], tree(*queues))
    case.submit(*(batch(f"y/{k}") for k in range(8)))
    assert case.holds("y") == 5000, "eight less the three that x does not lend"
    case.submit(*(batch(f"x/{k}") for k in range(3)))
    assert (case.holds("x"), case.evictions) == (3000, [])


def test_more_devices_let_more_be_lent() -> None:
    lender = replace(queue("a", 4), lend=(("H100", 0),))
    case = Case([node("n", 4)], tree(lender, queue("b")))
    case.submit(batch("b/0"))
    assert case.holds("b") == 0
    case.happen(ev.NodeSeen(0, node("m", 1)))
    assert case.holds("b") == 1000


def test_only_devices_that_work_are_free_for_who_does_not_lend() -> None:
    """Of eight two are out of order: of the six that work four are kept."""
    lender = replace(queue("a", 4), lend=(("H100", 0),))
    case = Case([node("n", 8)], tree(lender, queue("b")))
    case.happen(*(ev.DeviceLost(0, "n", f"n/{number}") for number in (6, 7)))
    case.submit(*(batch(f"b/{k}") for k in range(6)))
    assert case.holds("b") == 2000


def test_what_is_lent_in_units_is_so_many_devices_as_it_pays_for() -> None:
    """One unit is two and a half A100, so of four that are guaranteed two may be lent."""
    lender = replace(of("a", (("A100", 4),)), lend=((UNITS, 1),))
    case = Case([node("a", 8, accelerator="A100")], rated(lender, of("b")))
    case.submit(*(batch(f"b/{k}") for k in range(8)))
    assert case.holds("b") == 6000


@given(
    devices=st.integers(1, 8),
    queues=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 9)), min_size=2, max_size=3
    ),
)
def test_whoever_lends_less_starts_that_much_at_once(
    devices: int, queues: list[tuple[int, int, int]]
) -> None:
    """Whatever others have started: what is guaranteed and not lent needs nobody to go."""
    guaranteed = sum(g for g, _, _ in queues)
    devices = max(devices, guaranteed)
    made = [
        replace(queue(f"q{i}", g), lend=(("H100", lend),)) for i, (g, lend, _) in enumerate(queues)
    ]
    case = Case([node("n", devices, cpu=99)], tree(*made))
    for i, (_, _, demand) in reversed(list(enumerate(queues))):
        case.submit(*(batch(f"q{i}/{k}") for k in range(demand)))
    assert not case.evictions or any(
        case.holds(f"q{i}") > 1000 * max(0, g - lend) for i, (g, lend, _) in enumerate(queues)
    )
    for i, (g, lend, demand) in enumerate(queues):
        assert case.holds(f"q{i}") >= 1000 * min(demand, max(0, g - lend))
