"""Why pods are not put before the planner, as sentences."""

from collections.abc import Mapping
from typing import Final

from shoal.model.hold import Hold, HoldReason
from shoal.texts.language import Language
from shoal.texts.refusals import refusal_text
from shoal.texts.screens import duration_text

_ENGLISH: Final[Mapping[HoldReason, str]] = {
    HoldReason.INCOMPLETE: (
        "{pods:,} of {wanted:,} pods of {owner} exist. They start together, so nothing is placed"
        " until all of them exist."
    ),
    HoldReason.QUOTA: (
        "ResourceQuota {quota} in {namespace} has too little room for {resource}: {used:,} used,"
        " {asked:,} asked, {allowed:,} allowed, {excess:,} too many. It is looked at again when"
        " the quota changes."
    ),
    HoldReason.QUOTA_REFUSED: (
        "ResourceQuota {quota} in {namespace} refused a claim: {message}. It is tried again when"
        " the quota changes."
    ),
    HoldReason.REFUSED: "It cannot be planned: {refusal}",
    HoldReason.OWN_CLAIM: (
        "It uses the claim {claim}, which Shoal did not make and does not plan. Ask for devices"
        " under limits instead, such as nvidia.com/gpu: 1."
    ),
    HoldReason.STUCK: (
        "It is pinned to node {node}, where kube-scheduler does not start it: {message} A pin"
        " cannot be taken back: create the pod again to have it placed elsewhere."
    ),
    HoldReason.FOLLOWS: (
        "It takes the place of a pod that was evicted, and waits until that one is gone."
    ),
    HoldReason.TOO_LATE: (
        "It waited for {took}, as long as queue {queue} lets such work wait, and is no longer"
        " tried. Create it again to have it wait anew."
    ),
    HoldReason.TOO_LONG: (
        "It ran for {took}, its maximum in queue {queue}, and was ended. Create it again, or scale"
        " it to 0 and back, to have it run anew."
    ),
    HoldReason.STRANGE: (
        "It names {owner} as its controller, but somebody else than that controller made it, or it"
        " was made for another owner. It starts neither with the pods of {owner} nor in the name of"
        " who asked for them: create it without that owner."
    ),
    HoldReason.ASKER_UNREAD: (
        "{owner} is being read, to know who asked for it. That takes a moment."
    ),
}

_CHINESE: Final[Mapping[HoldReason, str]] = {
    HoldReason.INCOMPLETE: (
        "{owner} 的 {wanted:,} 个 Pod 中目前只有 {pods:,} 个存在。它们必须同时启动，"
        "全部存在之前不会放置。"
    ),
    HoldReason.QUOTA: (
        "{namespace} 中的 ResourceQuota {quota} 没有足够的 {resource}："
        "已用 {used:,}，申请 {asked:,}，上限 {allowed:,}，超出 {excess:,}。配额变化时会重新评估。"
    ),
    HoldReason.QUOTA_REFUSED: (
        "{namespace} 中的 ResourceQuota {quota} 拒绝了一个 claim：{message}。配额变化时会重试。"
    ),
    HoldReason.REFUSED: "无法规划：{refusal}",
    HoldReason.OWN_CLAIM: (
        "它使用了并非由 Shoal 创建的 claim {claim}，Shoal 不为其规划。请改在 limits 中申请设备，"
        "例如 nvidia.com/gpu: 1。"
    ),
    HoldReason.STUCK: (
        "它已固定到节点 {node}，但 kube-scheduler 无法在该节点启动它：{message} 固定无法撤销，"
        "如需放置到其他节点，请重新创建该 Pod。"
    ),
    HoldReason.FOLLOWS: "它将接替一个被驱逐的 Pod，正在等待该 Pod 结束。",
    HoldReason.TOO_LATE: (
        "它已等待 {took}，达到队列 {queue} 允许此类工作等待的上限，不再尝试。"
        "如需重新等待，请重新创建。"
    ),
    HoldReason.TOO_LONG: (
        "它已运行 {took}，达到其在队列 {queue} 中的最长运行时间，已被结束。"
        "如需重新运行，请重新创建，或缩容到 0 再扩容。"
    ),
    HoldReason.STRANGE: (
        "它声明 {owner} 是其控制器，但它并非由该控制器创建，或原本属于另一个所有者。"
        "它既不会与 {owner} 的 Pod 一起启动，也不会以其提交者的名义启动：请去掉该所有者后重新创建。"
    ),
    HoldReason.ASKER_UNREAD: "正在读取 {owner}，以确定由谁提交，稍候即可。",
}

_TEXTS: Final = {Language.ENGLISH: _ENGLISH, Language.CHINESE: _CHINESE}


def hold_text(hold: Hold, language: Language = Language.ENGLISH) -> str:
    """Return what keeps pods back, and what would let them go on."""
    details: dict[str, str | int] = dict(hold.details)
    if hold.refusal is not None:
        details["refusal"] = refusal_text(hold.refusal, language)
    if "took_us" in details:
        details["took"] = duration_text(int(details["took_us"]) / 1_000_000)
    if hold.reason is HoldReason.QUOTA:
        used, asked, allowed = (int(details[key]) for key in ("used", "asked", "allowed"))
        details["excess"] = used + asked - allowed
    return _TEXTS[language][hold.reason].format(**details)
