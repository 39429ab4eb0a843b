"""What changed queues and pools will mean, as sentences."""

from collections.abc import Iterable, Mapping
from typing import Final

from shoal.model.fractions import UNIT
from shoal.model.meaning import (
    BorrowDebt,
    Duration,
    FieldChanged,
    FieldValue,
    GuaranteeDebt,
    LeafNoMore,
    LendDebt,
    LimitDebt,
    Meaning,
    NeighbourDebt,
    PlaceableDebt,
    PoolChanged,
    QueueAdded,
    QueueCloses,
    QueueGone,
    QueueMoved,
    QuotaChanged,
    QuotaDebt,
    RunsEnded,
    Spending,
    TypeDebt,
    TypesChanged,
    WaitsRefused,
    WeightChanged,
)
from shoal.model.queue import Budget, Period, Priority, WhenSpent
from shoal.texts.language import Language

_SENTENCES: Final[Mapping[Language, Mapping[str, str]]] = {
    Language.ENGLISH: {
        "added": "Queue {queue} is new, under {parent}.",
        "added-root": "Queue {queue} is new, above all others.",
        "awaited": "{waiting:,} that wait for it may start in it.",
        "gone": "Queue {queue} goes; nothing runs in it.",
        "closes": (
            "Queue {queue} closes: what runs in it and below it goes on and is charged to it,"
            " {running:,} in it; nothing new starts, and it goes when it is empty."
        ),
        "gone-running": (
            "Queue {queue} goes with all queues; {running:,} that run in it go on and are charged"
            " to none."
        ),
        "homeless": "{waiting:,} that wait in it need another queue.",
        "moved": "Queue {queue} moves from {before} to {after}.",
        "leaf-no-more": (
            "Queue {queue} has queues below it now: {running:,} that run in it go on, and"
            " {waiting:,} that wait in it need another queue."
        ),
        "quota": "Queue {queue}: the {field} of {word} changes from {before:,} to {after:,}.",
        "quota-new": "Queue {queue}: the {field} of {word} is {after:,}; there was none.",
        "quota-gone": "Queue {queue}: the {field} of {word}, which was {before:,}, goes.",
        "weight": "Queue {queue}: the weight changes from {before:,} to {after:,}.",
        "types-added": "Queue {queue} may run {types} now.",
        "types-removed": "Queue {queue} may run no {types} any more; what runs goes on.",
        "field": "Queue {queue}: {field} changes from {before} to {after}.",
        "field-new": "Queue {queue}: {field} is {after}; it had none of its own.",
        "field-gone": "Queue {queue}: {field}, which was {before}, goes.",
        "field-long": "Queue {queue}: {field} changes.",
        "runs-ended": (
            "Queue {queue}: work of type {type} that has run for its new maximum of {maximum} is"
            " ended at once: {count:,}."
        ),
        "waits-refused": (
            "Queue {queue}: work of type {type} that has waited for its new maximum of {maximum} is"
            " refused at once, unless it starts then: {count:,}."
        ),
        "pool-added": "Pool {pool} is new.",
        "pool-removed": "Pool {pool} goes; what runs on its nodes goes on.",
        "pool-changed": "Pool {pool} is changed.",
        "limit-debt": (
            "A debt: queue {queue} holds {held} {word}, {over} above its limit of {bound}."
            " Nothing is ended for it; nothing that adds to it starts, and it falls as work ends."
        ),
        "guarantee-debt": (
            "A debt: {held} {word} in queue {queue} cannot be taken back, {over} more than it is"
            " guaranteed ({bound}). Nothing is ended for it; nothing that adds to it starts."
        ),
        "borrow-debt": (
            "A debt: queue {queue} borrows {held} {word}, {over} more than it may ({bound})."
            " Nothing is ended for it; nothing that adds to it starts, and it falls as work ends."
        ),
        "placeable-debt": (
            "A debt: of {bound} {word} that queue {queue} is guaranteed together on single nodes,"
            " {over} are not to be had so, as other work lies between. Nothing is ended for it;"
            " nothing that adds to it starts, and it falls as work ends."
        ),
        "lend-debt": (
            "A debt: {bound} {word} are not lent, most of them by queue {queue}, and {over} of them"
            " are not free. Nothing is ended for it; nothing that adds to it starts, and it falls"
            " as work ends."
        ),
        "type-debt": (
            "A debt: workloads on nodes of pool {pool} that it does not serve: {running:,} of type"
            " {type}. Nothing is ended for it; no such work starts there, and it falls as work"
            " ends."
        ),
        "neighbour-debt": (
            "A debt: workloads on nodes of pool {pool} that share devices with other queues, which"
            " it does not allow: {running:,}. Nothing is ended for it; no other queue joins them,"
            " and it falls as work ends."
        ),
        "neighbour-debt-nowhere": (
            "A debt: workloads on nodes in no pool that share devices with other queues:"
            " {running:,}. Nothing is ended for it; no other queue joins them, and it falls as work"
            " ends."
        ),
        "separator": ", ",
        "device-hours": "{amount:,} device hours {period}",
        "money": "{amount} {period}",
        "in-zone": "{amount} ({zone})",
        "when-spent": "{amount}, then {then}",
        "for-some": "{value:,} for {subjects}",
        "for-more": "{value:,} for {subjects} and {more:,} more",
    },
    Language.CHINESE: {
        "added": "新增队列 {queue}，位于 {parent} 之下。",
        "added-root": "新增队列 {queue}，位于所有队列之上。",
        "awaited": "有 {waiting:,} 个任务在等待它，之后可以在其中启动。",
        "gone": "队列 {queue} 将被移除；其中没有正在运行的任务。",
        "closes": (
            "队列 {queue} 将关闭：其中及其下级正在运行的任务继续运行并计入该队列"
            "（队列内 {running:,} 个）；不再启动新任务，清空后移除。"
        ),
        "gone-running": (
            "队列 {queue} 随所有队列一起移除；其中正在运行的 {running:,} 个任务继续运行，"
            "不再计入任何队列。"
        ),
        "homeless": "其中等待的 {waiting:,} 个任务需要改用其他队列。",
        "moved": "队列 {queue} 从 {before} 移到 {after}。",
        "leaf-no-more": (
            "队列 {queue} 现在有了下级队列：其中正在运行的 {running:,} 个任务继续运行，"
            "等待的 {waiting:,} 个任务需要改用其他队列。"
        ),
        "quota": "队列 {queue}：{word} 的{field}从 {before:,} 改为 {after:,}。",
        "quota-new": "队列 {queue}：{word} 的{field}为 {after:,}，此前没有。",
        "quota-gone": "队列 {queue}：取消 {word} 的{field}，此前为 {before:,}。",
        "weight": "队列 {queue}：权重从 {before:,} 改为 {after:,}。",
        "types-added": "队列 {queue} 现在可以运行 {types}。",
        "types-removed": "队列 {queue} 不再运行 {types}；正在运行的任务继续运行。",
        "field": "队列 {queue}：{field} 从 {before} 改为 {after}。",
        "field-new": "队列 {queue}：{field} 为 {after}，此前自身没有。",
        "field-gone": "队列 {queue}：取消 {field}，此前为 {before}。",
        "field-long": "队列 {queue}：{field} 已更改。",
        "runs-ended": (
            "队列 {queue}：类型为 {type}、运行时间已达新上限 {maximum} 的任务将立即结束："
            "{count:,} 个。"
        ),
        "waits-refused": (
            "队列 {queue}：类型为 {type}、等待时间已达新上限 {maximum} 的任务将立即被拒绝，"
            "除非届时能够启动：{count:,} 个。"
        ),
        "pool-added": "新增资源池 {pool}。",
        "pool-removed": "资源池 {pool} 将被移除；其节点上正在运行的任务继续运行。",
        "pool-changed": "资源池 {pool} 已更改。",
        "limit-debt": (
            "欠账：队列 {queue} 占用 {held} {word}，超出上限 {bound} 共 {over}。"
            "不会因此结束任务；不再启动会增加占用的任务，随任务结束而减少。"
        ),
        "guarantee-debt": (
            "欠账：队列 {queue} 中有 {held} {word} 无法收回，超出其保障配额（{bound}）共 {over}。"
            "不会因此结束任务；不再启动会增加占用的任务。"
        ),
        "borrow-debt": (
            "欠账：队列 {queue} 借入 {held} {word}，超出可借入上限 {bound} 共 {over}。"
            "不会因此结束任务；不再启动会增加借入的任务，随任务结束而减少。"
        ),
        "placeable-debt": (
            "欠账：队列 {queue} 保障在单个节点上成组提供的 {bound} {word} 中，"
            "有 {over} 因其他任务占用而无法成组提供。"
            "不会因此结束任务；不再启动会增加欠账的任务，随任务结束而减少。"
        ),
        "lend-debt": (
            "欠账：有 {bound} {word} 不借出（其中最多的属于队列 {queue}），但 {over} 并不空闲。"
            "不会因此结束任务；不再启动会增加欠账的任务，随任务结束而减少。"
        ),
        "type-debt": (
            "欠账：资源池 {pool} 的节点上有 {running:,} 个它不服务的任务，类型为 {type}。"
            "不会因此结束任务；此类任务不再在那里启动，随任务结束而减少。"
        ),
        "neighbour-debt": (
            "欠账：资源池 {pool} 的节点上有 {running:,} 个任务与其他队列共享设备，而该池不允许。"
            "不会因此结束任务；其他队列不再加入，随任务结束而减少。"
        ),
        "neighbour-debt-nowhere": (
            "欠账：不属于任何资源池的节点上有 {running:,} 个任务与其他队列共享设备。"
            "不会因此结束任务；其他队列不再加入，随任务结束而减少。"
        ),
        "separator": "、",
        "device-hours": "{period} {amount:,} 设备小时",
        "money": "{period} {amount}",
        "in-zone": "{amount}（{zone}）",
        "when-spent": "{amount}，用完后{then}",
        "for-some": "{value:,}（限 {subjects}）",
        "for-more": "{value:,}（限 {subjects} 等，另有 {more:,} 个）",
    },
}

