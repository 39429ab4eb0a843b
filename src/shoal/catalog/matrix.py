"""What an organisation's fleet can do: modes by node group, and what a change would add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal.catalog.accelerators import Accelerator
from shoal.catalog.catalog import Catalog
from shoal.catalog.conditions import Site
from shoal.catalog.realisation import Realisation
from shoal.model.modes import Mode


@dataclass(frozen=True, slots=True)
class Group:
    """Equal nodes: how many, with what accelerator, how many devices each, and what software."""

    name: str
    nodes: int
    devices: int
    accelerator: Accelerator
    site: Site
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """One mode on one group: all ways, the best first, and which of them work.

    A mode can work by several ways with different promises (AMD's partitions with their own
    memory range and without), so all that work are kept.
    """

    mode: Mode
    answers: tuple[Realisation, ...]

    @property
    def working(self) -> tuple[Realisation, ...]:
        """The ways by which the mode is realisable, the strongest first."""
        return tuple(answer for answer in self.answers if answer.realisable)

    @property
    def nearest(self) -> Realisation | None:
        """The way that misses least, where none works."""
        return self.answers[0] if self.answers and not self.working else None


@dataclass(frozen=True, slots=True)
class Row:
    """One group with its cells, one for each mode of the catalogue."""

    group: Group
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What a change of the software does to one mode of one group.

    ``before`` and ``after`` are the best working ways, ``None`` where none works.
    """

    group: str
    mode: Mode
    before: Realisation | None
    after: Realisation | None


def matrix(catalog: Catalog, groups: Sequence[Group]) -> tuple[Row, ...]:
    """The compatibility matrix of a fleet, a row for each group."""
    rows = []
    for group in groups:
        by_mode = catalog.realise(group.accelerator, group.site)
        cells = tuple(Cell(mode, by_mode.get(mode, ())) for mode in catalog.modes)
        rows.append(Row(group, cells))
    return tuple(rows)


def changed(groups: Sequence[Group], changes: Mapping[str, Sequence[str]]) -> tuple[Group, ...]:
    """The fleet after changes, by group name (empty name: every group); see ``Site.with_change``.

    Raises:
        ValueError: for a change that does not exist, or a group that the fleet does not have.
    """
    unknown = sorted(set(changes) - {group.name for group in groups} - {""})
    if unknown:
        names = ", ".join(group.name for group in groups)
        raise ValueError(f"the fleet has no group {unknown[0]!r}; it has {names}")
    after = []
    for group in groups:
        site = group.site
        for change in (*changes.get("", ()), *changes.get(group.name, ())):
            site = site.with_change(change)
        after.append(
            Group(group.name, group.nodes, group.devices, group.accelerator, site, group.certain)
        )
    return tuple(after)


def compare(before: Sequence[Row], after: Sequence[Row]) -> tuple[Change, ...]:
    """What differs between two matrices of the same groups: modes won, lost, or promised anew."""
    differences = []
    for old, new in zip(before, after, strict=True):
        for earlier, later in zip(old.cells, new.cells, strict=True):
            was = earlier.working[0] if earlier.working else None
            now = later.working[0] if later.working else None
            if _gist(was) != _gist(now):
                differences.append(Change(old.group.name, earlier.mode, was, now))
    return tuple(differences)


def _gist(answer: Realisation | None) -> tuple[object, ...]:
    if answer is None:
        return ()
    way = answer.way
    return (way.memory, way.compute, way.fault, answer.tenants, answer.share)
