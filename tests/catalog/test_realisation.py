"""Where a mode can be had, and what it gives there."""

from dataclasses import replace

import pytest

from shoal.catalog.catalog import Catalog
from shoal.catalog.conditions import Component, Site
from shoal.catalog.realisation import Realisation, Strength, cuda_of, realise
from shoal.catalog.versions import Version
from shoal.model.isolation import PRESETS, Isolation, Level, parse_isolation
from shoal.model.modes import Channel, parse_mode

PLUGIN = "nvidia-device-plugin"


def v(text: str) -> Version:
    return Version.parse(text)


def site(driver: str = "580.95.05", **components: Component) -> Site:
    return Site(
        driver=v(driver),
        kernel=v("6.14"),
        cgroup=2,
        kubernetes=v("1.36"),
        components={name.replace("_", "-"): part for name, part in components.items()},
    )


def plugin(version: str = "0.20.0", **config: str) -> Component:
    return Component(v(version), {key.replace("_", "-"): value for key, value in config.items()})


def by(catalog: Catalog, way: str, card: str, where: Site) -> Realisation:
    found = next(one for one in catalog.ways if one.name == way)
    return realise(found, catalog.accelerator(card), where, catalog.cuda)


def test_a_whole_device_needs_the_plugin_and_gives_everything(catalog: Catalog) -> None:
    answer = by(catalog, "nvidia-plugin-whole", "T4", site(nvidia_device_plugin=plugin()))
    assert answer.realisable
    assert answer.way.isolation == PRESETS["device"]
    assert answer.tenants == 1
    bare = by(catalog, "nvidia-plugin-whole", "T4", site())
    assert bare.obstacles == ("needs nvidia-device-plugin, which is not installed",)
    assert bare.missing == ("nvidia-device-plugin",)


def test_what_is_not_known_is_not_realisable_and_is_said(catalog: Catalog) -> None:
    where = replace(site(memory_limits_agent=Component()), driver=None)
    answer = by(catalog, "nvidia-memory-limits", "L40S", where)
    assert not answer.realisable
    assert "needs driver 615 or newer; this node's driver is not known" in answer.unknown
    assert answer.serves(PRESETS["driver"]) == answer.unknown[0]


def test_every_mode_of_design_can_be_had_somewhere(catalog: Catalog) -> None:
    assert {mode.name for mode in catalog.modes} == {
        "whole", "time-sliced", "time-sliced+library", "time-sliced+driver", "mps", "mps+driver",
        "partition", "partition+time-sliced", "partition+mps",
    }  # fmt: skip


def test_hami_and_the_nvidia_plugin_exclude_one_another(catalog: Catalog) -> None:
    both = site(nvidia_device_plugin=plugin(), hami_device_plugin=Component(v("2.10")))
    for way in ("hami", "nvidia-plugin-whole", "nvidia-plugin-mig"):
        answer = by(catalog, way, "A100-SXM4-80GB", both)
        assert any("must not be installed beside it" in line for line in answer.obstacles)
    alone = site(hami_device_plugin=Component(v("2.10")))
    answer = by(catalog, "hami", "T4", alone)
    assert answer.realisable
    assert answer.way.isolation == Isolation(Level.SOFT, Level.SOFT, Level.NONE)
    assert "never for tenants that distrust one another" in " ".join(answer.way.cautions)


def test_one_sharing_for_a_node_of_the_device_plugin(catalog: Catalog) -> None:
    for sharing, works in {
        "none": "nvidia-plugin-whole",
        "time-slicing": "nvidia-plugin-time-sliced",
        "mps": "nvidia-plugin-mps",
    }.items():
        where = site(nvidia_device_plugin=plugin(sharing=sharing, mig_strategy="none"))
        for way in ("nvidia-plugin-whole", "nvidia-plugin-time-sliced", "nvidia-plugin-mps"):
            assert by(catalog, way, "T4", where).realisable == (way == works)


def test_partitions_need_a_card_a_driver_and_a_strategy(catalog: Catalog) -> None:
    mixed = site(nvidia_device_plugin=plugin(mig_strategy="mixed"))
    assert by(catalog, "nvidia-plugin-mig", "A100-SXM4-80GB", mixed).realisable
    assert (
        by(catalog, "nvidia-plugin-mig", "A100-SXM4-80GB", mixed).way.isolation
        == PRESETS["hardware"]
    )
    assert by(catalog, "nvidia-plugin-mig", "L40S", mixed).obstacles == (
        "L40S cannot be partitioned",
    )
    old = by(catalog, "nvidia-plugin-mig", "B200", replace(mixed, driver=v("550.90.07")))
    assert old.obstacles == ("needs driver 570.133.20 or newer; this node has 550.90.07",)
    unplaced = by(catalog, "nvidia-plugin-mig", "RTX-PRO-5000-Blackwell", mixed)
    assert "publishes no placements" in unplaced.obstacles[0]
    none = site(nvidia_device_plugin=plugin(mig_strategy="none"))
    assert not by(catalog, "nvidia-plugin-mig", "A100-SXM4-80GB", none).realisable


