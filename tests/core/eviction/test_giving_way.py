"""Places kept ahead, and who within a guarantee takes them."""

import random
from dataclasses import replace

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Freeze, GiveUp
from shoal.core.entry import Entry
from shoal.model.fractions import UNIT
from shoal.model.node import Node
from shoal.model.queue import EvictionBounds, Queue
from shoal.model.verdict import Reason
from shoal.model.workload import PodSet, Workload, WorkloadType
from tests.core.build import node, whole
from tests.core.cases import MINUTE_US, Case, batch, queue, tree, work

STARVES_US = 60 * MINUTE_US
ON_BOTH = (
    PodSet("h", 1, whole(2, 1, "H100")),
    PodSet("a", 1, whole(2, 1, "A100")),
)


def given_up(case: Case) -> list[tuple[str, Reason]]:
    """Whose places were given up, and why."""
    made = [seen.decision for seen in case.seen if isinstance(seen.decision, GiveUp)]
    return [(each.workload, each.reason) for each in made]


def notebook(uid: str, devices: int = 1, **more: object) -> Workload:
    """Work that is never evicted, and so only starts within a guarantee."""
    return work(uid, devices, type_=WorkloadType.NOTEBOOK, **more)  # type: ignore[arg-type]


def fixed(uid: str, devices: int = 1) -> Workload:
    """Work that nobody makes again, and that therefore is never evicted either."""
    return work(uid, devices, recreated=False)


def patient(name: str, guarantee: int) -> Queue:
    """A queue whose work starves after an hour."""
    return queue(name, guarantee, starvation_after_us=STARVES_US)


def starving(*nodes: Node, team: int = 1, gang: Workload | None = None) -> Case:
    """A case in which a gang of lab starves at 60:00, beyond what is guaranteed to it.

    On the first node runs a notebook of lab, nobody knows how long. The gang is kept a place there.
    """
    queues = tree(patient("lab", 1), patient("team", team))
    case = Case(nodes or (node("n1", 2),), queues)
    case.adopt(notebook("lab/note"), "n1")
    case.submit(gang or work("lab/gang", 2))
    case.to(60)
    assert list(case.world.reserving) == ["lab/gang"]
    return case


@pytest.mark.parametrize("type_", WorkloadType)
def test_whoever_is_within_a_guarantee_takes_what_is_kept_beyond_one(type_: WorkloadType) -> None:
    """At once, and nobody is evicted. Whom it was kept for is kept the next place."""
    case = starving()
    case.submit(work("team/w", type_=type_))
    assert case.starts("team/w") == ["60:00"]
    assert case.evicted == []
    assert given_up(case) == [("lab/gang", Reason.RECLAIM)]
    assert list(case.world.reserving) == ["lab/gang"]
    case.end("team/w")
    case.end("lab/note")
    assert case.starts("lab/gang") == ["60:00"]


def test_who_is_beyond_his_own_guarantee_takes_no_place() -> None:
    case = starving()
    case.submit(work("team/w", pods=2))
    case.submit(work("other/w"))
    case.end("lab/note")
    assert case.starts("lab/gang") == ["60:00"]
    assert given_up(case) == []


@pytest.mark.parametrize("kept", [work("lab/gang", 2), notebook("lab/big", 2)])
def test_what_is_kept_within_a_guarantee_does_not_give_way(kept: Workload) -> None:
    """Nor what is kept for what could not be taken back if it ran, nor that of the own queue."""
    nodes = [node("n1", 2), node("n2", 2)]
    case = Case(nodes, tree(patient("lab", 2), patient("team", 2)))
    case.adopt(fixed("other/x"), "n1")
    if kept.type is WorkloadType.NOTEBOOK:
        case.adopt(batch("lab/b", 2), "n2")
    else:
        case.adopt(fixed("other/y", 2), "n2")
    case.submit(kept)
    case.to(60)
    case.submit(fixed("team/w"))
    case.submit(work("lab/w"))
    assert list(case.world.reserving) == [kept.uid]
    assert [case.starts("team/w"), case.starts("lab/w")] == [[], []]


def test_a_place_that_is_kept_until_declared_ends_gives_way_as_well() -> None:
    """Although nobody knows whether whoever takes it ends before."""
    case = Case([node("n1", 2)], tree(queue("lab", 1), queue("team", 1)))
    case.submit(notebook("lab/note", run_us=30 * MINUTE_US))
    case.submit(work("lab/gang", 2))
    assert case.world.entries["lab/gang"].reserved is not None
    case.to(1)
    case.submit(notebook("team/note"))
    assert case.starts("team/note") == ["1:00"]
    assert given_up(case) == [("lab/gang", Reason.RECLAIM)]


