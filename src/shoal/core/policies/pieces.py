"""The pieces that a placement policy is made of.

A policy scores nodes for a shape, says how a leaf is chosen on the node, and how a tie between
nodes is broken. Filters are the same for all (`eligibility`). Scores are integers: coarse scores
with one fixed order of nodes are part of what a policy is, not a detail (see fgd).
"""

from enum import Enum
from typing import Protocol

import numpy as np

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray
from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.shape import Shape

IMPOSSIBLE = int(np.iinfo(np.int64).min)
"""The score of a node that will not do."""


class TieRule(Enum):
    """Which of the best nodes is taken."""

    FIRST = "the first in one random order of nodes, fixed by the seed"
    RANDOM = "any, at random for each pod"


class LeafRule(Enum):
    """Which leaves of a node serve a pod that shares devices; whole ones are taken in order."""

    LEAST_FREE = "those with least free compute, then memory"
    MOST_FREE = "those with most free compute, then memory"
    RANDOM = "any, at random for each pod"
    SCORED = "the one that the score was given for; for several leaves, those with least free"


class Scorer(Protocol):
    """How good nodes are for a shape."""

    vectorised: bool
    """Whether all nodes at once are scored at little more than what some of them cost."""
    leaf_rule: LeafRule
    tie_rule: TieRule
    handicap: int
    """By how many points the last node of the random order is behind the first."""

    def score(
        self, fleet: Fleet, shape: Shape, rows: Rows, fits: BoolArray | None
    ) -> tuple[IntArray, IntArray | None]:
        """Return the score of each row, more being better, and the leaf column it was given for.

        All of the rows pass every test. `fits` tells for rows x columns which leaves could serve
        the pod (None: not asked for, see `eligibility.fitting_leaves`). The second array is None
        unless the leaf rule is `SCORED`.
        """
        ...
