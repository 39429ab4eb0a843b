"""The invariants, checked against the workloads themselves.

Invariants judge decisions: no decision creates or enlarges a violation. What is inherited (adopted
pods, a fleet that shrank) is a debt, listed with its age, and only falls by decisions.

- Books: what is free is capacity minus what the workloads hold, in every array.
- No node over its CPU, memory or pods; no leaf over its compute, memory or tenants.
- A leaf's tenants are of one queue below the root, unless its pool lets queues mix and all of them
  may; replicas of one workload share none; and no start is on a leaf that isolates less than the
  share asks for, or on a node whose pool does not serve its work.
- A device is whole or shared: whoever holds it whole holds all of it alone.
- No start uses more of a budget than is left of it, where a spent one allows no new starts.
- Limits hold at every queue and every one above it, on what it borrows and lends as well; what
  cannot be returned is guaranteed. That binds decisions that take something.
- A gang is planned whole or not at all, and the leaves of one pod are on different devices.
- Running work is given pods only that it lacks and can do without, while none of it goes.
- No workload waits without having been told why, once a complete cycle has looked at it.
- What speculates has rolled back.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shoal.core import events as ev
from shoal.core.arrays.fleet import HOLDER_CLASSES, Fleet, holder_class
from shoal.core.arrays.neighbours import quarrels, suffices
from shoal.core.arrays.pool_rules import closed
from shoal.core.decisions import Reserve, Resize, Start
from shoal.core.placing import lacking
from shoal.core.placing.keeping import lift
from shoal.core.tenancy.tenants import Tenants
from shoal.core.world import Entry, World
from shoal.model.request import Request
from shoal.model.workload import Placement

Holding = tuple[Request, Placement]

QUOTA_DEBTS = frozenset({"limit", "guarantee", "borrowing", "lending", "placeable"})

TAKING = Start | Resize | Reserve
"""Decisions that take something, and so have to keep to quotas. What the others lay bare was there
before: a pod that goes is charged again when nobody is to have its place any more, and where
something is given back, slots are chosen anew, those of whoever comes first at another's cost."""

Debts = dict[tuple[str, str], int]
"""By how much (kind, node or leaf or queue) is over its capacity or quota; nothing that is not."""


class InvariantError(AssertionError):
    """The world contradicts itself, or a decision broke a rule: always a bug of ours."""


@dataclass(frozen=True, slots=True)
class Debt:
    """A violation that was inherited: what, where, by how much, and since when."""

    kind: str
    where: str
    amount: int
    since_us: int