def test_who_is_evicted_from_a_place_that_is_kept_ahead_frees_it_for_the_guarantee() -> None:
    """Otherwise evicting would be of no use, as what is freed there is kept for the gang."""
    queues = tree(patient("lab", 1), patient("team", 2), queue("other"))
    case = Case([node("n1", 3)], queues)
    case.adopt(notebook("lab/note"), "n1")
    case.adopt(batch("other/b"), "n1")
    case.submit(work("lab/gang", 3))
    case.to(60)
    assert list(case.world.reserving) == ["lab/gang"]
    case.submit(notebook("team/w"))
    case.submit(notebook("team/v"))
    assert [case.starts("team/w"), case.starts("team/v")] == [["60:00"], ["60:00"]]
    assert [uid for _, uid, _ in case.evicted] == ["other/b"]
    assert given_up(case) == [("lab/gang", Reason.RECLAIM)] * 2


def test_while_evictions_are_frozen_kept_places_give_way() -> None:
    case = starving()
    frozen = Freeze("freeze", 11, 10, Reason.TOO_MANY_EVICTIONS)
    case.happen(ev.Decided(0, frozen))
    case.submit(work("team/w"))
    assert case.starts("team/w") == ["60:00"]


def test_elastic_work_takes_no_more_kept_places_than_its_guarantee_covers() -> None:
    case = starving(node("n1", 3), gang=work("lab/gang", 3))
    case.submit(work("team/w", pods=2, minimum=1))
    assert case.nodes_of("team/w") == ["n1"]


def test_only_those_give_way_whose_places_are_taken() -> None:
    lab, den = patient("lab", 1), patient("den", 1)
    case = Case([node("n1", 2), node("n2", 2)], tree(lab, den, queue("team", 1)))
    case.adopt(notebook("lab/note"), "n1")
    case.adopt(notebook("den/note"), "n2")
    case.submit(work("lab/gang", 2), work("den/gang", 2))
    case.to(60)
    assert sorted(case.world.reserving) == ["den/gang", "lab/gang"]
    kept = {uid: case.world.entries[uid].reserved for uid in case.world.reserving}
    case.submit(work("team/w"))
    (node_of,) = case.nodes_of("team/w")
    there = [uid for uid, each in kept.items() if each and each.placements[0].node == node_of]
    assert given_up(case) == [(there[0], Reason.RECLAIM)]


def test_a_place_gives_way_for_the_cpu_there_as_well() -> None:
    """There are devices enough for both."""
    case = Case([node("n1", 4, cpu=6)], tree(patient("lab", 1), patient("team", 1)))
    needy = replace(notebook("lab/note"), pod_sets=(PodSet("main", 1, whole(1, 3)),))
    case.adopt(needy, "n1")
    case.submit(replace(work("lab/gang"), pod_sets=(PodSet("main", 1, whole(2, 4)),)))
    case.to(60)
    assert list(case.world.reserving) == ["lab/gang"]
    case.submit(replace(needy, uid="team/w", queue="team"))
    assert case.starts("team/w") == ["60:00"]
    assert given_up(case) == [("lab/gang", Reason.RECLAIM)]


def test_who_needs_nothing_of_a_kept_place_starts_beside_it() -> None:
    case = starving(node("n1", 2), node("n2", 1))
    case.submit(work("team/w"))
    assert case.nodes_of("team/w") == ["n2"]
    assert given_up(case) == []


def test_of_two_on_one_node_only_the_one_gives_way_whose_cpu_is_taken() -> None:
    queues = tree(patient("lab", 0), patient("den", 0), queue("team", 1))
    case = Case([node("n1", 5, cpu=9)], queues)

    def needs(uid: str, cpu: int) -> Workload:
        return replace(notebook(uid), pod_sets=(PodSet("main", 1, whole(1, cpu)),))

    case.adopt(needs("lab/note", 4), "n1")
    case.adopt(needs("den/note", 3), "n1")
    case.submit(replace(needs("lab/w", 6), type=WorkloadType.TRAINING))
    case.to(1)
    case.submit(replace(needs("den/w", 3), type=WorkloadType.TRAINING))
    case.to(61)
    case.end("lab/note")
    assert list(case.world.reserving) == ["lab/w", "den/w"]
    case.submit(needs("team/w", 1))
    assert case.starts("team/w") == ["61:00"]
    assert given_up(case) == [("lab/w", Reason.RECLAIM)]


