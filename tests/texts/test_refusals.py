"""Every refusal and hint has a sentence in every language, and it uses what it is given."""

from string import Formatter

import pytest

from shoal.model.refusal import Hint, HintCode, Refusal, RefusalCode
from shoal.texts import refusals
from shoal.texts.admission import Rule, rule_text
from shoal.texts.language import Language
from shoal.texts.refusals import hint_text, refusal_text

CODES = [*RefusalCode, *HintCode]


def fields(code: RefusalCode | HintCode, language: Language) -> set[str]:
    parsed = Formatter().parse(refusals._WORDS[language][code])
    return {name for _, name, _, _ in parsed if name}


NUMBERS = {"largest", "count", "most", "devices"}


def details(code: RefusalCode | HintCode) -> tuple[tuple[str, str | int], ...]:
    if code is RefusalCode.MISPLACED:
        return (("place", "limits"), ("instead", "shoal.dev/memory: 3Mi"))
    numbers = NUMBERS | ({"mib"} if code is HintCode.ROUNDED else set())
    asked = sorted(fields(code, Language.ENGLISH) - {"field", "value"})
    return tuple((name, 7 if name in numbers else "word") for name in asked)


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_sentence(code: RefusalCode | HintCode, language: Language) -> None:
    if isinstance(code, RefusalCode):
        text = refusal_text(Refusal(code, "a.field", "a value", details(code)), language)
    else:
        text = hint_text(Hint(code, "a.field", "a value", details(code)), language)
    assert "{" not in text
    assert text.strip() == text
    assert not text.endswith((".", "。"))


@pytest.mark.parametrize("code", CODES)
def test_languages_say_the_same(code: RefusalCode | HintCode) -> None:
    assert fields(code, Language.ENGLISH) == fields(code, Language.CHINESE)


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("rule", Rule)
def test_every_rule_of_admission_has_a_sentence(rule: Rule, language: Language) -> None:
    assert rule_text(rule, language)


def test_a_key_that_was_nearly_right_is_named() -> None:
    known = (("meant", "shoal.dev/memory"), ("known", "..."))
    refusal = Refusal(RefusalCode.UNKNOWN_KEY, "shoal.dev/memroy", "5Gi", known)
    assert "您是否想写 shoal.dev/memory" in refusal_text(refusal, Language.CHINESE)
