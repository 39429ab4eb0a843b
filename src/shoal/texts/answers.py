"""What is said of workloads and decisions when somebody asks, as sentences."""

from collections.abc import Mapping, Sequence
from typing import Final

from shoal.model.verdict import Reason
from shoal.model.workload import Outcome
from shoal.texts.language import Language
from shoal.texts.verdicts import reason_label

_SENTENCES: Final[Mapping[Language, Mapping[str, str]]] = {
    Language.ENGLISH: {
        "fits": (
            "There is room for it now. The next cycle starts it, unless work that is ahead of it"
            " takes the room."
        ),
        "never-accelerator": "Never on this fleet: no node has {accelerators}.",
        "never-devices": (
            "Never on this fleet: a pod asks for {asked:,} devices of one node, and the most that a"
            " node could give is {most:,}."
        ),
        "never-device-memory": (
            "Never on this fleet: a pod asks for {asked:,} MiB of one device, and the largest has"
            " {most:,} MiB."
        ),
        "never-isolation": (
            "Never on this fleet: no device isolates its tenants as much as is asked for ({word})."
        ),
        "never-isolated-memory": (
            "Never on this fleet: a pod asks for {asked:,} MiB of one device that isolates its"
            " tenants as much as {word}, and the largest such has {most:,} MiB."
        ),
        "never-cpu": (
            "Never on this fleet: a pod asks for {asked:,} milli-CPU, and the largest node has"
            " {most:,}."
        ),
        "never-memory": (
            "Never on this fleet: a pod asks for {asked:,} MiB of host memory, and the largest node"
            " has {most:,} MiB."
        ),
        "never-together": "Never on this fleet: no node has all at once that a pod asks for.",
        "never-pods": (
            "Never on this fleet: {asked:,} pods start together, and all nodes hold {most:,} of"
            " them when they are empty."
        ),
        "never-pool": (
            "Never with these pools: no node that serves work of type {word} could hold a pod of"
            " it, and another node could."
        ),
        "never-pool-pods": (
            "Never with these pools: {asked:,} pods start together, and the nodes that serve work"
            " of type {word} hold {most:,} of them when they are empty."
        ),
        "queue-closing": (
            "queue {queue} is being deleted, and nothing new starts in it; write one of {names}"
        ),
        "queue-above-others": (
            "work waits in leaves of the tree, and {queue} has queues below it; write one of"
            " {names}"
        ),
        "queue-unknown": "there is no queue {queue}; write one of {names}",
        "queue-unnamed": "names no queue; write one of {names}",
        "left-out": "{accelerators} may not be used: {rule}",
        "gang": (
            "All {pods:,} pods start together, and only {placed:,} of them find a node. Nodes with"
            " room for one: {fitting:,}."
        ),
        "released": (
            "Nothing is decided since Shoal was released. `shoal resume` lets it decide again."
        ),
        "starting": "It is being started on {nodes}; {running:,} of {pods:,} pods run.",
        "running": "It runs on {nodes}.",
        "running-in-part": (
            "It runs on {nodes} with {held:,} of {pods:,} pods. The others join it as soon as there"
            " is room for them that nobody who waits can use."
        ),
        "evicting": "It is being evicted from {nodes}.",
        "stopping": "It is being ended on {nodes}.",
        "ended": "It has ended.",
        "ended-completed": "It is complete.",
        "ended-failed": "It has failed.",
        "ended-evicted": "It was evicted.",
        "ended-cancelled": "It was cancelled.",
        "decided-start": "Starts {workload} on {nodes}.",
        "decided-resize": "Gives {workload} {pods:,} of the pods that it lacks, on {nodes}.",
        "decided-retract": (
            "Takes back the start of {workload}: {node} did not do what was planned."
        ),
        "decided-refuse": (
            "Ends {workload}, which has waited for {waited}; its queue lets it wait for {most}."
        ),
        "decided-wait": "{workload} waits: {reason}.",
        "decided-wait-several": "{workload} and {others:,} others wait: {reason}.",
        "step-submitted": "came",
        "step-adopted": "was found running",
        "step-told": "has to wait: {reason}",
        "step-started": "was placed",
        "step-running": "all pods run",
        "step-grown": "pods that it lacked were placed",
        "step-failed-start": "a pod did not start",
        "step-retracted": "its start was taken back, because of {detail}",
        "step-reserved": "room is kept for it: {reason}",
        "step-gave-up": "room is kept for it no longer: {reason}",
        "step-evicted": "is evicted: {reason}",
        "step-evicted-for": "is evicted for {detail}: {reason}",
        "step-spared": "runs on: disruption budgets do not allow its eviction",
        "step-waits-again": "its pods have stopped; it waits again",
        "step-stopping": "is to end",
        "step-ended": "ended",
        "step-ended-completed": "was completed",
        "step-ended-failed": "failed",
        "step-ended-evicted": "was evicted",
        "step-ended-cancelled": "was cancelled",
    },
    Language.CHINESE: {
        "fits": "现在有足够的资源。下一轮调度将启动它，除非排在前面的任务占用了这些资源。",
        "never-accelerator": "当前集群永远无法满足：没有节点有 {accelerators}。",
        "never-devices": (
            "当前集群永远无法满足：每个 Pod 需要同一节点上的 {asked:,} 张设备，"
            "单个节点最多 {most:,} 张。"
        ),
        "never-device-memory": (
            "当前集群永远无法满足：需要单张设备 {asked:,} MiB 显存，最大的设备为 {most:,} MiB。"
        ),
        "never-isolation": "当前集群永远无法满足：没有设备能达到要求的隔离级别（{word}）。",
        "never-isolated-memory": (
            "当前集群永远无法满足：需要单张设备 {asked:,} MiB 显存且隔离级别达到 {word}，"
            "此类设备最大为 {most:,} MiB。"
        ),
        "never-cpu": (
            "当前集群永远无法满足：每个 Pod 需要 {asked:,} milli-CPU，最大的节点为 {most:,}。"
        ),
        "never-memory": (
            "当前集群永远无法满足：每个 Pod 需要 {asked:,} MiB 主机内存，"
            "最大的节点为 {most:,} MiB。"
        ),
        "never-together": "当前集群永远无法满足：没有节点同时具备 Pod 所需的全部资源。",
        "never-pods": (
            "当前集群永远无法满足：{asked:,} 个 Pod 必须同时启动，"
            "所有节点全空时最多容纳 {most:,} 个。"
        ),
        "never-pool": (
            "按当前资源池永远无法满足：服务 {word} 类型的节点都放不下一个 Pod，而其他节点可以。"
        ),
        "never-pool-pods": (
            "按当前资源池永远无法满足：{asked:,} 个 Pod 必须同时启动，"
            "服务 {word} 类型的节点全空时最多容纳 {most:,} 个。"
        ),
        "queue-closing": "队列 {queue} 正在被删除，不再启动新任务；请改用：{names}",
        "queue-above-others": "任务只能在末级队列中排队，而 {queue} 下还有队列；请改用：{names}",
        "queue-unknown": "没有队列 {queue}；请改用：{names}",
        "queue-unnamed": "没有写明队列；请写以下之一：{names}",
        "left-out": "不能使用 {accelerators}：{rule}",
        "gang": (
            "{pods:,} 个 Pod 必须同时启动，目前只有 {placed:,} 个能找到节点。"
            "能容纳一个 Pod 的节点：{fitting:,} 个。"
        ),
        "released": "Shoal 已被释放，不再做任何决定。执行 `shoal resume` 可恢复。",
        "starting": "正在 {nodes} 上启动；{pods:,} 个 Pod 中有 {running:,} 个在运行。",
        "running": "正在 {nodes} 上运行。",
        "running-in-part": (
            "正在 {nodes} 上运行，{pods:,} 个 Pod 中已有 {held:,} 个。"
            "一旦有等待者都用不上的空位，其余 Pod 就会加入。"
        ),
        "evicting": "正在从 {nodes} 上驱逐。",
        "stopping": "正在 {nodes} 上结束。",
        "ended": "已结束。",
        "ended-completed": "已完成。",
        "ended-failed": "已失败。",
        "ended-evicted": "已被驱逐。",
        "ended-cancelled": "已取消。",
        "decided-start": "在 {nodes} 上启动 {workload}。",
        "decided-resize": "为 {workload} 补充其缺少的 {pods:,} 个 Pod，位于 {nodes}。",
        "decided-retract": "撤回 {workload} 的启动：{node} 未按计划执行。",
        "decided-refuse": "结束 {workload}：已等待 {waited}，其队列最多允许等待 {most}。",
        "decided-wait": "{workload} 等待：{reason}。",
        "decided-wait-several": "{workload} 和另外 {others:,} 个任务等待：{reason}。",
        "step-submitted": "到达",
        "step-adopted": "发现时已在运行",
        "step-told": "需要等待：{reason}",
        "step-started": "已放置",
        "step-running": "所有 Pod 均在运行",
        "step-grown": "已放置其缺少的 Pod",
        "step-failed-start": "有一个 Pod 未能启动",
        "step-retracted": "启动被撤回，原因在于 {detail}",
        "step-reserved": "已为其预留位置：{reason}",
        "step-gave-up": "不再为其预留位置：{reason}",
        "step-evicted": "被驱逐：{reason}",
        "step-evicted-for": "为 {detail} 被驱逐：{reason}",
        "step-spared": "继续运行：干扰预算不允许驱逐",
        "step-waits-again": "其 Pod 均已停止，重新等待",
        "step-stopping": "即将结束",
        "step-ended": "已结束",
        "step-ended-completed": "已完成",
        "step-ended-failed": "已失败",
        "step-ended-evicted": "已被驱逐",
        "step-ended-cancelled": "已取消",
    },
}

