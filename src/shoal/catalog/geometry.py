"""How a device can be cut: shapes, where they may stand, and what excludes what.

Four kinds of geometry cover what vendors ship:

``placed``
    Instances stand at a start on a memory axis, and take compute slices as well (NVIDIA MIG).
    Starts are derived: an instance of ``m`` units starts at a multiple of ``m``, stays on the axis,
    and the compute slices beside its first unit must exist. On the 7-slice boards unit 7 has no
    compute slice beside it, which is why no 1g starts there and 2g stops at 4.
``uniform``
    The whole device is cut into equal partitions at once (AMD compute partitioning).
``counted``
    Instances have no place; their sums of cores, CPUs, memory and groups are limited (Ascend vNPU).
``unplaced``
    The vendor publishes profiles but no placements, so nothing can be planned (only named).

Units on the memory axis are the vendor's own (8 on the 7-slice MIG boards, 12 on RTX PRO 6000);
nothing here assumes a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shoal.catalog.versions import Version
from shoal.model.fractions import charge_units, fraction_up

NO_PLACE: Final = -1
"""The start of an instance in a geometry that has no places."""


class Kind(StrEnum):
    """How instances of a geometry are limited; see the module's text."""

    PLACED = "placed"
    UNIFORM = "uniform"
    COUNTED = "counted"
    UNPLACED = "unplaced"


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to cut: what an instance takes from the device.

    Attributes:
        name: the shape's name within its geometry, such as ``1g+me`` or ``vir05_1c_16g``.
        compute: compute slices (or cores) that it takes.
        memory: units on the memory axis that it takes.
        attributes: properties that exclusion rules and modes refer to (``me``, ``gfx``, ...).
        cpu: control CPUs that it takes, where the vendor counts them.
        groups: resource groups that it takes, where the vendor counts them.
        per_group: how many instances of this shape share those groups.
        suffix: what stands for the shape in a resource name, where that is not the profile's name.
        ids: the vendor's own names for it (``1_SLICE_REV1`` of NVML, ``20`` of nvidia-smi).
    """

    name: str
    compute: int
    memory: int
    attributes: frozenset[str] = frozenset()
    cpu: int = 0
    groups: int = 0
    per_group: int = 1
    suffix: str = ""
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most ``count`` instances whose shape has one of ``attributes``."""

    count: int
    attributes: frozenset[str]
    text: str


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Beside an instance with ``attribute``, every other one must have one of ``others``."""

    attribute: str
    others: frozenset[str]
    text: str


@dataclass(frozen=True, slots=True)
class Apart:
    """Two shapes that may not coexist before a driver version."""

    shapes: frozenset[str]
    before_driver: Version
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """A live or planned partition: its shape and its start on the memory axis."""

    shape: str
    start: int = NO_PLACE


@dataclass(frozen=True, slots=True)
class Geometry:
    """How one family of boards can be cut.

    ``compute`` and ``memory`` are the totals of the two axes, ``units_per_slice`` the memory units
    that stand beside one compute slice. ``cpu`` and ``groups`` are totals of counted geometries (0:
    not counted).
    """

    name: str
    kind: Kind
    compute: int
    memory: int
    shapes: tuple[Shape, ...]
    units_per_slice: int = 1
    cpu: int = 0
    groups: int = 0
    at_most: tuple[AtMost, ...] = ()
    only_with: tuple[OnlyWith, ...] = ()
    apart: tuple[Apart, ...] = ()

    def shape(self, name: str) -> Shape:
        """The shape of that name.

        Raises:
            KeyError: with the names that exist.
        """
        for shape in self.shapes:
            if shape.name == name:
                return shape
        known = ", ".join(shape.name for shape in self.shapes)
        raise KeyError(f"{self.name} has no shape {name!r}; it has {known}")

    def starts(self, shape: Shape) -> tuple[int, ...]:
        """Every start at which an instance of ``shape`` may stand on an empty device."""
        if self.kind is Kind.COUNTED:
            return (NO_PLACE,)
        if self.kind is Kind.UNPLACED:
            return ()
        if self.kind is Kind.UNIFORM:
            return tuple(range(0, self.memory - shape.memory + 1, shape.memory))
        return tuple(
            start
            for start in range(0, self.memory - shape.memory + 1, shape.memory)
            if start // self.units_per_slice + shape.compute <= self.compute
        )

    def most(self, shape: Shape) -> int:
        """How many instances of ``shape`` an empty device can hold at once."""
        bounds = [self.memory // shape.memory, self.compute // shape.compute]
        if self.cpu and shape.cpu:
            bounds.append(self.cpu // shape.cpu)
        if self.groups and shape.groups:
            bounds.append(self.groups // shape.groups * shape.per_group)
        if self.kind in (Kind.PLACED, Kind.UNIFORM):
            bounds.append(len(self.starts(shape)))
        bounds += [rule.count for rule in self.at_most if shape.attributes & rule.attributes]
        return min(bounds)

    def memory_units(self, shape: Shape) -> int:
        """The memory fraction of ``shape`` in units of 1/840,000 of the device."""
        return fraction_up(shape.memory, self.memory)

    def compute_units(self, shape: Shape) -> int:
        """The compute fraction of ``shape`` in units of 1/840,000 of the device."""
        return fraction_up(shape.compute, self.compute)

    def charge_units(self, shape: Shape) -> int:
        """What an instance of ``shape`` is charged: the larger of its two fractions."""
        return charge_units(self.memory_units(shape), self.compute_units(shape))

    def covers(self, instance: Instance) -> range:
        """The memory units that a placed instance occupies."""
        return range(instance.start, instance.start + self.shape(instance.shape).memory)

    def slices(self, instance: Instance) -> range:
        """The compute slices that a placed instance occupies."""
        first = instance.start // self.units_per_slice
        return range(first, first + self.shape(instance.shape).compute)

    def obstacle(
        self,
        instances: Sequence[Instance],
        driver: Version | None = None,
        *,
        places: bool = True,
    ) -> str | None:
        """Why these instances cannot be on one device together, or ``None`` if they can.

        Args:
            instances: all of them, in any order.
            driver: the node's driver, for rules that a newer driver lifted; ``None`` keeps them.
            places: whether starts count. Without, only what is true of every arrangement is
                checked: totals, maxima and exclusions.

        Raises:
            KeyError: for a shape that this geometry does not have.
        """
        shapes = [self.shape(instance.shape) for instance in instances]
        return (
            self._over_total(shapes)
            or self._excluded(shapes, driver)
            or (self._misplaced(instances) if places else self._too_many(shapes))
        )

    def openings(
        self, instances: Sequence[Instance], name: str, driver: Version | None = None
    ) -> tuple[int, ...]:
        """The starts at which one more instance of shape ``name`` can be created now."""
        shape = self.shape(name)
        return tuple(
            start
            for start in self.starts(shape)
            if self.obstacle([*instances, Instance(name, start)], driver) is None
        )

    def plan(
        self,
        names: Sequence[str],
        existing: Sequence[Instance] = (),
        driver: Version | None = None,
    ) -> tuple[Instance, ...] | None:
        """Starts for new instances of the shapes ``names``, in their order; ``None`` if impossible.

        The search is exact: ``None`` means that no arrangement beside ``existing`` exists. Created
        at the starts given here, instances can be made in any order, whereas a driver that chooses
        for itself may block the rest. The result is the same for the same input.
        """
        if self.obstacle([*existing, *(Instance(name) for name in names)], driver, places=False):
            return None
        order = sorted(range(len(names)), key=lambda i: (-self.shape(names[i]).memory, names[i], i))
        chosen: dict[int, Instance] = {}
        if not self._search(order, names, list(existing), chosen, driver):
            return None
        return tuple(chosen[index] for index in range(len(names)))

    def configurations(self, driver: Version | None = None) -> Iterator[tuple[Instance, ...]]:
        """Every set of instances that a device can have, each once, the empty one first.

        For ``uniform`` geometries only whole cuts exist, as one switch makes all partitions. For
        ``counted`` ones a configuration is a multiset.
        """
        yield ()
        if self.kind is Kind.UNIFORM:
            for shape in self.shapes:
                yield tuple(Instance(shape.name, start) for start in self.starts(shape))
            return
        candidates = [
            Instance(shape.name, start) for shape in self.shapes for start in self.starts(shape)
        ]
        if self.kind is Kind.PLACED:
            candidates.sort(key=lambda instance: (instance.start, instance.shape))
        yield from self._extend([], candidates, 0, driver)

    def is_full(self, instances: Sequence[Instance], driver: Version | None = None) -> bool:
        """Whether no instance of any shape can be added."""
        return not any(self.openings(instances, shape.name, driver) for shape in self.shapes)

    def stranded(self, instances: Sequence[Instance]) -> tuple[int, int]:
        """Free (compute slices, memory units) that no further instance of any shape can use."""
        compute = self.compute - sum(self.shape(i.shape).compute for i in instances)
        memory = self.memory - sum(self.shape(i.shape).memory for i in instances)
        if self.kind is Kind.UNIFORM:
            return (0, 0)
        if self.kind is Kind.COUNTED:
            return (0, 0) if not self.is_full(instances) else (compute, memory)
        usable_units: set[int] = set()
        usable_slices: set[int] = set()
        for shape in self.shapes:
            for start in self.openings(instances, shape.name):
                usable_units.update(self.covers(Instance(shape.name, start)))
                usable_slices.update(self.slices(Instance(shape.name, start)))
        return (compute - len(usable_slices), memory - len(usable_units))

    def _over_total(self, shapes: Sequence[Shape]) -> str | None:
        compute = sum(shape.compute for shape in shapes)
        if compute > self.compute:
            return f"{compute} compute slices are more than the device's {self.compute}"
        memory = sum(shape.memory for shape in shapes)
        if memory > self.memory:
            return f"{memory} memory units are more than the device's {self.memory}"
        cpu = sum(shape.cpu for shape in shapes)
        if self.cpu and cpu > self.cpu:
            return f"{cpu} control CPUs are more than the device's {self.cpu}"
        if self.groups:
            counts = Counter(shapes)
            groups = sum(-(-n // shape.per_group) * shape.groups for shape, n in counts.items())
            if groups > self.groups:
                return f"{groups} resource groups are more than the device's {self.groups}"
        return None

    def _excluded(self, shapes: Sequence[Shape], driver: Version | None) -> str | None:
        if self.kind is Kind.UNIFORM and len({shape.name for shape in shapes}) > 1:
            return "all partitions of this device have one profile; switch the whole device"
        for rule in self.at_most:
            if sum(bool(shape.attributes & rule.attributes) for shape in shapes) > rule.count:
                return rule.text
        for only in self.only_with:
            special = [shape for shape in shapes if only.attribute in shape.attributes]
            rest = [shape for shape in shapes if only.attribute not in shape.attributes]
            if special and any(not shape.attributes & only.others for shape in rest):
                return only.text
        present = {shape.name for shape in shapes}
        for apart in self.apart:
            lifted = driver is not None and driver >= apart.before_driver
            if not lifted and apart.shapes <= present:
                return apart.text
        return None

    def _too_many(self, shapes: Sequence[Shape]) -> str | None:
        if self.kind in (Kind.COUNTED, Kind.UNPLACED):
            return None
        for shape, count in Counter(shapes).items():
            places = len(self.starts(shape))
            if count > places:
                return f"{count} instances of {shape.name} are more than its {places} places"
        return None

    def _misplaced(self, instances: Sequence[Instance]) -> str | None:
        if self.kind is Kind.COUNTED:
            return None
        if self.kind is Kind.UNPLACED and instances:
            return f"the places of {instances[0].shape} are not published, so it is not plannable"
        taken: dict[int, Instance] = {}
        for instance in instances:
            shape = self.shape(instance.shape)
            if instance.start not in self.starts(shape):
                starts = ", ".join(str(start) for start in self.starts(shape))
                return f"{shape.name} cannot start at {instance.start}; it starts at {starts}"
            for unit in self.covers(instance):
                if unit in taken:
                    other = taken[unit]
                    return (
                        f"{shape.name} at {instance.start} overlaps "
                        f"{other.shape} at {other.start} on memory unit {unit}"
                    )
                taken[unit] = instance
        return None

    def _search(
        self,
        order: Sequence[int],
        names: Sequence[str],
        placed: list[Instance],
        chosen: dict[int, Instance],
        driver: Version | None,
    ) -> bool:
        if len(chosen) == len(order):
            return True
        index = order[len(chosen)]
        previous = order[len(chosen) - 1] if chosen else index
        for start in self.openings(placed, names[index], driver):
            # Instances of one shape are interchangeable, so only ascending starts are tried.
            same = previous != index and names[previous] == names[index]
            if same and start < chosen[previous].start:
                continue
            chosen[index] = Instance(names[index], start)
            placed.append(chosen[index])
            if self._search(order, names, placed, chosen, driver):
                return True
            placed.pop()
            del chosen[index]
        return False

    def _extend(
        self,
        chosen: list[Instance],
        candidates: Sequence[Instance],
        first: int,
        driver: Version | None,
    ) -> Iterator[tuple[Instance, ...]]:
        repeat = self.kind is Kind.COUNTED
        for index in range(first, len(candidates)):
            chosen.append(candidates[index])
            if self.obstacle(chosen, driver) is None:
                yield tuple(chosen)
                yield from self._extend(chosen, candidates, index if repeat else index + 1, driver)
            chosen.pop()
