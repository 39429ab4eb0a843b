"""Names that ask for devices, to requests and back."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.catalog import Catalog
from shoal.catalog.load import load_catalog
from shoal.catalog.names import Ask, Field, kai_booking, resolve_percent
from shoal.model.isolation import PRESETS, Level

CATALOG = load_catalog()
NOTHING: Mapping[str, str] = MappingProxyType({})


def read(limits: dict[str, str], annotations: dict[str, str] | None = None) -> Ask:
    ask = CATALOG.read(limits, annotations or NOTHING)
    assert ask is not None
    return ask


def test_other_resources_are_left_alone() -> None:
    assert CATALOG.read({"cpu": "4", "memory": "1Gi", "example.com/foo": "x"}) is None
    assert CATALOG.read({}) is None


@pytest.mark.parametrize(
    ("limits", "vendor", "devices"),
    [
        ({"nvidia.com/gpu": "2"}, "nvidia", 2),
        ({"nvidia.com/gpu": "3000m"}, "nvidia", 3),
        ({"amd.com/gpu": "1"}, "amd", 1),
        ({"huawei.com/Ascend910": "8"}, "ascend", 8),
        ({"huawei.com/Ascend310": "1"}, "ascend", 1),
    ],
)
def test_vendor_names_ask_for_whole_devices(
    limits: dict[str, str], vendor: str, devices: int
) -> None:
    ask = read(limits)
    assert (ask.vendor, ask.devices, ask.whole, ask.system) == (vendor, devices, True, "vendor")
    assert CATALOG.write(ask, "vendor") == ({next(iter(limits)): str(devices)}, {})


def test_trap_6_resource_names_of_profiles_go_there_and_back(catalog: Catalog) -> None:
    seen = set()
    for model in catalog.models:
        for profile in model.profiles:
            ask = catalog.read({profile.resource: "2"})
            assert ask is not None
            assert ask.devices == 2
            assert model.profile(ask.profile) == profile
            limits, annotations = catalog.write(ask, "vendor")
            assert limits == {profile.resource: "2"}
            assert annotations == {}
            seen.add(profile.resource)
    assert "nvidia.com/mig-1g.24gb.me.all" in seen
    assert "nvidia.com/mig-1g.24gb-me" in seen
    assert "amd.com/cpx_nps4" in seen
    assert "huawei.com/Ascend910-10c.3cpu.32g" in seen
    assert "huawei.com/Ascend310P-2c" in seen


def test_a_mig_name_stands_for_hardware_isolation_unless_it_is_shared() -> None:
    assert read({"nvidia.com/mig-1g.10gb": "1"}).floor == PRESETS["hardware"]
    shared = read({"nvidia.com/mig-1g.10gb.shared": "1"})
    assert shared.profile == "1g.10gb"
    assert shared.floor == PRESETS["shared"]


@pytest.mark.parametrize(
    "resource", ["nvidia.com/mig-9g.10gb", "amd.com/foo", "huawei.com/Ascend910-77c"]
)
def test_a_profile_that_no_accelerator_has_is_refused(resource: str) -> None:
    with pytest.raises(ValueError, match="no accelerator of the catalogue has"):
        CATALOG.read({resource: "1"})


HAMI = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}


def test_hami_names_become_a_request_and_go_back() -> None:
    ask = read(HAMI)
    assert (ask.system, ask.devices, ask.memory_mib, ask.compute_percent) == ("hami", 2, 3000, 30)
    assert ask.floor.memory is Level.SOFT
    assert CATALOG.write(ask, "hami") == (HAMI, {})


def test_hami_without_memory_is_a_whole_device() -> None:
    ask = read({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50"})
    assert ask.whole
    assert "whole device" in ask.notes[0]
    assert read({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100"}).whole


def test_hami_names_on_ascend() -> None:
    limits = {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "16384"}
    ask = read(limits)
    assert (ask.accelerators, ask.memory_mib, ask.system) == (("Ascend910B3",), 16384, "hami")
    assert CATALOG.write(ask, "hami") == (limits, {})


def test_volcano_names_become_a_request_and_go_back() -> None:
    limits = {
        "volcano.sh/vgpu-number": "1",
        "volcano.sh/vgpu-memory": "3000",
        "volcano.sh/vgpu-cores": "40",
    }
    ask = read(limits)
    assert (ask.system, ask.memory_mib, ask.compute_percent) == ("volcano", 3000, 40)
    assert CATALOG.write(ask, "volcano") == (limits, {})
    old = read({"volcano.sh/gpu-memory": "1024"})
    assert (old.system, old.memory_mib, old.devices) == ("volcano-legacy", 1024, 1)


def test_gpushare_counts_gib() -> None:
    ask = read({"aliyun.com/gpu-mem": "3"})
    assert (ask.system, ask.memory_mib) == ("gpushare", 3072)
    assert CATALOG.write(ask, "gpushare")[0]["aliyun.com/gpu-mem"] == "3"


def test_nos_has_the_size_inside_the_name() -> None:
    ask = read({"nvidia.com/gpu-10gb": "2"})
    assert (ask.system, ask.devices, ask.memory_mib) == ("nos", 2, 10 * 1024)
    assert CATALOG.write(ask, "nos") == ({"nvidia.com/gpu-10gb": "2"}, {})


def test_kai_annotations_become_a_request_and_go_back() -> None:
    ask = read({}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"})
    assert (ask.system, ask.devices, ask.memory_percent, ask.compute_percent) == ("kai", 2, 50, 50)
    limits, annotations = CATALOG.write(ask, "kai")
    assert limits == {}
    assert annotations == {"gpu-fraction": "0.50", "gpu-fraction-num-devices": "2"}
    assert read(limits, annotations) == ask
    memory = read({}, {"gpu-memory": "4096"})
    assert memory.memory_mib == 4096
    assert CATALOG.write(memory, "kai") == ({}, {"gpu-memory": "4096"})


@pytest.mark.parametrize("fraction", ["0", "-0.5", "1.5", "0.333", "half", "50%"])
def test_what_is_no_fraction_is_refused(fraction: str) -> None:
    with pytest.raises(ValueError, match=r"fraction|quantity"):
        CATALOG.read({}, {"gpu-fraction": fraction})


def test_trap_14_kai_books_more_than_was_asked_for() -> None:
    assert kai_booking(4096, 15_360) == (27, 4147)


def test_trap_14_fractions_can_add_up_to_more_than_a_device() -> None:
    parts = [kai_booking(15_360 // 7, 15_360)[0]] * 7
    assert 7 * (15_360 // 7) <= 15_360
    assert sum(parts) > 100


@given(st.integers(1, 200_000), st.data())
def test_trap_14_a_booking_is_never_less_than_was_asked_for(
    device: int, data: st.DataObject
) -> None:
    asked = data.draw(st.integers(1, device))
    hundredths, booked = kai_booking(asked, device)
    assert 1 <= hundredths <= 100
    assert hundredths * device >= asked * 100
    assert booked == hundredths * device // 100


@given(
    st.sampled_from(["hami", "volcano"]),
    st.integers(1, 16),
    st.integers(1, 200_000),
    st.none() | st.integers(1, 100),
)
def test_asks_survive_the_way_to_a_system_and_back(
    system: str, devices: int, memory: int, compute: int | None
) -> None:
    ask = Ask(devices, memory_mib=memory, compute_percent=compute, vendor="nvidia", system=system)
    back = read(*CATALOG.write(ask, system))
    assert (back.devices, back.memory_mib, back.compute_percent) == (devices, memory, compute)
    assert back.system == system


def test_what_a_system_cannot_say_is_refused_and_not_dropped() -> None:
    ask = Ask(1, memory_mib=3000, compute_percent=30, vendor="nvidia")
    with pytest.raises(ValueError, match="gpushare has no name for compute-percent"):
        CATALOG.write(ask, "gpushare")
    with pytest.raises(ValueError, match="no name for a number of devices"):
        CATALOG.write(Ask(2, vendor="nvidia"), "nos")
    with pytest.raises(ValueError, match="vendor has no name for memory"):
        CATALOG.write(ask, "vendor")
    with pytest.raises(ValueError, match="no name for partition profiles"):
        CATALOG.write(Ask(1, profile="1g.10gb", vendor="nvidia"), "kai")
    with pytest.raises(ValueError, match="has the partition profile"):
        CATALOG.write(Ask(1, profile="8g.1gb", vendor="nvidia"), "vendor")


@pytest.mark.parametrize(
    ("limits", "annotations", "said"),
    [
        ({"nvidia.com/gpu": "1", "amd.com/gpu": "1"}, {}, "devices of amd and nvidia"),
        ({"nvidia.com/gpumem": "1", "volcano.sh/vgpu-memory": "1"}, {}, "hami and volcano"),
        (
            {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-2g.20gb": "1"},
            {},
            "two partition profiles",
        ),
        (
            {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/gpumem": "100"},
            {},
            "leave the other names out",
        ),
        ({"nvidia.com/gpumem": "9", "nvidia.com/gpumem-percentage": "9"}, {}, "write one"),
        ({"nvidia.com/gpu": "1500m"}, {}, "write a whole number from 1"),
        ({"nvidia.com/gpu": "0"}, {}, "write a whole number from 1"),
        ({"gpu-fraction": "0.5"}, {}, "belongs under the pod's annotations"),
    ],
)
def test_contradictions_and_misplaced_names_are_refused(
    limits: dict[str, str], annotations: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        CATALOG.read(limits, annotations)


def test_s07_quantities_that_mean_something_else_than_they_look_like() -> None:
    assert read({"nvidia.com/gpu": "3000m"}).devices == 3
    assert read({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}).memory_mib == 3000
    for limits, annotations, said in (
        ({"nvidia.com/gpumem": "16Gi"}, {}, "counts MiB, not bytes; write 16384 instead of 16Gi"),
        ({"nvidia.com/gpumem": "1500M"}, {}, "counts MiB, not bytes; write 1431 instead of 1500M"),
        ({"aliyun.com/gpu-mem": "3000Mi"}, {}, "counts 1024 MiB, not bytes; write 3 instead of"),
        ({"nvidia.com/gpumem-percentage": "0"}, {}, "write a whole number from 1 to 100"),
        ({"nvidia.com/gpucores": "0"}, {}, "write a whole number from 1 to 100"),
        ({"nvidia.com/gpucores": "99.1"}, {}, "write a whole number from 1 to 100"),
        ({"nvidia.com/gpucores": "101"}, {}, "write a whole number from 1 to 100"),
        (
            {},
            {"nvidia.com/gpumem": "3000"},
            "belongs under resources.limits; or write shoal.dev/memory: 3000Mi",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            CATALOG.read(limits, annotations)


def test_a_percentage_of_memory_is_turned_into_mib_of_a_card(catalog: Catalog) -> None:
    ask = read({"nvidia.com/gpumem-percentage": "40"})
    assert resolve_percent(ask, catalog.accelerator("A100-SXM4-40GB")).memory_mib == 16_384
    with pytest.raises(ValueError, match="memory of GB300 is not known"):
        resolve_percent(ask, catalog.accelerator("GB300"))
    plain = read({"nvidia.com/gpu": "1"})
    assert resolve_percent(plain, catalog.accelerator("GB300")) == plain


def test_resources_are_told_from_others_and_to_their_cards(catalog: Catalog) -> None:
    assert catalog.vendor_of_resource("nvidia.com/gpu") == "nvidia"
    assert catalog.vendor_of_resource("amd.com/dpx_nps2") == "amd"
    assert catalog.vendor_of_resource("huawei.com/Ascend910B3-memory") == "ascend"
    assert catalog.vendor_of_resource("cpu") == ""
    cards = {model.name for model, _ in catalog.offering("nvidia.com/mig-1g.10gb")}
    assert {"A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB"} <= cards
    assert "B200" not in cards
    assert [m.name for m, _ in catalog.offering("huawei.com/Ascend910B3")] == ["Ascend910B3"]
    assert catalog.offering("cpu") == ()


def test_every_field_is_used_by_some_name(catalog: Catalog) -> None:
    assert {name.field for name in catalog.names.every} == set(Field)


@given(
    st.dictionaries(st.sampled_from([n.name for n in CATALOG.names.every]), st.text(max_size=12))
)
def test_any_value_is_read_or_refused(limits: dict[str, str]) -> None:
    with suppress(ValueError):
        CATALOG.read(limits)
