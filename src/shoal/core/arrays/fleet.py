"""The fleet as arrays: one row per node, one column per leaf of it.

Hot arrays say what is free. Free is capacity minus what is held, so it is negative where capacity
fell below use (a lost device, a node that shrank): that is an inherited debt, and nothing is placed
there. A row stays until its node is gone and nothing is held on it any more.

Names at the door, rows inside: rows and columns are an accident of the order of arrival, so no
decision may depend on them; ties are broken by keyed ranks and by the order of leaves on a node.
"""

from collections import Counter

import numpy as np

from shoal.core.arrays.changes import ChangeLog
from shoal.core.arrays.journal import Checkpoint, IntArray, Journal
from shoal.core.arrays.labels import Labels
from shoal.core.arrays.neighbours import count_replica, count_sharer
from shoal.core.arrays.pool_rules import rules_of
from shoal.model.isolation import Isolation
from shoal.model.node import Leaf, Node, Taint, isolation_of, memory_of
from shoal.model.pool import Pool
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Placement

HOLDER_CLASSES = 18
"""Classes of device holders counted per node: 0 shares, k whole devices, the last one more."""

NO_LEAF = Leaf("", 0, 0, 0)


def holder_class(request: Request) -> int:
    """Return the class of a pod among the holders of devices: -1 none, 0 shares, k whole ones."""
    if not request.devices.count:
        return -1
    return min(request.devices.count, HOLDER_CLASSES - 1) if request.devices.whole else 0