NODES_NAMED: Final = 3
"""Nodes named in a sentence; more are counted."""

_MORE: Final = {
    Language.ENGLISH: "{names} and {n:,} more",
    Language.CHINESE: "{names} 等 {all:,} 个节点",
}
_NO_NODE: Final = {Language.ENGLISH: "no node", Language.CHINESE: "无节点"}


def answer_text(key: str, language: Language = Language.ENGLISH, **words: str | int) -> str:
    """Return the sentence of this key with its parameters filled in."""
    return _SENTENCES[language][key].format(**words)


def ended_text(outcome: Outcome | None, language: Language = Language.ENGLISH) -> str:
    """Return how a workload ended."""
    return answer_text(f"ended-{outcome.value}" if outcome else "ended", language)


def moment_text(
    step: str, reason: Reason | None, detail: str, language: Language = Language.ENGLISH
) -> str:
    """Return what happened to a workload, in a few words; `step` is a step of its story."""
    key = f"step-{step}"
    if step == "ended" and detail:
        key = f"step-ended-{detail}"
    if step == "evicted" and detail:
        key = "step-evicted-for"
    said = reason_label(reason, language) if reason is not None else ""
    return answer_text(key, language, reason=said, detail=detail)


def nodes_text(nodes: Sequence[str], language: Language = Language.ENGLISH) -> str:
    """Return names of nodes, the first few and a count of the others."""
    if not nodes:
        return _NO_NODE[language]
    separator = "、" if language is Language.CHINESE else ", "
    names = separator.join(nodes[:NODES_NAMED])
    if len(nodes) <= NODES_NAMED:
        return names
    return _MORE[language].format(names=names, n=len(nodes) - NODES_NAMED, all=len(nodes))
