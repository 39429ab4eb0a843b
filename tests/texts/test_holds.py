"""What is said of pods that are held back whose time is up."""

import pytest

from shoal.model.hold import Hold, HoldReason
from shoal.texts.holds import hold_text
from shoal.texts.language import Language

EN, ZH = Language.ENGLISH, Language.CHINESE


@pytest.mark.parametrize(
    ("reason", "language", "words"),
    [
        (HoldReason.TOO_LONG, EN, ("ran for 12h, its maximum in queue vision", "to 0 and back")),
        (HoldReason.TOO_LATE, EN, ("waited for 12h, as long as queue vision", "Create it again")),
        (HoldReason.TOO_LONG, ZH, ("已运行 12h", "队列 vision", "缩容到 0 再扩容")),
        (HoldReason.TOO_LATE, ZH, ("已等待 12h", "队列 vision", "请重新创建")),
    ],
)
def test_pods_whose_time_is_up_are_told_how_long_it_was_and_what_to_do(
    reason: HoldReason, language: Language, words: tuple[str, ...]
) -> None:
    hold = Hold(reason, ("uid",), (("queue", "vision"), ("took_us", 12 * 3_600_000_000)))
    text = hold_text(hold, language)
    assert all(each in text for each in words), text
