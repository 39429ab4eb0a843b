"""Garbage is found without looking through all that is held."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from shoal.loop.garbage import ALL_S, YOUNG_S, tended


class Knot:
    """Something that refers to itself, so that counting references never frees it."""

    def __init__(self) -> None:
        self.itself = self


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def by_asking() -> Iterator[None]:
    """Have Python collect only when it is asked to."""
    gc.disable()
    yield
    gc.enable()


def knot() -> "weakref.ref[Knot]":
    """Return a reference to garbage."""
    return weakref.ref(Knot())


@pytest.mark.usefixtures("by_asking")
def test_young_garbage_is_freed_when_it_is_time() -> None:
    hand = Hand()
    with tended(hand) as garbage:
        left = knot()
        hand.now_s += YOUNG_S / 2
        garbage.look()
        assert left() is not None
        hand.now_s += YOUNG_S / 2
        garbage.look()
        assert left() is None


@pytest.mark.usefixtures("by_asking")
def test_what_has_lived_for_a_while_is_looked_through_once_an_hour() -> None:
    hand = Hand()
    with tended(hand) as garbage:
        kept = Knot()
        left = weakref.ref(kept)
        hand.now_s += YOUNG_S
        garbage.look()
        del kept
        hand.now_s += YOUNG_S
        garbage.look()
        assert left() is not None
        hand.now_s += ALL_S
        garbage.look()
        assert left() is None


def test_python_never_looks_through_all_by_itself_meanwhile() -> None:
    looks: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looks.append(info["generation"])

    gc.callbacks.append(note)
    try:
        with tended(Hand()):
            looks.clear()
            held = [[n] for n in range(200_000)]
            assert looks
            assert 2 not in looks
            assert held
    finally:
        gc.callbacks.remove(note)


def test_all_is_as_before_behind_it() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with tended(Hand()):
        assert gc.get_freeze_count() > before[1]
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
