import pytest

from shoal.model.modes import (
    MODE_ALIASES,
    Cap,
    Channel,
    Mode,
    Sharing,
    every_mode,
    parse_mode,
)


def test_words_are_those_of_pools_and_messages() -> None:
    assert [sharing.word for sharing in Sharing] == ["exclusive", "time-sliced", "mps"]
    assert [cap.word for cap in Cap] == ["none", "library", "mps", "driver"]
    assert [channel.word for channel in Channel] == ["device-plugin", "dra"]


@pytest.mark.parametrize("mode", every_mode(), ids=str)
def test_every_mode_is_read_back_from_its_name(mode: Mode) -> None:
    assert parse_mode(mode.name) == mode


def test_no_two_modes_have_one_name() -> None:
    names = [mode.name for mode in every_mode()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("whole", Mode(partition=False, sharing=Sharing.EXCLUSIVE, cap=Cap.NONE)),
        ("mig", Mode(partition=True, sharing=Sharing.EXCLUSIVE, cap=Cap.NONE)),
        ("mps", Mode(partition=False, sharing=Sharing.MPS, cap=Cap.MPS)),
        ("mps+driver", Mode(partition=False, sharing=Sharing.MPS, cap=Cap.DRIVER)),
        (
            "time-sliced+library",
            Mode(partition=False, sharing=Sharing.TIME_SLICED, cap=Cap.LIBRARY),
        ),
        ("partition+mps", Mode(partition=True, sharing=Sharing.MPS, cap=Cap.MPS)),
    ],
)
def test_names_that_pools_write_mean_what_they_say(name: str, mode: Mode) -> None:
    assert parse_mode(name) == mode


def test_every_alias_means_a_mode() -> None:
    assert {parse_mode(alias).name for alias in MODE_ALIASES} == set(MODE_ALIASES.values())


@pytest.mark.parametrize("cap", [Cap.LIBRARY, Cap.MPS, Cap.DRIVER])
def test_an_exclusive_leaf_has_no_cap(cap: Cap) -> None:
    with pytest.raises(ValueError, match="one tenant and no cap"):
        Mode(partition=False, sharing=Sharing.EXCLUSIVE, cap=cap)


def test_the_mps_cap_needs_an_mps_server() -> None:
    with pytest.raises(ValueError, match="belongs to an MPS server"):
        Mode(partition=False, sharing=Sharing.TIME_SLICED, cap=Cap.MPS)


@pytest.mark.parametrize("text", ["", "vgpu", "whole+mps", "MPS", "mps+mps"])
def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(text: str) -> None:
    with pytest.raises(ValueError, match="write one of whole"):
        parse_mode(text)


def test_a_word_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="write one of exclusive, time-sliced, mps"):
        Sharing.parse("sliced")