def test_what_becomes_free_in_a_kept_place_wakes_whoever_may_take_it() -> None:
    case = Case([node("n1", 2)], tree(patient("lab", 1), queue("team", 1)))
    case.adopt(notebook("lab/note"), "n1")
    case.adopt(fixed("other/x"), "n1")
    case.submit(work("lab/gang", 2), notebook("team/w"))
    case.to(60)
    assert list(case.world.reserving) == ["lab/gang"]
    case.end("other/x")
    assert case.starts("team/w") == ["60:00"]


def test_whoever_takes_a_kept_place_does_not_wait_for_others_who_leave_that_node() -> None:
    """Who go for somebody else, and whose CPU only the place would need that gives way."""
    queues = tree(patient("lab", 0), queue("den", 1), queue("team", 1), queue("other"))
    case = Case([node("n1", 2, cpu=6)], queues, stops_us={"other/b": 2 * MINUTE_US})
    case.adopt(replace(batch("other/b"), pod_sets=(PodSet("main", 1, whole(1, 2)),)), "n1")
    case.adopt(fixed("x/fixed"), "n1")
    case.submit(replace(work("lab/gang"), pod_sets=(PodSet("main", 1, whole(1, 5)),)))
    case.to(59)
    case.submit(notebook("den/note"))
    assert [uid for _, uid, _ in case.evicted] == ["other/b"]
    case.to(60)
    case.end("x/fixed")
    assert sorted(case.world.reserving) == ["den/note", "lab/gang"]
    case.submit(notebook("team/w"))
    assert case.starts("team/w") == ["60:00"]
    case.to(62)
    assert case.starts("den/note") == ["61:00"]


def test_who_finds_no_place_leaves_no_charge_behind() -> None:
    """What the gang would hold in its place is counted only as long as that is asked."""
    lab = replace(patient("lab", 1), limit=(("H100", 3),))
    case = Case([node("n1", 2), node("n2", 2)], tree(lab, patient("team", 2)))
    case.adopt(replace(fixed("other/x"), run_us=600 * MINUTE_US), "n1")
    case.adopt(notebook("lab/note"), "n2")
    case.submit(work("lab/gang", 2))
    assert case.world.entries["lab/gang"].reserved is not None
    case.to(10)
    case.submit(work("team/w", 2), work("lab/w"))
    assert case.nodes_of("lab/w") == ["n2"]


def test_a_department_takes_places_from_another_and_not_from_its_own_teams() -> None:
    """What is guaranteed above two sisters is no right of one against the other."""
    queues = tree(
        queue("dep", 3),
        replace(patient("dep/a", 0), parent="dep"),
        replace(patient("dep/b", 1), parent="dep"),
        patient("lab", 2),
    )
    case = Case([node("n1", 3), node("n2", 3)], queues)
    case.adopt(notebook("lab/x"), "n1")
    case.adopt(notebook("lab/y"), "n2")
    case.submit(work("dep/a/gang", 3, "dep/a"))
    case.to(1)
    case.submit(work("lab/gang", 3))
    case.to(61)
    assert sorted(case.world.reserving) == ["dep/a/gang", "lab/gang"]
    kept = {uid: case.world.entries[uid].reserved for uid in case.world.reserving}
    case.submit(work("dep/b/w", 2, "dep/b"))
    assert given_up(case) == [("lab/gang", Reason.RECLAIM)]
    place = kept["lab/gang"]
    assert place is not None
    assert case.nodes_of("dep/b/w") == [place.placements[0].node]


BORROWED = [batch(f"z/{number}", run_us=600 * MINUTE_US) for number in range(8)]


def all_borrowed(*queues: Queue, big: str = "a/big") -> Case:
    """Others borrow eight devices until 600:00, and from 10:00 on a gang is kept them from then."""
    case = Case([node("n1", 8)], tree(*queues, queue("z")))
    case.submit(*BORROWED)
    case.to(10)
    case.submit(work(big, 8))
    reserved = case.world.entries[big].reserved
    assert reserved is not None
    assert reserved.at_us == 600 * MINUTE_US
    case.to(20)
    return case


@pytest.mark.parametrize("run_min", [None, 60])
def test_a_big_gang_does_not_keep_its_own_queue_from_its_guarantee(run_min: int | None) -> None:
    """Whether or not what is within the guarantee would end before the place is due."""
    case = all_borrowed(queue("a", 4))
    run_us = None if run_min is None else run_min * MINUTE_US
    case.submit(*(work(f"a/s{number}", run_us=run_us) for number in range(4)))
    assert case.holds("a") == 4000
    assert len(case.evicted) == 4


