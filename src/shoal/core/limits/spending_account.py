"""The account of one budget: what is used and reserved in its period, exactly.

Amounts are units of a device (`UNIT`) times microseconds, for money times the price in millionths
of a device hour. So one device hour, or one millionth of the currency, is `SCALE`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from shoal.core.limits.deadlines import Deadlines
from shoal.model.fractions import UNIT
from shoal.model.queue import Budget, QueueTree, WhenSpent
from shoal.model.verdict import OverBudget

HOUR_US: Final = 3_600_000_000
SCALE: Final = UNIT * HOUR_US

_LEVELS: Final = tuple(WhenSpent)

Exact = tuple[int, int]
"""An amount as whole device hours or millionths of the currency, and a rest below `SCALE`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An account as a snapshot remembers it.

    Everything up to `counted_us` is in `used`, or in `beyond` where it came after the period.
    `watched_us`: what was used before is in there too, whoever it is that is found running later.
    """

    queue: str
    begin_us: int
    end_us: int
    used: Exact
    beyond: Exact
    counted_us: int
    watched_us: int
    warned: bool


@dataclass(slots=True)
class Run:
    """Since when a workload holds something, and until when it is expected to, if anybody knows."""

    since_us: int
    until_us: int | None


@dataclass(frozen=True, slots=True)
class Unaffordable:
    """A start that a budget does not allow, and when time alone may change that.

    `accelerator` is the one that costs most of those on which it would start, or has no price.
    """

    over: OverBudget
    accelerator: str
    again_us: int | None


class Account:
    """What is used and reserved of one budget in its present period."""

    def __init__(self, queue: str, budget: Budget, tree: QueueTree) -> None:
        self.queue = queue
        self.budget = budget
        self._currency = tree.currency if budget.money_micro is not None else ""
        self._prices = dict(tree.prices_micro) if budget.money_micro is not None else None
        self.total = (budget.money_micro or budget.device_hours or 0) * SCALE
        self.begin_us = 0
        self.end_us = 0
        """0 as long as nobody has said which period it is."""
        self.used = 0
        self.beyond = 0
        """What was used after the end of the period, until the next is said to begin."""
        self.counted_us = 0
        self.watched_us = 0
        self.warned = False
        self.promised = 0
        """What starts of the cycle that goes on would reserve."""
        self.rate = 0
        """What is used in a microsecond."""
        self._rates: dict[str, int] = {}
        self._due = Deadlines()
        """When the reserve of a workload ends, by uid, of those that still have one."""
        self._due_rate = 0
        self._due_sum = 0
        """Of those: the rate, and the sum of each rate times its end."""

    def does(self, what: WhenSpent) -> bool:
        """Return whether this happens when the budget is spent; each includes the milder ones."""
        return _LEVELS.index(self.budget.when_spent) >= _LEVELS.index(what)

    def counts(self, accelerator: str) -> bool:
        """Return whether what is used of an accelerator can be counted: money takes a price."""
        return self._prices is None or accelerator in self._prices

    def rate_of(self, units: Iterable[tuple[str, int]]) -> int:
        """Return what units of devices, by accelerator, cost in a microsecond.

        Those that cannot be counted, which run all the same, come to nothing.
        """
        if self._prices is None:
            return sum(each for _, each in units)
        return sum(each * self._prices.get(accelerator, 0) for accelerator, each in units)

    def used_at(self, now_us: int) -> int:
        """Return what of the period's budget is used."""
        return self.used + self.rate * max(0, min(now_us, self.end_us) - self.counted_us)

    def reserved_at(self, now_us: int) -> int:
        """Return what is reserved beside, for those who run."""
        now_us = max(now_us, self.counted_us)
        passed = self._due.due(now_us)
        rate = self._due_rate - sum(self._rates[uid] for _, uid in passed)
        ends = self._due_sum - sum(self._rates[uid] * at_us for at_us, uid in passed)
        return ends - rate * now_us

    def overdue_rate(self, now_us: int) -> int:
        """Return what those use in a microsecond who have used up their reserve."""
        return (
            self.rate - self._due_rate + sum(self._rates[uid] for _, uid in self._due.due(now_us))
        )

    def spent_us(self) -> int | None:
        """Return when the budget is used up, if it is before the period ends."""
        missing = self.total - self.used
        if missing > 0:
            if not self.rate:
                return None
            at_us = self.counted_us - (-missing // self.rate)
        else:
            at_us = self.counted_us
        return at_us if at_us < self.end_us else None

    def change(self, uid: str, run: Run, rate: int, now_us: int) -> None:
        """Let a workload use so much more in a microsecond from now on, or less."""
        if not rate:
            return
        self.advance(now_us)
        is_new = uid not in self._rates
        self.rate += rate
        self._rates[uid] = self._rates.get(uid, 0) + rate
        if is_new:
            self._reserve(uid, run)
        elif (end_us := self._due.get(uid)) is not None:
            self._due_rate += rate
            self._due_sum += rate * end_us
        if not self._rates[uid]:
            del self._rates[uid]
            self._due.drop(uid)

    def anew(self, uid: str, run: Run) -> None:
        """Reserve for a workload anew, of which it was found out since when it runs."""
        rate = self._rates.get(uid)
        if rate is None:
            return
        self._count(rate, max(run.since_us, self.watched_us), self.counted_us)
        self._due_out(uid)
        self._reserve(uid, run)

    def begin(self, begin_us: int, end_us: int, now_us: int, runs: Mapping[str, Run]) -> None:
        """Let a period begin; where it does not follow on the last one, count whoever runs now.

        Being told again, or late, of one that began before changes nothing.
        """
        if end_us <= self.end_us:
            return
        self.advance(now_us)
        follows = bool(self.end_us) and begin_us == self.end_us
        self.used, beyond, self.beyond = 0, self.beyond, 0
        self.begin_us, self.end_us = begin_us, end_us
        self.warned = False
        if follows:
            self.used = beyond
        else:
            for uid, rate in self._rates.items():
                self._count(rate, max(runs[uid].since_us, self.watched_us), now_us)
        self.reserve_all(runs)

    def reserve_all(self, runs: Mapping[str, Run]) -> None:
        """Reserve for everybody who runs."""
        self._due.clear()
        self._due_rate = self._due_sum = 0
        for uid in self._rates:
            self._reserve(uid, runs[uid])

    def advance(self, now_us: int) -> None:
        """Count what was used up to now."""
        now_us = max(now_us, self.counted_us)
        for _, uid in self._due.due(now_us):
            self._due_out(uid)
        self._count(self.rate, self.counted_us, now_us)
        self.counted_us = now_us

    def _count(self, rate: int, from_us: int, to_us: int) -> None:
        if not self.end_us:
            return
        self.used += rate * max(0, min(to_us, self.end_us) - max(from_us, self.begin_us))
        self.beyond += rate * max(0, to_us - max(from_us, self.end_us))

    def _reserve(self, uid: str, run: Run) -> None:
        until_us = self.end_us if run.until_us is None else min(run.until_us, self.end_us)
        if until_us > self.counted_us:
            self._due.set(uid, until_us)
            self._due_rate += self._rates[uid]
            self._due_sum += self._rates[uid] * until_us

    def _due_out(self, uid: str) -> None:
        end_us = self._due.get(uid)
        if end_us is not None:
            self._due.drop(uid)
            self._due_rate -= self._rates[uid]
            self._due_sum -= self._rates[uid] * end_us

    # Checks -----------------------------------------------------------------------------------

    def is_exceeded_by(self, uid: str, now_us: int) -> bool:
        """Return whether more is used and reserved than there is, and a workload has part in it."""
        over = self.used_at(now_us) + self.reserved_at(now_us) > self.total
        return over and bool(self.end_us) and uid in self._rates

    def comes_to(self, rates: Mapping[str, int], runs: Mapping[str, Run]) -> bool:
        """Return whether the sums are those of workloads that use so much in a microsecond."""
        known = {uid: rate for uid, rate in rates.items() if rate}
        anew = 0
        for uid, rate in known.items():
            until_us = runs[uid].until_us
            end_us = self.end_us if until_us is None else min(until_us, self.end_us)
            anew += rate * max(0, end_us - self.counted_us)
        sums = (self.rate, self.reserved_at(self.counted_us))
        return self._rates == known and sums == (sum(known.values()), anew)

    # Starts -----------------------------------------------------------------------------------

    def part(self, rate: int, expected_us: int | None, from_us: int) -> int:
        """Return what a run that begins at `from_us`, now or later, would use in this period."""
        left_us = max(0, self.end_us - from_us)
        return rate * (left_us if expected_us is None else min(expected_us, left_us))

    def refusal(
        self, units: Mapping[str, int], expected_us: int | None, now_us: int, kept: int
    ) -> Unaffordable | None:
        """Return why a run that starts now does not fit the budget, None where it does.

        `units` are of devices, by accelerator; `kept` is what others would use, who do not run yet.
        """
        rate = self.rate_of(units.items())
        if not self.end_us or not rate:
            return None
        whole = None if expected_us is None else rate * expected_us
        fits_whole = whole is not None and whole <= self.total
        asked = whole if whole is not None and fits_whole else self.part(rate, expected_us, now_us)
        used, reserved = self.used_at(now_us), self.reserved_at(now_us) + self.promised + kept
        if now_us < self.end_us and used + reserved + asked <= self.total:
            return None
        again_us = self.end_us if now_us < self.end_us else None
        growing = self.overdue_rate(now_us)
        if not fits_whole and again_us is not None and rate > growing:
            over = used + reserved - growing * now_us + rate * self.end_us - self.total
            again_us = min(again_us, max(now_us + 1, -(-over // (rate - growing))))
        dearest = max(sorted(units), key=lambda name: self.rate_of(((name, units[name]),)))
        return Unaffordable(self.over(used, reserved, asked), dearest, again_us)

    def uncounted(self, accelerator: str, now_us: int) -> Unaffordable:
        """Return that a start on an accelerator without a price cannot be counted."""
        over = self.over(self.used_at(now_us), self.reserved_at(now_us), 0)
        return Unaffordable(replace(over, unpriced=accelerator), accelerator, None)

    def over(self, used: int, reserved: int, asked: int) -> OverBudget:
        """Return amounts as people read them, rounded up."""
        scale = UNIT if self._prices is None else SCALE
        return OverBudget(
            queue=self.queue,
            used=-(-used // scale),
            reserved=-(-reserved // scale),
            asked=-(-asked // scale),
            budget=self.total // scale,
            ends_us=self.end_us,
            time_zone=self.budget.time_zone,
            currency=self._currency,
        )

    # Snapshots --------------------------------------------------------------------------------

    def kept(self) -> Kept:
        """Return what a snapshot remembers."""
        return Kept(
            self.queue,
            self.begin_us,
            self.end_us,
            divmod(self.used, SCALE),
            divmod(self.beyond, SCALE),
            self.counted_us,
            self.watched_us,
            self.warned,
        )

    def restore(self, kept: Kept, runs: Mapping[str, Run]) -> None:
        """Stand where `kept` says; whoever holds something holds it already.

        What began to hold it later has not used anything since then.
        """
        self.begin_us, self.end_us = kept.begin_us, kept.end_us
        self.used = kept.used[0] * SCALE + kept.used[1]
        self.beyond = kept.beyond[0] * SCALE + kept.beyond[1]
        self.counted_us, self.watched_us = kept.counted_us, kept.watched_us
        self.warned = kept.warned
        for uid, rate in self._rates.items():
            self._count(-rate, kept.counted_us, runs[uid].since_us)
        self.reserve_all(runs)