# --- trap 8: client limits


@pytest.mark.parametrize(
    ("way", "card", "driver", "tenants"),
    [
        ("nvidia-mps-daemon", "A100-SXM4-80GB", "580", 48),
        ("nvidia-mps-daemon", "A100-SXM4-80GB", "590", 60),
        ("nvidia-mps-daemon", "V100-SXM2-32GB", "580", 48),
        ("nvidia-plugin-mps", "A100-SXM4-80GB", "590", 48),
        ("nvidia-plugin-mps", "T4", "580", 48),
        ("nvidia-plugin-mps", "V100-SXM2-32GB", "590", 16),
    ],
)
def test_trap_8_clients_by_capability_cuda_and_mechanism(
    catalog: Catalog, way: str, card: str, driver: str, tenants: int
) -> None:
    where = site(
        driver,
        mps_daemon=Component(),
        nvidia_device_plugin=plugin(sharing="mps", mig_strategy="none"),
    )
    answer = by(catalog, way, card, where)
    assert answer.realisable, answer.obstacles
    assert answer.tenants == tenants


def test_trap_8_too_many_replicas_are_refused(catalog: Catalog) -> None:
    where = site(nvidia_device_plugin=plugin(sharing="mps", replicas="17"))
    answer = by(catalog, "nvidia-plugin-mps", "V100-SXM2-32GB", where)
    assert "17 replicas are more than the 16 clients that it allows" in answer.obstacles
    where = site(nvidia_device_plugin=plugin(sharing="mps", replicas="16"))
    assert by(catalog, "nvidia-plugin-mps", "V100-SXM2-32GB", where).obstacles == ()


def test_trap_8_shares_are_rounded_down(catalog: Catalog) -> None:
    where = site(nvidia_device_plugin=plugin(sharing="mps", replicas="3"))
    answer = by(catalog, "nvidia-plugin-mps", "A100-SXM4-40GB", where)
    assert answer.share is not None
    assert (answer.share.memory_mib, answer.share.compute_percent) == (13_653, 33)
    assert answer.tenants == 3


@pytest.mark.parametrize("replicas", ["", "0", "-3", "many", "٣", "9" * 30])
def test_replicas_that_are_no_number_are_not_guessed(catalog: Catalog, replicas: str) -> None:
    where = site(nvidia_device_plugin=plugin(sharing="mps", replicas=replicas))
    answer = by(catalog, "nvidia-plugin-mps", "A100-SXM4-40GB", where)
    assert answer.share is None or replicas == "0"


def test_pascal_has_no_mps_worth_the_name(catalog: Catalog) -> None:
    where = site(nvidia_device_plugin=plugin(sharing="mps"))
    answer = by(catalog, "nvidia-plugin-mps", "P100-PCIE-16GB", where)
    assert answer.obstacles == ("needs compute capability 7.0 or newer; this node has 6.0",)


# --- trap 11: time-slicing


def test_trap_11_more_than_one_share_per_pod_is_refused(catalog: Catalog) -> None:
    where = site(nvidia_device_plugin=plugin(sharing="time-slicing", replicas="10"))
    answer = by(catalog, "nvidia-plugin-time-sliced", "T4", where)
    assert answer.realisable
    assert answer.serves(PRESETS["shared"], devices=1) == ""
    assert "one share per pod" in answer.serves(PRESETS["shared"], devices=2)


def test_trap_11_turns_are_per_process_so_compute_is_not_promised(catalog: Catalog) -> None:
    where = site(nvidia_device_plugin=plugin(sharing="time-slicing", replicas="10"))
    answer = by(catalog, "nvidia-plugin-time-sliced", "T4", where)
    assert answer.way.compute.strength is Strength.NONE
    assert answer.share is None
    assert any("per process, not per pod" in line for line in answer.way.cautions)
    assert "short on memory" in answer.serves(PRESETS["soft"])


def test_a_whole_device_is_asked_for_in_any_number(catalog: Catalog) -> None:
    answer = by(catalog, "nvidia-plugin-whole", "T4", site(nvidia_device_plugin=plugin()))
    assert answer.serves(PRESETS["device"], devices=8) == ""


# --- trap 17: AMD memory ranges


