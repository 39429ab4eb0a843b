import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.accelerators import (
    Deductions,
    profile_of_suffix,
    suffix_of_profile,
)
from shoal.catalog.catalog import Catalog
from shoal.catalog.load.build import FACTS


def test_it_knows_the_cards_that_it_must(catalog: Catalog) -> None:
    for text in (
        "T4", "A10", "A30", "A40", "A100", "L4", "L40S", "H100", "H200", "GH200", "B200", "GB200",
        "B300", "GB300", "H20", "RTX-PRO-6000-Blackwell", "RTX-PRO-5000-Blackwell",
        "RTX-PRO-4500-Blackwell", "RTX-A6000", "RTX-6000-Ada", "MI200", "MI300X", "MI300A",
        "MI325X", "Ascend910A", "Ascend910B", "Ascend310P", "Ascend310",
    ):  # fmt: skip
        assert catalog.select(text), text


def test_every_fact_has_a_source_that_is_described(catalog: Catalog) -> None:
    for model in catalog.models:
        for fact in FACTS:
            value = model.geometry if fact == "partitioning" else getattr(model, fact)
            if value not in (None, (), ""):
                assert model.sources[fact], (model.name, fact)
        for fact, sources in model.sources.items():
            assert fact in FACTS
            for source in sources:
                assert catalog.sources[source].url.startswith("https://")
    for entries in (catalog.ways, catalog.names.every, catalog.clues, catalog.unsupported):
        for entry in entries:
            assert entry.sources
            assert set(entry.sources) <= set(catalog.sources)


def test_no_source_is_described_and_not_used(catalog: Catalog) -> None:
    used = {
        source for model in catalog.models for names in model.sources.values() for source in names
    }
    for entries in (catalog.ways, catalog.names.every, catalog.clues, catalog.unsupported):
        used |= {source for entry in entries for source in entry.sources}
    # Sources of geometries, partitionings and the CUDA table are checked when files are loaded.
    tables = {
        "guide", "guideDrivers", "facts-mig", "migParted", "goNvml", "nvitop8", "mockH100",
        "mockGB200", "mockGB300", "opPr903", "mp120", "mp139", "mp166", "mp187", "op1303", "mp227",
        "cube312", "cudaTable", "facts-amd",
    }  # fmt: skip
    assert set(catalog.sources) - used <= tables


def test_vgpu_is_stated_as_unsupported_with_the_reason(catalog: Catalog) -> None:
    (vgpu,) = (thing for thing in catalog.unsupported if thing.name == "nvidia-vgpu")
    assert "hypervisor" in vgpu.reason
    assert not any("vgpu" in way.name and way.vendor == "nvidia" and "volcano" not in way.name
                   for way in catalog.ways)  # fmt: skip


def test_words_of_a_request_mean_names_and_groups(catalog: Catalog) -> None:
    names = [model.name for model in catalog.select("H100|A100-80GB")]
    assert names == [
        "A100-SXM4-80GB",
        "A100-PCIE-80GB",
        "H100-SXM5-80GB",
        "H100-PCIE-80GB",
        "H100-NVL-94GB",
    ]
    assert [model.name for model in catalog.select("T4")] == ["T4"]


def test_a_word_that_is_neither_is_refused_with_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(KeyError, match=r"did you mean .*H100"):
        catalog.select("H100|H10O")
    with pytest.raises(KeyError, match=r"did you mean .*A100-SXM4-40GB"):
        catalog.accelerator("a100-sxm4-40gb")
    with pytest.raises(KeyError, match="shoal catalog list"):
        catalog.accelerator("%" * 5000)


def test_trap_4_the_name_is_not_the_size(catalog: Catalog) -> None:
    card = catalog.accelerator("B200")
    small = card.profile("1g.23gb")
    assert small is not None
    assert small.memory_mib == 20_992
    assert small in card.candidates(memory_mib=20_992)
    assert small not in card.candidates(memory_mib=21 * 1024)
    assert card.candidates(memory_mib=21 * 1024)[0].name in ("1g.45gb", "2g.45gb")
    h200 = catalog.accelerator("H200-SXM5-141GB").profile("1g.18gb")
    assert h200 is not None
    assert h200.memory_mib == 16 * 1024


def test_a_profile_whose_size_nobody_published_is_not_planned_for_a_size(catalog: Catalog) -> None:
    card = catalog.accelerator("GB300")
    assert card.candidates(memory_mib=1) == ()
    assert card.candidates(compute_percent=40)[0].name == "3g.139gb"


