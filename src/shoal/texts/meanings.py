"""What changed queues and pools will mean, as sentences."""

from collections.abc import Iterable, Mapping
from typing import Final

from shoal.model.fractions import UNIT
from shoal.model.meaning import (
    FieldsChanged,
    GuaranteeDebt,
    LeafNoMore,
    LimitDebt,
    Meaning,
    NeighbourDebt,
    PoolChanged,
    QueueAdded,
    QueueCloses,
    QueueGone,
    QueueMoved,
    QuotaChanged,
    TypeDebt,
    TypesChanged,
    WeightChanged,
)
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
        "fields": "Queue {queue}: {fields} changed.",
        "pool-added": "Pool {pool} is new.",
        "pool-removed": "Pool {pool} goes; what runs on its nodes goes on.",
        "pool-changed": "Pool {pool} is changed.",
        "limit-debt": (
            "A debt: queue {queue} holds {held} {word}, {over} above its limit of {bound:,}."
            " Nothing is ended for it; nothing that adds to it starts, and it falls as work ends."
        ),
        "guarantee-debt": (
            "A debt: {held} {word} in queue {queue} cannot be taken back, {over} more than it is"
            " guaranteed ({bound:,}). Nothing is ended for it; nothing that adds to it starts."
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
        "fields": "队列 {queue}：{fields} 已更改。",
        "pool-added": "新增资源池 {pool}。",
        "pool-removed": "资源池 {pool} 将被移除；其节点上正在运行的任务继续运行。",
        "pool-changed": "资源池 {pool} 已更改。",
        "limit-debt": (
            "欠账：队列 {queue} 占用 {held} {word}，超出上限 {bound:,} 共 {over}。"
            "不会因此结束任务；不再启动会增加占用的任务，随任务结束而减少。"
        ),
        "guarantee-debt": (
            "欠账：队列 {queue} 中有 {held} {word} 无法收回，超出其保障配额（{bound:,}）共 {over}。"
            "不会因此结束任务；不再启动会增加占用的任务。"
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
    },
}

_FIELDS: Final = {
    Language.ENGLISH: {
        "guarantee": "guarantee",
        "limit": "limit",
        "borrow": "limit of what it borrows",
        "lend": "limit of what it lends",
    },
    Language.CHINESE: {
        "guarantee": "保障配额",
        "limit": "上限",
        "borrow": "可借入上限",
        "lend": "可借出上限",
    },
}


def meaning_text(  # noqa: C901, PLR0912 - a table, a case a change
    said: Meaning, language: Language = Language.ENGLISH
) -> str:
    """What one change will mean, in a sentence or two."""
    match said:
        case QueueAdded(queue, parent, waiting):
            key = "added" if parent else "added-root"
            return _two(language, key, "awaited", waiting, queue=queue, parent=parent)
        case QueueGone(queue, waiting):
            return _two(language, "gone", "homeless", waiting, queue=queue)
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
        case FieldsChanged(queue, names):
            return _one(language, "fields", queue=queue, fields=_list(language, names))
        case PoolChanged(pool, how):
            return _one(language, f"pool-{how}", pool=pool)
        case TypeDebt(pool, type_, running):
            return _one(language, "type-debt", pool=pool, type=type_, running=running)
        case NeighbourDebt(pool, running):
            key = "neighbour-debt" if pool else "neighbour-debt-nowhere"
            return _one(language, key, pool=pool, running=running)
        case LimitDebt(queue, word, held, bound):
            return _debt(language, "limit-debt", queue, word, held, bound)
        case GuaranteeDebt(queue, word, fixed, bound):
            return _debt(language, "guarantee-debt", queue, word, fixed, bound)


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


def _debt(language: Language, key: str, queue: str, word: str, held: int, bound: int) -> str:
    over = devices_of(held - bound * UNIT)
    return _one(
        language, key, queue=queue, word=word, held=devices_of(held), over=over, bound=bound
    )
