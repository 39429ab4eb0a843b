"""What is said of evictions, kept places and the guard."""

from dataclasses import replace

import pytest

from shoal.model.verdict import Reason
from shoal.texts.evictions import (
    EvictionSaid,
    KeptSaid,
    eviction_text,
    frozen_text,
    gives_up_text,
    hours_text,
    keeps_text,
    kept_for_text,
    kept_label,
    kept_text,
    names_text,
    not_while_frozen_text,
)
from shoal.texts.language import Language
from shoal.texts.verdicts import HOUR_US

EN, ZH = Language.ENGLISH, Language.CHINESE
SAID = EvictionSaid(
    "b/x", 4, 4, ("a/p",), "a", Reason.RECLAIM, 5 * HOUR_US // 2, exact=True, grace_us=90_000_000
)
KEPT = KeptSaid("a/p", "a", "n1, n2", ("b/x", "b/y"), Reason.RECLAIM, None)


def test_an_eviction_says_who_for_whom_why_what_it_costs_and_the_grace() -> None:
    assert eviction_text(SAID) == (
        "Evicts b/x for a/p, to give queue a back what it is guaranteed. At most 2.5 device hours"
        " of work are lost; no other choice costs less. Its pods get 1m30s to stop."
    )
    elastic = replace(SAID, pods=1, reason=Reason.PREEMPTION, exact=False, lost_us=0, grace_us=0)
    assert eviction_text(elastic) == (
        "Evicts 1 of 4 pods of b/x for a/p, of higher priority in queue a. No work is lost; it is"
        " the best choice that was found. It runs on with the others. Its pods stop at once."
    )
    assert eviction_text(elastic, past=True) == (
        "1 of its 4 pods evicted for a/p, of higher priority in queue a. No work is lost; it is the"
        " best choice that was found. It runs on with the others."
    )


@pytest.mark.parametrize("language", list(Language))
@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_can_be_said(reason: Reason, language: Language) -> None:
    for names in ((), ("a/p",), ("a", "b", "c", "d")):
        for past in (False, True):
            text = eviction_text(replace(SAID, reason=reason, names=names), language, past=past)
            assert "{" not in text
    for others in ((), ("b/x",)):
        for in_us in (None, HOUR_US):
            said = replace(KEPT, reason=reason, others=others, in_us=in_us)
            assert "{" not in keeps_text(said, language) + kept_text(said, language)
    assert "{" not in gives_up_text("a/p", reason, language) + kept_label(reason, language)
    assert "2" in kept_for_text("a/p", "a", 2.0, "n1", reason, language)


@pytest.mark.parametrize("language", list(Language))
def test_why_evictions_are_frozen_names_the_command_that_resumes(language: Language) -> None:
    for reason in (Reason.TOO_MANY_EVICTIONS, Reason.DEVICES_GONE):
        text = frozen_text(reason, 1_234, 10, language)
        assert "shoal resume" in text
        assert "1,234" in text
    assert not_while_frozen_text(language)


def test_many_are_counted_and_hours_are_rounded_up() -> None:
    assert names_text(()) == "nobody"
    assert names_text(("a", "b", "c", "d", "e")) == "a, b, c and 2 more"
    assert names_text(("a", "b", "c", "d"), ZH) == "a、b、c 等 4 个"
    assert (hours_text(0), hours_text(1), hours_text(HOUR_US)) == ("0", "0.01", "1")
    assert hours_text(1_000 * HOUR_US) == "1,000"


def test_one_device_is_one_device() -> None:
    assert kept_for_text("a/p", "a", 1.0, "n1", Reason.RESERVED, EN) == (
        "1 device free on n1, kept for a/p, which waits for more"
    )


def test_whoever_ran_for_its_maximum_is_told_what_to_do() -> None:
    said = replace(SAID, reason=Reason.MAXIMUM_RUN)
    assert eviction_text(said, past=True) == (
        "Ended, because it ran for as long as its queue allows. Submit it again to have it run"
        " anew."
    )
    assert eviction_text(said, ZH, past=True).endswith("如需重新运行，请再次提交。")
