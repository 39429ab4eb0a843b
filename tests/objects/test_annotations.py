"""Every rule of S07 for annotations, and that no text at all is read by chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.isolation import Isolation, Level
from shoal.model.refusal import Refusal, RefusalCode
from shoal.model.workload import WorkloadType
from shoal.objects import annotations as keys
from shoal.objects.annotations import Annotations, nearest, read_annotations
from shoal.objects.pods import reading_of
from shoal.texts.refusals import hint_text, refusal_text
from tests.objects.small import catalogue, pod

GPU = {"nvidia.com/gpu": 1}


def read(key: str, text: str) -> Annotations:
    said = read_annotations({key: text})
    assert isinstance(said, Annotations), said
    return said


def refused(key: str, text: str) -> Refusal:
    said = read_annotations({key: text})
    assert isinstance(said, Refusal), said
    assert said.field == key
    return said


@pytest.mark.parametrize(
    ("text", "mib"),
    [("5Gi", 5_120), ("5G", 4_769), ("1.5Gi", 1_536), ("1e10", 9_537), ("1Mi", 1)],
)
def test_S07_memory_is_a_quantity_rounded_up_to_mib(text: str, mib: int) -> None:
    assert read(keys.MEMORY, text).memory_mib == mib


def test_S07_a_memory_that_was_rounded_is_shown_as_it_is_used() -> None:
    (hint,) = read(keys.MEMORY, "5G").hints
    assert hint_text(hint) == "shoal.dev/memory 5G counts as 4,769 MiB"
    assert read(keys.MEMORY, "5Gi").hints == ()


@pytest.mark.parametrize("text", ["5", "1e3", "1048575", "1m"])
def test_S07_less_than_one_mib_is_refused(text: str) -> None:
    refusal = refused(keys.MEMORY, text)
    assert refusal.code is RefusalCode.UNDER_ONE_MIB
    assert "less than 1 MiB" in refusal_text(refusal)


@pytest.mark.parametrize("text", ["5", "1e3"])
def test_S07_the_refusal_of_a_bare_number_names_the_suffixes(text: str) -> None:
    assert "write 5Gi or 5Mi" in refusal_text(refused(keys.MEMORY, text))


@pytest.mark.parametrize("text", ["0", "-1Gi", "0Gi", "-5"])
def test_S07_memory_is_more_than_nothing(text: str) -> None:
    sentence = refusal_text(refused(keys.MEMORY, text))
    assert "must be more than 0; leave it out for a whole device" in sentence


@pytest.mark.parametrize(
    "text", ["", " 5Gi", "5 Gi", "5gi", "5GiB", "half", "\u0665Gi", "5Gi\n", "1e99"]
)
def test_S07_what_is_no_quantity_is_refused(text: str) -> None:
    assert refused(keys.MEMORY, text).code is RefusalCode.NOT_A_QUANTITY


@pytest.mark.parametrize("text", ["9223372036854775807Gi", "81921Mi", "1e36"])
def test_S07_more_than_the_largest_device_is_refused(text: str) -> None:
    refusal = reading_of(pod(GPU, {keys.MEMORY: text}), catalogue())
    assert isinstance(refusal, Refusal)
    sentence = refusal_text(refusal)
    assert "more than the largest device has (81,920 MiB)" in sentence
    assert refusal.field == keys.MEMORY


def test_S07_compute_is_a_whole_percentage() -> None:
    assert read(keys.COMPUTE, "30").compute_percent == 30
    assert read(keys.COMPUTE, "1").compute_percent == 1
    assert read(keys.COMPUTE, "100").compute_percent == 100


@pytest.mark.parametrize(
    "text", ["0", "101", "1.5", "30%", "\u0969\u0966", "", "030", " 30", "30\n", "1e1"]
)
def test_S07_compute_in_another_form_is_refused(text: str) -> None:
    sentence = refusal_text(refused(keys.COMPUTE, text))
    assert "a whole number from 1 to 100, in digits 0-9" in sentence


def test_S07_devices_in_parts_are_refused_with_what_makes_a_part() -> None:
    sentence = refusal_text(refused(keys.DEVICES, "1.5"))
    assert "write 1, and shoal.dev/memory or shoal.dev/compute" in sentence


@pytest.mark.parametrize("text", ["1e3", "0", "-1", "", "two", "1.0", "\u0662", "1000000"])
def test_S07_devices_are_a_whole_number_from_1(text: str) -> None:
    sentence = refusal_text(refused(keys.DEVICES, text))
    assert "a whole number from 1" in sentence


def test_S07_a_misspelt_key_is_refused_with_the_one_that_was_meant() -> None:
    sentence = refusal_text(refused("shoal.dev/memroy", "5Gi"))
    assert sentence == "shoal.dev/memroy is not known; did you mean shoal.dev/memory?"
    far = refusal_text(refused("shoal.dev/zzzz", "5Gi"))
    assert "shoal.dev/memory" in far
    assert "did you mean" not in far


def test_keys_of_others_are_left_alone() -> None:
    assert read_annotations({"example.com/memory": "lots", "shoal.development": "x"}) == (
        Annotations()
    )


def test_K03_h_what_shoal_writes_is_refused_from_others() -> None:
    sentence = refusal_text(refused(keys.PLAN, "{}"))
    assert sentence == "shoal.dev/plan is written by Shoal; leave it out"


@pytest.mark.parametrize("text", ["视觉", "Vision", "a_b", "-a", "a" * 64])
def test_K09_d_names_of_queues_are_plain_and_the_nearest_are_listed(text: str) -> None:
    said = read_annotations({keys.QUEUE: text}, queues=("vision", "nlp"))
    assert isinstance(said, Refusal)
    sentence = refusal_text(said)
    assert "lower-case letters, digits and '-'" in sentence
    assert "nlp" in sentence or "vision" in sentence


def test_K03_i_a_queue_of_others_is_refused() -> None:
    said = read_annotations({keys.QUEUE: "visiom"}, queues=("vision", "nlp"))
    assert isinstance(said, Refusal)
    assert said.code is RefusalCode.UNKNOWN_QUEUE
    assert "Nearest: vision" in refusal_text(said)


def test_the_other_keys_are_read() -> None:
    said = read_annotations(
        {
            keys.ISOLATION: "memory=driver,fault=none",
            keys.ACCELERATORS: "H100|A100-80GB|H100",
            keys.LINKS: "nvlink",
            keys.TYPE: "training",
            keys.QUEUE: "default",
            keys.DEVICES: "4",
        }
    )
    assert said == Annotations(
        devices=4,
        isolation=Isolation(memory=Level.DRIVER),
        accelerators=("H100", "A100-80GB"),
        links=("nvlink",),
        type=WorkloadType.TRAINING,
    )


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (keys.ISOLATION, "strong", "shared, soft, driver, hardware, device"),
        (keys.ACCELERATORS, "H100, A100", "H100|A100-80GB"),
        (keys.TYPE, "Training", "training, inference, notebook, batch"),
    ],
)
def test_words_are_refused_with_those_that_are_known(key: str, text: str, words: str) -> None:
    assert words in refusal_text(refused(key, text))


@given(st.dictionaries(st.sampled_from(keys.WRITTEN_BY_PEOPLE), st.text(max_size=40)))
def test_any_text_is_read_or_refused(annotations: dict[str, str]) -> None:
    said = read_annotations(annotations)
    if isinstance(said, Refusal):
        assert said.field in annotations
        assert refusal_text(said)
    else:
        assert said.memory_mib is None or said.memory_mib > 0
        assert said.compute_percent is None or 1 <= said.compute_percent <= 100
        assert said.devices is None or said.devices >= 1


def test_nearest_ignores_case_and_finds_nothing_for_nonsense() -> None:
    assert nearest("h100", ["H100", "T4"]) == ("H100",)
    assert nearest("", ["H100"]) == ()


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("2026-11-29T21:04:05Z", 1_795_986_245_000_000),
        ("2026-11-29T23:04:05.25+02:00", 1_795_986_245_250_000),
        ("2026-11-29T21:04:05.123456789Z", 1_795_986_245_123_456),
    ],
)
def test_a_checkpoint_is_a_moment(text: str, us: int) -> None:
    assert read(keys.CHECKPOINT, text).checkpoint_us == us


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-11-29", "2026-11-29T21:04:05", "2026-11-29 21:04:05Z"),
        *("2026-02-30T21:04:05Z", "1969-12-31T23:59:59Z", "1795986245", "2026-11-29T24:00:00Z"),
    ],
)
def test_a_checkpoint_that_is_no_moment_is_refused(text: str) -> None:
    refusal = refused(keys.CHECKPOINT, text)
    assert refusal.code is RefusalCode.NOT_A_MOMENT
    assert "such as 2026-11-29T21:04:05Z" in refusal_text(refusal)
