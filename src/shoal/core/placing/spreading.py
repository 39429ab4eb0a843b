"""Spreading the replicas of a service, so that one fault ends as few of them as can be.

A domain is what one fault may take with it: a zone (the well-known label of Kubernetes), whatever
levels of topology the pools name, the largest first, and a node. Where several nodes would do,
those are preferred whose zone has fewest replicas, of these those whose next smaller domain has,
and so on. It is a preference: a replica starts beside the others rather than not at all.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.journal import IntArray

ZONE = "topology.kubernetes.io/zone"
"""Kubernetes API reference, well-known labels: a failure domain."""


def least_crowded(fleet: Fleet, apart: str, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return those of some rows where fewest replicas are near, all where no replica is anywhere.

    `apart` is what the replicas have in common.
    """
    crowd = Counter[int]()
    for (row, _), count in fleet.replicas.get(apart, Counter()).items():
        crowd[row] += count
    held = np.array(list(crowd), dtype=np.intp)
    weights = np.array(list(crowd.values()), dtype=np.int64)
    for domain in _domains(fleet):
        near: IntArray = np.zeros(int(domain.max()) + 1, dtype=np.int64)
        np.add.at(near, domain[held], weights)
        here = near[domain[rows]]
        rows = rows[here == here.min()]
    return rows


def _domains(fleet: Fleet) -> Iterator[NDArray[np.intp]]:
    """Yield by row the number of its domain, for each sort of domain, the largest first."""
    levels = (level for pool in fleet.pools for level in reversed(pool.levels))
    for label in dict.fromkeys((ZONE, *levels)):
        yield fleet.labels.values(label, slice(0, fleet.size)).astype(np.intp)
    yield np.arange(fleet.size)
