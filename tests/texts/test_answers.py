"""What is said when somebody asks: every sentence in both languages, with the same parameters."""

from string import Formatter

import pytest

from shoal.loop.steps import Step
from shoal.model.verdict import Reason
from shoal.model.workload import Outcome
from shoal.texts import answers, evictions, screens
from shoal.texts.answers import ended_text, moment_text, nodes_text
from shoal.texts.language import Language
from shoal.texts.screens import duration_text, ordinal, word

EN, ZH = Language.ENGLISH, Language.CHINESE


def parameters(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


@pytest.mark.parametrize(
    "sentences", [answers._SENTENCES, screens._SENTENCES, evictions._SENTENCES]
)
def test_both_languages_say_the_same_with_the_same_parameters(
    sentences: dict[Language, dict[str, str]],
) -> None:
    assert sentences[EN].keys() == sentences[ZH].keys()
    for key, text in sentences[EN].items():
        assert parameters(text) == parameters(sentences[ZH][key]), key


@pytest.mark.parametrize("language", list(Language))
def test_every_step_and_outcome_has_words(language: Language) -> None:
    for step in Step:
        assert moment_text(step.value, Reason.CPU, "n1", language) if step != "ended" else True
    for outcome in Outcome:
        assert moment_text("ended", None, outcome.value, language)
        assert ended_text(outcome, language)
    assert ended_text(None, language)


def test_nodes_are_named_up_to_three() -> None:
    assert nodes_text([]) == "no node"
    assert nodes_text(["a", "b", "c"]) == "a, b, c"
    assert nodes_text(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert nodes_text(["a", "b", "c", "d"], ZH) == "a、b、c 等 4 个节点"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3600, "1h"),
        (3659, "1h"),
        (4320, "1h12m"),
        (90_000, "1d1h"),
        (86_400 * 400, "400d"),
    ],
)
def test_time_spans_have_their_two_largest_units(seconds: float, said: str) -> None:
    assert duration_text(seconds) == said


def test_places_are_counted_as_people_do() -> None:
    said = [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1003)]
    assert " ".join(said) == "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 1,003rd"
    assert ordinal(3, ZH) == "3"


def test_words_that_are_not_known_stay_as_they_are() -> None:
    assert (word("QUEUE", ZH), word("QUEUE"), word("n17", ZH)) == ("队列", "QUEUE", "n17")
