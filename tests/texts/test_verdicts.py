import pytest

from shoal.model.fractions import UNIT
from shoal.model.verdict import (
    Obstacle,
    OverBudget,
    OverQuota,
    Reason,
    Stage,
    Verdict,
    Wake,
)
from shoal.texts.language import Language
from shoal.texts.verdicts import (
    local_time,
    obstacle_text,
    over_budget_text,
    reason_label,
    verdict_text,
)


def verdict(*obstacles: Obstacle, placed: int = 0, pods: int = 1, wakes: bool = True) -> Verdict:
    return Verdict(
        Stage.PLACE, obstacles, placed, pods, (Wake.CAPACITY, Wake.NODES) if wakes else ()
    )


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_words_in_every_language(reason: Reason, language: Language) -> None:
    for nodes in (1, 1213):
        text = obstacle_text(Obstacle(reason, nodes), language)
        assert text
        assert "{" not in text
        assert text[-1] not in ".。"
    label = reason_label(reason, language)
    assert label
    assert label.isascii() == (language is Language.ENGLISH)


@pytest.mark.parametrize("language", Language)
@pytest.mark.parametrize("wake", Wake)
def test_every_wake_has_words_in_every_language(wake: Wake, language: Language) -> None:
    text = verdict_text(Verdict(Stage.PLACE, (Obstacle(Reason.CPU, 1),), 0, 1, (wake,)), language)
    assert len(text) > len(verdict_text(verdict(Obstacle(Reason.CPU, 1), wakes=False), language))


def test_reasons_are_told_apart() -> None:
    for language in Language:
        assert len({reason_label(reason, language) for reason in Reason}) == len(Reason)


def test_one_node_and_several_are_told_apart() -> None:
    assert obstacle_text(Obstacle(Reason.CPU, 1)) == "1 node has too little free CPU"
    assert obstacle_text(Obstacle(Reason.CPU, 1213)) == "1,213 nodes have too little free CPU"
    assert (
        obstacle_text(Obstacle(Reason.CPU, 1213), Language.CHINESE) == "1,213 个节点空闲 CPU 不足"
    )


def test_a_verdict_names_the_most_promising_nodes_first() -> None:
    given = verdict(Obstacle(Reason.ACCELERATOR, 800), Obstacle(Reason.WHOLE_DEVICES, 413))
    assert verdict_text(given) == (
        "No node for the pod: 413 nodes have too few devices that are wholly free; 800 nodes have"
        " no accelerator that is allowed. It is looked at again when something is freed or a node"
        " joins or changes."
    )
    assert verdict_text(given, Language.CHINESE) == (
        "没有节点可以放置该 Pod：413 个节点完全空闲的设备数量不足；"
        "800 个节点没有允许使用的加速卡型号。"
        "当有资源释放或有节点加入或变化时会重新评估。"
    )


def test_a_gang_tells_how_much_of_it_fitted() -> None:
    given = verdict(Obstacle(Reason.CPU, 7), placed=511, pods=512, wakes=False)
    assert verdict_text(given) == (
        "All 512 pods start together, and only 511 of them found a node. For the next one: 7 nodes"
        " have too little free CPU."
    )
    assert verdict_text(given, Language.CHINESE) == (
        "512 个 Pod 必须同时启动，目前只有 511 个找到节点。下一个 Pod：7 个节点空闲 CPU 不足。"
    )


@pytest.mark.parametrize(
    ("over", "english", "chinese"),
    [
        (
            OverQuota(Reason.LIMIT, "vision", "H100", 8 * UNIT, 16 * UNIT, 20 * UNIT),
            "Queue vision holds 8 H100; with 16 more it would hold 24 of limit 20.",
            "队列 vision 已占用 8 个 H100，再加 16 个为 24 个，超过上限 20 个。",
        ),
        (
            OverQuota(Reason.GUARANTEE, "serve", "A100-80GB", 0, 2 * 504_000, UNIT),
            "would need 1.200 A100-80GB and is guaranteed 1.",
            "需要 1.200 个 A100-80GB，保障为 1 个。",
        ),
        (
            OverQuota(Reason.NO_QUEUE, "lab"),
            "There is no queue lab in which work can wait.",
            "没有可供任务排队的队列 lab。",
        ),
    ],
)
def test_what_quota_stood_in_the_way_is_said_in_numbers(
    over: OverQuota, english: str, chinese: str
) -> None:
    verdict = Verdict(Stage.QUOTA, (), 0, 1, (Wake.QUOTA,), over)
    assert english in verdict_text(verdict)
    assert chinese in verdict_text(verdict, Language.CHINESE)


HOUR_US = 3_600_000_000
MONTH_END_US = 1_793_487_600_000_000
"""2026-10-31T23:00Z, when November begins in Berlin."""


def test_a_budget_is_told_with_its_numbers_and_until_when_it_counts() -> None:
    hours = (int(612.5 * HOUR_US), 1, 16 * HOUR_US, 620 * HOUR_US)
    over = OverBudget("vision", *hours, MONTH_END_US, "Europe/Berlin")
    verdict = Verdict(Stage.BUDGET, (), 0, 1, (Wake.QUOTA, Wake.PERIOD), over_budget=over)
    assert verdict.cause == (Stage.BUDGET, Reason.BUDGET)
    assert verdict_text(verdict) == (
        "Queue vision has used 612.50 of 620 device hours until 2026-11-01 00:00+01:00, and 0.01"
        " more are reserved; with the 16 asked it would be 8.51 too many. It is looked at again"
        " when the queue's quota has room or the budget's next period begins."
    )
    assert verdict_text(verdict, Language.CHINESE) == (
        "队列 vision 的预算（至 2026-11-01 00:00+01:00）为 620 设备小时：已用 612.50，预留 0.01，"
        "再加 16 超出 8.51。当队列配额有余量或预算的下一周期开始时会重新评估。"
    )


def test_of_what_has_no_price_it_is_told_that_it_cannot_be_counted() -> None:
    over = OverBudget("a", 1, 1, 0, 1, MONTH_END_US, currency="EUR", unpriced="A100")
    verdict = Verdict(Stage.BUDGET, (), 0, 1, (Wake.QUEUES,), over_budget=over)
    assert verdict.cause == (Stage.BUDGET, Reason.NO_PRICE)
    assert verdict_text(verdict) == (
        "Queue a has a budget in EUR, which cannot count A100 without a price; a catalogue file has"
        " to say one. It is looked at again when the queues change."
    )
    assert verdict_text(verdict, Language.CHINESE) == (
        "队列 a 的预算以 EUR 计，而 A100 没有价格，无法计入；请在目录文件中为其写明价格。"
        "当队列设置变化时会重新评估。"
    )


def test_money_is_told_in_its_currency_rounded_up() -> None:
    over = OverBudget("a", 999_990_001, 0, 0, 1_000_000_000, MONTH_END_US, currency="EUR")
    assert over_budget_text(over) == (
        "Queue a has used 1,000 of 1,000 EUR until 2026-10-31 23:00+00:00."
    )
    assert over_budget_text(over, Language.CHINESE) == (
        "队列 a 的预算（至 2026-10-31 23:00+00:00）为 1,000 EUR：已用 1,000，预留 0。"
    )


def test_an_hour_that_comes_twice_is_told_apart_by_its_offset() -> None:
    second_us = 1_792_891_800_000_000
    assert local_time(second_us - HOUR_US, "Europe/Berlin") == "2026-10-25 02:30+02:00"
    assert local_time(second_us, "Europe/Berlin") == "2026-10-25 02:30+01:00"