class Validator:
    """Checks a world after every event. `applied` must be told of each one, in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[str, str], Debt] = {}
        self._rows_read = world.fleet.changes.read()
        self._guarantees_read = world.tenants.changes
        self._refresh(0, range(world.fleet.size))

    @property
    def debts(self) -> tuple[Debt, ...]:
        """Everything over its capacity at present, oldest first."""
        return tuple(sorted(self._known.values(), key=lambda d: (d.since_us, d.kind, d.where)))

    def applied(self, event: ev.Event) -> None:
        """Check what `event` has touched. Raises `InvariantError`."""
        fleet = self._world.fleet
        if fleet.journal.speculating:
            raise InvariantError("a speculation was not rolled back")
        found = fleet.changes.since(self._rows_read)
        rows = range(fleet.size) if found is None else sorted(set(found.tolist()))
        self._rows_read = fleet.changes.read()
        grown = self._refresh(event.at_us, rows)
        shrunk = self._guarantees_read != self._world.tenants.changes
        self._guarantees_read = self._world.tenants.changes
        if isinstance(event, ev.Decided):
            # What guarantees that have shrunk leave uncovered is not by the decision either.
            if shrunk or not isinstance(event.decision, TAKING):
                grown = {key: amount for key, amount in grown.items() if key[0] not in QUOTA_DEBTS}
            if grown:
                raise InvariantError(f"{event.decision.key} made debts: {grown}")
            if isinstance(event.decision, Start | Resize):
                self._check_start(event.decision, event.at_us)

    def _check_start(self, decision: Start | Resize, at_us: int) -> None:
        entry = self._world.entries[decision.workload]
        pods = [placement.pod for placement in decision.placements]
        if isinstance(decision, Resize) and not all(map(entry.spared, pods)):
            raise InvariantError(f"{decision.key} starts pods that were needed before")
        check_gang(self._world.fleet, entry, pods)
        costs = any(entry.charges[pod] for pod in pods)
        exceeded = self._world.spending.exceeded(entry.workload, at_us) if costs else []
        if exceeded:
            raise InvariantError(f"{decision.key} exceeds budgets of {exceeded}")

    def _refresh(self, at_us: int, rows: Iterable[int]) -> Debts:
        """Bring the debts of `rows` up to date and return those that are new or larger."""
        fleet = self._world.fleet
        touched = dict.fromkeys(rows)
        names = {fleet.names[row] for row in touched}
        now = _row_debts(self._world, touched)
        now |= self._world.tenants.debts()
        grown = {}
        for key, amount in now.items():
            before = self._known.get(key)
            if before is None or amount > before.amount:
                grown[key] = amount
            since = before.since_us if before is not None else at_us
            self._known[key] = Debt(*key, amount, since)
        for key in [k for k in self._known if k not in now]:
            kind, where = key
            node = where.partition("\0")[0]
            if kind in QUOTA_DEBTS or node in names or node not in fleet.row_of:
                del self._known[key]
        return grown


def check(world: World) -> Debts:
    """Check everything, and return the debts. Raises `InvariantError`."""
    if world.fleet.journal.speculating:
        raise InvariantError("a speculation was not rolled back")
    by_node: dict[str, list[Holding]] = {}
    for uid, entry in world.entries.items():
        check_entry(world, entry)
        if entry.evicting and uid not in world.evicted:
            raise InvariantError(f"workload {uid} is not among those that were evicted")
        for placement in (*entry.held.values(), *_reserved(entry)):
            holding = (entry.request_of(placement.pod), placement)
            by_node.setdefault(placement.node, []).append(holding)
    fleet = world.fleet
    for name in by_node:
        if name not in fleet.row_of:
            raise InvariantError(f"pods hold node {name}, which the fleet does not know")
    replicas = {
        request.devices.apart
        for holdings in by_node.values()
        for request, _ in holdings
        if request.devices.apart
    }
    if not replicas <= fleet.replicas.keys():
        raise InvariantError(f"replicas of {replicas} are not counted")
    for row in range(fleet.size):
        check_row(fleet, row, by_node.get(fleet.names[row], []))
    _check_waiting(world)
    _check_accounts(world)
    _check_spending(world)
    return _row_debts(world, range(fleet.size)) | world.tenants.debts()


def check_answers(world: World) -> None:
    """Check that everybody who waits has been told why; call it after a complete cycle."""
    if world.waiting.unanswered:
        uids = sorted(u for group in world.waiting.unanswered for u in group.unanswered)
        raise InvariantError(f"no verdict was given to {uids}")


def _reserved(entry: Entry) -> tuple[Placement, ...]:
    return () if entry.reserved is None else entry.reserved.placements


def _row_debts(world: World, rows: Iterable[int]) -> Debts:
    """Return what is over its capacity on rows, apart from what is only reserved there."""
    fleet = world.fleet
    checkpoint = fleet.journal.checkpoint()
    try:
        lift(world, world.reserving)
        return {key: amount for row in rows for key, amount in row_debts(fleet, row)}
    finally:
        fleet.rollback(checkpoint)


def check_gang(fleet: Fleet, entry: Entry, planned: Iterable[int]) -> None:
    """Check that a workload is whole, and each pod just planned on the devices that it asks for."""
    pods = range(entry.workload.pods)
    missing = [pod for pod in pods if pod not in entry.held and not entry.spared(pod)]
    if missing or not entry.held.keys() <= set(pods):
        raise InvariantError(f"workload {entry.workload.uid}: pods {missing} are not planned")
    for pod in planned:
        placement = entry.held[pod]
        asks = entry.request_of(pod).devices
        row = fleet.row_of[placement.node]
        columns = [fleet.leaves[row].index(leaf) for leaf in placement.leaves]
        devices = {int(fleet.leaf_device[row, column]) for column in columns}
        if len(columns) != asks.count or len(devices) != asks.count:
            uid = entry.workload.uid
            raise InvariantError(f"workload {uid}: {placement} for {asks.count} devices")
        if not all(suffices(fleet, asks, row, column) for column in columns):
            raise InvariantError(f"workload {entry.workload.uid}: {placement} isolates too little")
        if closed(fleet, row, entry.workload.type):
            raise InvariantError(f"workload {entry.workload.uid}: {placement} is closed to it")


def check_entry(world: World, entry: Entry) -> None:
    """Check that a workload's own record makes sense."""
    uid = entry.workload.uid
    if (entry.group is not None) + (entry.reserved is not None) + bool(entry.held) != 1:
        raise InvariantError(f"workload {uid} waits, has places reserved, or holds: not just one")
    if (entry.reserved is not None) != (uid in world.reserving):
        raise InvariantError(f"workload {uid}: its reservation is not on the list")
    if not entry.evicting.keys() <= entry.held.keys():
        raise InvariantError(f"workload {uid}: a pod is evicted that holds nothing")
    going = [pod for eviction in entry.underway for pod, _ in eviction.going]
    if len(set(going)) < len(going) or not set(going) <= entry.evicting.keys():
        raise InvariantError(f"workload {uid}: its evictions are not those of pods that go")
    if not entry.started.keys() <= entry.held.keys():
        raise InvariantError(f"workload {uid}: a pod runs that holds nothing")
    if not entry.joining <= entry.held.keys() - entry.started.keys():
        raise InvariantError(f"workload {uid}: a pod joins that runs or holds nothing")
    if not all(map(entry.spared, entry.joining)):
        raise InvariantError(f"workload {uid}: a pod joins that it cannot do without")
    if bool(lacking.pods_of(entry)) != (uid in world.lacking):
        raise InvariantError(f"workload {uid}: whether it lacks pods is not what is noted")
    if (entry.failed_on is not None) != (uid in world.failed):
        raise InvariantError(f"workload {uid}: its failed start is not on the list")
    if entry.failed_on is not None and not entry.held:
        raise InvariantError(f"workload {uid}: a start failed of what holds nothing")


