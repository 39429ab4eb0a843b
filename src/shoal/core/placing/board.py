"""Scores of nodes per shape, brought up to date where the fleet changed since their last use.

A board belongs to one fleet, one policy and one seed. For each shape it keeps an array of scores
with a position in the fleet's change log, so that asking for the best node costs what changed, plus
one pass over an array of integers.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.pool_rules import is_in, pool_number
from shoal.core.arrays.shape import Shape
from shoal.core.placing.eligibility import StaticMasks, dynamic_tests, fitting_leaves
from shoal.core.placing.randomness import keyed
from shoal.core.placing.spreading import least_crowded
from shoal.core.policies.pieces import IMPOSSIBLE, LeafRule, Scorer, TieRule
from shoal.model.pool import PlacementPolicy

CACHED_SCORES = 1 << 26
"""Scores kept over all shapes; the shapes used longest ago are dropped first.

Eight bytes each, and as much again where scorers choose leaves.
"""

SCORED_BY: Final = {
    PlacementPolicy.PACK: "pack",
    PlacementPolicy.SPREAD: "spread",
    PlacementPolicy.FRAGMENTATION: "fragmentation",
    PlacementPolicy.TOPOLOGY: "pack",
}
"""The policy by which nodes of a pool are scored; `topology` looks at domains before."""

RANK_BITS = 63
HANDICAP_BITS = 40
"""Bits of a rank dropped before it is multiplied by a handicap, so that the product fits."""


class _Scores:
    """What is known of one shape."""

    __slots__ = ("leaf", "read", "score")

    def __init__(self) -> None:
        self.score: IntArray = np.zeros(0, dtype=np.int64)
        self.leaf: IntArray | None = None
        self.read = -1


class Board:
    """The best node for a shape, under one policy."""

    def __init__(
        self,
        fleet: Fleet,
        masks: StaticMasks,
        scorer: Scorer,
        seed: int,
        other: Callable[[str], "Board"] | None = None,
    ) -> None:
        """`other` gives the boards of the policies, by their names, that pools have of their own.

        None: pools do not matter.
        """
        self._other = other
        self._fleet = fleet
        self._masks = masks
        self._scorer = scorer
        self._seed = seed
        self._of_shape: OrderedDict[Shape, _Scores] = OrderedDict()
        self._rank: IntArray = np.zeros(0, dtype=np.int64)
        self._rank_read = -1

    def best(
        self,
        shape: Shape,
        uid: str,
        refused: frozenset[str] = frozenset(),
        among: BoolArray | None = None,
    ) -> tuple[int, tuple[str, ...]] | None:
        """Return the row and the leaves for a pod, or None where no node will do.

        `uid` keys random choices; `refused` names nodes that are out of the question for it, and
        `among` says for each row whether it may be there. Where the best node is in a pool that has
        a policy of its own, that chooses among the nodes of the pool.
        """
        found = self.best_here(shape, uid, refused, among)
        if found is None or self._other is None or not self._fleet.pools:
            return found
        number = pool_number(self._fleet, found[0])
        placement = self._fleet.pools[number - 1].placement if number else None
        if placement is None:
            return found
        there = is_in(self._fleet, number)
        there = there if among is None else there & among
        return self._other(SCORED_BY[placement]).best_here(shape, uid, refused, there)

    def allowed(self, shape: Shape) -> BoolArray:
        """Return for each row whether a pod of this shape may ever be there; see `StaticMasks`."""
        return self._masks.of(shape)[: self._fleet.size]

    def best_here(
        self, shape: Shape, uid: str, refused: frozenset[str], among: BoolArray | None
    ) -> tuple[int, tuple[str, ...]] | None:
        """Return the same by this policy alone, whatever pools say."""
        known = self._up_to_date(shape)
        score = known.score[: self._fleet.size]
        if among is not None:
            score = np.where(among, score, IMPOSSIBLE)
        if refused:
            score = score.copy()
            for name in sorted(refused):
                row = self._fleet.row_of.get(name)
                if row is not None:
                    score[row] = IMPOSSIBLE
        if not len(score):
            return None
        top = int(score.max())
        if top == IMPOSSIBLE:
            return None
        apart = shape.request.devices.apart
        if apart in self._fleet.replicas:
            rows = least_crowded(self._fleet, apart, np.flatnonzero(score != IMPOSSIBLE))
            best = self._break_tie(rows[score[rows] == score[rows].max()], uid)
        else:
            best = self._break_tie(np.flatnonzero(score == top), uid)
        return best, self._choose_leaves(shape, best, known, uid)

    def points(self, shape: Shape, row: int) -> int:
        """Return the score of a row for a pod of this shape; `IMPOSSIBLE` where it will not do."""
        return int(self._up_to_date(shape).score[row])

    def use(self, scorer: Scorer) -> None:
        """Score by another scorer from now on."""
        self._scorer = scorer
        self._of_shape.clear()

    # Scores -----------------------------------------------------------------------------------

    def _up_to_date(self, shape: Shape) -> _Scores:
        known = self._of_shape.get(shape)
        if known is None:
            known = self._of_shape[shape] = _Scores()
            limit = max(1, CACHED_SCORES // max(1, self._fleet.capacity))
            while len(self._of_shape) > limit:
                self._of_shape.popitem(last=False)
        else:
            self._of_shape.move_to_end(shape)
        fleet = self._fleet
        if len(known.score) != fleet.capacity:
            self._forget(known)
        if known.read == fleet.changes.head:
            return known
        self._rescore(shape, known, self._changed_since(known.read))
        known.read = fleet.changes.read()
        return known

    def _changed_since(self, position: int) -> Rows:
        """Return the rows to score anew for what was up to date at a position of the log."""
        fleet, vectorised = self._fleet, self._scorer.vectorised
        all_rows = slice(0, fleet.size)
        if position < 0 or (vectorised and fleet.changes.head - position > fleet.size >> 3):
            return all_rows  # gathering so many costs more than scoring all
        found = fleet.changes.since(position)
        if found is None:
            return all_rows
        if vectorised:
            return found
        changed = np.zeros(fleet.size, dtype=np.bool_)
        changed[found] = True
        return np.flatnonzero(changed)

    def _forget(self, known: _Scores) -> None:
        known.score = np.full(self._fleet.capacity, IMPOSSIBLE, dtype=np.int64)
        known.leaf = (
            np.zeros(self._fleet.capacity, dtype=np.int64)
            if self._scorer.leaf_rule is LeafRule.SCORED
            else None
        )
        known.read = -1

    def _rescore(self, shape: Shape, known: _Scores, rows: Rows) -> None:
        fleet = self._fleet
        fits = fitting_leaves(fleet, shape, rows)
        ok = self._masks.of(shape)[rows]
        for _, passed in dynamic_tests(fleet, shape, rows, fits):
            ok = ok & passed
        known.score[rows] = IMPOSSIBLE
        rows = np.flatnonzero(ok) if isinstance(rows, slice) else rows[ok]
        if not len(rows):
            return
        fits = None if fits is None else fits[ok]
        score, leaf = self._scorer.score(fleet, shape, rows, fits)
        if self._scorer.handicap:
            score = score - self._handicaps(rows)
        known.score[rows] = score
        if known.leaf is not None and leaf is not None:
            known.leaf[rows] = leaf

    # Ties and leaves --------------------------------------------------------------------------

    def _break_tie(self, rows: NDArray[np.intp], uid: str) -> int:
        if len(rows) == 1:
            return int(rows[0])
        rank = self._ranks()[rows]
        if self._scorer.tie_rule is TieRule.RANDOM:
            rank = _mix(rank ^ keyed(self._seed, "tie", uid))
        return int(rows[int(rank.argmin())])

    def _ranks(self) -> IntArray:
        """Return each row's place in the one random order of nodes; smaller comes first."""
        fleet = self._fleet
        log = fleet.static_changes
        if self._rank_read != log.head or len(self._rank) != fleet.capacity:
            rows = log.since(self._rank_read) if self._rank_read >= 0 else None
            if rows is None or len(self._rank) != fleet.capacity:
                self._rank = np.zeros(fleet.capacity, dtype=np.int64)
                rows = np.arange(fleet.size)
            for row in rows.tolist():
                name = fleet.names[row]
                self._rank[row] = keyed(self._seed, "node", name) if name else 0
            self._rank_read = log.read()
        return self._rank

    def _handicaps(self, rows: Rows) -> IntArray:
        """Return how many points each row is behind, by its place in the order of nodes."""
        behind: IntArray = (self._ranks()[rows] >> HANDICAP_BITS) * self._scorer.handicap
        return behind >> RANK_BITS - HANDICAP_BITS

    def _choose_leaves(self, shape: Shape, row: int, known: _Scores, uid: str) -> tuple[str, ...]:
        devices = shape.request.devices
        if not devices.count:
            return ()
        fleet = self._fleet
        names = fleet.leaves[row]
        fits = self._fitting_columns(shape, row)
        rule = self._scorer.leaf_rule
        if not devices.whole and devices.count == 1 and known.leaf is not None:
            return (names[int(known.leaf[row])],)
        if not devices.whole:
            if rule is LeafRule.RANDOM:
                fits.sort(key=lambda c: keyed(self._seed, "leaf", f"{uid}\0{names[c]}"))
            else:
                compute = fleet.leaf_compute_free[row].tolist()
                memory = fleet.leaf_memory_free[row].tolist()
                sign = -1 if rule is LeafRule.MOST_FREE else 1
                fits.sort(key=lambda c: (sign * compute[c], sign * memory[c], c))
        chosen: list[str] = []
        used: set[int] = set()
        numbers = fleet.leaf_device[row].tolist()
        for column in fits:
            if numbers[column] not in used:
                used.add(numbers[column])
                chosen.append(names[column])
                if len(chosen) == devices.count:
                    break
        return tuple(chosen)

    def _fitting_columns(self, shape: Shape, row: int) -> list[int]:
        fleet = self._fleet
        fits = fitting_leaves(fleet, shape, np.array([row], dtype=np.intp))
        if fits is not None:
            return [int(c) for c in np.flatnonzero(fits[0])]
        tenants = fleet.leaf_tenants[row].tolist()
        free = fleet.leaf_tenants_free[row].tolist()
        undivided = fleet.leaf_undivided[row].tolist()
        return [c for c, u in enumerate(undivided) if u and free[c] == tenants[c] > 0]


def _mix(values: IntArray) -> IntArray:
    """Scatter numbers evenly (the finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = values.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
