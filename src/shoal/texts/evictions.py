"""Who was evicted for whom, what is kept for whom, and why evictions are frozen, as sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.model.verdict import Reason
from shoal.texts.language import Language
from shoal.texts.screens import counted_text, duration_text, number_text
from shoal.texts.verdicts import HOUR_US, reason_label

_SENTENCES: Final[Mapping[Language, Mapping[str, str]]] = {
    Language.ENGLISH: {
        "whole": "Evicts {workload}",
        "part": "Evicts {pods:,} of {of_pods:,} pods of {workload}",
        "was-whole": "Evicted",
        "ends": "Ends {workload}, which ran for as long as its queue allows.",
        "was-ends": (
            "Ended, because it ran for as long as its queue allows. Submit it again to have it run"
            " anew."
        ),
        "was-part": "{pods:,} of its {of_pods:,} pods evicted",
        "for-reclaim": " for {names}, to give queue {queue} back what it is guaranteed",
        "for-preemption": " for {names}, of higher priority in queue {queue}",
        "for-other": " for {names}: {reason}",
        "for-nobody": ": {reason}",
        "lost": "At most {hours} device hours of work are lost",
        "lost-none": "No work is lost",
        "exact": "no other choice costs less",
        "best": "it is the best choice that was found",
        "runs-on": "It runs on with the others.",
        "grace": "Its pods get {grace} to stop.",
        "no-grace": "Its pods stop at once.",
        "keeps-reclaim": (
            "Keeps room on {nodes} for {workload}, to give queue {queue} back what it is"
            " guaranteed; it is freed by {others}."
        ),
        "keeps-preemption": (
            "Keeps room on {nodes} for {workload}, of higher priority in queue {queue}; it is freed"
            " by {others}."
        ),
        "keeps-until-reclaim": (
            "Keeps room on {nodes} for {workload}, to give queue {queue} back what it is"
            " guaranteed. What runs there is protected, for {time} at most."
        ),
        "keeps-until-preemption": (
            "Keeps room on {nodes} for {workload}, of higher priority in queue {queue}. What runs"
            " there is protected, for {time} at most."
        ),
        "keeps-from": (
            "Keeps room on {nodes} for {workload}, free in {time} as far as is declared; work that"
            " has ended by then may use it."
        ),
        "keeps": "Keeps room on {nodes} for {workload}; when it is free is not known.",
        "gives-up": "Keeps room for {workload} no longer: {reason}.",
        "kept-reclaim": (
            "Room on {nodes} is kept for it: queue {queue} takes back what it is guaranteed. It"
            " starts when the pods of {others} have stopped."
        ),
        "kept-preemption": (
            "Room on {nodes} is kept for it: it is of higher priority than {others} in queue"
            " {queue}. It starts when their pods have stopped."
        ),
        "kept-until-reclaim": (
            "Room on {nodes} is kept for it: queue {queue} takes back what it is guaranteed."
            " {others} may be evicted when they have run for as long as they are protected, in"
            " {time} at the latest."
        ),
        "kept-until-preemption": (
            "Room on {nodes} is kept for it: it is of higher priority than {others} in queue"
            " {queue}. They may be evicted when they have run for as long as they are protected, in"
            " {time} at the latest."
        ),
        "kept-from": (
            "Room on {nodes} is kept for it. It is free when {others} have ended, by {time} from"
            " now as their owners declared; work that has ended by then may use it."
        ),
        "kept": (
            "Room on {nodes} is kept for it. When it is free is not known: {others} did not declare"
            " how long they run, or run longer than they declared."
        ),
        "kept-free": "Room on {nodes} is kept for it and is free; the next cycle starts it.",
        "kept-for-reclaim": (
            "{devices} free on {nodes}, kept for {name}, which reclaims the guarantee of {queue}"
        ),
        "kept-for-preemption": (
            "{devices} free on {nodes}, kept for {name}, of higher priority in queue {queue}"
        ),
        "kept-for": "{devices} free on {nodes}, kept for {name}, which waits for more",
        "frozen-too-many-evictions": (
            "Evictions are frozen: {count:,} workloads would be evicted within 5 minutes, and"
            " at most {most:,} may be. If that is as it should be, shoal resume lets them go on."
        ),
        "frozen-devices-gone": (
            "Evictions are frozen: {count:,} of {most:,} devices are gone. If"
            " that is as it should be, shoal resume lets them go on."
        ),
        "not-while-frozen": "Nobody is evicted for it while evictions are frozen.",
        "short-freed": "room is being freed",
        "short-kept": "room is kept",
        "nobody": "nobody",
        "end": ".",
        "between": "; ",
        "and": ", ",
    },
    Language.CHINESE: {
        "whole": "驱逐 {workload}",
        "part": "驱逐 {workload} 的 {of_pods:,} 个 Pod 中的 {pods:,} 个",
        "was-whole": "它已被驱逐",
        "ends": "结束 {workload}：已达到其队列允许的最长运行时间。",
        "was-ends": "已结束：达到其队列允许的最长运行时间。如需重新运行，请再次提交。",
        "was-part": "它的 {of_pods:,} 个 Pod 中有 {pods:,} 个被驱逐",
        "for-reclaim": "，为 {names} 归还队列 {queue} 的保障配额",
        "for-preemption": "，为队列 {queue} 中优先级更高的 {names} 让位",
        "for-other": "，为 {names} 让位：{reason}",
        "for-nobody": "：{reason}",
        "lost": "最多损失 {hours} 设备小时的工作",
        "lost-none": "没有工作损失",
        "exact": "没有代价更小的选择",
        "best": "这是已找到的最佳选择",
        "runs-on": "其余继续运行。",
        "grace": "其 Pod 有 {grace} 的时间停止。",
        "no-grace": "其 Pod 立即停止。",
        "keeps-reclaim": (
            "在 {nodes} 上为 {workload} 预留位置，归还队列 {queue} 的保障配额；由 {others} 腾出。"
        ),
        "keeps-preemption": (
            "在 {nodes} 上为队列 {queue} 中优先级更高的 {workload} 预留位置；由 {others} 腾出。"
        ),
        "keeps-until-reclaim": (
            "在 {nodes} 上为 {workload} 预留位置，归还队列 {queue} 的保障配额；"
            "在此运行的任务受保护至多 {time}。"
        ),
        "keeps-until-preemption": (
            "在 {nodes} 上为队列 {queue} 中优先级更高的 {workload} 预留位置；"
            "在此运行的任务受保护至多 {time}。"
        ),
        "keeps-from": (
            "在 {nodes} 上为 {workload} 预留位置，据声明 {time} 后空闲；"
            "在此之前结束的任务可以使用。"
        ),
        "keeps": "在 {nodes} 上为 {workload} 预留位置；何时空闲尚不可知。",
        "gives-up": "不再为 {workload} 预留位置：{reason}。",
        "kept-reclaim": (
            "{nodes} 上已为其预留位置：队列 {queue} 收回保障配额。{others} 的 Pod 停止后启动。"
        ),
        "kept-preemption": (
            "{nodes} 上已为其预留位置：在队列 {queue} 中其优先级高于 {others}，"
            "它们的 Pod 停止后启动。"
        ),
        "kept-until-reclaim": (
            "{nodes} 上已为其预留位置：队列 {queue} 收回保障配额。"
            "{others} 受保护的时间结束后可被驱逐，最迟 {time} 后。"
        ),
        "kept-until-preemption": (
            "{nodes} 上已为其预留位置：在队列 {queue} 中其优先级高于 {others}；"
            "它们受保护的时间结束后可被驱逐，最迟 {time} 后。"
        ),
        "kept-from": (
            "{nodes} 上已为其预留位置。据声明 {others} 将在 {time} 内结束，届时空闲；"
            "在此之前结束的任务可以使用。"
        ),
        "kept": (
            "{nodes} 上已为其预留位置。何时空闲尚不可知：{others} 未声明运行时长，或已超过声明。"
        ),
        "kept-free": "{nodes} 上已为其预留的位置空闲，下一轮调度将启动它。",
        "kept-for-reclaim": "{nodes} 上空闲{devices}，为 {name} 预留，用于收回 {queue} 的保障配额",
        "kept-for-preemption": "{nodes} 上空闲{devices}，为队列 {queue} 中优先级更高的 {name} 预留",
        "kept-for": "{nodes} 上空闲{devices}，为 {name} 预留，它还在等待更多设备",
        "frozen-too-many-evictions": (
            "驱逐已冻结：5 分钟内将驱逐 {count:,} 个任务，最多允许 {most:,} 个。"
            "如确认无误，执行 shoal resume 恢复驱逐。"
        ),
        "frozen-devices-gone": (
            "驱逐已冻结：{most:,} 张设备中有 {count:,} 张已消失。"
            "如确认无误，执行 shoal resume 恢复驱逐。"
        ),
        "not-while-frozen": "驱逐冻结期间不会为其驱逐任何任务。",
        "short-freed": "正在腾出位置",
        "short-kept": "已预留位置",
        "nobody": "无",
        "end": "。",
        "between": "；",
        "and": "、",
    },
}

_MORE: Final = {
    Language.ENGLISH: "{names} and {n:,} more",
    Language.CHINESE: "{names} 等 {all:,} 个",
}

NAMED: Final = 3
"""Workloads named in a sentence; more are counted."""

_FREEING: Final = frozenset({Reason.RECLAIM, Reason.PREEMPTION})


@dataclass(frozen=True, slots=True)
class EvictionSaid:
    """What is said of an eviction: `pods` of the `of_pods` of `workload`, for `names` of `queue`.

    `lost_us` is in device microseconds.
    """

    workload: str
    pods: int
    of_pods: int
    names: tuple[str, ...]
    queue: str
    reason: Reason
    lost_us: int
    exact: bool
    grace_us: int


@dataclass(frozen=True, slots=True)
class KeptSaid:
    """What is said of places: kept on `nodes` for `workload` of `queue`, and `others` free them.

    `in_us` is how long that takes, as far as it is known.
    """

    workload: str
    queue: str
    nodes: str
    others: tuple[str, ...]
    reason: Reason
    in_us: int | None


def names_text(names: Sequence[str], language: Language = Language.ENGLISH) -> str:
    """Return names of workloads, the first few and a count of the others."""
    words = _SENTENCES[language]
    if not names:
        return words["nobody"]
    few = words["and"].join(names[:NAMED])
    if len(names) <= NAMED:
        return few
    return _MORE[language].format(names=few, n=len(names) - NAMED, all=len(names))


def hours_text(lost_us: int) -> str:
    """Return device microseconds as device hours, to the hundredth, rounded up."""
    return number_text(-(-lost_us * 100 // HOUR_US) / 100)


def eviction_text(
    said: EvictionSaid, language: Language = Language.ENGLISH, *, past: bool = False
) -> str:
    """Return who is evicted, for whom and why, what is lost, and how long it has to stop.

    With `past` it is said to the one who was, and what it has to stop is not.
    """
    words = _SENTENCES[language]
    sentences = (
        [words["was-ends" if past else "ends"].format(workload=said.workload)]
        if said.reason is Reason.MAXIMUM_RUN
        else _evicted(said, language, past=past)
    )
    if not past:
        grace = duration_text(-(-said.grace_us // 1_000_000))
        sentences.append(words["grace" if said.grace_us else "no-grace"].format(grace=grace))
    return ("" if language is Language.CHINESE else " ").join(sentences)


def _evicted(said: EvictionSaid, language: Language, *, past: bool) -> list[str]:
    """Return for whom and why, and what is lost, as sentences."""
    words = _SENTENCES[language]
    extent = "whole" if said.pods == said.of_pods else "part"
    first = words[f"was-{extent}" if past else extent].format(
        workload=said.workload, pods=said.pods, of_pods=said.of_pods
    )
    why = f"for-{said.reason.value}" if said.reason in _FREEING else "for-other"
    if not said.names:
        why = "for-nobody"
    first += words[why].format(
        names=names_text(said.names, language),
        queue=said.queue,
        reason=reason_label(said.reason, language),
    )
    lost = words["lost" if said.lost_us else "lost-none"].format(hours=hours_text(said.lost_us))
    choice = words["exact" if said.exact else "best"]
    sentences = [first + words["end"], lost + words["between"] + choice + words["end"]]
    if extent == "part":
        sentences.append(words["runs-on"])
    return sentences


def keeps_text(said: KeptSaid, language: Language = Language.ENGLISH) -> str:
    """Return that places are kept from now on, and what makes them free."""
    if said.reason in _FREEING:
        until = "" if said.in_us is None else "until-"
        return _kept(f"keeps-{until}{said.reason.value}", said, language)
    return _kept("keeps" if said.in_us is None else "keeps-from", said, language)


def kept_text(said: KeptSaid, language: Language = Language.ENGLISH) -> str:
    """Return to whom waits that places are kept for it, and what it waits for."""
    if not said.others:
        return _kept("kept-free", said, language)
    if said.reason in _FREEING:
        until = "" if said.in_us is None else "until-"
        return _kept(f"kept-{until}{said.reason.value}", said, language)
    return _kept("kept" if said.in_us is None else "kept-from", said, language)


def _kept(key: str, said: KeptSaid, language: Language) -> str:
    return _SENTENCES[language][key].format(
        workload=said.workload,
        queue=said.queue,
        nodes=said.nodes,
        others=names_text(said.others, language),
        time=duration_text((said.in_us or 0) // 1_000_000),
    )


def kept_label(reason: Reason, language: Language = Language.ENGLISH) -> str:
    """Return a few words for why a workload waits that places are kept for."""
    return _SENTENCES[language]["short-freed" if reason in _FREEING else "short-kept"]


def gives_up_text(workload: str, reason: Reason, language: Language = Language.ENGLISH) -> str:
    """Return that no places are kept for a workload any longer."""
    said = reason_label(reason, language)
    return _SENTENCES[language]["gives-up"].format(workload=workload, reason=said)


def kept_for_text(
    name: str,
    queue: str,
    devices: float,
    nodes: str,
    reason: Reason,
    language: Language = Language.ENGLISH,
) -> str:
    """Return for whom free devices are kept."""
    key = f"kept-for-{reason.value}" if reason in _FREEING else "kept-for"
    counted = counted_text(devices, language)
    return _SENTENCES[language][key].format(name=name, queue=queue, devices=counted, nodes=nodes)


def frozen_text(
    reason: Reason, count: int, most: int, language: Language = Language.ENGLISH
) -> str:
    """Return why evictions are frozen, and how a person lets them go on."""
    return _SENTENCES[language][f"frozen-{reason.value}"].format(count=count, most=most)


def not_while_frozen_text(language: Language = Language.ENGLISH) -> str:
    """Return that nobody makes room for a workload while evictions are frozen."""
    return _SENTENCES[language]["not-while-frozen"]