_FIELDS: Final = {
    Language.ENGLISH: {
        "guarantee": "guarantee",
        "limit": "limit",
        "borrow": "limit of what it borrows",
        "lend": "limit of what it lends",
        "placeable": "number on one node",
    },
    Language.CHINESE: {
        "guarantee": "保障配额",
        "limit": "上限",
        "borrow": "可借入上限",
        "lend": "可借出上限",
        "placeable": "单节点成组数量",
    },
}

_PERIODS: Final[Mapping[Language, Mapping[Period, str]]] = {
    Language.ENGLISH: {each: f"a {each}" for each in Period},
    Language.CHINESE: {
        Period.DAY: "每天",
        Period.WEEK: "每周",
        Period.MONTH: "每月",
        Period.QUARTER: "每季度",
        Period.YEAR: "每年",
    },
}

_WHEN_SPENT: Final[Mapping[Language, Mapping[WhenSpent, str]]] = {
    Language.ENGLISH: {
        WhenSpent.WARN: "a warning",
        WhenSpent.LOWER_WEIGHT: "a lower weight",
        WhenSpent.NO_BORROWING: "no borrowing",
        WhenSpent.NO_NEW_STARTS: "no new starts",
    },
    Language.CHINESE: {
        WhenSpent.WARN: "警告",
        WhenSpent.LOWER_WEIGHT: "降低权重",
        WhenSpent.NO_BORROWING: "不得借用",
        WhenSpent.NO_NEW_STARTS: "不再启动新任务",
    },
}