@pytest.mark.parametrize("guaranteed", [0, 2])
def test_nor_does_it_keep_a_sister_from_what_is_guaranteed_to_both(guaranteed: int) -> None:
    top = queue("team", 4)
    sisters = [replace(queue(name, guaranteed), parent="team") for name in ("a1", "a2")]
    case = all_borrowed(top, *sisters, big="a1/big")
    case.submit(*(work(f"a2/s{number}") for number in range(4)))
    assert case.holds("a2") == 4000


def test_what_its_own_queue_guarantees_a_gang_no_sister_takes() -> None:
    """Nor the whole of what is guaranteed above both."""
    top = queue("team", 8)
    sisters = [replace(queue("a1", 8), parent="team"), replace(queue("a2", 0), parent="team")]
    case = Case([node("n1", 8)], tree(top, *sisters))
    case.adopt(replace(work("x/fixed"), recreated=False, run_us=600 * MINUTE_US), "n1")
    case.submit(work("a1/big", 8))
    case.submit(work("a2/s"))
    assert list(case.world.reserving) == ["a1/big"]
    assert case.starts("a2/s") == []


@pytest.mark.parametrize(("priority", "run_min"), [(100, None), (100, 60), (0, 60)])
def test_who_comes_first_in_a_queue_does_not_wait_behind_its_kept_places(
    priority: int, run_min: int | None
) -> None:
    """Nor does more urgent work whose victims are there; who comes later, and stays, does."""
    case = all_borrowed(queue("a"))
    run_us = None if run_min is None else run_min * MINUTE_US
    case.submit(batch("a/job", run_us=run_us, priority=priority))
    assert case.starts("a/job") == []
    case.end("z/0")
    assert case.starts("a/job") == ["20:00"]


def test_who_comes_later_in_a_queue_waits_behind_its_kept_places() -> None:
    case = all_borrowed(queue("a"))
    case.submit(batch("a/job"))
    case.end("z/0")
    assert case.starts("a/job") == []


def test_more_urgent_work_evicts_others_from_where_a_place_is_kept_for_less_urgent_work() -> None:
    case = Case([node("n1", 8)], tree(queue("q")))
    case.submit(*(batch(f"q/{number}", run_us=600 * MINUTE_US) for number in range(8)))
    case.to(10)
    case.submit(work("q/big", 8))
    case.to(20)
    case.submit(work("q/urgent", priority=100, run_us=60 * MINUTE_US))
    assert case.starts("q/urgent") == ["20:00"]


def test_on_other_accelerators_a_guarantee_takes_nothing() -> None:
    """A gang on both is beyond its guarantee on one of them only."""
    first, second = node("n1", 2), node("n2", 4, accelerator="A100")
    lab = replace(patient("lab", 1), guarantee=(("A100", 2), ("H100", 1)))
    team = replace(patient("team", 1), guarantee=(("A100", 1), ("H100", 1)))
    case = Case([first, second], tree(lab, team))
    case.adopt(notebook("lab/note"), "n1")
    case.adopt(fixed("other/x", 2), "n2")
    case.submit(replace(work("lab/gang"), pod_sets=ON_BOTH))
    case.to(60)
    assert list(case.world.reserving) == ["lab/gang"]
    case.submit(work("team/a", accelerators=("A100",)))
    assert case.starts("team/a") == []
    case.submit(work("team/h", accelerators=("H100",)))
    assert case.starts("team/h") == ["60:00"]


