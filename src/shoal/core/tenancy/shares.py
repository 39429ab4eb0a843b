"""The fair share of every queue: what it would hold if work could be cut as finely as wanted.

Each accelerator is divided from the root down. Among siblings each gets its guarantee first, as far
as it asks for it; beyond that all rise to one common level, each in proportion to its weight, until
it has what it asks for or its limit: it ends with the larger of its guarantee and its part of the
level. That is weighted max-min fairness with a floor and a cap, by water-filling (Bertsekas and
Gallager, Data Networks, section 6.5.2). The order of starts works towards it, and nobody is evicted
for it.

Fractions are exact. What would do with several accelerators, a guarantee or limit on several
together, and work that names several, counts on each in proportion to its devices.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.arrays.charges import Charge, least_units
from shoal.core.entry import Entry
from shoal.core.tenancy.accounts import Bound
from shoal.core.tenancy.dominance import LOWERED_PART
from shoal.core.world import World
from shoal.model.fractions import RATE_ONE, UNIT

ZERO = Fraction(0)

Shares = dict[str, dict[str, Fraction]]
"""Devices by queue and accelerator."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a queue brings to the division of one accelerator, in devices.

    `demand` is what its own work holds and asks for, not that of the queues below it. `limit` None:
    there is none.
    """

    name: str
    parent: str
    weight: Fraction
    guarantee: Fraction = ZERO
    limit: Fraction | None = None
    demand: Fraction = ZERO


def divide(claims: Sequence[Claim], devices: Fraction) -> dict[str, Fraction]:
    """Return the share of every queue in so many devices; parents stand before their children."""
    floor: dict[str, Fraction] = {}
    cap: dict[str, Fraction] = {}
    below: dict[str, list[Claim]] = {}
    for claim in reversed(claims):
        children = below.get(claim.name, [])
        asked = claim.demand + sum((cap[child.name] for child in children), ZERO)
        cap[claim.name] = asked if claim.limit is None else min(asked, claim.limit)
        promised = sum((floor[child.name] for child in children), ZERO)
        floor[claim.name] = min(max(claim.guarantee, promised), cap[claim.name])
        below.setdefault(claim.parent, []).insert(0, claim)
    shares: dict[str, Fraction] = {}
    known = {claim.name for claim in claims}
    pending = [(parent, devices) for parent in below if parent not in known]
    while pending:
        parent, available = pending.pop()
        children = below.get(parent, [])
        parts = [(child.weight, floor[child.name], cap[child.name]) for child in children]
        for child, share in zip(children, fill(parts, available), strict=True):
            shares[child.name] = share
            pending.append((child.name, share))
    return shares


def fill(parts: Sequence[tuple[Fraction, Fraction, Fraction]], devices: Fraction) -> list[Fraction]:
    """Return what each of some siblings, given by weight, floor and cap, gets of so many devices.

    Where there are too few for all floors each gets an equal part of its floor.
    """
    floors = sum((floor for _, floor, _ in parts), ZERO)
    if floors >= devices:
        return [floor * devices / floors if floors else ZERO for _, floor, _ in parts]
    # Each rises from its floor to its cap while the level is between these, over its weight.
    turns = [(floor / weight, weight) for weight, floor, cap in parts if cap > floor]
    turns += [(cap / weight, -weight) for weight, floor, cap in parts if cap > floor]
    level, held, rising = ZERO, floors, ZERO
    for at, change in sorted(turns):
        if rising and held + (at - level) * rising >= devices:
            level += (devices - held) / rising
            break
        held += (at - level) * rising
        level = at
        rising += change
    return [min(cap, max(floor, weight * level)) for weight, floor, cap in parts]


def fair_shares(world: World) -> Shares:
    """Return the fair share of every queue of the tree on every accelerator of the fleet."""
    tree, fleet = world.tenants.tree, world.fleet
    counts = {name: fleet.devices_of(name) for name in fleet.accelerators()}
    demand = _demand(world, counts)
    shares: Shares = {queue.name: {} for queue in tree.queues}
    for accelerator, devices in counts.items():
        claims = []
        for queue in tree.queues:
            limits = [
                _part(world, bound, accelerator, counts)
                for bound in world.tenants.limits(queue.name)
                if bound.counts((accelerator,))
            ]
            weight = Fraction(max(1, queue.weight))
            claims.append(
                Claim(
                    queue.name,
                    queue.parent,
                    weight / LOWERED_PART if queue.name in world.tenants.lowered else weight,
                    _part(
                        world, world.tenants.guarantee(queue.name, accelerator), accelerator, counts
                    ),
                    min(limits, default=None),
                    demand.get((queue.name, accelerator), ZERO),
                )
            )
        for name, share in divide(claims, Fraction(devices)).items():
            shares[name][accelerator] = share
    return shares


def _part(world: World, bound: Bound, accelerator: str, counts: dict[str, int]) -> Fraction:
    """Return the part of a guarantee or limit that counts on an accelerator, in devices."""
    rates = dict(world.tenants.tree.rates) if bound.rated else {}
    of = counts if bound.rated else bound.accelerators
    whole = sum(counts.get(name, 0) * rates.get(name, RATE_ONE) for name in of)
    if not whole:
        return ZERO
    return Fraction(bound.units * counts[accelerator] * RATE_ONE, whole * UNIT)


def _demand(world: World, counts: dict[str, int]) -> dict[tuple[str, str], Fraction]:
    """Return what work holds and asks for, in devices, by its queue and accelerator."""
    units: dict[tuple[str, str], Fraction] = {}

    def add(queue: str, accelerator: str, asked: Fraction) -> None:
        units[queue, accelerator] = units.get((queue, accelerator), ZERO) + asked

    for entry in world.entries.values():
        queue = entry.workload.queue
        held = (charge for charges in _charged(entry) for charge in charges)
        for charge in held:
            add(queue, charge.accelerator, Fraction(charge.units, UNIT))
        if entry.group is None:
            continue
        for pod_set in entry.workload.pod_sets:
            devices = pod_set.request.devices
            names = [name for name in counts if name in (devices.accelerators or counts)]
            whole = sum(counts[name] for name in names)
            for name in names if devices.count else ():
                each = least_units(devices, world.fleet.largest_mib(name))
                add(queue, name, Fraction(pod_set.count * each * counts[name], UNIT * whole))
    return units


def _charged(entry: Entry) -> Iterable[Iterable[Charge]]:
    return entry.charges.values() if entry.reserved is None else entry.reserved.charges