def check_row(fleet: Fleet, row: int, held: list[Holding]) -> None:
    """Check a row's arrays against its node and what is held on it."""
    node = fleet.nodes[row]
    name = fleet.names[row]
    expected = {
        "cpu_free": (node.cpu_milli if node else 0) - sum(r.cpu_milli for r, _ in held),
        "memory_free": (node.memory_mib if node else 0) - sum(r.memory_mib for r, _ in held),
        "pods_free": (node.pods if node else 0) - len(held),
        "compute_free": sum(max(0, int(f)) for f in fleet.leaf_compute_free[row]),
        "whole_free": sum(
            1
            for c in range(fleet.width)
            if fleet.leaf_undivided[row, c]
            and fleet.leaf_tenants_free[row, c] == fleet.leaf_tenants[row, c] > 0
        ),
        "present": int(node is not None),
    }
    for array, value in expected.items():
        _equal(f"{array} of node {name}", int(getattr(fleet, array)[row]), value)
    for number in range(HOLDER_CLASSES):
        count = sum(1 for r, p in held if p.leaves and holder_class(r) == number)
        _equal(f"holders of class {number} on {name}", int(fleet.holders[row, number]), count)
    on_leaf: dict[str, list[Request]] = {}
    for request, placement in held:
        for leaf in placement.leaves:
            on_leaf.setdefault(leaf, []).append(request)
    unknown = on_leaf.keys() - set(fleet.leaves[row])
    if unknown:
        raise InvariantError(f"pods hold leaves that node {name} does not have: {unknown}")
    for column, leaf in enumerate(fleet.leaves[row]):
        asks = [request.devices for request in on_leaf.get(leaf, [])]
        wholes = sum(1 for ask in asks if ask.whole)
        shares = [ask for ask in asks if not ask.whole]
        for what, total, free, used in (
            (
                "compute",
                fleet.leaf_compute,
                fleet.leaf_compute_free,
                sum(ask.compute_milli for ask in shares),
            ),
            (
                "memory",
                fleet.leaf_memory,
                fleet.leaf_memory_free,
                sum(ask.memory_mib for ask in shares),
            ),
            ("tenants", fleet.leaf_tenants, fleet.leaf_tenants_free, len(shares)),
        ):
            left = int(total[row, column]) * (1 - wholes) - used
            _equal(f"free {what} of leaf {leaf}", int(free[row, column]), left)
        parties = [fleet.party_id(ask.party) for ask in shares]
        for array, value in (
            ("leaf_sharers", len(parties)),
            ("leaf_party_sum", sum(parties)),
            ("leaf_party_squares", sum(party * party for party in parties)),
            ("leaf_keepers", sum(ask.keeps_to_party for ask in shares)),
        ):
            _equal(f"{array} of leaf {leaf}", int(getattr(fleet, array)[row, column]), value)
        for apart, replicas in fleet.replicas.items():
            held_there = sum(1 for ask in asks if ask.apart == apart)
            _equal(f"replicas of {apart} on leaf {leaf}", replicas[row, leaf], held_there)


