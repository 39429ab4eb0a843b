"""Node labels as columns, and the tests that Kubernetes makes on them.

Semantics: Kubernetes API reference, NodeSelectorRequirement. `In` needs the label; `NotIn` and
`DoesNotExist` hold where it is missing; `Gt` and `Lt` compare integers, and hold nowhere unless
both sides are integers.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shoal.model.request import Operator, Requirement

BoolArray = NDArray[np.bool_]
Rows = NDArray[np.intp] | slice

MISSING = 0


class Labels:
    """Values of node labels, a column per key that somebody has asked about."""

    def __init__(self) -> None:
        self._of_row: dict[int, Mapping[str, str]] = {}
        self._columns: dict[str, NDArray[np.int32]] = {}
        self._ids: dict[str, int] = {}
        self._integers: list[int | None] = [None]
        self._rows = 16

    def set_row(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace the labels of a row."""
        self._of_row[row] = labels
        while row >= self._rows:
            self._rows *= 2
        for key in self._columns:
            self._column(key)[row] = self._id(labels.get(key))

    def test(self, requirement: Requirement, rows: Rows) -> BoolArray:
        """Return for each of `rows` whether its labels meet the requirement."""
        values: NDArray[np.int32] = self._column(requirement.key)[rows]
        holds: BoolArray
        match requirement.operator:
            case Operator.EXISTS:
                holds = values != MISSING
            case Operator.DOES_NOT_EXIST:
                holds = values == MISSING
            case Operator.IN:
                holds = self._among(values, requirement.values)
            case Operator.NOT_IN:
                holds = ~self._among(values, requirement.values)
            case Operator.GT | Operator.LT:
                holds = self._compare(values, requirement)
        return holds

    def values(self, key: str, rows: Rows) -> NDArray[np.int32]:
        """Return for each of `rows` a number for the value of its label `key`, 0 without one."""
        return self._column(key)[rows]

    def equal(self, key: str, value: str, rows: Rows) -> BoolArray:
        """Return for each of `rows` whether its label `key` has just that value."""
        has: BoolArray = self._column(key)[rows] == self._ids.get(value, -1)
        return has

    def _among(self, values: NDArray[np.int32], wanted: tuple[str, ...]) -> BoolArray:
        ids = [self._ids[v] for v in wanted if v in self._ids]
        return np.isin(values, ids)

    def _compare(self, values: NDArray[np.int32], requirement: Requirement) -> BoolArray:
        bound = _integer(requirement.values[0]) if len(requirement.values) == 1 else None
        if bound is None:
            return np.zeros(len(values), dtype=np.bool_)
        greater = requirement.operator is Operator.GT
        holds = np.array(
            [n is not None and (n > bound if greater else n < bound) for n in self._integers]
        )
        return holds[values]

    def _column(self, key: str) -> NDArray[np.int32]:
        column = self._columns.get(key)
        if column is None:
            column = np.zeros(self._rows, dtype=np.int32)
            for row, labels in self._of_row.items():
                column[row] = self._id(labels.get(key))
            self._columns[key] = column
        elif len(column) < self._rows:
            self._columns[key] = column = self._grown(column)
        return column

    def _grown(self, column: NDArray[np.int32]) -> NDArray[np.int32]:
        larger = np.zeros(self._rows, dtype=np.int32)
        larger[: len(column)] = column
        return larger

    def _id(self, value: str | None) -> int:
        if value is None:
            return MISSING
        known = self._ids.get(value)
        if known is None:
            known = self._ids[value] = len(self._integers)
            self._integers.append(_integer(value))
        return known


def _integer(text: str) -> int | None:
    """Read an integer as Kubernetes does (an optional sign and ASCII digits), or return None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() else None