def test_trap_5_two_name_sets_of_gb200_mean_the_same_slices(catalog: Catalog) -> None:
    card = catalog.accelerator("GB200")
    for early, production in {
        "1g.24gb": "1g.23gb",
        "1g.24gb+me": "1g.23gb+me",
        "3g.95gb": "3g.93gb",
        "4g.95gb": "4g.93gb",
        "7g.189gb": "7g.186gb",
        "1g.47gb": "1g.47gb",
    }.items():
        profile = card.profile(early)
        assert profile is not None
        assert profile.name == production
        assert card.by_resource(f"nvidia.com/mig-{suffix_of_profile(early)}") == profile


def test_a_name_that_is_not_listed_is_matched_by_slices_memory_and_attributes(
    catalog: Catalog,
) -> None:
    card = catalog.accelerator("A100-SXM4-80GB")
    assert (found := card.profile("7g.79gb")) is not None
    assert found.name == "7g.80gb"
    b200 = catalog.accelerator("B200")
    assert (found := b200.profile("3g.92gb")) is not None
    assert found.name == "3g.90gb"
    for name in ("1g.30gb", "5g.100gb", "3g.90gb+me", "1g.23gb+gfx", "1g", "", "1g.23tb", "+me"):
        assert b200.profile(name) is None, name


@pytest.mark.parametrize(
    ("profile", "suffix"),
    [
        ("1g.10gb", "1g.10gb"),
        ("1g.10gb+me", "1g.10gb.me"),
        ("1g.24gb+me.all", "1g.24gb.me.all"),
        ("1g.24gb+gfx", "1g.24gb.gfx"),
        ("1g.24gb-me", "1g.24gb-me"),
        ("2g.48gb-me", "2g.48gb-me"),
    ],
)
def test_trap_6_profile_names_go_to_resource_names_and_back(profile: str, suffix: str) -> None:
    assert suffix_of_profile(profile) == suffix
    assert profile_of_suffix(suffix) == profile


def test_trap_6_every_profile_is_found_by_its_resource(catalog: Catalog) -> None:
    for model in catalog.models:
        resources = [profile.resource for profile in model.profiles]
        assert len(set(resources)) == len(resources)
        for profile in model.profiles:
            assert model.by_resource(profile.resource) == profile
            assert (model, profile) in catalog.offering(profile.resource)


@given(st.text(max_size=40))
def test_a_suffix_is_read_whatever_it_is(text: str) -> None:
    assert isinstance(profile_of_suffix(text), str)


def test_candidates_reach_both_axes_and_come_cheapest_first(catalog: Catalog) -> None:
    card = catalog.accelerator("A100-SXM4-80GB")
    geometry = card.geometry
    assert geometry is not None
    for memory in (1, 9_856, 9_857, 20_000, 45_000, 80_384, 80_385):
        for percent in (1, 14, 15, 28, 29, 57, 58, 100):
            found = card.candidates(memory, percent)
            charges = [geometry.charge_units(profile.shape) for profile in found]
            assert charges == sorted(charges)
            for profile in card.profiles:
                fits = (
                    profile.memory_mib or 0
                ) >= memory and profile.shape.compute * 100 >= percent * 7
                assert (profile in found) == fits


def test_usable_memory_is_what_is_reported_less_the_reserve_and_deductions(
    catalog: Catalog,
) -> None:
    chip = catalog.accelerator("Ascend310P3")
    assert (chip.memory_mib, chip.reserved_mib, chip.usable_mib()) == (24_576, 3_049, 21_527)
    assert chip.usable_mib(Deductions(driver_mib=527)) == 21_000
    assert chip.usable_mib(Deductions(driver_mib=99_999)) == 0
    assert catalog.accelerator("GB300").usable_mib() is None
    assert catalog.accelerator("GB300").tenants(1) is None


def test_s01_deductions_decide_how_many_shares_fit(catalog: Catalog) -> None:
    card = catalog.accelerator("L40S")
    assert card.memory_mib == 46_068
    assert card.tenants(2_000) == 23
    deductions = Deductions(driver_mib=512, context_mib=300)
    assert card.usable_mib(deductions) == 45_556
    assert card.tenants(2_000, deductions) == 19


def test_a_share_is_charged_by_the_larger_of_its_fractions(catalog: Catalog) -> None:
    card = catalog.accelerator("A100-SXM4-80GB")
    assert card.share_units(40 * 1024, 50) == 420_000
    assert card.share_units(81_920, 1) == 840_000
    assert card.share_units(1, 30) == 252_000
    assert catalog.accelerator("GB300").share_units(1, 1) is None
    with pytest.raises(ValueError, match="not a part"):
        card.share_units(81_921, 1)
