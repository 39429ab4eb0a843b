"""Limits are no less than what is guaranteed under them, in whatever words either is written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.objects.files import BadObjectsError
from tests.objects.written import CATALOG, problems, queue, read

SXM = "H100-SXM5-80GB"
NAMES = ("A10", "L4", "T4")
"""Three accelerators whose names are no part of others."""


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            [
                queue("root", f"guarantee: {{H100: 8}}, limit: {{{SXM}: 2}}"),
                queue("a", f"parent: root, guarantee: {{{SXM}: 4}}"),
            ],
            f"{SXM}: is 2, less than what is guaranteed: a 4 {SXM}; raise it to 4 or lower that",
        ),
        (
            [
                queue("root", "guarantee: {'H100|A100': 8}, limit: {H100: 2}"),
                queue("a", "parent: root, guarantee: {H100: 4}"),
            ],
            "H100: is 2, less than what is guaranteed: a 4 H100; raise it to 4 or lower that",
        ),
        (
            [
                queue("root", "guarantee: {'H100|A100': 8}, limit: {H100: 5}"),
                queue("m", "parent: root"),
                queue("a", f"parent: m, guarantee: {{{SXM}: 3}}"),
                queue("b", "parent: m, guarantee: {H100: 3}"),
            ],
            (
                f"H100: is 5, less than what is guaranteed: a 3 {SXM} + b 3 H100 = 6; raise it to 6"
                " or lower that"
            ),
        ),
        (
            [queue("root", "guarantee: {'H100|A100': 8}, limit: {H100: 4, A100: 3}")],
            (
                "A100: is 3, and 7 together with H100: 4, less than the guarantee H100|A100 8;"
                " raise them to 8 or lower the guarantee"
            ),
        ),
        (
            [
                queue("root", f"limit: {{{SXM}: 4}}, guarantee: {{H100: 9}}"),
                queue("a", "parent: root, guarantee: {H100: 4}"),
                queue("b", f"parent: a, guarantee: {{{SXM}: 3}}"),
                queue("c", f"parent: root, guarantee: {{{SXM}: 2}}"),
                queue("d", f"parent: c, guarantee: {{{SXM}: 1}}"),
            ],
            (
                f"{SXM}: is 4, less than what is guaranteed: b 3 {SXM} + c 2 {SXM} = 5; raise it to"
                " 5 or lower that"
            ),
        ),
        (
            [
                queue("root", "guarantee: {A10: 2, 'L4|T4': 5}, limit: {'A10|T4': 3}"),
                queue("a", "parent: root, guarantee: {A10: 1, T4: 2}"),
            ],
            (
                "A10|T4: is 3, less than what is guaranteed: root 2 A10 + a 2 T4 = 4; raise it to 4"
                " or lower that"
            ),
        ),
    ],
)
def test_what_is_guaranteed_of_part_of_a_word_is_held_against_its_limit(
    texts: list[str], said: str
) -> None:
    assert problems(texts) == [f"q.yaml:5: spec.limit.{said}"]


@pytest.mark.parametrize(
    "spec",
    [
        "guarantee: {'H100|A100': 8}, limit: {H100: 4}",
        "guarantee: {'H100|A100': 8}, limit: {H100: 4, A100: 4}",
        "guarantee: {'H100|A100': 8}, limit: {'A100|T4': 5, H100: 3}",
        f"guarantee: {{H100: 8}}, limit: {{{SXM}: 2}}",
        "guarantee: {units: 8}, limit: {H100: 2}",
    ],
)
def test_where_it_fits_beside_a_limit_it_may_be_guaranteed(spec: str) -> None:
    assert len(read([queue("root", spec)]).tree.queues) == 1


# Against every way in which devices may be held ---------------------------------------------------

Vector = tuple[int, ...]


@dataclass
class Wanted:
    """A queue with its guarantee, and those below it."""

    guarantee: Mapping[str, int] | None
    below: list["Wanted"] = field(default_factory=list)


def _under(word: str, held: Vector) -> int:
    return sum(n for name, n in zip(NAMES, held, strict=True) if name in word.split("|"))


def _added(word: str, count: int) -> Iterator[Vector]:
    """Every way to hold so many devices behind a word."""
    ranges = [range(count + 1 if name in word.split("|") else 1) for name in NAMES]
    return (held for held in product(*ranges) if sum(held) == count)


def _least(one: Wanted) -> set[Vector]:
    """All that a queue and those below it may hold so that all have what they are guaranteed."""
    ways = {(0,) * len(NAMES)}
    for child in one.below:
        ways = {
            tuple(map(sum, zip(mine, theirs, strict=True)))
            for mine in ways
            for theirs in _least(child)
        }
    for word, count in (one.guarantee or {}).items():
        ways = {
            tuple(map(sum, zip(held, more, strict=True)))
            for held in ways
            for more in _added(word, max(0, count - _under(word, held)))
        }
    return ways


def _words() -> st.SearchStrategy[list[str]]:
    """Words that have no accelerator in common."""
    places = st.tuples(*(st.integers(0, 3) for _ in NAMES))
    return places.map(
        lambda found: [
            "|".join(name for name, place in zip(NAMES, found, strict=True) if place == number)
            for number in sorted(set(found) - {3})
        ]
    )


@st.composite
def quotas(draw: st.DrawFn, most: int) -> dict[str, int]:
    return {word: draw(st.integers(0, most)) for word in draw(_words())}


def _text(name: str, parent: str, **quotas: Mapping[str, int] | None) -> str:
    fields = [f"parent: {parent}"] * bool(parent)
    for key, written in quotas.items():
        if written:
            fields.append(f"{key}: {{" + ", ".join(f"{w}: {n}" for w, n in written.items()) + "}")
    return queue(name, ", ".join(fields))


@settings(deadline=None, max_examples=400)
@given(
    quotas(5),
    st.one_of(st.none(), quotas(6)),
    st.lists(
        st.tuples(st.one_of(st.none(), quotas(3)), st.lists(quotas(2), max_size=2)), max_size=2
    ),
)
def test_limits_are_refused_exactly_where_nobody_could_hold_all_that_is_guaranteed(
    limit: dict[str, int],
    own: dict[str, int] | None,
    below: list[tuple[dict[str, int] | None, list[dict[str, int]]]],
) -> None:
    texts = [_text("root", "", limit=limit, guarantee=own)]
    root = Wanted(own)
    for number, (quota, deeper) in enumerate(below):
        texts.append(_text(f"q{number}", "root", guarantee=quota))
        root.below.append(Wanted(quota))
        for deep, its in enumerate(deeper):
            texts.append(_text(f"q{number}-{deep}", f"q{number}", guarantee=its))
            root.below[-1].below.append(Wanted(its))
    try:
        read(texts)
        said: tuple[str, ...] = ()
    except BadObjectsError as error:
        said = error.problems
    if any(": spec.guarantee" in each for each in said):
        return
    fits = any(all(_under(word, held) <= n for word, n in limit.items()) for held in _least(root))
    assert (said == ()) is fits


def test_limits_that_overlap_in_more_ways_than_can_be_compared_are_refused() -> None:
    names = sorted(CATALOG.accelerators)[:13]
    pairs = [f"{one}|{other}" for one in names for other in names if one < other]
    limits = dict.fromkeys(names, 100)
    few, many = (
        [
            _text("root", "", limit=limits),
            *(_text(f"q{n}", "root", guarantee={pair: 1}) for n, pair in enumerate(some)),
        ]
        for some in (pairs[:12], pairs)
    )
    assert len(read(few).tree.queues) == 13
    (said,) = problems(many)
    assert said.startswith("q.yaml:5: spec.limit: overlaps with guarantees in too many ways")
