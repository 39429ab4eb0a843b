"""One cycle: from the state of the world to decisions.

It reads as a narrative of numbered phases. It speculates on the fleet's journal and rolls back to
its start, so the world is the same before and after; the decisions become state as events.
"""

from dataclasses import dataclass

from shoal.core.board import Board
from shoal.core.budget import Budget
from shoal.core.decisions import Decision, Retract, Start, Wait
from shoal.core.events import Examined
from shoal.core.order import Head, Heads
from shoal.core.policies import Policy
from shoal.core.quota import Refusal, start_within_quota
from shoal.core.waiting import Group
from shoal.core.world import World
from shoal.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a cycle came to.

    `complete` is False where there is more to decide now: the budget ended the cycle early, or a
    start was taken back, so that its workload waits anew.
    """

    decisions: tuple[Decision, ...]
    examined: tuple[Examined, ...]
    complete: bool


def cycle(world: World, policy: Policy, now_us: int, seed: int, budget: Budget) -> Cycle:
    """Decide what is to be done now.

    `seed` keys every random choice. What the budget does not reach is left for the next cycle.
    """
    run = _Run(world, world.board(policy, seed), now_us, budget)
    start = world.fleet.journal.checkpoint()
    world.tenants.speculate()
    try:
        run.retract_failed_starts()  # 1
        run.start_what_fits()  # 2
        run.answer_newcomers()  # 3
    finally:
        world.fleet.rollback(start)
        world.tenants.end_speculation()
    return Cycle(tuple(run.decisions), tuple(run.examined), run.complete)


class _Run:
    """The phases of one cycle, and what they have decided so far."""

    def __init__(self, world: World, board: Board, now_us: int, budget: Budget) -> None:
        self._world = world
        self._board = board
        self._now_us = now_us
        self._budget = budget
        self._fresh = dict(world.waiting.fresh)
        """Rows that have gained room since the last complete cycle, or gain it in this one."""
        self._settled: set[str] = set()
        """Who waited and was started, or told why not, in this cycle."""
        self.decisions: list[Decision] = []
        self.examined: list[Examined] = []
        self.complete = True

    def retract_failed_starts(self) -> None:
        """1. Take back starts that did not come true; what they held is free for this cycle."""
        world = self._world
        for uid in sorted(world.failed):
            entry = world.entries[uid]
            if entry.failed_on is None:
                continue
            for pod, placement in entry.held.items():
                row = world.fleet.give_back(entry.request_of(pod), placement)
                self._fresh[row] = None
                world.charge(entry, pod, entry.charges[pod], -1)
            self.decisions.append(Retract(f"retract/{uid}/{entry.attempt}", uid, entry.failed_on))
            self.complete = False

    def start_what_fits(self) -> None:
        """2. Look at groups in the order of their first members, and start what fits.

        These are the groups that are awake, and the sleepers for whom nodes have gained enough
        room. A group that starts one member is looked at again in the place of the next; where one
        member finds no place the others would not find it either.
        """
        world = self._world
        sleepers = world.sleepers_for(self._fresh)
        heads = Heads(world.tenants)
        for group in (*world.waiting.awake, *sleepers):
            heads.push(Head(group.members[0], group, 0))
        while head := heads.pop():
            group = head.group
            if group.asleep and group not in sleepers:
                continue
            if self._budget.spent:
                self.complete = False
                return
            if self._try_to_start(group, head.member):
                sleepers = world.sleepers_for(self._fresh)
                heads.changed(group.key[0])
                if head.member + 1 < len(group.members):
                    heads.push(Head(group.members[head.member + 1], group, head.member + 1))

    def _try_to_start(self, group: Group, index: int) -> bool:
        uid = group.members[index][2]
        entry = self._world.entries[uid]
        found = start_within_quota(self._world, self._board, entry, group, self._budget)
        if isinstance(found, Refusal):
            self._let_wait(group, index, found)
            return False
        self.decisions.append(Start(f"start/{uid}/{entry.attempt + 1}", uid, found))
        self._settled.add(uid)
        return True

    def _let_wait(self, group: Group, index: int, found: Refusal) -> None:
        """Tell those of a group whom that is news, from its member `index` on, why they wait."""
        uids = tuple(uid for _, _, uid in group.members[index:])
        self.examined.append(Examined(uids[0], found.missing_pods, found.blocked_at))
        if group.verdict is None or group.verdict.cause != found.verdict.cause:
            self._tell(uids, found.verdict)
        else:
            self._answer(group, found.verdict)

    def answer_newcomers(self) -> None:
        """3. Tell those who joined a sleeping group that was not looked at what it was told."""
        for group in sorted(self._world.waiting.unanswered, key=lambda group: group.members[0]):
            if group.asleep and group.verdict is not None:
                self._answer(group, group.verdict)

    def _answer(self, group: Group, verdict: Verdict) -> None:
        """Tell the members of a group that were never told, and were not started just now."""
        news = tuple(uid for uid in sorted(group.unanswered) if uid not in self._settled)
        if news:
            self._tell(news, verdict)

    def _tell(self, uids: tuple[str, ...], verdict: Verdict) -> None:
        self._settled.update(uids)
        self.decisions.append(Wait(f"wait/{uids[0]}/{self._now_us}", uids, verdict))