class Fleet:
    """Arrays of what is free, and the nodes behind them. See the module for the rules."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.changes = ChangeLog()
        """Rows where anything changed."""
        self.static_changes = ChangeLog()
        """Rows where something changed that does not come from placing work."""
        self.labels = Labels()
        self.size = 0
        """Rows in use are below it, with gaps."""
        self.nodes: list[Node | None] = []
        """The node of a row as last seen; None where it is gone."""
        self.names: list[str] = []
        """The node name of a row, also while the node is gone; empty where the row is unused."""
        self.row_of: dict[str, int] = {}
        self.leaves: list[tuple[str, ...]] = []
        """The leaf names of a row by column."""
        self.lost_devices: dict[str, frozenset[str]] = {}
        """Devices that are out of order, by node name."""
        self.accelerator_ids: dict[str, int] = {}
        self.mixed_rows = 0
        """Rows whose devices are of more than one accelerator."""
        self.divided_rows = 0
        """Rows that have a device of several leaves."""
        self.devices_by_id: dict[int, int] = {}
        """Devices by the number of their accelerator, those out of order included."""
        self.pools: tuple[Pool, ...] = ()
        """Sets of nodes that take only some types of work; a node in none takes all."""
        self._working_by_id: dict[int, int] = {}
        self._memory: dict[str, Counter[int]] = {}
        """Devices by accelerator and memory."""
        self.masks: dict[str, frozenset[str]] = {}
        self.taint_sets: dict[tuple[Taint, ...], int] = {(): 0}
        """Every combination of taints seen, by the number that `taint_set` has for it."""
        self.isolations: dict[Isolation, int] = {isolation_of(NO_LEAF, divided=True): 0}
        """Every isolation seen, by the number that `leaf_isolation` has for it."""
        self.replicas: dict[str, Counter[tuple[int, str]]] = {}
        """Pods that are kept apart from each other, by `apart`: how many there are by row, leaf."""
        self._party_ids: dict[str, int] = {}
        self._columns: list[dict[str, int]] = []
        self._held_pods: list[int] = []
        self._unused: list[int] = []
        self._allocate(rows=16, width=1)

    # Arrays -----------------------------------------------------------------------------------

    def _allocate(self, rows: int, width: int) -> None:
        """Make all arrays anew with room for `rows` x `width`, keeping what they hold."""
        if self.journal.speculating:
            raise AssertionError("the fleet may not grow during speculation")

        def grown(name: str, shape: tuple[int, ...]) -> IntArray:
            array = np.zeros(shape, dtype=np.int64)
            old: IntArray | None = getattr(self, name, None)
            if old is not None:
                array[tuple(slice(length) for length in old.shape)] = old
            return array

        per_node, per_leaf = (rows,), (rows, width)
        self.known = grown("known", per_node)
        """1 where a row is in use, for a node or for what is held on one that is gone."""
        self.present = grown("present", per_node)
        self.cordoned = grown("cordoned", per_node)
        self.taint_set = grown("taint_set", per_node)
        self.rules = grown("rules", per_node)
        """What its pool makes of it, as bits; see `pool_rules`."""
        self.cpu_free = grown("cpu_free", per_node)
        self.memory_free = grown("memory_free", per_node)
        self.pods_free = grown("pods_free", per_node)
        self.whole_free = grown("whole_free", per_node)
        """Undivided devices of which nothing is held."""
        self.compute_free = grown("compute_free", per_node)
        """Sum over leaves of free compute in milli, debts not subtracted."""
        self.device_count = grown("device_count", per_node)
        """Devices in working order."""
        self.holders = grown("holders", (rows, HOLDER_CLASSES))
        """Pods that hold devices, by `holder_class`."""
        self.leaf_compute = grown("leaf_compute", per_leaf)
        self.leaf_memory = grown("leaf_memory", per_leaf)
        self.leaf_tenants = grown("leaf_tenants", per_leaf)
        self.leaf_compute_free = grown("leaf_compute_free", per_leaf)
        self.leaf_memory_free = grown("leaf_memory_free", per_leaf)
        self.leaf_tenants_free = grown("leaf_tenants_free", per_leaf)
        self.leaf_whole_holders = grown("leaf_whole_holders", per_leaf)
        """Pods that hold the leaf whole; more than one only where it was found so."""
        self.leaf_sharers = grown("leaf_sharers", per_leaf)
        """Pods that hold a share of the leaf."""
        self.leaf_party_sum = grown("leaf_party_sum", per_leaf)
        self.leaf_party_squares = grown("leaf_party_squares", per_leaf)
        """Sums over them of the number of their party and of its square; see `neighbours`."""
        self.leaf_keepers = grown("leaf_keepers", per_leaf)
        """Those of them that keep to their party."""
        self.leaf_isolation = grown("leaf_isolation", per_leaf)
        """The number of what it gives a tenant, in `isolations`."""
        self.leaf_accelerator = grown("leaf_accelerator", per_leaf)
        """Accelerator ids, 0 where there is no leaf."""
        self.leaf_device = grown("leaf_device", per_leaf)
        """Number of the leaf's device on its node, from 1; 0 where there is no leaf."""
        self.leaf_undivided = grown("leaf_undivided", per_leaf)

    @property
    def capacity(self) -> int:
        """Rows that fit before the arrays are made anew."""
        return len(self.cpu_free)

    @property
    def width(self) -> int:
        """Leaf columns."""
        return int(self.leaf_compute.shape[1])

    def arrays(self) -> dict[str, IntArray]:
        """Return every array by name; views, not copies."""
        return {k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)}

    # What the world sees ----------------------------------------------------------------------

    def see(self, node: Node) -> int:
        """Take in a node, new or changed, and return its row."""
        row = self._row(node.name)
        old = self.nodes[row]
        self.nodes[row] = node
        self.present[row] = 1
        self.cordoned[row] = int(node.cordoned)
        self.taint_set[row] = self.taint_sets.setdefault(node.taints, len(self.taint_sets))
        self.rules[row] = rules_of(self.pools, node)
        self.cpu_free[row] += node.cpu_milli - (old.cpu_milli if old else 0)
        self.memory_free[row] += node.memory_mib - (old.memory_mib if old else 0)
        self.pods_free[row] += node.pods - (old.pods if old else 0)
        if old is None or old.devices != node.devices:
            self._fit_leaves(row, node)
            self._count_memory(old, -1)
            self._count_memory(node, 1)
        self.labels.set_row(row, node.labels)
        self._static_change(row)
        return row

    def lose(self, name: str) -> int | None:
        """Take away a node's capacity; what is held there stays held. None if it is unknown."""
        row = self.row_of.get(name)
        node = self.nodes[row] if row is not None else None
        if row is None or node is None:
            return None
        self.nodes[row] = None
        self._count_memory(node, -1)
        self.present[row] = 0
        self.cordoned[row] = 0
        self.taint_set[row] = 0
        self.rules[row] = 0
        self.cpu_free[row] -= node.cpu_milli
        self.memory_free[row] -= node.memory_mib
        self.pods_free[row] -= node.pods
        self.lost_devices.pop(name, None)
        self._fit_leaves(row, None)
        self.labels.set_row(row, {})
        self._static_change(row)
        self._drop_if_unused(row)
        return row

    def set_lost_devices(self, name: str, devices: frozenset[str]) -> int | None:
        """Say which devices of a node are out of order; None if the node is unknown."""
        row = self.row_of.get(name)
        node = self.nodes[row] if row is not None else None
        if row is None or node is None:
            return None
        if devices:
            self.lost_devices[name] = devices
        else:
            self.lost_devices.pop(name, None)
        self._fit_leaves(row, node)
        self._static_change(row)
        return row

    def set_pools(self, pools: tuple[Pool, ...]) -> None:
        """Say which sets of nodes take which types of work, and where queues may mix."""
        self.pools = pools
        for row, node in enumerate(self.nodes):
            rules = 0 if node is None else rules_of(self.pools, node)
            if rules != self.rules[row]:
                self.rules[row] = rules
                self._static_change(row)

    def set_mask(self, name: str, nodes: frozenset[str]) -> None:
        """Say on which nodes pods with the mask `name` may run."""
        changed = self.masks.get(name, frozenset()) ^ nodes
        self.masks[name] = nodes
        for node in sorted(changed):
            if node in self.row_of:
                self._static_change(self.row_of[node])

    def accelerator_id(self, name: str) -> int:
        """Return the number, from 1, by which the arrays know an accelerator."""
        return self.accelerator_ids.setdefault(name, len(self.accelerator_ids) + 1)

    @property
    def parties(self) -> int:
        """How many parties of neighbours have been seen."""
        return len(self._party_ids)

    def party_id(self, name: str) -> int:
        """Return the number, from 1, by which the arrays know a party of neighbours."""
        return self._party_ids.setdefault(name, len(self._party_ids) + 1)

    def holds_something(self, name: str) -> bool:
        """Return whether any pod holds something on a node."""
        row = self.row_of.get(name)
        return row is not None and self._held_pods[row] > 0

    def accelerators(self) -> list[str]:
        """Return the names of the accelerators of which there are devices, in order."""
        return sorted(name for name in self.accelerator_ids if self.devices_of(name))

    def devices_of(self, accelerator: str) -> int:
        """Return how many devices of an accelerator there are, those out of order included."""
        return self.devices_by_id.get(self.accelerator_ids.get(accelerator, 0), 0)

    def largest_mib(self, accelerator: str) -> int:
        """Return the memory of the largest device of an accelerator; 0 where there is none."""
        return max(self._memory.get(accelerator, ()), default=0)

    def working_of(self, accelerator: str) -> int:
        """Return how many devices of an accelerator are in working order."""
        return self._working_by_id.get(self.accelerator_ids.get(accelerator, 0), 0)

    # Holding ----------------------------------------------------------------------------------

    def take(self, request: Request, placement: Placement) -> int:
        """Book what a pod holds, whether or not there is room for it; return the row.

        Leaves that the node does not list, or of a node not seen yet, have size 0 until they are.
        """
        row = self._row(placement.node)
        for leaf in placement.leaves:
            self._column(row, leaf)
        if not self.journal.speculating:
            self._held_pods[row] += 1
        self._book(row, request, placement.leaves, -1)
        return row

    def give_back(self, request: Request, placement: Placement) -> int:
        """Undo `take`; return the row."""
        row = self.row_of[placement.node]
        self._book(row, request, placement.leaves, 1)
        if not self.journal.speculating:
            self._held_pods[row] -= 1
            self._drop_if_unused(row)
        return row

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Undo every booking since `checkpoint`."""
        for row in self.journal.rollback(checkpoint):
            self.changes.add(row)

    def _book(self, row: int, request: Request, leaves: tuple[str, ...], sign: int) -> None:
        """Add (`sign` 1) to what is free on a row what a pod holds there, or subtract it (-1)."""
        add = self.journal.add
        add(self.cpu_free, row, sign * request.cpu_milli)
        add(self.memory_free, row, sign * request.memory_mib)
        add(self.pods_free, row, sign)
        if leaves:
            add(self.holders, (row, holder_class(request)), -sign)
            columns = self._columns[row]
            devices = request.devices
            for leaf in leaves:
                self._book_leaf((row, columns[leaf]), devices, sign)
                if devices.apart:
                    count_replica(self, devices.apart, row, leaf, sign)
            self._sum_leaves(row)
        self.changes.add(row)

    def _book_leaf(self, at: tuple[int, int], devices: DeviceRequest, sign: int) -> None:
        add = self.journal.add
        compute, memory, tenants = devices.compute_milli, devices.memory_mib, 1
        if devices.whole:
            compute = self.leaf_compute.item(at)
            memory = self.leaf_memory.item(at)
            tenants = self.leaf_tenants.item(at)
            add(self.leaf_whole_holders, at, -sign)
        else:
            count_sharer(self, devices, at, sign)
        add(self.leaf_compute_free, at, sign * compute)
        add(self.leaf_memory_free, at, sign * memory)
        add(self.leaf_tenants_free, at, sign * tenants)

    def _sum_leaves(self, row: int) -> None:
        """Bring the sums over a row's leaves up to date."""
        free = self.leaf_compute_free[row].tolist()
        tenants_free = self.leaf_tenants_free[row].tolist()
        tenants = self.leaf_tenants[row].tolist()
        undivided = self.leaf_undivided[row].tolist()
        compute = sum([f for f in free if f > 0])
        sizes = zip(undivided, tenants_free, tenants, strict=True)
        whole = [u and have == most > 0 for u, have, most in sizes]
        self.journal.add(self.compute_free, row, compute - self.compute_free.item(row))
        self.journal.add(self.whole_free, row, sum(whole) - self.whole_free.item(row))

    # Rows and columns -------------------------------------------------------------------------

    def _row(self, name: str) -> int:
        """Return the row of a node, giving it one if it has none."""
        row = self.row_of.get(name)
        if row is not None:
            return row
        if self._unused:
            row = self._unused.pop()
        else:
            row = self.size
            self.size += 1
            self.nodes.append(None)
            self.names.append("")
            self.leaves.append(())
            self._columns.append({})
            self._held_pods.append(0)
            if row >= self.capacity:
                self._allocate(2 * self.capacity, self.width)
        self.row_of[name] = row
        self.names[row] = name
        self.known[row] = 1
        self.labels.set_row(row, {})
        self._static_change(row)
        return row

    def _column(self, row: int, leaf: str) -> int:
        """Return the column of a leaf, giving it one of size 0 if the node does not list it."""
        column = self._columns[row].get(leaf)
        if column is None:
            column = len(self.leaves[row])
            if column >= self.width:
                self._allocate(self.capacity, 2 * self.width)
            self.leaves[row] = (*self.leaves[row], leaf)
            self._columns[row][leaf] = column
        return column

    def _drop_if_unused(self, row: int) -> None:
        if self.nodes[row] is None and not self._held_pods[row]:
            del self.row_of[self.names[row]]
            self.names[row] = ""
            self.known[row] = 0
            self.leaves[row] = ()
            self._columns[row] = {}
            self._unused.append(row)
            self._static_change(row)

    def _fit_leaves(self, row: int, node: Node | None) -> None:
        """Lay out a row's leaves as `node` has them now; what is held keeps its leaf by name."""
        holds = {leaf: self._held_on((row, c)) for leaf, c in self._columns[row].items()}
        sharing = {
            leaf: [int(array[row, c]) for array in self.sharer_arrays()]
            for leaf, c in self._columns[row].items()
        }
        lost = self.lost_devices.get(node.name, frozenset()) if node else frozenset()
        layout: list[tuple[str, Leaf, str, int, bool]] = []
        for number, device in enumerate(node.devices if node else (), start=1):
            works = device.name not in lost
            for leaf in device.leaves:
                size = leaf if works else NO_LEAF
                undivided = works and len(device.leaves) == 1
                layout.append((leaf.name, size, device.accelerator, number, undivided))
        listed = {name for name, *_ in layout}
        orphans = sorted(name for name, held in holds.items() if any(held) and name not in listed)
        layout += [(name, NO_LEAF, "", 0, False) for name in orphans]
        width = self.width
        while width < len(layout):
            width *= 2
        if width > self.width:
            self._allocate(self.capacity, width)

        self._count_kinds(row, -1)
        for array in self._leaf_arrays():
            array[row] = 0
        self.leaves[row] = tuple(name for name, *_ in layout)
        self._columns[row] = {name: c for c, name in enumerate(self.leaves[row])}
        for c, (name, size, accelerator, number, undivided) in enumerate(layout):
            wholes, compute, memory, tenants = holds.get(name, (0, 0, 0, 0))
            self.leaf_compute[row, c] = size.compute_milli
            self.leaf_memory[row, c] = size.memory_mib
            self.leaf_tenants[row, c] = size.tenants
            self.leaf_whole_holders[row, c] = wholes
            self.leaf_compute_free[row, c] = size.compute_milli * (1 - wholes) - compute
            self.leaf_memory_free[row, c] = size.memory_mib * (1 - wholes) - memory
            self.leaf_tenants_free[row, c] = size.tenants * (1 - wholes) - tenants
            self.leaf_accelerator[row, c] = self.accelerator_id(accelerator) if accelerator else 0
            self.leaf_device[row, c] = number
            self.leaf_undivided[row, c] = int(undivided)
            given = isolation_of(size, divided=not undivided)
            self.leaf_isolation[row, c] = self.isolations.setdefault(given, len(self.isolations))
            for array, value in zip(self.sharer_arrays(), sharing.get(name, ()), strict=False):
                array[row, c] = value
        working = [d for d in node.devices if d.name not in lost] if node else []
        self.device_count[row] = len(working)
        self._count_kinds(row, 1)
        self._sum_leaves(row)

    def _held_on(self, at: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return how many pods hold a leaf whole, and the compute, memory, tenants of the others.

        Who holds a leaf whole holds whatever size it has, also when that changes.
        """
        wholes = int(self.leaf_whole_holders[at])
        return (
            wholes,
            int(self.leaf_compute[at]) * (1 - wholes) - int(self.leaf_compute_free[at]),
            int(self.leaf_memory[at]) * (1 - wholes) - int(self.leaf_memory_free[at]),
            int(self.leaf_tenants[at]) * (1 - wholes) - int(self.leaf_tenants_free[at]),
        )

    def sharer_arrays(self) -> tuple[IntArray, ...]:
        """Return what is known of a leaf's sharers, whatever leaf it is: `neighbours` counts it."""
        sums = self.leaf_party_sum, self.leaf_party_squares
        return (self.leaf_sharers, *sums, self.leaf_keepers)

    def _leaf_arrays(self) -> tuple[IntArray, ...]:
        return (
            *self.sharer_arrays(),
            self.leaf_isolation,
            self.leaf_compute,
            self.leaf_memory,
            self.leaf_tenants,
            self.leaf_compute_free,
            self.leaf_memory_free,
            self.leaf_tenants_free,
            self.leaf_whole_holders,
            self.leaf_accelerator,
            self.leaf_device,
            self.leaf_undivided,
        )

    def _count_kinds(self, row: int, sign: int) -> None:
        """Add a row to the counts of those with several accelerators, or divided devices."""
        accelerators = self.leaf_accelerator[row]
        devices, first = np.unique(self.leaf_device[row], return_index=True)
        self.mixed_rows += sign * int(len(np.unique(accelerators[accelerators > 0])) > 1)
        self.divided_rows += sign * int(
            np.count_nonzero(devices) < np.count_nonzero(self.leaf_device[row])
        )
        works = self.leaf_tenants[row, first] > 0
        for counts, which in ((self.devices_by_id, devices > 0), (self._working_by_id, works)):
            for accelerator in accelerators[first[which]].tolist():
                counts[accelerator] = counts.get(accelerator, 0) + sign

    def _count_memory(self, node: Node | None, sign: int) -> None:
        for device in node.devices if node else ():
            sizes = self._memory.setdefault(device.accelerator, Counter())
            sizes[memory_of(device.leaves)] += sign
            self._memory[device.accelerator] = +sizes

    def _static_change(self, row: int) -> None:
        self.static_changes.add(row)
        self.changes.add(row)