def row_debts(fleet: Fleet, row: int) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield what is over its capacity on a row."""
    name = fleet.names[row]
    for kind, free in (
        ("cpu", fleet.cpu_free[row]),
        ("memory", fleet.memory_free[row]),
        ("pods", fleet.pods_free[row]),
    ):
        if free < 0:
            yield (kind, name), -int(free)
    for column, leaf in enumerate(fleet.leaves[row]):
        quarrel = quarrels(fleet, row, column)
        if quarrel:
            yield ("neighbours", f"{name}\0{leaf}"), quarrel
        for kind, free in (
            ("leaf-compute", fleet.leaf_compute_free[row, column]),
            ("leaf-memory", fleet.leaf_memory_free[row, column]),
            ("leaf-tenants", fleet.leaf_tenants_free[row, column]),
        ):
            if free < 0:
                yield (kind, f"{name}\0{leaf}"), -int(free)


def _check_accounts(world: World) -> None:
    """Check the tenants' accounts against accounts that are kept anew."""
    anew = Tenants(world.fleet)
    anew.set_tree(world.tenants.tree)
    for entry in world.entries.values():
        if entry.charges.keys() != entry.held.keys():
            raise InvariantError(f"workload {entry.workload.uid}: charged for other pods than hold")
        charged = [(p, charges) for p, charges in entry.charges.items() if not entry.rests(p)]
        if entry.reserved is not None:
            pods = (placement.pod for placement in entry.reserved.placements)
            charged += zip(pods, entry.reserved.charges, strict=True)
        for pod, charges in charged:
            fixed = anew.stays(entry.workload, spared=entry.spared(pod))
            anew.charge(entry.workload.queue, charges, 1, fixed=fixed)
        held = list(entry.charges.values())
        held += entry.reserved.charges if entry.reserved is not None else ()
        for charges in held if entry.borrowed is not None else ():
            anew.pin(entry.workload.queue, charges, entry.borrowed or 0, 1)
    if anew.slots.pins() != world.tenants.slots.pins():
        raise InvariantError("the devices that are held for good are not those of the workloads")
    for kept, right in zip(world.tenants.accounts(), anew.accounts(), strict=True):
        width = min(kept.shape[1], right.shape[1])
        if (kept[:, :width] != right[:, :width]).any() or kept[:, width:].any():
            raise InvariantError("the tenants' accounts are not what the workloads are charged")


def _check_spending(world: World) -> None:
    """Check the accounts of budgets against what the workloads are charged."""
    charged = {
        uid: (entry.workload.queue, tuple(each for pod in entry.charges.values() for each in pod))
        for uid, entry in world.entries.items()
        if entry.charges
    }
    wrong = world.spending.check(charged)
    if wrong:
        raise InvariantError(f"the budgets of {wrong} are not used by what is charged")


def _check_waiting(world: World) -> None:
    members = [uid for g in world.waiting.groups.values() for _, _, uid in g.members]
    expected = [uid for uid, entry in world.entries.items() if entry.group is not None]
    if sorted(members) != sorted(expected):
        raise InvariantError("the groups do not hold just those who wait")
    waiting = world.waiting
    if waiting.joined.keys() != {group for group in waiting.unanswered if group.asleep}:
        raise InvariantError("sleeping groups with members that were not told are not all known")
    awake = [group for groups in waiting.awake.values() for group in groups]
    if set(awake) != {group for group in waiting.groups.values() if not group.asleep}:
        raise InvariantError("the groups that are awake are not all known")


def _equal(what: str, value: int, expected: int) -> None:
    if value != expected:
        raise InvariantError(f"{what} is {value} and should be {expected}")
