"""Who shares a leaf with whom.

Below a hardware partition a leaf's tenants are of one party, the queue right below the root that
their work belongs to, unless the pool of the node lets queues mix, and none of them keeps to its
own party all the same; and replicas of one workload never share a leaf, because one fault would end
them together. Leaves with one tenant have nobody to keep apart, so what is asked here is asked of
every leaf.

Parties are numbered from 1. Of those that share a leaf the fleet keeps the sum and the sum of
squares of their numbers: n numbers p are all equal to k exactly if the sum of (p - k)^2, which is
squares - 2k sum + k^2 n, is 0, and all equal to each other exactly if n squares = sum^2. So what
comes and goes is added and subtracted, in whatever order.
"""

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.arrays.labels import BoolArray, Rows
from shoal.core.arrays.pool_rules import MIXES
from shoal.model.isolation import Isolation
from shoal.model.queue import QueueTree
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Workload, WorkloadType

if TYPE_CHECKING:
    from shoal.core.arrays.fleet import Fleet


def asked_by(workload: Workload, tree: QueueTree) -> tuple[Request, ...]:
    """Return what the pods of each pod set ask for, with the neighbours that shares may have."""
    party = party_of(workload.queue, tree)
    apart = ""
    if workload.type is WorkloadType.INFERENCE and workload.pods > 1:
        apart = workload.uid
    asked = []
    for pod_set in workload.pod_sets:
        request, devices = pod_set.request, pod_set.request.devices
        if devices.count:
            devices = replace(devices, apart=devices.apart or apart)
            if not devices.whole:
                devices = replace(devices, party=party)
            request = replace(request, devices=devices)
        asked.append(request)
    return tuple(asked)


def party_of(queue: str, tree: QueueTree) -> str:
    """Return the queue right below the root that a queue is, or is below; without queues none."""
    if not tree.queues:
        return ""
    path = tree.path(queue)
    return path[min(1, len(path) - 1)]


def reaching(fleet: "Fleet", floor: Isolation, rows: Rows) -> BoolArray:
    """Return for rows x columns which leaves isolate a tenant at least as much as `floor`."""
    reaches = np.array([each.reaches(floor) for each in fleet.isolations], dtype=np.bool_)
    found: BoolArray = reaches[fleet.leaf_isolation[rows]]
    return found


def suffices(fleet: "Fleet", devices: DeviceRequest, row: int, column: int) -> bool:
    """Return whether a leaf isolates a share as much as it asks for; a whole device always does."""
    return devices.whole or bool(reaching(fleet, devices.floor, slice(row, row + 1))[0, column])


def welcome(fleet: "Fleet", devices: DeviceRequest, rows: Rows) -> BoolArray:
    """Return for rows x columns beside whose tenants a share may be."""
    party = fleet.party_id(devices.party)
    if fleet.parties == 1 and not devices.apart:
        return np.ones(fleet.leaf_sharers[rows].shape, dtype=np.bool_)
    others = fleet.leaf_party_squares[rows] - 2 * party * fleet.leaf_party_sum[rows]
    others += party * party * fleet.leaf_sharers[rows]
    found: BoolArray = others == 0
    mixes = fleet.rules[rows] & MIXES > 0
    if not devices.keeps_to_party and mixes.any():
        found |= mixes[:, np.newaxis] & (fleet.leaf_keepers[rows] == 0)
    replicas = fleet.replicas.get(devices.apart) if devices.apart else None
    if replicas:
        where = {row: at for at, row in enumerate(np.arange(fleet.capacity)[rows].tolist())}
        for (row, leaf), count in replicas.items():
            if count and row in where:
                found[where[row], fleet.leaves[row].index(leaf)] = False
    return found


def strangers(fleet: "Fleet", row: int, column: int) -> bool:
    """Return whether tenants of different parties share a leaf."""
    at = row, column
    total = int(fleet.leaf_party_sum[at])
    return int(fleet.leaf_sharers[at]) * int(fleet.leaf_party_squares[at]) != total * total


def quarrels(fleet: "Fleet", row: int, column: int) -> int:
    """Return how many tenants share a leaf that may not, 0 where all of them may."""
    at = row, column
    if fleet.leaf_sharers[at] < 2:
        return 0
    kept_apart = not fleet.rules[row] & MIXES or fleet.leaf_keepers[at]
    if kept_apart and strangers(fleet, row, column):
        return int(fleet.leaf_sharers[at])
    where = row, fleet.leaves[row][column]
    return max((n for each in fleet.replicas.values() if (n := each[where]) > 1), default=0)


def count_sharer(fleet: "Fleet", devices: DeviceRequest, at: tuple[int, int], sign: int) -> None:
    """Note that a pod has a share of a leaf (`sign` -1), or no more (1)."""
    party = fleet.party_id(devices.party)
    parts = (1, party, party * party, int(devices.keeps_to_party))
    for array, part in zip(fleet.sharer_arrays(), parts, strict=True):
        if part:
            fleet.journal.add(array, at, -sign * part)


def count_replica(fleet: "Fleet", apart: str, row: int, leaf: str, sign: int) -> None:
    """Note that a pod that is kept apart holds something of a leaf (`sign` -1), or no more (1)."""
    replicas = fleet.replicas.setdefault(apart, Counter())
    where = row, leaf
    fleet.journal.count(replicas, where, replicas[where] - sign)
    if not fleet.journal.speculating and not replicas[where]:
        del replicas[where]
        if not replicas:
            del fleet.replicas[apart]