class Day:
    """A random day of three teams on a small fleet, some of whose work starves after minutes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - a day has to come again
        pick = self.chance.choice
        self.guarantee = {"a": pick([1, 2, 3]), "b": pick([1, 2]), "c": 0}
        queues = [
            queue(
                name,
                guarantee,
                starvation_after_us=pick([5, 20]) * MINUTE_US,
                eviction=EvictionBounds(minimum_run_us=pick([0, 10]) * MINUTE_US),
            )
            for name, guarantee in self.guarantee.items()
        ]
        self.case = Case([node(f"n{n}", pick([2, 3])) for n in range(3)], tree(*queues))

    def step(self) -> None:
        """Something comes or ends, and some time passes."""
        case, pick = self.case, self.chance.choice
        running = [uid for uid, entry in case.world.entries.items() if entry.held]
        if running and self.chance.random() < 0.45:
            case.end(pick(running))
        else:
            case.submit(self._some_work(len(case.seen)))
        self.nobody_waits_beside_what_is_his()
        case.to(case.now_us / MINUTE_US + pick([0, 1, 7]))
        self.nobody_waits_beside_what_is_his()

    def _some_work(self, number: int) -> Workload:
        pick = self.chance.choice
        name = pick("aabbcc")
        pods = pick([2, 3, 4]) if name == "c" else pick([1, 1, 1, 2])
        return work(
            f"{name}/{pick('xyz')}{number}",
            pick([1, 1, 2]),
            pods=pods,
            minimum=pick([None, None, 1]) if pods > 1 else None,
            type_=WorkloadType.TRAINING if name == "c" else pick(list(WorkloadType)),
            run_us=pick([None, None, 5 * MINUTE_US, 30 * MINUTE_US]),
        )

    def nobody_waits_beside_what_is_his(self) -> None:
        """Whoever is within his guarantee gets whatever others only keep beyond theirs."""
        world = self.case.world
        for entry in world.entries.values():
            name, pods = entry.workload.queue, entry.workload.pod_sets[0]
            devices = pods.request.devices.count
            mine = world.tenants.used_units(name).get("H100", 0) // UNIT
            waits = entry.group is not None and pods.needed == 1
            if waits and mine + devices <= self.guarantee[name]:
                free = [self._free_on(each, name) for each in world.fleet.names]
                assert max(free) < devices, (entry.workload.uid, free)

    def _free_on(self, name: str, asker: str) -> int:
        """How many devices of a node nobody holds, and nobody keeps with a right to them."""
        taken: set[str] = set()
        for entry in self.case.world.entries.values():
            places = list(entry.held.values())
            kept = entry.reserved
            if kept is not None and (kept.evicted or not self._beyond(entry, asker)):
                places += kept.placements
            taken.update(leaf for each in places if each.node == name for leaf in each.leaves)
        row = self.case.world.fleet.row_of[name]
        return sum(leaf not in taken for leaf in self.case.world.fleet.leaves[row])

    def _beyond(self, entry: Entry, asker: str) -> bool:
        """Whether another queue's work would be beyond its guarantee in the places it is kept."""
        workload, name = entry.workload, entry.workload.queue
        if name == asker or not self.case.world.returnable(workload) or entry.reserved is None:
            return False
        held = self.case.world.tenants.used_units(name).get("H100", 0) // UNIT
        asks = sum(len(each.leaves) for each in entry.reserved.placements)
        return held + asks > self.guarantee[name]


def test_on_random_days_nobody_waits_beside_places_that_are_his() -> None:
    """Counted by single devices, and not by whatever the search makes of them."""
    gave_way = 0
    for seed in range(60):
        day = Day(seed)
        for _ in range(40):
            day.step()
        gave_way += sum(reason is Reason.RECLAIM for _, reason in given_up(day.case))
    assert gave_way > 20


@pytest.mark.parametrize("limit", [None, 2])
def test_who_is_guaranteed_a_place_has_it_when_all_of_it_is_free_as_well(limit: int | None) -> None:
    """Two devices, of which g has one for sure; a place is kept for a, which waits too long."""
    bounds = EvictionBounds(minimum_run_us=9 * MINUTE_US)
    team = queue("team", 2, limit, eviction=bounds)
    below = (
        replace(queue("g", 1), parent="team"),
        replace(queue("a", starvation_after_us=MINUTE_US), parent="team"),
        replace(queue("s"), parent="team"),
    )
    nodes = [node("n1", 2)] if limit is None else [node("n1", 2), node("n2", 2)]
    case = Case(nodes, tree(team, *below))
    case.submit(batch("s/x"), batch("s/y"))
    case.to(1)
    case.submit(work("a/waits"))
    case.to(3)
    assert "a/waits" in case.world.reserving
    case.submit(work("g/p"))
    case.to(5)
    case.end("s/x")
    case.to(30)
    assert case.starts("g/p") == ["5:00"]
    assert not case.starts("a/waits")
    case.end("s/y")
    assert case.starts("a/waits") == ["30:00"]


def test_who_is_guaranteed_nothing_more_keeps_nobody_from_a_place_that_is_free() -> None:
    """Whoever waits in g would borrow there just so."""
    a = queue("a", starvation_after_us=MINUTE_US)
    case = Case([node("n1", 2)], tree(queue("g", 1), a, queue("s")))
    case.submit(batch("g/runs"), batch("s/x"))
    case.to(1)
    case.submit(work("a/waits"))
    case.to(3)
    case.submit(work("g/p"))
    case.end("s/x")
    assert case.starts("a/waits") == ["3:00"]
