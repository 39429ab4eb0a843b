"""Why a workload does not start, or why something was decided, as sentences."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from shoal.model.fractions import UNIT
from shoal.model.verdict import Obstacle, OverBudget, OverQuota, Reason, Verdict, Wake
from shoal.texts.language import Language

HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class _Words:
    """What is said of a reason: of one node, of several nodes, and by itself."""

    one: str
    several: str
    label: str


def _same(sentence: str, label: str) -> _Words:
    return _Words(sentence, sentence, label)


_ENGLISH: Mapping[Reason, _Words] = {
    Reason.NO_QUEUE: _Words("there is no such queue", "there is no such queue", "no queue"),
    Reason.CLOSING: _same("its queue is being deleted", "queue being deleted"),
    Reason.TYPE: _same("its queue does not grant its type of work", "type not granted"),
    Reason.LIMIT: _Words("a limit is reached", "a limit is reached", "limit"),
    Reason.GUARANTEE: _Words(
        "it does not fit a guarantee", "it does not fit a guarantee", "beyond the guarantee"
    ),
    Reason.BORROW_LIMIT: _same("a queue may not borrow more", "borrowing limit"),
    Reason.LEND_LIMIT: _same("a queue does not lend more", "lending limit"),
    Reason.BUDGET: _same("the budget does not suffice", "budget"),
    Reason.NO_PRICE: _same("a budget in money cannot count it without a price", "no price"),
    Reason.PLACEABLE: _same("devices on one node are kept for another queue", "kept on one node"),
    Reason.KEPT_QUOTA: _same(
        "what a limit leaves is kept for work that has waited too long", "kept for longer waits"
    ),
    Reason.NO_NODES: _Words("there is no node", "there is no node", "no nodes"),
    Reason.GONE: _Words("{n} node is gone", "{n} nodes are gone", "node gone"),
    Reason.SEVERAL_POOLS: _Words(
        "{n} node is in several pools, and nothing new starts there until it is in one",
        "{n} nodes are in several pools, and nothing new starts there until they are in one",
        "in several pools",
    ),
    Reason.POOL: _Words(
        "{n} node is in a pool for other types of work",
        "{n} nodes are in pools for other types of work",
        "pool for other work",
    ),
    Reason.MASK: _Words(
        "{n} node is ruled out by the cluster",
        "{n} nodes are ruled out by the cluster",
        "ruled out by the cluster",
    ),
    Reason.SELECTOR: _Words(
        "{n} node lacks a label of the node selector",
        "{n} nodes lack a label of the node selector",
        "node selector",
    ),
    Reason.AFFINITY: _Words(
        "{n} node does not match the node affinity",
        "{n} nodes do not match the node affinity",
        "node affinity",
    ),
    Reason.TAINT: _Words(
        "{n} node has a taint that is not tolerated",
        "{n} nodes have a taint that is not tolerated",
        "taint not tolerated",
    ),
    Reason.CORDONED: _Words("{n} node is cordoned", "{n} nodes are cordoned", "node cordoned"),
    Reason.REFUSED_BEFORE: _Words(
        "{n} node refused it before", "{n} nodes refused it before", "refused before"
    ),
    Reason.ACCELERATOR: _Words(
        "{n} node has no accelerator that is allowed",
        "{n} nodes have no accelerator that is allowed",
        "accelerator not allowed",
    ),
    Reason.ISOLATION: _Words(
        "{n} node has no device that isolates its tenants as much as is asked for",
        "{n} nodes have no device that isolates its tenants as much as is asked for",
        "too little isolation",
    ),
    Reason.CPU: _Words(
        "{n} node has too little free CPU", "{n} nodes have too little free CPU", "too little CPU"
    ),
    Reason.MEMORY: _Words(
        "{n} node has too little free memory",
        "{n} nodes have too little free memory",
        "too little memory",
    ),
    Reason.PODS: _Words(
        "{n} node runs as many pods as it may",
        "{n} nodes run as many pods as they may",
        "too many pods",
    ),
    Reason.WHOLE_DEVICES: _Words(
        "{n} node has too few devices that are wholly free",
        "{n} nodes have too few devices that are wholly free",
        "too few whole devices",
    ),
    Reason.LEAF_ROOM: _Words(
        "{n} node has too few devices with room for the share",
        "{n} nodes have too few devices with room for the share",
        "no room for the share",
    ),
    Reason.NEIGHBOURS: _Words(
        "{n} node has room only beside work that it may not share a device with",
        "{n} nodes have room only beside work that it may not share a device with",
        "wrong neighbours",
    ),
    Reason.PLACED: _same("it was placed", "placed"),
    Reason.START_FAILED: _same("the start did not come true", "start failed"),
    Reason.RECLAIM: _same("devices are taken back for a guarantee", "taken back for a guarantee"),
    Reason.PREEMPTION: _same("work of higher priority goes first", "higher priority goes first"),
    Reason.RESERVED: _same("it waits for others to end", "until others have ended"),
    Reason.PLACE_LOST: _same("the place that was kept is gone", "place gone"),
    Reason.NOT_FREED: _same("the place that was kept was not freed", "place not freed"),
    Reason.TOO_MANY_EVICTIONS: _same(
        "too many were evicted within minutes; a person has to resume", "too many evictions"
    ),
    Reason.DEVICES_GONE: _same(
        "too many devices are gone; a person has to resume", "too many devices gone"
    ),
    Reason.MAXIMUM_RUN: _same("it ran for as long as its queue allows", "maximum run time"),
    Reason.MAXIMUM_WAIT: _same(
        "it waited for as long as its queue lets work wait", "maximum waiting time"
    ),
}

_CHINESE: Mapping[Reason, _Words] = {
    reason: _Words(sentence, sentence, label)
    for reason, (sentence, label) in {
        Reason.NO_QUEUE: ("没有这个队列", "没有队列"),
        Reason.CLOSING: ("所在队列正在被删除", "队列正在删除"),
        Reason.TYPE: ("所在队列未授予该任务类型", "类型未授予"),
        Reason.LIMIT: ("已达上限", "已达上限"),
        Reason.GUARANTEE: ("超出保障配额", "超出保障"),
        Reason.BORROW_LIMIT: ("队列不得借用更多", "借用上限"),
        Reason.LEND_LIMIT: ("队列不再借出更多", "借出上限"),
        Reason.BUDGET: ("预算不足", "预算不足"),
        Reason.NO_PRICE: ("没有价格，以金额计的预算无法计入", "没有价格"),
        Reason.PLACEABLE: ("同一节点上的设备为其他队列保留", "同节点保留"),
        Reason.KEPT_QUOTA: ("上限内的余量为等待过久的任务保留", "为久等任务保留"),
        Reason.NO_NODES: ("集群中没有节点", "没有节点"),
        Reason.GONE: ("{n} 个节点已消失", "节点已消失"),
        Reason.SEVERAL_POOLS: (
            "{n} 个节点同时属于多个资源池，在只属于一个之前不再启动新任务",
            "属于多个资源池",
        ),
        Reason.POOL: ("{n} 个节点所在的资源池不服务该任务类型", "资源池不服务该类型"),
        Reason.MASK: ("{n} 个节点被集群规则排除", "被集群规则排除"),
        Reason.SELECTOR: ("{n} 个节点缺少节点选择器要求的标签", "节点选择器不匹配"),
        Reason.AFFINITY: ("{n} 个节点不符合节点亲和性要求", "节点亲和性不匹配"),
        Reason.TAINT: ("{n} 个节点带有未被容忍的污点", "污点未被容忍"),
        Reason.CORDONED: ("{n} 个节点已停止调度", "节点已停止调度"),
        Reason.REFUSED_BEFORE: ("{n} 个节点此前拒绝过该任务", "此前被拒绝"),
        Reason.ACCELERATOR: ("{n} 个节点没有允许使用的加速卡型号", "加速卡型号不符"),
        Reason.ISOLATION: ("{n} 个节点的设备达不到要求的隔离级别", "隔离级别不足"),
        Reason.CPU: ("{n} 个节点空闲 CPU 不足", "CPU 不足"),
        Reason.MEMORY: ("{n} 个节点空闲内存不足", "内存不足"),
        Reason.PODS: ("{n} 个节点的 Pod 数已达上限", "Pod 数已达上限"),
        Reason.WHOLE_DEVICES: ("{n} 个节点完全空闲的设备数量不足", "整卡不足"),
        Reason.LEAF_ROOM: ("{n} 个节点没有足够的设备能容纳该份额", "共享份额放不下"),
        Reason.NEIGHBOURS: ("{n} 个节点只剩与不得同卡的任务共享的空间", "不得与现有任务同卡"),
        Reason.PLACED: ("已放置", "已放置"),
        Reason.START_FAILED: ("启动未能实现", "启动失败"),
        Reason.RECLAIM: ("为保障配额回收", "为保障配额回收"),
        Reason.PREEMPTION: ("优先级更高者先行", "优先级更高者先行"),
        Reason.RESERVED: ("等待其他任务结束", "等待其他任务结束"),
        Reason.PLACE_LOST: ("预留位置已消失", "预留位置已消失"),
        Reason.NOT_FREED: ("预留位置未能腾出", "预留位置未能腾出"),
        Reason.TOO_MANY_EVICTIONS: ("驱逐过多，需人工恢复", "驱逐过多，需人工恢复"),
        Reason.DEVICES_GONE: ("设备大量消失，需人工恢复", "设备大量消失，需人工恢复"),
        Reason.MAXIMUM_RUN: ("已达到队列允许的最长运行时间", "达到最长运行时间"),
        Reason.MAXIMUM_WAIT: ("已达到队列允许的最长等待时间", "达到最长等待时间"),
    }.items()
}

_WORDS = {Language.ENGLISH: _ENGLISH, Language.CHINESE: _CHINESE}

_WAKES: Mapping[Language, Mapping[Wake, str]] = {
    Language.ENGLISH: {
        Wake.QUOTA: "the queue's quota has room",
        Wake.QUEUES: "the queues change",
        Wake.CAPACITY: "something is freed",
        Wake.NODES: "a node joins or changes",
        Wake.MASK: "the cluster's rules change",
        Wake.PERIOD: "the budget's next period begins",
        Wake.POOLS: "the pools change",
    },
    Language.CHINESE: {
        Wake.QUOTA: "队列配额有余量",
        Wake.QUEUES: "队列设置变化",
        Wake.CAPACITY: "有资源释放",
        Wake.NODES: "有节点加入或变化",
        Wake.MASK: "集群规则变化",
        Wake.PERIOD: "预算的下一周期开始",
        Wake.POOLS: "资源池变化",
    },
}


def reason_label(reason: Reason, language: Language = Language.ENGLISH) -> str:
    """Return a few words for `reason`, for a table or a heading."""
    return _WORDS[language][reason].label


def obstacle_text(obstacle: Obstacle, language: Language = Language.ENGLISH) -> str:
    """Return what `obstacle` says as a clause without a full stop."""
    words = _WORDS[language][obstacle.reason]
    clause = words.one if obstacle.nodes == 1 else words.several
    return clause.format(n=f"{obstacle.nodes:,}")


def wakes_text(wakes: Iterable[Wake], language: Language = Language.ENGLISH) -> str:
    """Return what would end a verdict as clauses joined by `or`, without a full stop."""
    said = [_WAKES[language][wake] for wake in wakes]
    return ("或" if language is Language.CHINESE else " or ").join(said)


def verdict_text(verdict: Verdict, language: Language = Language.ENGLISH) -> str:
    """Return why a workload waits: what stands in the way, and what would have it looked at again.

    The obstacle that the most promising nodes failed comes first.
    """
    wakes = wakes_text(verdict.wakes, language)
    text = ""
    if verdict.over_quota is not None:
        text = over_quota_text(verdict.over_quota, language)
    elif verdict.over_budget is not None:
        text = over_budget_text(verdict.over_budget, language)
    if text:
        if language is Language.CHINESE:
            return f"{text}当{wakes}时会重新评估。"
        return f"{text} It is looked at again when {wakes}."
    obstacles = [obstacle_text(each, language) for each in reversed(verdict.obstacles)]
    if language is Language.CHINESE:
        return _chinese(verdict, "；".join(obstacles), wakes)
    return _english(verdict, "; ".join(obstacles), wakes)


def devices_text(units: int) -> str:
    """Return units as devices, to the thousandth, rounded up."""
    milli = -(-units * 1000 // UNIT)
    return f"{milli // 1000:,}" if milli % 1000 == 0 else f"{milli / 1000:,.3f}"


def over_quota_text(over: OverQuota, language: Language = Language.ENGLISH) -> str:
    """Return which rule of which queue a workload would break, and by how much."""
    used, asked, bound = map(devices_text, (over.used_units, over.asked_units, over.bound_units))
    total = devices_text(over.used_units + over.asked_units)
    if language is Language.CHINESE:
        return {
            Reason.LIMIT: f"队列 {over.queue} 已占用 {used} 个 {over.accelerators}，"
            f"再加 {asked} 个为 {total} 个，超过上限 {bound} 个。",
            Reason.GUARANTEE: f"不可回收的任务须在保障配额之内：队列 {over.queue} 需要 "
            f"{total} 个 {over.accelerators}，保障为 {bound} 个。",
            Reason.BORROW_LIMIT: f"队列 {over.queue} 已借用 {used} 个 {over.accelerators}，"
            f"再加 {asked} 个为 {total} 个，超过借用上限 {bound} 个。",
            Reason.LEND_LIMIT: f"{over.accelerators} 已占用 {used} 个，"
            f"再加 {asked} 个为 {total} 个；队列 {over.queue} 借出有限，总共只能占用 {bound} 个。",
            Reason.PLACEABLE: f"队列 {over.queue} 获保障在单节点上成组使用 {bound} 个"
            f" {over.accelerators}；再占用 {asked} 个后只剩 {used} 个成组。",
            Reason.KEPT_QUOTA: f"队列 {over.queue} 最多可用 {bound} 个 {over.accelerators}，"
            f"已占用和为等待过久的任务保留的共 {used} 个，再加 {asked} 个为 {total} 个。",
            Reason.CLOSING: f"队列 {over.queue} 正在被删除，不再启动新任务。",
            Reason.TYPE: f"队列 {over.queue} 未授予该任务类型。",
        }.get(over.reason, f"没有可供任务排队的队列 {over.queue}。")
    return {
        Reason.LIMIT: f"Queue {over.queue} holds {used} {over.accelerators}; with {asked} more it"
        f" would hold {total} of limit {bound}.",
        Reason.GUARANTEE: "What cannot be returned has to fit a guarantee: queue"
        f" {over.queue} would need {total} {over.accelerators} and is guaranteed {bound}.",
        Reason.BORROW_LIMIT: f"Queue {over.queue} borrows {used} {over.accelerators}; with {asked}"
        f" more it would borrow {total}, and may borrow {bound}.",
        Reason.LEND_LIMIT: f"Of {over.accelerators}, {used} are held; with {asked} more it would be"
        f" {total}, and {bound} may be held, because queue {over.queue} lends no more of its"
        " guarantee.",
        Reason.PLACEABLE: f"Queue {over.queue} is promised {bound} {over.accelerators} together on"
        f" single nodes; {asked} more held elsewhere would leave {used} of them together.",
        Reason.KEPT_QUOTA: f"Of the {bound} {over.accelerators} that queue {over.queue} may have,"
        f" {used} are held or kept for work that has waited too long; with {asked} more it would be"
        f" {total}.",
        Reason.CLOSING: f"Queue {over.queue} is being deleted; nothing new starts in it.",
        Reason.TYPE: f"Queue {over.queue} does not grant this type of work.",
    }.get(over.reason, f"There is no queue {over.queue} in which work can wait.")


def over_budget_text(over: OverBudget, language: Language = Language.ENGLISH) -> str:
    """Return what is used, reserved and asked of a queue's budget, and until when it counts.

    Of an accelerator without a price, that it cannot be counted.
    """
    if over.unpriced:
        return _unpriced_text(over, language)
    amounts = (over.used, over.reserved, over.asked, over.budget)
    used, reserved, asked, budget = (_amount(each, over.currency) for each in amounts)
    more = _amount(max(0, over.too_many), over.currency)
    ends = local_time(over.ends_us, over.time_zone)
    if language is Language.CHINESE:
        unit = over.currency or "设备小时"
        text = (
            f"队列 {over.queue} 的预算（至 {ends}）为 {budget} {unit}：已用 {used}，预留 {reserved}"
        )
        return f"{text}，再加 {asked} 超出 {more}。" if over.asked else f"{text}。"
    unit = over.currency or "device hours"
    text = f"Queue {over.queue} has used {used} of {budget} {unit} until {ends}"
    if reserved != "0":
        text += f", and {reserved} more are reserved"
    return (
        f"{text}; with the {asked} asked it would be {more} too many." if over.asked else f"{text}."
    )


def _unpriced_text(over: OverBudget, language: Language) -> str:
    if language is Language.CHINESE:
        return (
            f"队列 {over.queue} 的预算以 {over.currency} 计，而 {over.unpriced} 没有价格，"
            "无法计入；请在目录文件中为其写明价格。"
        )
    return (
        f"Queue {over.queue} has a budget in {over.currency}, which cannot count {over.unpriced}"
        " without a price; a catalogue file has to say one."
    )


def local_time(at_us: int, time_zone: str) -> str:
    """Return a time as clocks show it in a time zone, with the offset, to the minute.

    An hour that comes twice, when clocks are set back, is told apart by its offset.
    """
    moment = datetime.fromtimestamp(at_us // 1_000_000, ZoneInfo(time_zone))
    return moment.isoformat(sep=" ", timespec="minutes")


def _amount(amount: int, currency: str) -> str:
    """Return device microseconds as hours, to the hundredth, or money; both rounded up."""
    hundredths = -(-amount // (10_000 if currency else HOUR_US // 100))
    text = f"{hundredths // 100:,}"
    return text if hundredths % 100 == 0 else f"{text}.{hundredths % 100:02}"


def _english(verdict: Verdict, obstacles: str, wakes: str) -> str:
    text = f"No node for the pod: {obstacles}."
    if verdict.pods > 1:
        text = (
            f"All {verdict.pods:,} pods start together, and only {verdict.placed_pods:,} of them"
            f" found a node. For the next one: {obstacles}."
        )
    return f"{text} It is looked at again when {wakes}." if wakes else text


def _chinese(verdict: Verdict, obstacles: str, wakes: str) -> str:
    text = f"没有节点可以放置该 Pod：{obstacles}。"
    if verdict.pods > 1:
        text = (
            f"{verdict.pods:,} 个 Pod 必须同时启动，目前只有 {verdict.placed_pods:,} 个找到节点。"
            f"下一个 Pod：{obstacles}。"
        )
    return f"{text}当{wakes}时会重新评估。" if wakes else text