_DEBTS: Final[Mapping[type[QuotaDebt], str]] = {
    LimitDebt: "limit-debt",
    BorrowDebt: "borrow-debt",
    GuaranteeDebt: "guarantee-debt",
    PlaceableDebt: "placeable-debt",
    LendDebt: "lend-debt",
}

_SUBJECTS_SHOWN: Final = 3


def meaning_text(  # noqa: C901, PLR0912 - a table, a case a change
    said: Meaning, language: Language = Language.ENGLISH
) -> str:
    """What one change will mean, in a sentence or two."""
    match said:
        case QueueAdded(queue, parent, waiting):
            key = "added" if parent else "added-root"
            return _two(language, key, "awaited", waiting, queue=queue, parent=parent)
        case QueueGone(queue, waiting, running):
            key = "gone-running" if running else "gone"
            return _two(language, key, "homeless", waiting, queue=queue, running=running)
        case QueueCloses(queue, running, waiting):
            return _two(language, "closes", "homeless", waiting, queue=queue, running=running)
        case QueueMoved(queue, before, after):
            return _one(language, "moved", queue=queue, before=before, after=after)
        case LeafNoMore(queue, running, waiting):
            return _one(language, "leaf-no-more", queue=queue, running=running, waiting=waiting)
        case QuotaChanged():
            return _quota(said, language)
        case WeightChanged(queue, was, will):
            return _one(language, "weight", queue=queue, before=was, after=will)
        case TypesChanged(queue, added, removed):
            parts = (("types-added", added), ("types-removed", removed))
            return _joined(
                language,
                (_one(language, k, queue=queue, types=_list(language, t)) for k, t in parts if t),
            )
        case FieldChanged():
            return _field(said, language)
        case RunsEnded(queue, type_, count, most_us) | WaitsRefused(queue, type_, count, most_us):
            key = "runs-ended" if isinstance(said, RunsEnded) else "waits-refused"
            words = {"queue": queue, "type": type_, "maximum": span_text(most_us)}
            return _one(language, key, count=count, **words)
        case PoolChanged(pool, how):
            return _one(language, f"pool-{how}", pool=pool)
        case TypeDebt(pool, type_, running):
            return _one(language, "type-debt", pool=pool, type=type_, running=running)
        case NeighbourDebt(pool, running):
            key = "neighbour-debt" if pool else "neighbour-debt-nowhere"
            return _one(language, key, pool=pool, running=running)
        case QuotaDebt():
            return _debt(said, language)


