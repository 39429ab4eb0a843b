"""The linear program over fleet and demand: how much could be allocated, and at what prices.

Nodes of one type are pooled, so it is forgotten which pods share a node: what it allocates is an
upper bound for any scheduler, one that moves pods included. What it does keep is which shares fit
on one leaf together, as patterns (Gilmore and Gomory's cutting stock), generated as they pay.

    maximise   sum of value_i x_ig                  x_ig pods of class i on leaf group g
    demand     sum over g of x_ig <= demand_i       (= for classes that are forced)
    host       CPU and memory of each node type
    leaves     whole leaves taken + patterns used <= leaves of group g
    shares     shares of size s on g <= sum over patterns of (shares of size s in it)
    memory     device memory of each group, where it is asked for
    big pods   pods that need more than half of more than half of a node's leaves <= its nodes

Groups are those of all node types; a type without leaves is one group that serves pods without
devices only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
from highspy._core import _Highs
from numpy.typing import NDArray

from shoal.bounds.patterns import Grid, best_patterns
from shoal.bounds.types import LeafGroup, NodeType
from shoal.model.node import WHOLE_COMPUTE_MILLI
from shoal.model.request import Request

Floats = NDArray[np.float64]

PRICE_TOLERANCE = 1e-7
"""What a pattern must add beyond its cost to be taken in; values are of order 1 to 10."""

DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4
"""HiGHS's numbers. After other demands the last basis is dual feasible, after new patterns primal
feasible; the simplex of that side starts where it stands."""


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimum: the objective, and what it says of each class.

    `shadow` is what one more pod of a class would add to the objective. By class and node type,
    `pods` is how many are placed, and `shortfall` what a pod loses there against its best place
    (infinite where it may not run).
    """

    value: float
    shadow: Floats
    pods: Floats
    shortfall: Floats


@dataclass(frozen=True, slots=True)
class _Place:
    """A leaf group of a node type; without a group, the node type's hosts only."""

    type_index: int
    group: LeafGroup | None


