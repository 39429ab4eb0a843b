"""Times at which something is due: what is looked at and changed."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.limits.deadlines import Deadlines

steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcdefgh"), st.integers(0, 30)),
        st.tuples(st.just("drop"), st.sampled_from("abcdefgh"), st.just(0)),
        st.tuples(st.just("clear"), st.just(""), st.just(0)),
    ),
    max_size=300,
)


@given(steps)
def test_they_are_what_a_plain_dictionary_says(steps: list[tuple[str, str, int]]) -> None:
    """Looking never changes anything."""
    deadlines, plain = Deadlines(), dict[str, int]()
    for what, key, at_us in steps:
        if what == "set":
            deadlines.set(key, at_us)
            plain[key] = at_us
        elif what == "drop":
            deadlines.drop(key)
            plain.pop(key, None)
        else:
            deadlines.clear()
            plain.clear()
        for now_us in range(0, 31, 5):
            due = sorted((at, each) for each, at in plain.items() if at <= now_us)
            assert deadlines.due(now_us) == due
            later = [at for at in plain.values() if at > now_us]
            assert deadlines.after(now_us) == min(later, default=None)
        assert all(deadlines.get(each) == plain.get(each) for each in "abcdefgh")


def test_changing_times_does_not_make_it_grow() -> None:
    """Times that do not count any more are forgotten."""
    deadlines = Deadlines()
    for at_us in range(10_000):
        deadlines.set("a", at_us + 1_000_000)
        deadlines.set("b", 5)
    assert len(vars(deadlines)["_heap"]) < 100
    assert deadlines.due(5) == [(5, "b")]