def devices_of(units: int) -> str:
    """Units of a device as devices, to the hundredth: 8, or 0.5."""
    hundredths = (units * 100 + UNIT // 2) // UNIT
    return f"{hundredths // 100:,}.{hundredths % 100:02}".rstrip("0").rstrip(".")


def _one(language: Language, key: str, **words: str | int) -> str:
    return _SENTENCES[language][key].format(**words)


def _two(language: Language, key: str, other: str, waiting: int, **words: str | int) -> str:
    """A sentence, and another one about those that wait, if there are any."""
    first = _one(language, key, **words)
    return _joined(
        language, (first, _one(language, other, waiting=waiting)) if waiting else (first,)
    )


def _joined(language: Language, sentences: Iterable[str]) -> str:
    return ("" if language is Language.CHINESE else " ").join(sentences)


def _list(language: Language, words: Iterable[str]) -> str:
    return _SENTENCES[language]["separator"].join(words)


def _quota(said: QuotaChanged, language: Language) -> str:
    words = {"queue": said.queue, "word": said.word, "field": _FIELDS[language][said.field]}
    if said.before is None:
        return _one(language, "quota-new", **words, after=said.after or 0)
    if said.after is None:
        return _one(language, "quota-gone", **words, before=said.before)
    return _one(language, "quota", **words, before=said.before, after=said.after)


def _field(said: FieldChanged, language: Language) -> str:
    words = {"queue": said.queue, "field": said.field}
    if said.before is not None:
        words["before"] = _value(said.before, language)
    if said.after is not None:
        words["after"] = _value(said.after, language)
    if said.before is None:
        key = "field-long" if said.after is None else "field-new"
    else:
        key = "field-gone" if said.after is None else "field"
    return _one(language, key, **words)


def _value(value: FieldValue, language: Language) -> str:
    """The value of a field, as people read it."""
    match value:
        case Duration(us):
            return span_text(us)
        case Spending(budget, currency):
            return _budget(budget, currency, language)
        case Priority(_, number, subjects):
            shown = _list(language, subjects[:_SUBJECTS_SHOWN])
            more = len(subjects) - _SUBJECTS_SHOWN
            if more > 0:
                return _one(language, "for-more", value=number, subjects=shown, more=more)
            key = "for-some"
            return _one(language, key, value=number, subjects=shown) if shown else f"{number:,}"
        case int():
            return f"{value:,}"
        case str():
            return value


def _budget(budget: Budget, currency: str, language: Language) -> str:
    period = _PERIODS[language][budget.period]
    if budget.device_hours is not None:
        said = _one(language, "device-hours", amount=budget.device_hours, period=period)
    else:
        whole, part = divmod(budget.money_micro or 0, 1_000_000)
        amount = f"{whole:,}.{part:06}".rstrip("0").rstrip(".")
        said = _one(language, "money", amount=f"{amount} {currency}".strip(), period=period)
    if budget.time_zone != "UTC":
        said = _one(language, "in-zone", amount=said, zone=budget.time_zone)
    return _one(language, "when-spent", amount=said, then=_WHEN_SPENT[language][budget.when_spent])


def span_text(span_us: int) -> str:
    """A time span as people write it in files: `1h30m`, exactly, in whole seconds."""
    text, left = "", span_us // 1_000_000
    for letter, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        text += f"{count}{letter}" if count else ""
    return text or "0s"


def _debt(said: QuotaDebt, language: Language) -> str:
    units = {
        "held": said.bound_units + said.over_units,
        "over": said.over_units,
        "bound": said.bound_units,
    }
    shown = {key: devices_of(each) for key, each in units.items()}
    return _one(language, _DEBTS[type(said)], queue=said.queue, word=said.word, **shown)
