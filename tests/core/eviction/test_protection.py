"""What is known of protection follows from the world, and is looked at again only where it may."""

from dataclasses import replace
from random import Random

import pytest

from shoal.core import events as ev
from shoal.core.eviction import candidates, protection, victims
from shoal.core.eviction.protection import Protection
from shoal.core.world import World
from shoal.model.queue import EvictionBounds, Queue
from shoal.model.workload import Outcome, WorkloadType
from tests.core.build import node
from tests.core.cases import MINUTE_US, SECOND_US, Case, batch, queue, tree, work

Known = dict[str, tuple[tuple[tuple[int, str], ...], tuple[int, ...], tuple[int, ...]]]


def known(lines: Protection, world: World, holder: str, now_us: int) -> Known:
    """Who stands in the lines of a queue, as a lender sees them, and on how many devices by row."""
    size = world.fleet.size
    return {
        name: (
            tuple(line.after(-(1 << 63))),
            tuple(line.devices(size).tolist()),
            tuple(line.open_devices(size, now_us).tolist()),
        )
        for name, line in lines.lines(world, holder, "a").items()
        if tuple(line.after(-(1 << 63)))
    }


@pytest.mark.parametrize("seed", range(5))
def test_what_is_known_is_what_a_fresh_look_finds(seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - a test's
    bounds = EvictionBounds(minimum_run_us=7 * MINUTE_US)
    queues = tree(queue("a", 4), queue("b", 1, eviction=bounds), queue("c"))
    case = Case([node(f"n{n}", 4) for n in range(3)], queues)
    for step in range(60):
        case.to(case.now_us / MINUTE_US + chance.randint(0, 3))
        uids = sorted(case.world.entries)
        held = [uid for uid in uids if case.world.entries[uid].held]
        match chance.choice(["submit", "submit", "submit", "end", "budget", "queues", "pod"]):
            case "submit":
                uid = f"{chance.choice('abc')}/w{step}"
                case.stops_us[uid] = chance.choice([0, 20, 90]) * SECOND_US
                case.submit(
                    work(
                        uid,
                        chance.choice([1, 1, 2]),
                        type_=chance.choice(list(WorkloadType)),
                        pods=chance.choice([1, 2, 3]),
                        minimum=1,
                        priority=chance.randint(0, 2),
                        run_us=chance.choice([None, 2 * MINUTE_US]),
                    )
                )
            case "end" if held:
                case.end(chance.choice(held), outcome=Outcome.COMPLETED)
            case "budget" if uids:
                covered = tuple(chance.sample(uids, min(3, len(uids))))
                case.happen(ev.DisruptionBudgetSet(0, "one", chance.randint(0, 1), covered))
            case "queues":
                other = replace(bounds, minimum_run_us=chance.randint(0, 9) * MINUTE_US)
                case.set_queues(tree(queue("a", 4), queue("b", 1, eviction=other), queue("c")))
            case "pod" if held:
                uid = chance.choice(held)
                pod = chance.choice(sorted(case.world.entries[uid].held))
                case.happen(ev.PodEnded(0, uid, pod))
            case _:
                pass
        world, now_us = case.world, case.now_us
        for holder in ("b", "c"):
            mine = known(world.protection, world, holder, now_us)
            assert mine == known(Protection(), world, holder, now_us)


@pytest.mark.parametrize("protected", ["minimum", "budget", "not all of a node", "guarantee"])
def test_a_hungry_head_does_not_look_at_everybody_whenever_a_pod_starts_or_ends(
    protected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    minutes = 60 if protected == "minimum" else 0
    bounds = EvictionBounds(minimum_run_us=minutes * MINUTE_US)
    lender = queue("a", 4 if protected == "guarantee" else 8, reclaim_within_us=2**40)
    case = Case(
        [node(f"n{n:02}", 8, cpu=64) for n in range(20)], tree(lender, queue("b", eviction=bounds))
    )
    for n in range(159):
        stays = protected == "not all of a node" and n % 8 == 0
        case.adopt(batch(f"b/w{n}", recreated=not stays), f"n{n // 8:02}")
    everybody = tuple(case.world.entries)
    if protected == "budget":
        case.happen(ev.DisruptionBudgetSet(0, "all", 0, everybody))
    case.submit(work("a/head", 8))
    case.to(1)
    looks: list[str] = []

    def counted(world: World, entry: object, now_us: int) -> object:
        looks.append("one")
        return known_of(world, entry, now_us)  # type: ignore[arg-type]

    known_of = victims.victims_of
    monkeypatch.setattr(protection, "victims_of", counted)
    monkeypatch.setattr(candidates, "victims_of", counted)
    case.submit(batch("b/new"))
    case.to(2)
    case.end("b/w1")
    case.to(3)
    waits = protected == "minimum"  # for what is kept until protection ends
    assert case.starts("b/new") == ["2:00" if waits else "1:00"]
    assert case.evictions == []
    assert 0 < len(looks) < 20


@pytest.mark.parametrize(("written_us", "goes"), [(None, False), (0, True)])
def test_a_queue_that_writes_no_minimum_run_has_none_below_one_that_has(
    written_us: int | None, goes: bool
) -> None:
    """Not written is that of the queue above, half an hour; none is none."""
    top = Queue("root", eviction=EvictionBounds(minimum_run_us=30 * MINUTE_US))
    q = queue("q", eviction=EvictionBounds(minimum_run_us=written_us))
    case = Case([node("n1", 1)], tree(q, root=top))
    case.submit(work("q/first"))
    case.to(1)
    case.submit(work("q/urgent", priority=1))
    assert case.evicted == ([("1:00", "q/first", 1)] if goes else [])
