"""What queues may use in a period: budgets in device hours or money, kept by reserving.

A workload uses what it holds, from the decision that gives it until it is freed. When it starts,
its use is reserved for as long as it is expected to run (`declared`), or until the end of the
period where nobody knows; what it then uses comes out of that. Past its reserve it goes on, and its
use goes on counting. What counts in a period is the part of a run that lies in it. The accounts of
a queue include all below it, so every budget on the path to the root binds.

A start has to fit what is neither used nor reserved. Of a run that crosses the end of the period
only the part before it would count; but where a whole period could pay for the whole run it has to
fit whole, so that it waits for the next period, which is less long than it runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from shoal.core.arrays.charges import Charge, charges_of
from shoal.core.arrays.fleet import Fleet
from shoal.core.decisions import Warn
from shoal.core.limits.deadlines import Deadlines, earliest
from shoal.core.limits.spending_account import Account, Kept, Run, Unaffordable
from shoal.core.tenancy.tenants import Tenants
from shoal.model.queue import Budget, QueueTree, WhenSpent
from shoal.model.verdict import OverBudget
from shoal.model.workload import Workload

if TYPE_CHECKING:
    from shoal.core.entry import Entry
    from shoal.core.limits.declared import Declared

Declaration = tuple[str, int | None]
"""User and declared run time, by which workloads of one queue and type are expected to run."""


class Spending:
    """The accounts of all queues that have a budget."""

    def __init__(self, fleet: Fleet, tenants: Tenants, declared: "Declared") -> None:
        self._fleet = fleet
        self._tenants = tenants
        self.accounts: dict[str, Account] = {}
        self._declared = declared
        self._binding: dict[str, tuple[Account, ...]] = {}
        """By queue: its account and those above it, from the queue up."""
        self._runs: dict[str, Run] = {}
        self._placed: dict[str, Entry] = {}
        """Workloads for which places are kept, by uid."""
        self._deciding_us = 0
        self._spent = Deadlines()
        """When budgets are used up that nobody was warned of, by queue."""
        self._ends = Deadlines()
        """When periods end, by queue."""

    def set_tree(self, tree: QueueTree, entries: Mapping[str, "Entry"]) -> None:
        """Keep to the budgets of another tree; whoever knows what is held has it `held` again.

        The account of a budget whose periods are the same goes on, if it counts the same.
        """
        before = self.accounts
        self.accounts = {
            queue.name: Account(queue.name, queue.budget, tree)
            for queue in tree.queues
            if queue.budget is not None
        }
        self._binding = {
            queue.name: tuple(
                self.accounts[name]
                for name in reversed(tree.path(queue.name))
                if name in self.accounts
            )
            for queue in tree.queues
        }
        bound = (uid for uid in self._runs if self.binds(entries[uid].workload.queue))
        self._runs = {uid: self._runs[uid] for uid in bound}
        self._spent.clear()
        self._ends.clear()
        self._tenants.lowered.clear()
        for name, account in self.accounts.items():
            old = before.get(name)
            if old is not None and _counts_alike(old.budget, account.budget):
                old.advance(self._tenants.now_us)
                account.restore(old.kept(), {})
                account.warned = old.warned and account.used >= account.total
            self._look_at(account)

    def binds(self, queue: str) -> bool:
        """Return whether there is a budget that work of a queue has to fit."""
        return bool(self._binding.get(queue))

    def period_began(self, queue: str, begin_us: int, end_us: int) -> None:
        """Let the period of a queue's budget begin, if it has one."""
        account = self.accounts.get(queue)
        if account is not None:
            account.begin(begin_us, end_us, self._tenants.now_us, self._runs)
            self._look_at(account)

    # What is held -----------------------------------------------------------------------------

    def held(self, entry: "Entry", charges: tuple[Charge, ...], sign: int) -> None:
        """Count charges for what a workload holds from now on (`sign` 1), or no longer (-1)."""
        uid = entry.workload.uid
        accounts = self._binding.get(entry.workload.queue, ())
        if not accounts or not charges:
            return
        run = self._runs.get(uid)
        if run is None:
            since_us = min(entry.started.values(), default=self._tenants.now_us)
            run = self._runs[uid] = self._run(entry.workload, since_us)
        for account in accounts:
            rate = account.rate_of((charge.accelerator, charge.units) for charge in charges)
            account.change(uid, run, sign * rate, self._tenants.now_us)
            self._look_at(account)

    def adopted(self, entry: "Entry", since_us: int) -> None:
        """Count a workload, of which everything is held already, from when it began to run."""
        uid = entry.workload.uid
        if uid in self._runs:
            run = self._runs[uid] = self._run(entry.workload, since_us)
            for account in self._binding[entry.workload.queue]:
                account.anew(uid, run)
                self._look_at(account)

    def holds_nothing(self, uid: str) -> None:
        """Note that a workload holds nothing any more."""
        self._runs.pop(uid, None)

    def _run(self, workload: Workload, since_us: int) -> Run:
        expected_us = self._declared.expected_us(workload)
        return Run(since_us, None if expected_us is None else since_us + expected_us)

    def _look_at(self, account: Account) -> None:
        """Bring up to date when an account is spent, and when its period ends."""
        spent_us = None if account.warned else account.spent_us()
        if spent_us is None:
            self._spent.drop(account.queue)
        else:
            self._spent.set(account.queue, spent_us)
        if account.end_us:
            self._ends.set(account.queue, account.end_us)
        lowered = account.warned and account.does(WhenSpent.LOWER_WEIGHT)
        (self._tenants.lowered.add if lowered else self._tenants.lowered.discard)(account.queue)

    # Starts -----------------------------------------------------------------------------------

    def run_of(self, workload: Workload) -> Declaration | None:
        """Return what tells apart waiting work of a queue with a budget; None: it has none."""
        if not self.binds(workload.queue):
            return None
        run_us = workload.run_us
        return "" if run_us is None else workload.user, run_us

    def decides(self, now_us: int) -> None:
        """Begin to judge starts, which would be now."""
        self._deciding_us = now_us

    def refusal(self, workload: Workload, asked: Mapping[str, int]) -> Unaffordable | None:
        """Return the budget that does not allow a start of a workload, from its queue up.

        `asked` are units by accelerator, which are in the tenants' accounts already. Where a
        budget that is spent only forbids to borrow, its queue may hold what it is guaranteed. What
        a budget cannot count, it treats as if it were spent.
        """
        accounts = self._binding.get(workload.queue, ())
        expected_us = self._expected_us(workload) if accounts else None
        for account in accounts:
            if not account.does(WhenSpent.NO_BORROWING):
                continue
            for name in sorted(asked):
                if not account.counts(name) and self._forbids(account, (name,)):
                    return account.uncounted(name, self._deciding_us)
            kept = self._kept_in(account, workload.uid)
            found = account.refusal(asked, expected_us, self._deciding_us, kept)
            if found is not None and self._forbids(account, asked):
                return found
        return None

    def _forbids(self, account: Account, accelerators: Iterable[str]) -> bool:
        """Return whether a budget, as if it were spent, forbids to hold what is held of these."""
        tenants = self._tenants
        bounds = (tenants.guarantee(account.queue, name) for name in accelerators)
        return account.does(WhenSpent.NO_NEW_STARTS) or any(
            tenants.held(account.queue, bound) > bound.units for bound in bounds
        )

    def uncounted(self, workload: Workload, accelerator: str) -> OverBudget | None:
        """Return the budget that lets nothing start on an accelerator, as it has no price."""
        for account in self._binding.get(workload.queue, ()):
            if account.does(WhenSpent.NO_NEW_STARTS) and not account.counts(accelerator):
                return account.uncounted(accelerator, self._deciding_us).over
        return None

    def promise(self, workload: Workload, asked: Mapping[str, int], at_us: int | None) -> None:
        """Count a start that was decided, or places kept, until nothing is judged any more.

        `at_us` is when the run is to begin; None: now.
        """
        accounts = self._binding.get(workload.queue, ())
        expected_us = self._expected_us(workload) if accounts else None
        for account in accounts:
            rate = account.rate_of(asked.items())
            account.promised += account.part(rate, expected_us, self._begins(at_us))

    def _expected_us(self, workload: Workload) -> int | None:
        """Return for how long from now on to expect a workload to run, which may run already."""
        run = self._runs.get(workload.uid)
        if run is None:
            return self._declared.expected_us(workload)
        return None if run.until_us is None else max(0, run.until_us - self._deciding_us)

    def decided(self) -> None:
        """Judge nothing any more."""
        for account in self.accounts.values():
            account.promised = 0

    def kept_for(self, entry: "Entry") -> None:
        """Count what a workload would use for which places are kept; its start is certain."""
        if entry.reserved is not None and self.binds(entry.workload.queue):
            self._placed[entry.workload.uid] = entry

    def kept_no_more(self, uid: str) -> None:
        """Note that no places are kept for a workload any more."""
        self._placed.pop(uid, None)

    def _kept_in(self, account: Account, but: str) -> int:
        """Return what those would use of a budget for whom places are kept, apart from one.

        Whoever waits for declared ends counts from then on, in the period in which that is. When
        it comes earlier, its start is judged anew.
        """
        kept = 0
        for uid, entry in self._placed.items():
            binding = self._binding.get(entry.workload.queue, ())
            counts = uid != but and uid not in self._tenants.promised
            if counts and account in binding and entry.reserved is not None:
                rate = account.rate_of(
                    (charge.accelerator, charge.units)
                    for placement in entry.reserved.placements
                    for charge in charges_of(
                        self._fleet, entry.request_of(placement.pod), placement
                    )
                )
                expected_us = self._declared.expected_us(entry.workload)
                from_us = self._begins(entry.reserved.at_us)
                kept += account.part(rate, expected_us, from_us)
        return kept

    def _begins(self, at_us: int | None) -> int:
        """Return when a run begins for which places are kept until `at_us`.

        Where nobody knows, or the time has passed, it may be at any moment, and so it is now.
        """
        return self._deciding_us if at_us is None else max(at_us, self._deciding_us)

    def exceeded(self, workload: Workload, now_us: int) -> list[str]:
        """Return the queues of whose budget a workload uses something that nobody had left."""
        uid = workload.uid
        return [
            account.queue
            for account in self._binding.get(workload.queue, ())
            if account.does(WhenSpent.NO_NEW_STARTS) and account.is_exceeded_by(uid, now_us)
        ]

    def check(self, charges: Mapping[str, tuple[str, tuple[Charge, ...]]]) -> list[str]:
        """Return the queues whose accounts do not come to what workloads are charged.

        `charges` are queue and charges of each workload that holds something, by uid.
        """
        wrong = []
        for account in self.accounts.values():
            rates = {
                uid: account.rate_of((charge.accelerator, charge.units) for charge in each)
                for uid, (queue, each) in charges.items()
                if account in self._binding.get(queue, ())
            }
            if not account.comes_to(rates, self._runs):
                wrong.append(account.queue)
        return wrong

    # Warnings ---------------------------------------------------------------------------------

    def warnings(self, now_us: int) -> Iterator[Warn]:
        """Yield which budgets are used up, once in a period for each."""
        for _, queue in self._spent.due(now_us):
            account = self.accounts[queue]
            over = account.over(account.used_at(now_us), account.reserved_at(now_us), 0)
            yield Warn(f"warn/{queue}/{now_us}", queue, over)

    def warned(self, queue: str) -> None:
        """Note that the budget of a queue is used up, and who is responsible was told."""
        account = self.accounts[queue]
        account.warned = True
        self._look_at(account)

    def after(self, now_us: int) -> int | None:
        """Return when a budget will be used up, or a period will end, as things are."""
        return earliest(self._spent.after(now_us), self._ends.after(now_us))

    # Snapshots --------------------------------------------------------------------------------

    def kept(self) -> tuple[Kept, ...]:
        """Return all accounts."""
        return tuple(account.kept() for _, account in sorted(self.accounts.items()))

    def kept_runs(self) -> tuple[tuple[str, int, int | None], ...]:
        """Return uid, beginning and expected end of all that counts."""
        runs = sorted(self._runs.items())
        return tuple((uid, run.since_us, run.until_us) for uid, run in runs)

    def restore(
        self,
        accounts: Iterable[Kept],
        runs: Iterable[tuple[str, int, int | None]],
        entries: Mapping[str, "Entry"],
    ) -> None:
        """Know what was `kept`, about budgets that the tree has and workloads that are held.

        Of a period that is over nothing is taken in. A run goes on also while only pods without
        devices are left of it.
        """
        for uid, since_us, until_us in runs:
            entry = entries.get(uid)
            if entry is not None and entry.held and self.binds(entry.workload.queue):
                self._runs[uid] = Run(since_us, until_us)
        for kept in accounts:
            account = self.accounts.get(kept.queue)
            if account is not None and kept.end_us >= account.end_us:
                account.restore(kept, self._runs)
                self._look_at(account)


def _counts_alike(old: Budget, new: Budget) -> bool:
    return (old.period, old.time_zone, old.money_micro is None) == (
        new.period,
        new.time_zone,
        new.money_micro is None,
    )
