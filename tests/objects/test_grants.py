"""Whatever is written: nobody has more than he was granted, or a sentence says why."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.fractions import UNIT
from shoal.model.meaning import Inside
from shoal.model.queue import UNITS, Queue, QueueTree, Quota
from shoal.objects.files import BadObjectsError
from shoal.objects.meaning import closing_kept, meaning
from shoal.objects.quotas import Scale, guaranteed, names_of
from shoal.objects.tree import resolved
from shoal.texts.language import Language
from shoal.texts.meanings import meaning_text
from tests.objects.written import CATALOG, queue, read

NAMES = names_of(CATALOG)
SXM = "H100-SXM5-80GB"
WORDS = ("H100", SXM, "T4", "H100|T4", UNITS)
MOST = {"per_workload_per_day", "device_hours_lost_per_day"}
"""Bounds of which less protects better."""


def quota(field: str) -> st.SearchStrategy[str]:
    """A quota of one or two words, mostly of numbers that can fit."""
    entries = st.dictionaries(st.sampled_from(WORDS), st.integers(0, 12), max_size=2)
    return entries.map(
        lambda found: f"{field}: {{" + ", ".join(f'"{w}": {n}' for w, n in found.items()) + "}"
    )


PARTS = st.one_of(
    *(quota(field) for field in ("guarantee", "limit", "borrow", "lend", "placeable")),
    st.integers(0, 3).map(lambda n: f"priorities: {{a: {{value: {n}, subjects: [user:u{n}]}}}}"),
    st.integers(1, 3).map(lambda n: f"eviction: {{minimumRun: {n}m, perWorkloadPerDay: {n}}}"),
    st.integers(1, 3).map(lambda n: f"eviction: {{graceMax: {n}m, deviceHoursLostPerDay: {n}}}"),
    st.sampled_from(("types: [batch]", "types: [batch, training]", "weight: 3", "shrinkAfter: 1m")),
)


@st.composite
def trees(draw: st.DrawFn, least: int = 0, most: int = 5, parts: int = 3) -> list[str]:
    """A root and some queues below it, in some order, each with some fields."""
    names = [f"q{n}" for n in range(draw(st.integers(least, most)))]
    texts = []
    for number, name in enumerate(("top", *names)):
        written = draw(
            st.lists(PARTS, max_size=parts, unique_by=lambda part: part.partition(":")[0])
        )
        if number:
            written.append(f"parent: {draw(st.sampled_from(('top', *names[: number - 1])))}")
        texts.append(queue(name, ", ".join(written)))
    return draw(st.permutations(texts))


def accepted(texts: list[str]) -> QueueTree | None:
    problems: tuple[str, ...] = ()
    try:
        return read(texts).tree
    except BadObjectsError as error:
        problems = error.problems
    assert all(each.startswith("q.yaml:") for each in problems)
    return None


@given(trees())
@settings(max_examples=400)
def test_nobody_has_more_than_the_queue_above_him_grants(texts: list[str]) -> None:
    tree = accepted(texts)
    for each in tree.queues if tree is not None else ():
        above = tree.get(each.parent) if tree is not None else None
        if tree is None or above is None:
            continue
        assert set(each.types) <= set(above.types)
        assert (
            not above.priorities
            or set(each.priorities) <= set(above.priorities)
            or all(
                any(
                    mine.name == theirs.name
                    and mine.value <= theirs.value
                    and set(mine.subjects) <= set(theirs.subjects)
                    for theirs in above.priorities
                )
                for mine in each.priorities
            )
        )
        for field in ("minimum_run_us", "checkpoint_interval_us", *sorted(MOST)):
            mine, theirs = getattr(each.eviction, field), _bound_above(tree, each, field)
            if mine is not None and theirs is not None:
                assert mine >= theirs if field in MOST else mine <= theirs
        _check_quotas(tree, each)


def _bound_above(tree: QueueTree, one: Queue, field: str) -> int | None:
    """The bound that the nearest queue above one writes."""
    for name in reversed(tree.path(one.name)[:-1]):
        above = tree.get(name)
        value: int | None = getattr(above.eviction, field) if above is not None else None
        if value is not None:
            return value
    return None


def _check_quotas(tree: QueueTree, one: Queue) -> None:
    """A guarantee fits the limit, and what is lent fits the guarantee."""
    scale = Scale.of(tree, NAMES)
    promised = guaranteed(tree, one, scale)
    for word, limit in one.limit:
        inside = [("", each, n) for each, n in promised if scale.covers(word, each)]
        assert scale.cost(word, inside) <= limit * 1000
    for word, lent in one.lend:
        inside = [("", each, n) for each, n in promised if scale.covers(word, each)]
        assert lent * 1000 <= scale.cost(word, inside)


def _check_where_work_counts(old: QueueTree, tree: QueueTree, inside: dict[str, Inside]) -> None:
    """What runs in a queue goes on to count there, and in the nearest above it that there is."""
    for name, here in inside.items():
        if not here.running or old.get(name) is None:
            continue
        queue = tree.get(name)
        assert queue is not None
        if queue.closing:
            above = (each for each in reversed(old.path(name)[:-1]) if tree.get(each) is not None)
            assert queue.parent == next(above, "top")


HELD = st.dictionaries(st.sampled_from((SXM, "T4", "unheard-of")), st.integers(0, 12 * UNIT))
WORK = st.builds(
    lambda running, waiting, units: Inside(running, waiting, units if running else {}),
    st.integers(0, 3),
    st.integers(0, 3),
    HELD,
)


QUEUES = st.sampled_from(("top", "q0", "q1", "q2", "q3", "gone"))


@given(trees(2, 4, 1), trees(1, 2, 1), st.dictionaries(QUEUES, WORK))
@settings(max_examples=300)
def test_what_a_change_means_can_always_be_said(
    before: list[str], after: list[str], inside: dict[str, Inside]
) -> None:
    old, new = accepted(before), accepted(after)
    if old is None or new is None:
        return
    for said in meaning(old, new, inside):
        for language in Language:
            assert "{" not in meaning_text(said, language)
    tree = closing_kept(old, new, inside, NAMES)
    assert [each for each in tree.queues if not each.closing] == list(new.queues)
    for each in tree.queues:
        assert tree.path(each.name)[0] == "top"
        if each.closing:
            assert each.name in {leaf.name for leaf in tree.leaves()} or tree.children(each.name)
            _check_children(tree, each.parent)
    _check_where_work_counts(old, tree, inside)
    counted = resolved(tree, NAMES)
    assert [each.name for each in counted.queues] == [each.name for each in tree.queues]
    # What the core counts does not change by being written out again.
    assert resolved(counted, NAMES) == counted


def _check_children(tree: QueueTree, name: str) -> None:
    """What closes is guaranteed no more than the queues above it have to give."""
    parent, scale = tree.get(name), Scale.of(tree, NAMES)
    if parent is None or parent.guarantee is None:
        return
    below: list[Quota] = [guaranteed(tree, each, scale) for each in tree.children(name)]
    for word, count in parent.guarantee:
        parts = [("", w, n) for quota in below for w, n in quota if scale.overlap(word, w)]
        assert scale.cost(word, parts) <= count * 1000
