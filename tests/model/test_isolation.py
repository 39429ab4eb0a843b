import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.isolation import AXES, PRESETS, Isolation, Level, parse_isolation

LEVELS = st.sampled_from(Level)
ISOLATIONS = st.builds(Isolation, LEVELS, LEVELS, LEVELS, st.booleans())


def test_levels_run_from_none_to_hardware() -> None:
    assert [level.word for level in Level] == ["none", "soft", "driver", "hardware"]
    assert Level.NONE < Level.SOFT < Level.DRIVER < Level.HARDWARE


def test_presets_run_from_weakest_to_strongest() -> None:
    assert list(PRESETS) == ["shared", "soft", "driver", "hardware", "device"]
    for weaker, stronger in itertools.pairwise(PRESETS.values()):
        assert stronger.reaches(weaker)
        assert not weaker.reaches(stronger)


def test_only_the_preset_device_asks_for_a_device_without_neighbours() -> None:
    assert [name for name, value in PRESETS.items() if value.alone] == ["device"]
    assert PRESETS["hardware"].shortfalls(PRESETS["device"]) == ("alone",)


@given(ISOLATIONS, ISOLATIONS)
def test_it_reaches_a_floor_exactly_if_nothing_falls_short(
    given_: Isolation, floor: Isolation
) -> None:
    assert given_.reaches(floor) == (not given_.shortfalls(floor))


@given(ISOLATIONS)
def test_what_is_written_is_read_back(value: Isolation) -> None:
    assert parse_isolation(str(value)) == value


@given(ISOLATIONS)
def test_the_preset_is_the_strongest_one_that_is_reached(value: Isolation) -> None:
    reached = [name for name, floor in PRESETS.items() if value.reaches(floor)]
    assert value.preset == reached[-1]


def test_an_axis_that_is_not_named_has_no_floor() -> None:
    assert parse_isolation("memory=driver") == Isolation(memory=Level.DRIVER)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hard", "write one of shared, soft, driver, hardware, device"),
        ("", "is unknown"),
        ("memory=strong", "write one of none, soft, driver, hardware"),
        ("colour=soft", "write memory, compute, fault"),
        ("memory=soft,memory=driver", "names memory twice"),
        ("memory=", "level '' for memory"),
        ("Hardware", "is unknown"),
        ("alone=hardware", "write memory, compute, fault"),
    ],
)
def test_what_is_no_isolation_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_isolation(text)


def test_axes_are_the_three_that_are_promised() -> None:
    assert AXES == ("memory", "compute", "fault")
