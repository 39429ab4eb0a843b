"""Quotas of different words in one tree: which fit, which do not, and what the core counts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.queue import UNITS, Queue, QueueTree, Quota
from shoal.objects.quotas import Scale, guaranteed, names_of, thousandths
from shoal.objects.tree import resolved, words_of
from tests.objects.written import CATALOG, problems, queue, read

NAMES = names_of(CATALOG)
SXM, PCIE = "H100-SXM5-80GB", "H100-PCIE-80GB"
RATES = {SXM: 1734, PCIE: 1335, "T4": 187, "A100-SXM4-80GB": 1000}
SCALE = Scale(NAMES, RATES)


def test_a_tree_may_count_in_one_unit() -> None:
    tree = read(
        [
            queue("top", "guarantee: {units: 40}, limit: {units: 60}"),
            queue("a", f"parent: top, guarantee: {{{SXM}: 16}}, borrow: {{units: 8}}"),
            queue("b", "parent: top, guarantee: {units: 12}"),
        ]
    ).tree
    # 16 x 1.734 = 27.744, and 12 beside it: 39.744 of 40.
    assert dict(tree.rates)[SXM] == 1734
    counted = resolved(tree, NAMES)
    assert counted.queues[0].guarantee == ((UNITS, 40),)
    assert counted.queues[0].limit == ((UNITS, 60),)
    assert counted.queues[1].borrow == ((UNITS, 8),)
    assert counted.rates == tree.rates


def test_rates_are_known_only_where_something_counts_in_units() -> None:
    assert read([queue("top", "guarantee: {H100: 4}")]).tree.rates == ()


def test_an_accelerator_without_a_rate_counts_as_the_reference() -> None:
    assert SCALE.milli("Ascend910B2") == 1000
    assert SCALE.highest_milli("T4|Ascend910B2") == 1000


@pytest.mark.parametrize(
    ("top", "below", "said"),
    [
        (
            "guarantee: {units: 20}",
            [f"guarantee: {{{SXM}: 8}}", "guarantee: {units: 7}"],
            (
                f"q.yaml:5: spec.guarantee.units: its children are guaranteed q0 8 {SXM} x 1.734 +"
                " q1 7 = 20.872, and top only 20; raise it to 21 or lower theirs"
            ),
        ),
        (
            # Whatever H100 it comes to hold, the dearest as well.
            "guarantee: {units: 13}",
            ["guarantee: {H100: 8}"],
            (
                "q.yaml:5: spec.guarantee.units: its children are guaranteed q0 8 H100 x 1.734 ="
                " 13.872, and top only 13; raise it to 14 or lower theirs"
            ),
        ),
        (
            "guarantee: {H100: 8, H200: 8}",
            ['guarantee: {"H100|H200": 8}', "guarantee: {H100: 1}"],
            (
                "q.yaml:5: spec.guarantee.H100: its children are guaranteed q0 8 H100|H200 + q1 1 ="
                " 9, and top only 8; raise it to 9 or lower theirs"
            ),
        ),
        (
            "guarantee: {H100: 8}",
            ["guarantee: {units: 4}"],
            (
                "q.yaml:10: spec.guarantee.units: 4 units may be of any accelerator, and top is"
                " guaranteed H100: 8; write accelerators, or the guarantee of top in units"
            ),
        ),
        (
            f"guarantee: {{{SXM}: 8}}",
            ["guarantee: {H100: 4}"],
            (
                "q.yaml:10: spec.guarantee.H100: top is guaranteed no H100-NVL-94GB,"
                " H100-PCIE-80GB, which H100 means as well, that it could pass on; it has"
                f" {SXM}: 8"
            ),
        ),
    ],
)
def test_what_does_not_fit_is_said_with_the_sum(top: str, below: list[str], said: str) -> None:
    texts = [queue("top", top)]
    texts += [queue(f"q{n}", f"parent: top, {each}") for n, each in enumerate(below)]
    assert problems(texts) == [said]


def test_groups_may_differ_between_levels_where_every_mix_fits() -> None:
    tree = read(
        [
            queue("top", "guarantee: {H100: 8, H200: 8}"),
            queue("a", 'parent: top, guarantee: {"H100|H200": 7}'),
            queue("b", f"parent: top, guarantee: {{{SXM}: 1, H200: 1}}"),
        ]
    ).tree
    assert len(tree.queues) == 3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            f"guarantee: {{{SXM}: 8, T4: 1}}, limit: {{units: 14}}",
            (
                f"spec.limit.units: is 14, less than the guarantee 8 {SXM} x 1.734 + 1 T4 x 0.187 ="
                " 14.059; raise it to 15 or lower the guarantee"
            ),
        ),
        (
            "guarantee: {units: 15}, limit: {units: 14}",
            (
                "spec.limit.units: is 14, less than the guarantee units 15; raise it to 15 or lower"
                " the guarantee"
            ),
        ),
        (
            f"guarantee: {{{SXM}: 4}}, lend: {{units: 7}}",
            (
                f"spec.lend.units: is 7, more than the guarantee 4 {SXM} x 1.734 = 6.936; lower it"
                " to 6 or raise the guarantee"
            ),
        ),
        (
            "guarantee: {units: 20}, lend: {H100: 4}",
            ("spec.lend.H100: is only a part of units, which is guaranteed together; write units"),
        ),
    ],
)
def test_limits_and_loans_in_units_are_held_against_the_guarantee(spec: str, said: str) -> None:
    assert problems([queue("a", spec)])[0] == f"q.yaml:5: {said}"


def test_a_queue_that_writes_no_guarantee_has_that_of_its_children_together() -> None:
    tree = read(
        [
            queue("top"),
            queue("a", f"parent: top, guarantee: {{{SXM}: 2, T4: 1}}"),
            queue("b", "parent: top, guarantee: {H100: 1}"),
            queue("c", "parent: top"),
        ]
    ).tree
    top, _, _, c = resolved(tree, NAMES).queues
    all_h100 = "H100-NVL-94GB|H100-PCIE-80GB|H100-SXM5-80GB"
    assert top.guarantee == ((all_h100, 3), ("T4", 1))
    assert c.guarantee is None
    assert words_of(tree, NAMES)[all_h100] == "H100"


def test_devices_and_units_together_are_units_and_never_too_few() -> None:
    assert SCALE.together([((SXM, 4),), ((UNITS, 10),)]) == ((UNITS, 17),)  # 6.936 + 10
    assert SCALE.together([(("H100", 1),), (("H100|H200", 2),)]) == (("H100|H200", 3),)
    assert SCALE.together([]) == ()


def test_of_maximum_times_the_shortest_on_the_path_counts() -> None:
    tree = read(
        [
            queue("top", "maximumRun: {notebook: 12h, batch: 1h}, maximumWait: {batch: 2d}"),
            queue("a", "parent: top, maximumRun: {notebook: 24h, batch: 30m, training: 7d}"),
        ]
    ).tree
    below = resolved(tree, NAMES).queues[1]
    hours = {type_.value: time_us / 3_600_000_000 for type_, time_us in below.maximum_run_us}
    assert hours == {"notebook": 12, "batch": 0.5, "training": 168}
    assert dict(below.maximum_wait_us) == dict(tree.queues[0].maximum_wait_us)


@pytest.mark.parametrize(
    ("milli", "text"),
    [(27_744, "27.744"), (1000, "1"), (1_500_000, "1,500"), (100, "0.1"), (0, "0")],
)
def test_thousandths_are_shown_without_needless_zeros(milli: int, text: str) -> None:
    assert thousandths(milli) == text


# Properties -----------------------------------------------------------------------------------

ACCELERATORS = (SXM, PCIE, "H100-NVL-94GB", "T4", "A100-SXM4-80GB")
WORDS = st.sampled_from(("H100", SXM, "T4", "A100-SXM4-80GB", "H100|T4", UNITS))


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    """A quota of words that do not overlap."""
    found: dict[str, int] = {}
    for word in draw(st.lists(WORDS, max_size=3)):
        if not any(SCALE.overlap(word, other) for other in found):
            found[word] = draw(st.integers(0, 9))
    return tuple(sorted(found.items()))


def held_under(word: str, held: dict[str, int]) -> int:
    """What is held, as a word counts it, in thousandths."""
    if word == UNITS:
        return sum(count * SCALE.milli(name) for name, count in held.items())
    return sum(count * 1000 for name, count in held.items() if name in SCALE.behind(word))


@given(st.lists(quotas(), min_size=1, max_size=4), st.data())
@settings(max_examples=200)
def test_whoever_holds_what_he_is_guaranteed_is_within_what_all_are_together(
    below: list[Quota], data: st.DataObject
) -> None:
    """Whatever mix the children hold of what they are promised, their parent may hold it."""
    together = SCALE.together(below)
    held: dict[str, int] = {}
    for quota in below:
        for word, count in quota:
            left = count * 1000
            for _ in range(count * 6):
                name = data.draw(st.sampled_from(ACCELERATORS))
                cost = SCALE.milli(name) if word == UNITS else 1000
                inside = word == UNITS or name in SCALE.behind(word)
                if inside and cost <= left:
                    left -= cost
                    held[name] = held.get(name, 0) + 1
    for word, count in together:
        assert held_under(word, held) <= count * 1000
    for name in held:
        assert any(word == UNITS or name in SCALE.behind(word) for word, _ in together)


@given(quotas(), st.lists(quotas(), max_size=3))
@settings(max_examples=300)
def test_the_sum_of_children_never_passes_what_the_core_counts(
    above: Quota, below: list[Quota]
) -> None:
    """A tree that is accepted is one whose worst case fits, counted accelerator by accelerator."""
    texts = [queue("top", f"guarantee: {_yaml(above)}")]
    texts += [queue(f"q{n}", f"parent: top, guarantee: {_yaml(q)}") for n, q in enumerate(below)]
    try:
        tree = read(texts).tree
    except ValueError:
        return
    scale = Scale.of(tree, NAMES)
    top = tree.queues[0]
    for word, count in top.guarantee or ():
        parts = [p for quota in below for p in quota if scale.overlap(word, p[0])]
        worst = sum(each * (_dearest(scale, w) if word == UNITS else 1000) for w, each in parts)
        assert worst <= count * 1000
    assert guaranteed(tree, top, scale) == tuple(sorted(above))


def _dearest(scale: Scale, word: str) -> int:
    return 1000 if word == UNITS else max(scale.milli(name) for name in scale.behind(word))


def _yaml(quota: Quota) -> str:
    return "{" + ", ".join(f'"{word}": {count}' for word, count in quota) + "}"


def test_a_tree_without_units_is_counted_as_before() -> None:
    tree = QueueTree((Queue("top", guarantee=(("T4", 2),)),))
    assert resolved(tree, NAMES) == tree
