"""Geometry: against the published listing in both directions, and by its rules."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.catalog.accelerators import Accelerator
from shoal.catalog.catalog import Catalog
from shoal.catalog.geometry import Geometry, Instance, Kind, Shape
from shoal.catalog.load import load_catalog
from shoal.catalog.versions import Version

CATALOG = load_catalog()
GEOMETRIES = {model.geometry.name: model.geometry for model in CATALOG.models if model.geometry}
PLACED = [geometry for geometry in GEOMETRIES.values() if geometry.kind is Kind.PLACED]
COUNTED = [geometry for geometry in GEOMETRIES.values() if geometry.kind is Kind.COUNTED]
UNIFORM = [geometry for geometry in GEOMETRIES.values() if geometry.kind is Kind.UNIFORM]

CARDS = {
    "a100-40gb": ("A100-SXM4-40GB", "A100-PCIE-40GB"),
    "a100-80gb": ("A100-SXM4-80GB", "A100-PCIE-80GB", "A800-SXM4-80GB", "A800-PCIE-80GB"),
    "h100-80gb": ("H100-SXM5-80GB", "H100-PCIE-80GB", "H800-SXM5-80GB"),
    "h100-94gb": ("H100-NVL-94GB",),
    "h100-96gb": ("GH200-96GB",),
    "h20-96gb": ("H20-96GB",),
    "h200-141gb": ("H200-SXM5-141GB", "H200-NVL-141GB"),
    "gh200-144gb": ("GH200-144GB",),
    "b200-180gb": ("B200",),
    "gb200-186gb": ("GB200",),
    "b300-269gb": ("B300",),
    "gb300-278gb": ("GB300",),
    "a30-24gb": ("A30",),
    "rtx-pro-6000-blackwell-96gb": (
        "RTX-PRO-6000-Blackwell-Server",
        "RTX-PRO-6000-Blackwell-Workstation",
        "RTX-PRO-6000-Blackwell-Max-Q",
    ),
    "rtx-pro-5000-blackwell-48gb": ("RTX-PRO-5000-Blackwell",),
    "rtx-pro-4500-blackwell-32gb": ("RTX-PRO-4500-Blackwell",),
}


def the(name: str) -> Geometry:
    return GEOMETRIES[name]


@pytest.fixture(scope="module")
def listing(shoal_data: Path) -> dict[str, Any]:
    text = (shoal_data / "mig" / "profiles.yaml").read_text(encoding="utf-8")
    return {board["key"]: board for board in yaml.safe_load(text)["gpus"]}


def own_profiles(card: Accelerator) -> dict[str, dict[str, Any]]:
    """What we derive for a card, in the form of the published listing."""
    geometry = card.geometry
    assert geometry is not None
    own = {}
    for profile in card.profiles:
        shape = profile.shape
        starts = list(geometry.starts(shape))
        own[profile.name] = {
            "compute_slices": shape.compute,
            "max_instances": geometry.most(shape),
            "placement_starts": starts or None,
            "placement_size": shape.memory if starts else None,
            "memory_fraction": (shape.memory, geometry.memory),
            "sm_fraction": (shape.compute, geometry.compute),
            "memory_mib_floor": profile.memory_mib,
            "resource_mixed": profile.resource,
            "plannable": profile.plannable,
        }
    return own


def published_profiles(board: dict[str, Any]) -> dict[str, dict[str, Any]]:
    published = {}
    for profile in board["profiles"]:
        numerator, denominator = map(int, profile["memory_fraction"].split("/"))
        units = (board["axis_units"] or denominator) // denominator
        sm = tuple(map(int, profile["sm_fraction"].split("/")))
        published[profile["name"]] = {
            "compute_slices": profile["compute_slices"],
            "max_instances": profile["max_instances"],
            "placement_starts": profile["placement_starts"],
            "placement_size": profile["placement_size"],
            "memory_fraction": (numerator * units, denominator * units),
            "sm_fraction": sm,
            "memory_mib_floor": profile["memory_mib_floor"],
            "resource_mixed": profile["resource_mixed"],
            "plannable": profile["placement_starts"] is not None,
        }
    return published


@pytest.mark.parametrize("key", CARDS)
def test_every_published_placement_is_derived_and_nothing_else(
    listing: dict[str, Any], catalog: Catalog, key: str
) -> None:
    for name in CARDS[key]:
        assert own_profiles(catalog.accelerator(name)) == published_profiles(listing[key])


def test_every_published_card_is_in_the_catalogue(listing: dict[str, Any]) -> None:
    assert set(listing) == set(CARDS)


def test_every_card_with_mig_is_published(catalog: Catalog) -> None:
    ours = {m.name for m in catalog.models if m.vendor == "nvidia" and m.profiles}
    assert ours == {name for names in CARDS.values() for name in names}


def test_published_multiprocessors_and_engines_are_carried(
    listing: dict[str, Any], catalog: Catalog
) -> None:
    for key, names in CARDS.items():
        card = catalog.accelerator(names[0])
        for published in listing[key]["profiles"]:
            profile = card.profile(published["name"])
            assert profile is not None
            if profile.compute_units is not None:
                assert profile.compute_units == published["sm_count"]
            engines = published["engines"]
            if engines is None:
                assert profile.engines is None
            else:
                assert profile.engines is not None
                assert {name: getattr(profile.engines, name) for name in engines} == engines


def test_multiprocessors_of_another_board_are_not_claimed(catalog: Catalog) -> None:
    sxm = catalog.accelerator("H100-SXM5-80GB").profile("1g.20gb")
    pcie = catalog.accelerator("H100-PCIE-80GB").profile("1g.20gb")
    assert sxm is not None
    assert pcie is not None
    assert (sxm.compute_units, pcie.compute_units) == (26, None)


def test_a_profile_without_a_published_place_is_not_plannable_and_says_why(
    catalog: Catalog,
) -> None:
    for name in ("RTX-PRO-5000-Blackwell", "RTX-PRO-4500-Blackwell"):
        card = catalog.accelerator(name)
        assert card.candidates() == ()
        for profile in card.profiles:
            assert not profile.plannable
            assert "publishes no placements" in profile.obstacle
        assert card.geometry is not None
        assert card.geometry.plan(["1g"]) is None
        assert card.geometry.openings([], "1g") == ()


def test_known_engines_never_run_out_in_a_configuration(catalog: Catalog) -> None:
    for name in ("A100-SXM4-40GB", "H100-SXM5-80GB", "A30", "RTX-PRO-6000-Blackwell-Server"):
        card = catalog.accelerator(name)
        assert card.geometry is not None
        engines = {profile.shape.name: profile.engines for profile in card.profiles}
        whole = engines[card.profiles[-1].shape.name]
        assert whole is not None
        for configuration in card.geometry.configurations():
            for kind in ("copy", "nvdec", "nvenc", "jpeg", "ofa"):
                used = sum(getattr(engines[instance.shape], kind) for instance in configuration)
                assert used <= getattr(whole, kind)


# --- trap 1: an axis of 12 units


def test_trap_1_axis_of_twelve_units() -> None:
    geometry = the("mig-4-media")
    starts = {shape.name: geometry.starts(shape) for shape in geometry.shapes}
    assert geometry.memory == 12
    assert starts["1g"] == (0, 3, 6, 9)
    assert starts["2g"] == (0, 6)
    assert starts["4g"] == (0,)
    plan = geometry.plan(["1g"] * 4)
    assert plan is not None
    assert sorted(instance.start for instance in plan) == [0, 3, 6, 9]
    assert geometry.obstacle([Instance("1g", 8)]) == "1g cannot start at 8; it starts at 0, 3, 6, 9"


# --- trap 2: both axes


def test_trap_2_two_3g_strand_a_compute_slice() -> None:
    geometry = the("mig-7")
    pair = [Instance("3g", 0), Instance("3g", 4)]
    assert geometry.obstacle(pair) is None
    assert geometry.is_full(pair)
    assert geometry.stranded(pair) == (1, 0)
    assert geometry.plan(["1g"], pair) is None


def test_trap_2_seven_1g_strand_a_memory_unit() -> None:
    geometry = the("mig-7")
    seven = [Instance("1g", start) for start in range(7)]
    assert geometry.obstacle(seven) is None
    assert geometry.is_full(seven)
    assert geometry.stranded(seven) == (0, 1)


def test_trap_2_what_a_profile_can_still_use_is_not_stranded() -> None:
    geometry = the("mig-7")
    assert geometry.stranded([]) == (0, 0)
    assert geometry.stranded([Instance("1g", 0)]) == (0, 0)


# --- trap 3: order


@settings(max_examples=60)
@given(st.data())
def test_trap_3_every_feasible_set_is_created_in_any_order_at_planned_starts(
    data: st.DataObject,
) -> None:
    geometry = data.draw(st.sampled_from(PLACED))
    configuration = data.draw(st.sampled_from(configurations(geometry)))
    names = data.draw(st.permutations([instance.shape for instance in configuration]))
    plan = geometry.plan(names)
    assert plan is not None
    assert [instance.shape for instance in plan] == names
    live: list[Instance] = []
    for instance in data.draw(st.permutations(plan)):
        assert instance.start in geometry.openings(live, instance.shape)
        live.append(instance)


def test_trap_3_an_order_that_fails_when_starts_are_not_chosen_ahead() -> None:
    geometry = the("mig-7")
    order = ["1g", "1g", "2g", "3g"]
    highest: list[Instance] = []
    for name in order[:3]:
        highest.append(Instance(name, geometry.openings(highest, name)[-1]))
    assert geometry.openings(highest, "3g") == ()
    assert geometry.plan(order) is not None


def configurations(geometry: Geometry) -> list[tuple[Instance, ...]]:
    cache = configurations.__dict__.setdefault("cache", {})
    if geometry.name not in cache:
        cache[geometry.name] = list(geometry.configurations())
    found: list[tuple[Instance, ...]] = cache[geometry.name]
    return found


# --- reachable configurations


def brute_force(geometry: Geometry) -> set[frozenset[Instance]]:
    """All sets of published placements that the published rules allow, by trying every one."""
    places = [
        Instance(shape.name, start) for shape in geometry.shapes for start in geometry.starts(shape)
    ]
    allowed = set()
    biggest = max(geometry.most(shape) for shape in geometry.shapes)
    for size in range(biggest + 1):
        for chosen in itertools.combinations(places, size):
            units = [unit for instance in chosen for unit in geometry.covers(instance)]
            slices = sum(geometry.shape(instance.shape).compute for instance in chosen)
            media = sum(bool(geometry.shape(i.shape).attributes & {"me", "me.all"}) for i in chosen)
            if len(units) == len(set(units)) and slices <= geometry.compute and media <= 1:
                allowed.add(frozenset(chosen))
    return allowed


def test_configurations_of_a_four_slice_board_are_those_of_brute_force() -> None:
    geometry = the("mig-4")
    found = [frozenset(configuration) for configuration in geometry.configurations()]
    assert len(found) == len(set(found))
    assert set(found) == brute_force(geometry)


def test_a_seven_slice_board_has_the_published_full_layouts() -> None:
    geometry = the("mig-7")
    plain = [shape.name for shape in geometry.shapes if not shape.attributes]
    full = {
        tuple(sorted(Counter(i.shape for i in configuration).items()))
        for configuration in geometry.configurations(Version.parse("510"))
        if all(instance.shape in plain for instance in configuration)
        and not any(geometry.openings(configuration, name) for name in plain)
    }
    assert (("7g", 1),) in full
    assert (("3g", 1), ("4g", 1)) in full
    assert (("3g", 2),) in full
    assert (("1g", 7),) in full
    assert (("1g", 2), ("2g", 1), ("3g", 1)) in full
    assert (("1g.double", 4),) in full
    assert (("1g", 1), ("2g", 3)) in full
    assert not any(dict(layout).get("4g", 0) > 1 for layout in full)


def test_before_driver_510_a_4g_and_a_3g_exclude_one_another() -> None:
    geometry = the("mig-7")
    pair = [Instance("4g", 0), Instance("3g", 4)]
    assert geometry.obstacle(pair, Version.parse("470.82")) == (
        "before driver 510 a 4g and a 3g instance could not coexist"
    )
    assert geometry.obstacle(pair, Version.parse("510.39.01")) is None
    assert geometry.obstacle(pair) is not None
    assert geometry.plan(["4g", "3g"]) is None
    assert geometry.plan(["4g", "3g"], driver=Version.parse("535")) is not None


def test_all_media_engines_leave_only_profiles_without_any() -> None:
    geometry = the("mig-4-media")
    special = Instance("1g+me.all", 0)
    assert geometry.obstacle([special, Instance("1g-me", 3)]) is None
    for name in ("1g", "1g+gfx", "1g+me", "1g+me.all"):
        assert geometry.obstacle([special, Instance(name, 3)]) is not None
    assert geometry.openings([special], "2g") == ()
    assert geometry.openings([special], "2g-me") == (6,)


@pytest.mark.parametrize("geometry", UNIFORM, ids=lambda geometry: geometry.name)
def test_a_uniform_device_is_cut_as_a_whole(geometry: Geometry) -> None:
    whole = [Counter(i.shape for i in cut) for cut in geometry.configurations()]
    assert all(len(cut) <= 1 for cut in whole)
    assert len(whole) == len(geometry.shapes) + 1
    for shape in geometry.shapes:
        assert len(geometry.starts(shape)) * shape.memory == geometry.memory
    mixed = [Instance(geometry.shapes[1].name, 0), Instance(geometry.shapes[-1].name, 4)]
    assert "one profile" in str(geometry.obstacle(mixed))


@pytest.mark.parametrize("geometry", COUNTED, ids=lambda geometry: geometry.name)
def test_counted_templates_never_exceed_a_total(geometry: Geometry) -> None:
    seen = set()
    for configuration in geometry.configurations():
        counts = Counter(instance.shape for instance in configuration)
        key = tuple(sorted(counts.items()))
        assert key not in seen
        seen.add(key)
        shapes = [geometry.shape(instance.shape) for instance in configuration]
        assert sum(shape.compute for shape in shapes) <= geometry.compute
        assert sum(shape.memory for shape in shapes) <= geometry.memory
        assert not geometry.cpu or sum(shape.cpu for shape in shapes) <= geometry.cpu
    for shape in geometry.shapes:
        most = geometry.most(shape)
        assert geometry.obstacle([Instance(shape.name)] * most) is None
        assert geometry.obstacle([Instance(shape.name)] * (most + 1)) is not None


def test_ascend_310p_has_four_groups_of_two_cores() -> None:
    geometry = the("vnpu-310p3")
    assert geometry.most(geometry.shape("vir01")) == 7
    assert geometry.most(geometry.shape("vir02")) == 3
    assert geometry.most(geometry.shape("vir04")) == 1
    assert geometry.plan(["vir04", "vir02", "vir01"]) is not None
    assert geometry.plan(["vir04", "vir04"]) is None
    assert geometry.plan(["vir01"] * 7) == (Instance("vir01"),) * 7
    assert geometry.plan(["vir02"] * 3 + ["vir01"] * 2) is None


def test_either_axis_bounds_how_many_fit() -> None:
    shapes = (Shape("wide", compute=4, memory=1), Shape("deep", compute=1, memory=3))
    geometry = Geometry("own", Kind.COUNTED, compute=9, memory=8, shapes=shapes)
    assert [geometry.most(shape) for shape in shapes] == [2, 2]
    assert geometry.plan(["wide", "deep", "deep"]) is not None
    assert geometry.plan(["wide", "wide", "deep"]) is not None
    assert geometry.plan(["wide", "wide", "deep", "deep"]) is None


def test_charges_of_a_full_layout_are_a_device() -> None:
    geometry = the("mig-7")
    charge = {shape.name: geometry.charge_units(shape) for shape in geometry.shapes}
    assert charge["1g"] * 7 == charge["7g"] == charge["3g"] * 2 == 840_000
    assert charge["1g.double"] == 210_000


def test_an_unknown_shape_is_named_with_those_that_exist() -> None:
    with pytest.raises(KeyError, match="it has 1g, 1g"):
        the("mig-7").shape("8g")


# --- cases


def test_s03_free_slices_that_no_profile_can_use(catalog: Catalog) -> None:
    card = catalog.accelerator("H100-SXM5-80GB")
    geometry = card.geometry
    assert geometry is not None
    live = [Instance("1g", 0), Instance("1g", 1), Instance("1g", 5)]
    wanted = card.candidates(memory_mib=39 * 1024)
    assert [profile.name for profile in wanted] == ["3g.40gb", "4g.40gb", "7g.80gb"]
    for profile in wanted:
        assert geometry.openings(live, profile.shape.name) == ()
    taken = {unit for instance in live for unit in geometry.covers(instance)}
    assert sorted(set(range(8)) - taken) == [2, 3, 4, 6, 7]
    assert 7 - sum(geometry.shape(instance.shape).compute for instance in live) == 4
    smaller = card.candidates(memory_mib=20_090)
    assert {profile.name for profile in smaller[:2]} == {"1g.20gb", "2g.20gb"}
    assert geometry.openings(live, "2g") == (2,)
    assert geometry.openings(live, "1g.double") == (2, 6)
    assert card.candidates(memory_mib=20_091)[0].name == "3g.40gb"
    # One move makes room: C away from the upper half. None of A and B helps.
    without_c = [Instance("1g", 0), Instance("1g", 1)]
    assert geometry.openings(without_c, "3g") == (4,)
    for start in (2, 3):
        assert geometry.openings([*without_c, Instance("1g", start)], "3g") == (4,)
    for kept in (0, 1):
        assert geometry.openings([Instance("1g", kept), Instance("1g", 5)], "3g") == ()
    assert geometry.openings(live, "1g") == (2, 3, 4, 6)
    for start in (4, 6):
        assert (
            geometry.openings([Instance("1g", 0), Instance("1g", 1), Instance("1g", start)], "3g")
            == ()
        )


def test_s04_four_requests_one_card_one_order_that_works(catalog: Catalog) -> None:
    card = catalog.accelerator("A100-SXM4-80GB")
    geometry = card.geometry
    assert geometry is not None
    asked = [(9 * 1024, None), (9 * 1024, None), (19 * 1024, 28), (39 * 1024, None)]
    names = [card.candidates(memory, compute)[0].shape.name for memory, compute in asked]
    assert names == ["1g", "1g", "2g", "3g"]
    plan = geometry.plan(names)
    assert plan is not None
    assert geometry.obstacle(plan) is None
    layouts = {
        frozenset(configuration)
        for configuration in geometry.configurations()
        if Counter(i.shape for i in configuration) == Counter(names)
    }
    assert layouts == {
        frozenset({Instance("1g", 0), Instance("1g", 1), Instance("2g", 2), Instance("3g", 4)}),
        frozenset({Instance("2g", 0), Instance("1g", 2), Instance("1g", 3), Instance("3g", 4)}),
    }
    assert geometry.openings(plan, "1g") == ()
    assert geometry.stranded(plan) == (0, 0)