def amd_floor(catalog: Catalog, profile: str, floor: Isolation, **amdgpu: str) -> list[str]:
    """The ways by which a partition of MI300X with this profile reaches the floor."""
    card = catalog.accelerator("MI300X")
    components = {"amd_device_plugin": Component(v("1.31"))}
    if amdgpu:
        components["amdgpu"] = Component(None, {k.replace("_", "-"): w for k, w in amdgpu.items()})
    where = replace(site(), components={k.replace("_", "-"): c for k, c in components.items()})
    answers = catalog.realise(card, where)[parse_mode("partition")]
    return [
        answer.way.name
        for answer in answers
        if answer.serves(floor) == "" and profile in [one.name for one in answer.way.profiles(card)]
    ]


def test_trap_17_one_memory_range_is_no_hardware_isolation(catalog: Catalog) -> None:
    hardware = PRESETS["hardware"]
    driver = PRESETS["driver"]
    assert amd_floor(catalog, "cpx_nps1", hardware) == []
    assert amd_floor(catalog, "cpx_nps1", driver) == ["amd-plugin-partition-shared-range"]
    assert amd_floor(catalog, "cpx_nps1", driver, memory_allocation="free") == []
    assert amd_floor(catalog, "cpx_nps1", driver, memory_allocation="equal") != []
    assert amd_floor(catalog, "qpx_nps4", hardware) == ["amd-plugin-partition"]
    # Eight partitions on four ranges still share them by two.
    assert amd_floor(catalog, "cpx_nps4", hardware) == []


def test_older_amd_cards_do_not_partition(catalog: Catalog) -> None:
    where = site(amd_device_plugin=Component(v("1.31")))
    answer = by(catalog, "amd-plugin-partition", "MI210", where)
    assert answer.obstacles == ("MI210 cannot be partitioned",)


def test_ascend_templates_of_the_training_series_are_software(catalog: Catalog) -> None:
    where = site(ascend_device_plugin=Component())
    hard = by(catalog, "ascend-vnpu", "Ascend910A", where)
    soft = by(catalog, "ascend-vnpu-software", "Ascend910A", where)
    assert hard.obstacles == ("Ascend910A has no plannable profile of this sort",)
    assert soft.realisable
    assert soft.way.memory.strength is Strength.BEST_EFFORT
    assert by(catalog, "ascend-vnpu", "Ascend910B3", where).realisable


# --- trap 20: version gates


@pytest.mark.parametrize(
    ("driver", "cgroup", "said"),
    [
        ("610.57.04", 2, "needs driver 615 or newer; this node has 610.57.04"),
        ("615.10", 1, "needs cgroup version 2 or newer; this node has 1"),
        (
            "615.10",
            None,
            "needs cgroup version 2 or newer; this node's cgroup version is not known",
        ),
    ],
)
def test_trap_20_memory_limits_are_refused_below_their_versions(
    catalog: Catalog, driver: str, cgroup: int | None, said: str
) -> None:
    where = replace(site(driver, memory_limits_agent=Component()), cgroup=cgroup)
    answer = by(catalog, "nvidia-memory-limits", "L40S", where)
    assert not answer.realisable
    assert said in "\n".join(answer.obstacles + answer.unknown)


def test_trap_20_memory_limits_hold_from_their_versions_on(catalog: Catalog) -> None:
    where = site("615.10", memory_limits_agent=Component())
    answer = by(catalog, "nvidia-memory-limits", "L40S", where)
    assert answer.realisable, answer.obstacles + answer.unknown
    assert answer.way.isolation.reaches(PRESETS["driver"])
    assert not answer.way.isolation.reaches(PRESETS["hardware"])
    older_kernel = replace(where, kernel=v("5.15"))
    assert by(catalog, "nvidia-memory-limits", "L40S", older_kernel).realisable
    mig = site(
        "615.10", memory_limits_agent=Component(), nvidia_device_plugin=plugin(mig_strategy="mixed")
    )
    assert not by(catalog, "nvidia-memory-limits", "A100-SXM4-80GB", mig).realisable


def test_trap_20_no_way_holds_when_nothing_is_known(catalog: Catalog) -> None:
    for model in catalog.models:
        for answers in catalog.realise(model, Site()).values():
            assert not any(answer.realisable for answer in answers)


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("580.95.05", "13.0"),
        ("590", "13.1"),
        ("615.1", "13.4"),
        ("535.161.07", "12.2"),
        ("449", None),
    ],
)
def test_the_driver_brings_its_cuda_version(
    catalog: Catalog, driver: str, cuda: str | None
) -> None:
    assert cuda_of(v(driver), catalog.cuda) == (v(cuda) if cuda else None)
    assert cuda_of(None, catalog.cuda) is None


