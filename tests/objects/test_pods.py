"""From pods to requests: S06, S07, and that every form of one pod reads the same."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.catalog import Catalog
from shoal.catalog.load import load_catalog
from shoal.kubernetes.wire.kinds import PODS
from shoal.model.isolation import PRESETS
from shoal.model.modes import Channel
from shoal.model.refusal import HintCode, Refusal, RefusalCode
from shoal.model.request import DeviceRequest, Request
from shoal.objects import annotations as keys
from shoal.objects.devices import Claimed, Span
from shoal.objects.manifests import Pod, read_pod
from shoal.objects.pods import Reading, Rules, reading_of, request_of
from shoal.texts.refusals import hint_text, refusal_text
from tests.objects.small import (
    A100_80,
    MI300,
    ODD_40000,
    T4,
    catalogue,
    container,
    manifest,
    pod,
)

GPU = "nvidia.com/gpu"
DRA = Rules(Channel.DRA)


def reading(body: Pod, catalog: Catalog | None = None, rules: Rules | None = None) -> Reading:
    said = reading_of(body, catalog or catalogue(), rules or Rules())
    assert isinstance(said, Reading), said
    return said


def devices(body: Pod, catalog: Catalog | None = None) -> DeviceRequest:
    return reading(body, catalog).request.devices


def refused(body: Pod, catalog: Catalog | None = None, rules: Rules | None = None) -> str:
    said = reading_of(body, catalog or catalogue(), rules or Rules())
    assert isinstance(said, Refusal), said
    return refusal_text(said)


def pod_of(inits: list[dict[str, Any]], apps: list[dict[str, Any]]) -> Pod:
    return pod(initContainers=inits, containers=apps)


def test_a_pod_without_devices_asks_for_none() -> None:
    said = reading(pod({"cpu": "500m", "memory": "1Gi", GPU: 0}))
    assert said.request == Request(cpu_milli=500, memory_mib=1024)
    assert said.resources == ()


def test_vendor_resources_ask_for_whole_devices_of_any_model() -> None:
    said = reading(pod({GPU: "2"}))
    assert said.request.devices == DeviceRequest(2)
    assert said.vendor == "nvidia"
    assert said.resources == ((GPU, 2),)
    assert said.spans == (Span("main", 0, 2),)


def test_S07_thousandths_that_are_whole_are_devices() -> None:
    assert devices(pod({GPU: "3000m"})) == DeviceRequest(3)
    assert "a whole number from 1" in refused(pod({GPU: "1500m"}))


@pytest.mark.parametrize("count", ["-1", "1000000", "1e12", "9223372036854775807"])
def test_a_count_that_no_node_can_have_is_refused(count: str) -> None:
    assert "a whole number from 1 to 999,999" in refused(pod({GPU: count}))


def test_S06_p1_the_most_that_any_moment_needs() -> None:
    said = reading(pod_of([container("i", {GPU: 2})], [container("a", {GPU: 1})]))
    assert said.request.devices.count == 2
    (hint,) = said.hints
    assert hint.code is HintCode.UNUSED_AFTER_INIT
    assert dict(hint.details) == {"devices": 1}
    assert said.spans == (Span("i", 0, 2), Span("a", 0, 1))


def test_S06_p2_sidecars_keep_theirs() -> None:
    said = reading(pod_of([container("s", {GPU: 1}, sidecar=True)], [container("a", {GPU: 1})]))
    assert said.request.devices.count == 2
    assert said.hints == ()
    assert said.spans == (Span("s", 0, 1), Span("a", 1, 1))


def test_S06_p3_init_containers_hand_their_devices_on() -> None:
    said = reading(pod_of([container("i", {GPU: 1})], [container("a", {GPU: 1})]))
    assert said.request.devices.count == 1
    assert said.hints == ()


def test_S06_p4_an_init_container_without_devices_changes_nothing() -> None:
    apps = [container(name, {"nvidia.com/gpumem-percentage": 40}) for name in ("a", "b")]
    without, beside = pod_of([], apps), pod_of([container("i")], apps)
    catalog = catalogue(ODD_40000)
    said = reading(beside, catalog)
    assert said.request.devices == DeviceRequest(2, False, 16_000, floor=PRESETS["soft"])
    assert said == reading(without, catalog)


def test_S06_p5_devices_of_init_containers_are_held_for_life() -> None:
    said = reading(pod_of([container("i", {GPU: 1})], [container("a")]))
    assert said.request.devices.count == 1
    assert said.hints[0].code is HintCode.UNUSED_AFTER_INIT


def test_sidecars_before_and_after_an_init_container() -> None:
    inits = [
        container("s1", {GPU: 1}, sidecar=True),
        container("i", {GPU: 3}),
        container("s2", {GPU: 1}, sidecar=True),
    ]
    said = reading(pod_of(inits, [container("a", {GPU: 1})]))
    assert said.request.devices.count == 4
    assert said.spans == (
        Span("s1", 0, 1),
        Span("i", 1, 3),
        Span("s2", 1, 1),
        Span("a", 2, 1),
    )


def test_S07_memory_of_a_whole_device_is_accepted() -> None:
    said = devices(pod({GPU: 1}, {keys.MEMORY: "81920Mi"}))
    assert said == DeviceRequest(1, False, 81_920, floor=PRESETS["soft"])
    assert A100_80.share_units(said.memory_mib, 1) == A100_80.share_units(81_920, 100)


def test_the_largest_device_is_one_that_the_queue_may_use() -> None:
    catalog = catalogue(A100_80, T4)
    body = pod({GPU: 1}, {keys.MEMORY: "20Gi"})
    assert devices(body, catalog).memory_mib == 20_480
    assert "(15,360 MiB)" in refused(body, catalog, Rules(accelerators=("T4",)))


def test_annotations_make_a_share_of_each_device() -> None:
    said = devices(pod({GPU: 2}, {keys.MEMORY: "5Gi", keys.COMPUTE: "30"}))
    assert said == DeviceRequest(2, False, 5_120, 300, floor=PRESETS["soft"])


def test_annotations_alone_ask_on_the_dra_channel_only() -> None:
    body = pod(annotations={keys.MEMORY: "5Gi", keys.DEVICES: "2"})
    said = reading(body, rules=DRA)
    assert said.request.devices == DeviceRequest(2, False, 5_120, floor=PRESETS["soft"])
    assert said.spans == (Span("main", 0, 2),)
    assert "write the vendor's resource, such as nvidia.com/gpu: 2" in refused(body)


def test_annotations_alone_do_not_say_which_of_several_containers() -> None:
    body = pod(annotations={keys.MEMORY: "5Gi"}, containers=[container("a"), container("b")])
    assert "(a, b)" in refused(body, rules=DRA)
    assert "empty" in refused(pod(annotations={keys.DEVICES: "1"}, containers=[]), rules=DRA)


@pytest.mark.parametrize(
    ("annotations", "floor"),
    [
        ({keys.TYPE: "inference"}, "driver"),
        ({keys.TYPE: "notebook"}, "soft"),
        ({keys.TYPE: "batch"}, "soft"),
        ({}, "soft"),
        ({keys.TYPE: "inference", keys.ISOLATION: "hardware"}, "hardware"),
        ({keys.TYPE: "training", keys.ISOLATION: "soft"}, "soft"),
        ({keys.TYPE: "notebook", keys.ISOLATION: "shared"}, "shared"),
    ],
)
def test_a_share_has_the_isolation_that_it_writes_or_else_that_of_its_type(
    annotations: dict[str, str], floor: str
) -> None:
    said = reading(pod({GPU: 1}, {keys.MEMORY: "20Gi"} | annotations))
    devices = replace(said.request.devices, keeps_to_party=False)
    assert devices == DeviceRequest(1, False, 20_480, floor=PRESETS[floor])
    assert said.hints == ()


def test_inference_that_writes_no_isolation_is_beside_its_own_queue_only() -> None:
    def keeps(limits: dict[str, int], **annotations: str) -> bool:
        notes = {f"shoal.dev/{key}": value for key, value in annotations.items()}
        return reading(pod(limits, notes)).request.devices.keeps_to_party

    share, hami = {GPU: 1}, {GPU: 1, "nvidia.com/gpumem": 3000}
    assert keeps(share, memory="20Gi", type="inference")
    assert keeps(hami, type="inference"), "a name of another system is no word about neighbours"
    assert not keeps(share, memory="20Gi", type="inference", isolation="driver"), "it is written"
    assert not keeps(share, memory="20Gi", type="notebook")
    assert not keeps(share, type="inference"), "whole devices have no neighbours"


@pytest.mark.parametrize(
    ("annotations", "because"),
    [
        ({keys.ISOLATION: "device"}, f"{keys.ISOLATION} device"),
        ({keys.TYPE: "training"}, f"{keys.TYPE} training"),
        ({keys.TYPE: "training", keys.ISOLATION: "device"}, f"{keys.ISOLATION} device"),
    ],
)
def test_a_share_that_has_to_be_alone_gets_a_whole_device_that_is_large_enough(
    annotations: dict[str, str], because: str
) -> None:
    said = reading(pod({GPU: 1}, {keys.MEMORY: "20Gi"} | annotations), catalogue(A100_80, T4))
    assert said.request.devices == DeviceRequest(1, accelerators=("A100-80GB",))
    assert [hint.code for hint in said.hints] == [HintCode.SHARE_BECOMES_DEVICE]
    assert f"with {because} the pod gets a whole device" in hint_text(said.hints[0])


def test_a_partition_that_is_named_isolates_by_itself_whatever_the_type() -> None:
    said = reading(pod({"nvidia.com/mig-1g.10gb": 1}, {keys.TYPE: "training"}), load_catalog())
    assert not said.request.devices.whole
    assert said.request.devices.floor == PRESETS["hardware"]


def test_accelerators_are_names_or_groups() -> None:
    catalog = catalogue(A100_80, T4, MI300)
    assert devices(pod({GPU: 1}, {keys.ACCELERATORS: "A100"}), catalog).accelerators == (
        "A100-80GB",
    )
    sentence = refused(pod({GPU: 1}, {keys.ACCELERATORS: "a100-80"}), catalog)
    assert "Nearest: A100-80GB" in sentence
    assert "no accelerator that this queue may use" in refused(
        pod({GPU: 1}, {keys.ACCELERATORS: "MI300X"}), catalog
    )


def test_links_leave_the_accelerators_that_have_one() -> None:
    catalog = catalogue(A100_80, T4)
    assert devices(pod({GPU: 1}, {keys.LINKS: "nvlink"}), catalog).accelerators == ("A100-80GB",)
    assert "nvlink, pcie" in refused(pod({GPU: 1}, {keys.LINKS: "nvlonk"}), catalog)


@pytest.mark.parametrize(
    ("limits", "annotations", "words"),
    [
        ({GPU: 2}, {keys.DEVICES: "3"}, "2 under limits"),
        ({GPU: 1, "nvidia.com/gpumem": 3000}, {keys.MEMORY: "3Gi"}, "the part that hami names"),
        ({"nvidia.com/mig-1g.10gb": 1}, {keys.COMPUTE: "30"}, "1g.10gb"),
        ({GPU: 1, "amd.com/gpu": 1}, {}, "several vendors (amd, nvidia)"),
        ({"nvidia.com/gpumem": 3000, "volcano.sh/vgpu-cores": 30}, {}, "(hami, volcano)"),
        ({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 1}, {}, "several kinds"),
    ],
)
def test_contradictions_are_refused(
    limits: dict[str, int], annotations: dict[str, str], words: str
) -> None:
    assert words in refused(pod(limits, annotations), load_catalog())


def test_containers_with_different_kinds_of_device_are_refused() -> None:
    apps = [container("a", {GPU: 1}), container("b", {"amd.com/gpu": 1})]
    assert "several vendors" in refused(pod(containers=apps), catalogue(A100_80, MI300))


def test_S07_hami_counts_mib() -> None:
    assert "counts MiB, not bytes; write 16384" in refused(pod({"nvidia.com/gpumem": "16Gi"}))
    said = reading(pod({"nvidia.com/gpumem": "3k"}))
    assert said.request.devices == DeviceRequest(1, False, 3_000, floor=PRESETS["soft"])
    assert said.floor == PRESETS["soft"]


def test_S07_hami_percentages_are_1_to_100() -> None:
    assert "from 1 to 100" in refused(pod({"nvidia.com/gpumem-percentage": 0}))
    assert devices(pod({"nvidia.com/gpumem-percentage": 100})).whole


def test_S07_a_limit_among_the_annotations_is_refused() -> None:
    sentence = refused(pod({GPU: 1}, {"nvidia.com/gpumem": "3000"}))
    assert "resources.limits" in sentence
    assert sentence.endswith("or write shoal.dev/memory: 3000Mi")
    assert "the pod's annotations" in refused(pod({"shoal.dev/memory": "5Gi"}))


def test_kai_fractions_are_read_from_annotations() -> None:
    said = reading(pod(annotations={"gpu-fraction": "0.5"}), rules=DRA)
    assert said.request.devices == DeviceRequest(
        1, whole=False, memory_mib=40_960, compute_milli=500
    )
    assert "at most two decimals" in refused(pod(annotations={"gpu-fraction": "0.123"}), rules=DRA)


def test_a_partition_profile_is_what_the_models_give() -> None:
    catalog = load_catalog()
    said = reading(pod({"nvidia.com/mig-1g.10gb": 2}), catalog)
    assert said.profile == "1g.10gb"
    assert said.request.devices.count == 2
    assert not said.request.devices.whole
    assert 0 < said.request.devices.memory_mib <= 10_240
    assert said.request.devices.compute_milli == 142
    assert said.resources == (("nvidia.com/mig-1g.10gb", 2),)
    assert "no accelerator" in refused(pod({"nvidia.com/mig-9g.990gb": 1}), catalog)


def test_one_claim_holds_32_devices() -> None:
    assert reading(pod({GPU: 32}), rules=DRA).request.devices.count == 32
    assert "at most 32" in refused(pod({GPU: 33}), rules=DRA)
    assert reading(pod({GPU: 33})).request.devices.count == 33


def test_K03_g_the_shape_is_what_the_spec_asks() -> None:
    one, four = (request_of(pod({GPU: n}), catalogue()) for n in (1, 4))
    assert isinstance(one, Request)
    assert isinstance(four, Request)
    assert one.devices.count + four.devices.count == 5


def test_what_was_replaced_by_a_claim_reads_as_before() -> None:
    body = manifest(
        {"cpu": 2, GPU: 1},
        {keys.MEMORY: "5Gi"},
        initContainers=[container("i", {GPU: 2})],
    )
    before = reading(read_pod(body), rules=DRA)
    note = Claimed("p-0123456789.shoal.dev", {"main": {GPU: "1"}, "i": {GPU: "2"}})
    body["metadata"]["annotations"][keys.CLAIM] = note.text()
    del body["spec"]["initContainers"][0]["resources"]
    del body["spec"]["containers"][0]["resources"]["limits"][GPU]
    assert reading(read_pod(body), rules=DRA) == before


def test_nobody_makes_his_pod_smaller_by_an_annotation() -> None:
    note = Claimed("p-0123456789.shoal.dev", {"main": {GPU: "1"}}).text()
    assert devices(pod({GPU: 8}, {keys.CLAIM: note})).count == 8


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name":1}', '{"asked":[],"name":"a"}', "x"])
def test_a_note_that_shoal_did_not_write_is_nothing(text: str) -> None:
    assert devices(pod({GPU: 1}, {keys.CLAIM: text})).count == 1


COUNTS = st.integers(0, 4)


@given(st.lists(st.tuples(COUNTS, st.booleans()), max_size=4), st.lists(COUNTS, max_size=3))
def test_spans_lie_inside_the_pod_and_never_meet_at_one_time(
    inits: list[tuple[int, bool]], apps: list[int]
) -> None:
    body = pod_of(
        [container(f"i{n}", {GPU: c}, sidecar=s) for n, (c, s) in enumerate(inits)],
        [container(f"a{n}", {GPU: c}) for n, c in enumerate(apps)] or [container("a")],
    )
    said = reading(body)
    count = said.request.devices.count
    spans = {span.container: span for span in said.spans}
    assert all(s.start >= 0 and s.start + s.count <= count for s in said.spans)
    assert max((s.start + s.count for s in said.spans), default=0) == count
    # What runs at once: all apps with all sidecars, and each init with the sidecars before it.
    sidecars = [f"i{n}" for n, (_, sidecar) in enumerate(inits) if sidecar]
    moments = [[*sidecars, *(f"a{n}" for n in range(len(apps)))]]
    moments.extend([*(s for s in sidecars if int(s[1:]) < n), f"i{n}"] for n in range(len(inits)))
    for moment in moments:
        held = [
            number
            for name in moment
            if name in spans
            for number in range(spans[name].start, spans[name].start + spans[name].count)
        ]
        assert len(held) == len(set(held))


def test_wire_types_and_manifests_read_the_same() -> None:
    body = manifest(
        {"cpu": "1500m", "memory": "2Gi", GPU: "2"},
        {keys.MEMORY: "5Gi"},
        nodeSelector={"b": "2", "a": "1"},
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}]}
                    ]
                }
            }
        },
        overhead={"cpu": "250m"},
    )
    wire = PODS.read(msgspec.json.encode(body))
    said = reading(read_pod(body))
    assert reading_of(wire, catalogue()) == said
    assert said.request.cpu_milli == 1_750
    assert said.request.selector == (("a", "1"), ("b", "2"))


def test_refusals_are_values() -> None:
    said = request_of(pod({GPU: 1}, {"shoal.dev/memroy": "5Gi"}), catalogue())
    assert isinstance(said, Refusal)
    assert said.code is RefusalCode.UNKNOWN_KEY
    assert dict(said.details)["meant"] == "shoal.dev/memory"