@dataclass(slots=True)
class _Rows:
    """Rows of a program as they are added: bounds, and entries by row and column."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, entries: Sequence[tuple[int, float]], upper: float, lower: float) -> int:
        """Append a row lower <= sum of value x column <= upper; its number."""
        row = len(self.upper)
        for column, value in entries:
            self.rows.append(row)
            self.columns.append(column)
            self.values.append(value)
        self.upper.append(upper)
        self.lower.append(lower)
        return row


class Program:
    """The program for a fleet, requests and their values; solved for as many demands as wanted.

    Values are per pod, of order 1 (a whole device). Each solution starts from the one before it,
    and patterns once found stay.
    """

    def __init__(
        self, types: Sequence[NodeType], requests: Sequence[Request], values: Floats
    ) -> None:
        self.types = types
        self.requests = requests
        self.places = [
            _Place(index, group)
            for index, kind in enumerate(types)
            for group in (kind.groups or (None,))
        ]
        self.pairs = [
            (i, p)
            for p, place in enumerate(self.places)
            for i, request in enumerate(requests)
            if _allowed(request, types[place.type_index], place)
        ]
        self._values = values
        self._classes_of_pairs = np.array([i for i, _ in self.pairs], dtype=np.int64)
        self._types_of_pairs = np.array(
            [self.places[p].type_index for _, p in self.pairs], dtype=np.int64
        )
        self._model: _Model | None = None
        self._patterns: list[tuple[int, int, NDArray[np.int64]]] = []

    def most(self, demand: Floats, forced: NDArray[np.bool_] | None = None) -> Solution:
        """The largest sum of values over pods placed, with at most `demand` pods of each class.

        Classes that are `forced` must be placed in full. Raises ValueError where they cannot be.
        """
        nothing = np.zeros(len(self.requests))
        if not self.pairs and (forced is None or not demand[forced].any()):
            nowhere = np.full((len(nothing), len(self.types)), np.inf)
            return Solution(0.0, nothing, np.zeros(nowhere.shape), nowhere)
        if self._model is None:
            rows = _Rows()
            for columns in self._columns_by_class():
                rows.add([(c, 1.0) for c in columns], 0.0, -np.inf)
            self._model = self._new_model(rows, self._values[self._classes_of_pairs])
        unforced = np.full(len(demand), -np.inf)
        lower = unforced if forced is None else np.where(forced, demand, unforced)
        self._model.bound_rows(lower, demand)
        duals = self._solve(self._model)
        amounts, reduced = self._model.columns(len(self.pairs))
        pods = np.zeros((len(self.requests), len(self.types)))
        np.add.at(pods, (self._classes_of_pairs, self._types_of_pairs), amounts)
        shortfall = np.full(pods.shape, np.inf)
        np.minimum.at(shortfall, (self._classes_of_pairs, self._types_of_pairs), reduced)
        shadow = duals[: len(self.requests)]
        return Solution(self._model.value(), shadow, pods, np.maximum(shortfall, 0.0))

    def largest_load(self, demand: Floats) -> float:
        """The largest L for which L x `demand` fits whole; 0 where some class fits nowhere."""
        rows = _Rows()
        load = len(self.pairs)
        for i, columns in enumerate(self._columns_by_class()):
            rows.add([*((c, 1.0) for c in columns), (load, -float(demand[i]))], 0.0, 0.0)
        model = self._new_model(rows, np.append(np.zeros(load), 1.0))
        self._solve(model)
        return max(0.0, model.value())

    def _columns_by_class(self) -> list[list[int]]:
        columns: list[list[int]] = [[] for _ in self.requests]
        for column, (i, _) in enumerate(self.pairs):
            columns[i].append(column)
        return columns

    def _new_model(self, rows: _Rows, costs: Floats) -> "_Model":
        families = self._capacity_rows(rows)
        model = _Model(rows, costs, families)
        for f, k, counts in self._patterns:
            model.add_pattern(families[f], k, counts)
        return model

    def _solve(self, model: "_Model") -> Floats:
        """Solve, adding patterns while any pays; the worth of one more unit of each row."""
        strategy = DUAL_SIMPLEX
        while True:
            duals = model.run(strategy)
            strategy = PRIMAL_SIMPLEX
            added = False
            for f, family in enumerate(model.families):
                worth, counts = best_patterns(family.grid, np.append(duals, 0)[family.share_rows])
                for k in np.flatnonzero(worth > duals[family.leaf_rows] + PRICE_TOLERANCE).tolist():
                    self._patterns.append((f, k, counts[k]))
                    model.add_pattern(family, k, counts[k])
                    added = True
            if not added:
                return duals

    def _capacity_rows(self, rows: _Rows) -> "list[_Family]":
        columns: list[list[tuple[int, Request]]] = [[] for _ in self.places]
        for column, (i, p) in enumerate(self.pairs):
            columns[p].append((column, self.requests[i]))
        for index, kind in enumerate(self.types):
            used = [
                pair
                for p, place in enumerate(self.places)
                if place.type_index == index
                for pair in columns[p]
            ]
            rows.add([(c, r.cpu_milli) for c, r in used], kind.nodes * kind.cpu_milli, -np.inf)
            rows.add([(c, r.memory_mib) for c, r in used], kind.nodes * kind.memory_mib, -np.inf)
            big = [(c, 1.0) for c, r in used if _keeps_others_away(r, kind)]
            rows.add(big, kind.nodes, -np.inf)
        families: dict[tuple[int, int], list[tuple[int, _Shares]]] = {}
        for p, place in enumerate(self.places):
            if place.group is not None:
                leaves = self.types[place.type_index].nodes * place.group.count
                shares = _leaf_rows(rows, place.group, columns[p], leaves)
                size = place.group.compute_milli, place.group.memory_mib
                families.setdefault(size, []).append((p, shares))
        return [
            _family([shares for _, shares in members], *size) for size, members in families.items()
        ]


@dataclass(frozen=True, slots=True)
class _Shares:
    """Rows of one place: its leaves, and each size of share (compute, memory) on them."""

    leaf_row: int
    by_size: dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class _Family:
    """Places with leaves of one size: their rows, and by place and share those of the shares.

    The row of a share that a place does not have is -1.
    """

    leaf_rows: NDArray[np.int64]
    share_rows: NDArray[np.int64]
    grid: Grid


def _family(members: Sequence[_Shares], compute_milli: int, memory_mib: int) -> _Family:
    sizes = sorted({size for shares in members for size in shares.by_size})
    rows = [[shares.by_size.get(size, -1) for size in sizes] for shares in members]
    return _Family(
        np.array([shares.leaf_row for shares in members], dtype=np.int64),
        np.array(rows, dtype=np.int64).reshape(len(members), len(sizes)),
        Grid.of(sizes, compute_milli, memory_mib),
    )


def _leaf_rows(
    rows: _Rows, group: LeafGroup, columns: Sequence[tuple[int, Request]], leaves: int
) -> _Shares:
    whole, memory = [], []
    by_size: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for column, request in columns:
        asked = request.devices
        if _takes_whole(request, group):
            whole.append((column, float(asked.count)))
            memory.append((column, float(asked.count * group.memory_mib)))
        elif asked.count:
            size = asked.compute_milli, asked.memory_mib
            by_size.setdefault(size, []).append((column, float(asked.count)))
            memory.append((column, float(asked.count * asked.memory_mib)))
    leaf_row = rows.add(whole, leaves, -np.inf)
    share_rows = {size: rows.add(by_size[size], 0.0, -np.inf) for size in sorted(by_size)}
    if group.memory_mib:
        rows.add(memory, leaves * group.memory_mib, -np.inf)
    return _Shares(leaf_row, share_rows)


def _keeps_others_away(request: Request, kind: NodeType) -> bool:
    """Whether no two such pods fit on one node: most of its leaves, and most of each leaf."""
    asked = request.devices
    most_of_each = asked.whole or 2 * asked.compute_milli > WHOLE_COMPUTE_MILLI
    return most_of_each and 2 * asked.count > kind.leaves > 0


def _takes_whole(request: Request, group: LeafGroup) -> bool:
    return request.devices.count > 0 and (request.devices.whole or not group.shared)


def _allowed(request: Request, kind: NodeType, place: _Place) -> bool:
    """Whether a pod may run there at all: models, sizes, and enough of everything on an empty node.

    A pod without devices is counted once per node type, at its first group.
    """
    asked, group = request.devices, place.group
    if request.cpu_milli > kind.cpu_milli or request.memory_mib > kind.memory_mib:
        return False
    if not asked.count:
        return group is None or group is kind.groups[0]
    if group is None or asked.count > group.count:
        return False
    if asked.accelerators and group.accelerator not in asked.accelerators:
        return False
    if asked.whole:
        return group.undivided
    return asked.compute_milli <= group.compute_milli and asked.memory_mib <= group.memory_mib


class _Model:
    """HiGHS behind the few calls needed: rows once, patterns later, duals as worth per unit."""

    def __init__(self, rows: _Rows, costs: Floats, families: "list[_Family]") -> None:
        self.families = families
        # highspy.Highs prints a banner to standard output before it can be told not to.
        self._solver = _Highs()
        self._solver.setOptionValue("output_flag", False)
        width = len(costs)
        order = np.lexsort((rows.rows, rows.columns))
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = width, len(rows.upper)
        lp.col_cost_ = -costs
        lp.col_lower_, lp.col_upper_ = np.zeros(width), np.full(width, np.inf)
        lp.row_lower_, lp.row_upper_ = np.array(rows.lower), np.array(rows.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.searchsorted(np.array(rows.columns)[order], np.arange(width + 1))
        lp.a_matrix_.index_ = np.array(rows.rows)[order]
        lp.a_matrix_.value_ = np.array(rows.values, dtype=np.float64)[order]
        self._solver.passModel(lp)

    def bound_rows(self, lower: Floats, upper: Floats) -> None:
        """Change the bounds of the first rows."""
        for row, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
            self._solver.changeRowBounds(row, low, high)

    def add_pattern(self, family: _Family, place: int, counts: NDArray[np.int64]) -> None:
        """Add a column that takes one leaf of a place and gives the shares counted in `counts`."""
        held = np.flatnonzero(counts)
        rows = np.append(family.share_rows[place, held], family.leaf_rows[place]).astype(np.int32)
        values = np.append(-counts[held], 1).astype(np.float64)
        self._solver.addCol(0.0, 0.0, np.inf, len(rows), rows, values)

    def run(self, strategy: int) -> Floats:
        """Solve; what one more unit of each row's upper limit would add to the objective."""
        self._solver.setOptionValue("simplex_strategy", strategy)
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise ValueError(
                "The classes that must be placed do not all fit on this fleet (HiGHS answers"
                f" {self._solver.modelStatusToString(status)!r}); ask for fewer of them."
            )
        return -np.array(self._solver.getSolution().row_dual)

    def columns(self, count: int) -> tuple[Floats, Floats]:
        """The first `count` columns of the optimum, and what one more of each would cost."""
        solution = self._solver.getSolution()
        return np.array(solution.col_value[:count]), np.array(solution.col_dual[:count])

    def value(self) -> float:
        """The objective at the optimum."""
        return -float(self._solver.getInfo().objective_function_value)
