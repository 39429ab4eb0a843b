"""Words on screens: headings of tables, labels, times. In English and Chinese."""

from collections.abc import Mapping
from typing import Final

from shoal.texts.language import Language

_CHINESE: Final[Mapping[str, str]] = {
    # headings
    "NAMESPACE": "命名空间",
    "NAME": "名称",
    "QUEUE": "队列",
    "TYPE": "类型",
    "STATE": "状态",
    "POSITION": "排位",
    "PODS": "POD",
    "DEVICES": "设备",
    "AGE": "存在时间",
    "WHY": "原因",
    "ID": "ID",
    "STARTED": "启动时间",
    "NODES": "节点",
    "ACCELERATORS": "加速卡",
    "ACCELERATOR": "加速卡",
    "NODE": "节点",
    "POOL": "资源池",
    "FREE": "空闲",
    "CPU FREE": "空闲 CPU",
    "MEMORY FREE": "空闲内存",
    "TAINTS": "污点",
    "DEVICE": "设备",
    "MEMORY": "显存",
    "HELD BY": "占用者",
    "LEAVES": "分片",
    "MODES": "模式",
    "PLACEMENT": "放置策略",
    "TYPES": "类型",
    "LEVELS": "层级",
    "SHARED": "跨队列共享",
    "PARENT": "上级",
    "WEIGHT": "权重",
    "RUNNING": "运行中",
    "WAITING": "等待中",
    "USED": "已用",
    "GUARANTEE": "保障",
    "BORROWED": "借用",
    "LIMIT": "上限",
    "HELD": "占用",
    "LOST": "故障",
    "KEPT": "预留",
    "LOST TODAY": "今日损失",
    "alert": "警告",
    "TIME": "时间",
    "DECISION": "决定",
    # states
    "waiting": "等待",
    "starting": "启动中",
    "running": "运行中",
    "stopping": "停止中",
    "ended": "已结束",
    "completed": "已完成",
    "failed": "已失败",
    "evicted": "被驱逐",
    "cancelled": "已取消",
    "gone": "已消失",
    "ready": "就绪",
    "cordoned": "停止调度",
    "held": "占用",
    "free": "空闲",
    "lost": "故障",
    "kept": "预留",
    "evicting": "驱逐中",
    "training": "训练",
    "inference": "推理",
    "notebook": "笔记本",
    "batch": "批处理",
    # labels
    "place": "放置",
    "blocked": "受阻",
    "quota": "配额",
    "nearest": "最接近",
    "in the way": "占用者",
    "wakes": "重新评估",
    "so far": "经过",
    "kept since": "预留自",
    "expected": "预计",
    "summary": "结论",
    "no pool": "无资源池",
}

_SENTENCES: Final[Mapping[Language, Mapping[str, str]]] = {
    Language.ENGLISH: {
        "queue": "queue {queue}",
        "spare": "spare {type}",
        "waiting-for": "waiting {time}",
        "position": "{position} of {all} in its queue",
        "devices-one": "1 device",
        "devices": "{n} devices",
        "pods": "{devices} in {pods:,} pods",
        "has-devices": "{node} has {free} of {needed} devices free",
        "has-cpu": "{free} of {needed} CPU",
        "has-memory": "{free} of {needed} MiB",
        "has-pods": "no room for a pod",
        "fits": "{node} has room for one pod",
        "holder": "{name}, {devices} on {nodes}, {type}{since}{until}",
        "since": ", since {time}",
        "until": ", until {time} as declared",
        "stopping": ", stopping",
        "expected": "{time}, as declared",
        "kept-for": "kept for {names}",
        "hours-lost": "{n} h",
        "evictions-resumed": "evictions go on, which were frozen",
        "frozen": "evictions are frozen until shoal resume: {reason}",
        "more-holders": "and {n:,} more",
        "wakes": "looked at again when {wakes}",
        "submitted": "{name} was submitted",
        "applied": "{queues:,} queues and {pools:,} pools count from now on",
        "would-apply": "{queues:,} queues and {pools:,} pools could be applied",
        "well": "{queues:,} queues and {pools:,} pools: nothing is wrong with them",
        "nothing-changes": "nothing changes",
        "closing": "{name} (closing)",
        "would-submit": "{name} could be submitted",
        "cancelled": "{name} ends",
        "released": "Shoal decides nothing any more; what runs goes on. shoal resume",
        "resumed": "Shoal decides again",
        "gap": "(decisions in between are no longer remembered)",
        "nothing": "nothing found",
    },
    Language.CHINESE: {
        "queue": "队列 {queue}",
        "spare": "可让出的{type}",
        "waiting-for": "已等待 {time}",
        "position": "在队列中排第 {position}，共 {all} 个",
        "devices-one": "1 张设备",
        "devices": "{n} 张设备",
        "pods": "{pods:,} 个 Pod 共 {devices}",
        "has-devices": "{node} 空闲 {free} 张设备，需要 {needed} 张",
        "has-cpu": "空闲 {free} CPU，需要 {needed}",
        "has-memory": "空闲 {free} MiB，需要 {needed}",
        "has-pods": "Pod 数已满",
        "fits": "{node} 能容纳一个 Pod",
        "holder": "{name}，在 {nodes} 上占用{devices}，{type}{since}{until}",
        "since": "，自 {time}",
        "until": "，据声明至 {time}",
        "stopping": "，正在停止",
        "expected": "{time}（据声明）",
        "kept-for": "为 {names} 预留",
        "hours-lost": "{n} 小时",
        "evictions-resumed": "此前冻结的驱逐已恢复",
        "frozen": "驱逐已冻结，执行 shoal resume 恢复：{reason}",
        "more-holders": "另有 {n:,} 个",
        "wakes": "当{wakes}时重新评估",
        "submitted": "已提交 {name}",
        "applied": "{queues:,} 个队列和 {pools:,} 个资源池现已生效",
        "would-apply": "{queues:,} 个队列和 {pools:,} 个资源池可以应用",
        "well": "{queues:,} 个队列和 {pools:,} 个资源池：没有问题",
        "nothing-changes": "没有变化",
        "closing": "{name}（关闭中）",
        "would-submit": "可以提交 {name}",
        "cancelled": "{name} 将结束",
        "released": "Shoal 不再做任何决定；正在运行的任务继续运行。恢复：shoal resume",
        "resumed": "Shoal 恢复决定",
        "gap": "（中间的决定已不再保留）",
        "nothing": "没有找到",
    },
}


def word(english: str, language: Language = Language.ENGLISH) -> str:
    """Return a heading, state or label in a language; what is not known stays as it is."""
    return _CHINESE.get(english, english) if language is Language.CHINESE else english


def screen_text(key: str, language: Language = Language.ENGLISH, **words: str | int) -> str:
    """Return the text of this key with its parameters filled in."""
    return _SENTENCES[language][key].format(**words)


def number_text(number: float) -> str:
    """Return a number to the hundredth, without needless zeros."""
    return f"{number:,.2f}".rstrip("0").rstrip(".")


def counted_text(devices: float, language: Language = Language.ENGLISH) -> str:
    """Return a number of devices in words."""
    key = "devices-one" if devices == 1 else "devices"
    return screen_text(key, language, n=number_text(devices))


def duration_text(seconds: float) -> str:
    """Return a time span as its two largest units, such as `2h10m`; both languages write it so."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return "".join(parts)


def ordinal(number: int, language: Language = Language.ENGLISH) -> str:
    """Return a place in an order, such as `3rd`."""
    if language is Language.CHINESE:
        return str(number)
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number:,}{ending or 'th'}"