def test_dra_needs_its_channel_and_not_the_plugin(catalog: Catalog) -> None:
    where = replace(
        site("580", nvidia_dra_driver=Component(v("0.5")), containerd=Component(v("2.0"))),
        channels=frozenset({Channel.DRA}),
    )
    assert by(catalog, "nvidia-dra-whole", "H100-SXM5-80GB", where).realisable
    cri_o = replace(where, components={
        "nvidia-dra-driver": Component(v("0.5")), "cri-o": Component(v("1.24"))
    })  # fmt: skip
    assert by(catalog, "nvidia-dra-whole", "H100-SXM5-80GB", cri_o).realisable
    plain = replace(where, channels=frozenset({Channel.DEVICE_PLUGIN}))
    answer = by(catalog, "nvidia-dra-whole", "H100-SXM5-80GB", plain)
    assert answer.obstacles == ("needs the dra channel, which this node does not serve",)
    both = replace(where, components={**where.components, PLUGIN: plugin()})
    assert not by(catalog, "nvidia-dra-whole", "H100-SXM5-80GB", both).realisable


# --- S05


def test_s05_mps_clients_caps_and_floors(catalog: Catalog) -> None:
    def daemon(driver: str) -> Realisation:
        where = site(driver, mps_daemon=Component())
        return by(catalog, "nvidia-mps-daemon", "A100-SXM4-80GB", where)

    assert daemon("580").tenants == 48
    assert daemon("590").tenants == 60
    v100 = site("580", nvidia_device_plugin=plugin(sharing="mps"))
    assert by(catalog, "nvidia-plugin-mps", "V100-SXM2-32GB", v100).tenants == 16
    four = site(nvidia_device_plugin=plugin(sharing="mps", replicas="4"))
    answer = by(catalog, "nvidia-plugin-mps", "A100-SXM4-40GB", four)
    assert answer.share is not None
    assert answer.share.memory_mib == 10_240
    assert answer.way.per_process
    assert "short on memory" in answer.serves(PRESETS["driver"])
    assert answer.serves(PRESETS["soft"]) == ""
    three = site(nvidia_device_plugin=plugin(sharing="mps", replicas="3"))
    shares = by(catalog, "nvidia-plugin-mps", "A100-SXM4-40GB", three)
    assert shares.serves(PRESETS["soft"], compute_percent=33) == ""
    assert "33 percent" in shares.serves(PRESETS["soft"], compute_percent=34)
    assert "rounded down" in shares.serves(PRESETS["soft"], compute_percent=34)


def test_promises_agree_with_the_levels_they_are_made_at(catalog: Catalog) -> None:
    for way in catalog.ways:
        for promise in (way.memory, way.compute, way.fault):
            assert (promise.level is Level.NONE) == (promise.strength is Strength.NONE)
        if way.mode.name == "whole":
            assert way.isolation == PRESETS["device"]
        if "+library" in way.mode.name or way.mode.name in ("mps", "partition+mps"):
            assert way.memory.level is Level.SOFT
            assert way.memory.strength is Strength.BEST_EFFORT
        assert way.switch


def test_a_floor_by_axis_is_compared_by_axis(catalog: Catalog) -> None:
    answer = by(
        catalog, "nvidia-memory-limits", "L40S", site("615.10", memory_limits_agent=Component())
    )
    assert answer.serves(parse_isolation("memory=driver,fault=none")) == ""
    assert "short on compute" in answer.serves(parse_isolation("memory=driver,compute=soft"))


def test_within_a_mode_the_best_answer_comes_first(catalog: Catalog) -> None:
    where = site(mps_daemon=Component())
    answers = catalog.realise(catalog.accelerator("L40S"), where)[parse_mode("mps")]
    assert answers[0].way.name == "nvidia-mps-daemon"
    assert answers[0].realisable
    assert not any(answer.realisable for answer in answers[1:])


def test_a_way_of_another_vendor_is_refused(catalog: Catalog) -> None:
    answer = by(catalog, "amd-plugin-whole", "T4", site())
    assert answer.obstacles == ("amd-plugin-whole is for amd, not nvidia",)


def test_what_the_accelerator_cannot_is_said_alone_and_comes_last(catalog: Catalog) -> None:
    answers = catalog.realise(catalog.accelerator("T4"), site())
    by_mode = {mode.name: found for mode, found in answers.items()}
    for answer in by_mode["partition"]:
        assert answer.never
        assert answer.obstacles == ("T4 cannot be partitioned",)
        assert answer.missing == ()
    for found in by_mode.values():
        nevers = [answer.never for answer in found]
        assert nevers == sorted(nevers)


def test_what_a_driver_can_change_is_not_never(catalog: Catalog) -> None:
    old = site(driver="400", nvidia_device_plugin=plugin(mig_strategy="mixed"))
    answer = by(catalog, "nvidia-plugin-mig", "A100-SXM4-80GB", old)
    assert not answer.realisable
    assert not answer.never
