"""Which accelerator a node has, from labels and DRA attributes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.catalog import Catalog
from shoal.catalog.labels import NORM, NORM_MEMORY, Identified, single_strategy_obstacles
from shoal.catalog.load import load_catalog

CATALOG = load_catalog()
PRODUCT = "nvidia.com/gpu.product"
COUNT = "nvidia.com/gpu.count"
GPU = "nvidia.com/gpu"


def names(found: Identified) -> list[str]:
    return [model.name for model in found.accelerators]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({PRODUCT: "NVIDIA-A100-SXM4-80GB"}, "A100-SXM4-80GB"),
        ({PRODUCT: "A100-SXM4-80GB"}, "A100-SXM4-80GB"),
        ({PRODUCT: "Tesla-T4"}, "T4"),
        ({PRODUCT: "Tesla-T4-SHARED"}, "T4"),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, "H100-SXM5-80GB"),
        ({PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED"}, "H100-SXM5-80GB"),
        (
            {PRODUCT: "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"},
            "RTX-PRO-6000-Blackwell-Server",
        ),
        ({"amd.com/gpu.device-id": "74a1"}, "MI300X"),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "MI300X"),
        ({"beta.amd.com/gpu.device-id": "0x740f"}, "MI210"),
        ({"node.kubernetes.io/npu.chip.name": "910B3"}, "Ascend910B3"),
        ({"node.kubernetes.io/npu.chip.name": "310P3"}, "Ascend310P3"),
    ],
)
def test_labels_of_vendors_name_the_model(
    catalog: Catalog, labels: dict[str, str], name: str
) -> None:
    assert names(catalog.identify(labels)) == [name]


def test_every_product_that_is_known_is_recognised_as_a_label(catalog: Catalog) -> None:
    for model in catalog.models:
        for product in model.products:
            assert model in catalog.by_product(model.vendor, product.replace(" ", "-"))


def test_a_profile_in_the_product_is_told(catalog: Catalog) -> None:
    assert catalog.identify({PRODUCT: "NVIDIA-A30-MIG-1g.6gb"}).profile == "1g.6gb"


def test_a_label_of_a_series_leaves_several_models(catalog: Catalog) -> None:
    found = catalog.identify({"accelerator": "huawei-Ascend910"})
    assert set(names(found)) > {"Ascend910A", "Ascend910B3"}
    assert not found.certain
    assert any(NORM in caution for caution in found.cautions)


def test_an_unknown_product_is_said_with_what_to_do(catalog: Catalog) -> None:
    found = catalog.identify({PRODUCT: "NVIDIA-Z9000"})
    assert names(found) == []
    assert "add one to the catalogue" in found.cautions[0]


def test_a_node_without_labels_says_nothing(catalog: Catalog) -> None:
    assert catalog.identify({"kubernetes.io/os": "linux"}) == Identified()


# --- trap 19: nodes with several models


def test_trap_19_labels_alone_are_never_certain(catalog: Catalog) -> None:
    found = catalog.identify({PRODUCT: "Tesla-T4", COUNT: "4"})
    assert not found.certain
    assert "were not counted" in found.cautions[0]


def test_trap_19_a_count_that_agrees_is_certain(catalog: Catalog) -> None:
    labels = {PRODUCT: "Tesla-T4", COUNT: "4"}
    assert catalog.identify(labels, {GPU: 4}).certain
    shared = {**labels, "nvidia.com/gpu.replicas": "10"}
    assert catalog.identify(shared, {GPU: 40}).certain


def test_trap_19_a_count_that_differs_means_another_model_is_there(catalog: Catalog) -> None:
    found = catalog.identify({PRODUCT: "Tesla-T4", COUNT: "1"}, {GPU: 3})
    assert not found.certain
    assert "devices of another model" in found.cautions[0]
    assert "at random" in found.cautions[0]


def test_trap_19_labels_per_device_decide_for_mixed_nodes(catalog: Catalog) -> None:
    labels = {PRODUCT: "Tesla-T4", f"{NORM}-0": "T4", f"{NORM}-1": "A10"}
    found = catalog.identify(labels, {GPU: 2})
    assert [(index, model.name) for index, model in found.by_index] == [(0, "T4"), (1, "A10")]
    assert not found.certain


# --- the stated norm


def test_the_norm_wins_over_vendors_labels(catalog: Catalog) -> None:
    found = catalog.identify({NORM: "L40S", PRODUCT: "Tesla-T4", NORM_MEMORY: "46068"})
    assert names(found) == ["L40S"]
    assert found.certain
    assert found.memory_mib == 46_068


@pytest.mark.parametrize("memory", ["", "0", "-5", "many", "1.5", "٣", "1" * 30])
def test_memory_that_is_no_number_is_ignored(catalog: Catalog, memory: str) -> None:
    assert catalog.identify({NORM: "L40S", NORM_MEMORY: memory}).memory_mib is None


def test_a_norm_that_names_nothing_is_said(catalog: Catalog) -> None:
    found = catalog.identify({NORM: "Z9", PRODUCT: "Tesla-T4"})
    assert names(found) == []
    assert "which the catalogue does not have" in found.cautions[0]


# --- trap 7: mixed nodes under the strategy single


@pytest.mark.parametrize(
    ("layouts", "said"),
    [
        ([(True, ["1g.5gb"] * 7), (False, [])], "some devices of the node have MIG enabled"),
        ([(True, ["1g.5gb"]), (True, ["2g.10gb"])], "instances of 1g.5gb, 2g.10gb"),
        ([(True, ["1g.5gb", "3g.20gb"])], "needs one profile"),
        ([(True, ["1g.5gb"]), (True, [])], "no instance"),
    ],
)
def test_trap_7_what_the_plugin_would_refuse_is_found_before(
    layouts: list[tuple[bool, list[str]]], said: str
) -> None:
    assert any(said in obstacle for obstacle in single_strategy_obstacles(layouts))


@pytest.mark.parametrize(
    "layouts", [[], [(False, [])] * 8, [(True, ["1g.5gb"] * 7), (True, ["1g.5gb"] * 2)]]
)
def test_trap_7_equal_nodes_are_fit(layouts: list[tuple[bool, list[str]]]) -> None:
    assert single_strategy_obstacles(layouts) == ()


def test_trap_7_the_label_of_an_unfit_node_is_understood(catalog: Catalog) -> None:
    labels = {PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-INVALID", COUNT: "0"}
    found = catalog.identify(labels, {GPU: 0})
    assert names(found) == ["A100-SXM4-40GB"]
    assert found.profile == ""
    assert "unfit for the MIG strategy single" in found.cautions[0]
    assert not found.certain


def test_a_node_with_vgpus_is_not_certain(catalog: Catalog) -> None:
    labels = {PRODUCT: "NVIDIA-A40", COUNT: "1", "nvidia.com/vgpu.present": "true"}
    found = catalog.identify(labels, {GPU: 1})
    assert not found.certain
    assert "vGPUs, which are not supported" in found.cautions[0]


# --- DRA


@pytest.mark.parametrize(
    ("driver", "attributes", "name"),
    [
        ("gpu.nvidia.com", {"productName": "NVIDIA A100-SXM4-40GB"}, "A100-SXM4-40GB"),
        ("gpu.amd.com", {"deviceID": "0x74a1", "productName": "?"}, "MI300X"),
        ("gpu.amd.com", {"deviceID": "0xffff", "productName": "AMD_Instinct_MI300X_OAM"}, "MI300X"),
    ],
)
def test_dra_devices_are_told_by_driver_and_attributes(
    catalog: Catalog, driver: str, attributes: dict[str, str], name: str
) -> None:
    assert [model.name for model in catalog.identify_device(driver, attributes)] == [name]


def test_a_dra_device_of_another_driver_is_not_guessed(catalog: Catalog) -> None:
    assert catalog.identify_device("gpu.example.com", {"productName": "NVIDIA A40"}) == ()
    assert catalog.identify_device("gpu.nvidia.com", {}) == ()


KEYS = [clue.key for clue in CATALOG.clues] + [NORM, f"{NORM}-0", COUNT, NORM_MEMORY]


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30)))
def test_any_labels_are_read(labels: dict[str, str]) -> None:
    found = CATALOG.identify(labels)
    assert not (found.certain and len(found.accelerators) != 1)
