"""How soon a queue has back what it is guaranteed."""

from collections.abc import Iterator

from benchmarks.frame import Result, bench
from benchmarks.tenancy import DAY_US, RECLAIM_WITHIN_US, SECOND_US, Play, Teams, teams

NODES = 16
DAYS = 1
SEEDS = (1, 2, 3)


@bench
def reclaim() -> Iterator[Result]:
    """A day of eight teams on 16 nodes, all four types, three seeds: delays of guarantees."""
    delays: list[int] = []
    evictions = starts = freezes = 0
    worst = 0
    for seed in SEEDS:
        play = Play(NODES, seed, teams(NODES))
        play.run(Teams(seed, NODES).arrivals(DAYS * DAY_US), DAYS * DAY_US)
        still = [play.now_us - since_us for since_us in play.rights.since_us.values()]
        mine = sorted([*play.rights.delays_us, *still])
        worst = max(worst, mine[int(0.99 * len(mine))])
        delays += mine
        evictions += len(play.evictions)
        freezes += play.freezes
        starts += len(play.rights.delays_us)
    reclaimed = sorted(delay for delay in delays if delay)
    yield Result(
        "unmet demand under guarantee, p99 of the worst run",
        worst / SECOND_US,
        "s",
        at_most=RECLAIM_WITHIN_US / SECOND_US + 30,
    )
    p99 = reclaimed[int(0.99 * len(reclaimed))] if reclaimed else 0
    yield Result("the same of those that had to wait at all, p99", p99 / SECOND_US, "s")
    yield Result("the longest of them", max(delays) / SECOND_US, "s")
    yield Result("starts", starts, "")
    yield Result("those that had to wait for a guarantee", len(reclaimed), "")
    yield Result("evictions", evictions, "")
    yield Result("times evictions were frozen, and resumed 2 minutes later", freezes, "")
