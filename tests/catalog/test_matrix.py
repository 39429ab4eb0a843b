from dataclasses import replace

import pytest

from shoal.catalog.catalog import Catalog
from shoal.catalog.conditions import Component, Site
from shoal.catalog.matrix import Group, changed, compare, matrix
from shoal.catalog.versions import Version


def group(catalog: Catalog, name: str = "a", card: str = "L40S", driver: str = "580") -> Group:
    site = Site(
        driver=Version.parse(driver),
        kernel=Version.parse("6.14"),
        cgroup=2,
        components={"memory-limits-agent": Component(), "mps-daemon": Component()},
    )
    return Group(name, 2, 8, catalog.accelerator(card), site)


def offered(catalog: Catalog, one: Group) -> set[str]:
    (row,) = matrix(catalog, [one])
    return {cell.mode.name for cell in row.cells if cell.working}


def test_a_row_has_a_cell_for_every_mode(catalog: Catalog) -> None:
    (row,) = matrix(catalog, [group(catalog)])
    assert [cell.mode for cell in row.cells] == list(catalog.modes)
    assert offered(catalog, group(catalog)) == {"mps"}


def test_where_nothing_works_the_nearest_way_is_kept(catalog: Catalog) -> None:
    (row,) = matrix(catalog, [group(catalog)])
    (cell,) = (cell for cell in row.cells if cell.mode.name == "time-sliced+driver")
    assert cell.nearest is not None
    assert cell.nearest.way.name == "nvidia-memory-limits"
    assert cell.nearest.obstacles[0] == "needs driver 615 or newer; this node has 580"
    (mps,) = (cell for cell in row.cells if cell.mode.name == "mps")
    assert mps.nearest is None


def test_an_upgrade_says_what_it_would_change(catalog: Catalog) -> None:
    groups = [group(catalog, "a"), group(catalog, "b")]
    after = changed(groups, {"a": ["driver=615.10"]})
    found = compare(matrix(catalog, groups), matrix(catalog, after))
    assert {change.group for change in found} == {"a"}
    by_mode = {change.mode.name: change for change in found}
    assert set(by_mode) == {"time-sliced+driver", "mps", "mps+driver"}
    assert by_mode["time-sliced+driver"].before is None
    before, now = by_mode["mps"].before, by_mode["mps"].after
    assert before is not None
    assert now is not None
    assert (before.tenants, now.tenants) == (48, 60)


def test_a_change_can_take_modes_away(catalog: Catalog) -> None:
    groups = [group(catalog)]
    after = changed(groups, {"": ["component.mps-daemon="]})
    (change,) = compare(matrix(catalog, groups), matrix(catalog, after))
    assert (change.mode.name, change.after) == ("mps", None)


def test_nothing_changes_where_nothing_depends_on_it(catalog: Catalog) -> None:
    groups = [group(catalog)]
    after = changed(groups, {"": ["kubernetes=1.37"]})
    assert compare(matrix(catalog, groups), matrix(catalog, after)) == ()


def test_a_group_that_does_not_exist_is_refused(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="no group 'z'; it has a"):
        changed([group(catalog)], {"z": ["driver=1"]})


def test_the_group_is_not_changed_in_place(catalog: Catalog) -> None:
    one = group(catalog)
    changed([one], {"": ["driver=615"]})
    assert one == replace(one)
    assert str(one.site.driver) == "580"
