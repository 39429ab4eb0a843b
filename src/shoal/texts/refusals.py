"""Why something that a person wrote is refused, or what to know about it, as sentences.

Each says where it stands, what is wrong and what to write instead.
"""

from collections.abc import Mapping
from typing import Final

from shoal.model.refusal import Hint, HintCode, Refusal, RefusalCode
from shoal.texts.language import Language

_PERCENT: Final = "must be a whole number from 1 to 100, in digits 0-9"

_ENGLISH: Final[Mapping[RefusalCode | HintCode, str]] = {
    RefusalCode.NOT_A_QUANTITY: (
        "{field} is {value!r}, which is not a quantity; write a number with a suffix, such as 5Gi"
    ),
    RefusalCode.NOT_POSITIVE: (
        "{field} is {value!r} and must be more than 0; leave it out for a whole device"
    ),
    RefusalCode.UNDER_ONE_MIB: (
        "{field} is {value!r}, which is less than 1 MiB; write {gib} or {mib}"
    ),
    RefusalCode.OVER_LARGEST_DEVICE: (
        "{field} is {value!r}, which is more than the largest device has ({largest:,} MiB);"
        " write less, or ask for more devices"
    ),
    RefusalCode.NOT_A_PERCENTAGE: "{field} is {value!r} and " + _PERCENT,
    RefusalCode.DEVICES_IN_PARTS: (
        "{field} is {value!r} and counts whole devices; for a part of one write 1, and"
        " shoal.dev/memory or shoal.dev/compute"
    ),
    RefusalCode.NOT_A_COUNT: (
        "{field} is {value!r} and must be a whole number from 1 to 999,999, in digits 0-9"
    ),
    RefusalCode.NOT_A_FRACTION: (
        "{field} is {value!r} and must be a fraction of a device: a number above 0 and up to 1"
        " with at most two decimals, such as 0.25"
    ),
    RefusalCode.COUNTS_MIB: "{field} is {value!r} and counts {unit}, not bytes; write {instead}",
    RefusalCode.BAD_ISOLATION: (
        "{field} is {value!r}; write one of {presets}, or levels such as memory=driver,fault=none"
    ),
    RefusalCode.BAD_WORD: "{field} is {value!r}; write one such as: {known}",
    RefusalCode.BAD_QUEUE_NAME: (
        "{field} is {value!r}; names of queues are lower-case letters, digits and '-'."
        " Nearest: {near}"
    ),
    RefusalCode.UNKNOWN_QUEUE: (
        "{field} is {value!r}, which is no queue of this namespace. Nearest: {near}"
    ),
    RefusalCode.UNKNOWN_ACCELERATOR: (
        "{field} names {value!r}, which is no accelerator or group of the catalogue. Nearest:"
        " {near}"
    ),
    RefusalCode.NO_ACCELERATOR: (
        "{field} asks for {value!r}, which no accelerator that this queue may use has"
        " (it may use: {usable}); ask for one of those"
    ),
    RefusalCode.UNKNOWN_KEY: "{field} is not known. Known are: {known}",
    RefusalCode.MISPLACED: "{field} does not belong here; write it under {place}",
    RefusalCode.WRITTEN_BY_SHOAL: "{field} is written by Shoal; leave it out",
    RefusalCode.CONTRADICTION: (
        "{field} is {value!r}, but the containers ask for {other}; write one of the two"
    ),
    RefusalCode.SEVERAL_VENDORS: (
        "{field} asks for devices of several vendors ({words}); write names of one"
    ),
    RefusalCode.SEVERAL_SYSTEMS: (
        "{field} mixes names of several systems ({words}); write those of one"
    ),
    RefusalCode.SEVERAL_PROFILES: (
        "{field} asks for several kinds of device ({words}); write one kind"
    ),
    RefusalCode.BAD_NAMES: "{field}: {detail}",
    RefusalCode.NO_CONTAINER: "{field} is empty; write the container that needs the device",
    RefusalCode.SEVERAL_CONTAINERS: (
        "{field} are several ({value}) and the annotations do not say which one needs the device;"
        " write the vendor's resource, such as nvidia.com/gpu: {count}, under the limits of that"
        " one"
    ),
    RefusalCode.NO_RESOURCE_NAME: (
        "{field} name no device resource, so that in this namespace (channel device-plugin) no"
        " container would get a device; write the vendor's resource, such as"
        " nvidia.com/gpu: {count}, under the limits of the container that needs it"
    ),
    RefusalCode.TOO_MANY_DEVICES: (
        "{field} ask for {value} devices in one pod, and one claim holds at most {most}; split the"
        " work over several pods"
    ),
    RefusalCode.UNSUPPORTED_AFFINITY: "{field} cannot be read: {detail}",
    RefusalCode.NOT_A_DURATION: (
        "{field} is {value!r}, which is no duration above zero; write whole numbers with d, h, m or"
        " s, in this order, such as 2h or 1h30m, and at most 9999d"
    ),
    RefusalCode.NOT_A_MOMENT: (
        "{field} is {value!r}, which is no moment; write date and time with a zone (RFC 3339), such"
        " as 2026-11-29T21:04:05Z"
    ),
    RefusalCode.NOT_A_GANG: (
        "{field} says how many pods of a gang, or replicas of inference, have to run, and the pods"
        " of {name} neither start together nor are such replicas; leave it out"
    ),
    RefusalCode.MINIMUM_ABOVE_COUNT: (
        "{field} is {value}, and there are {count:,} pods; write a number from 1 to {count}"
    ),
    RefusalCode.NO_QUEUE_OF_NAMESPACE: (
        "namespace {value} belongs to no queue; have it labelled ({labels}), or write {field}"
        " (it may use: {open})"
    ),
    RefusalCode.SEVERAL_QUEUES: (
        "namespace {value} belongs to the queues {words}; write one of them in {field}"
    ),
    RefusalCode.CLOSING_QUEUE: (
        "{field} is {value!r}, and that queue is being deleted; nothing new starts in it. This"
        " namespace may use: {words}"
    ),
    RefusalCode.TYPE_NOT_GRANTED: (
        "{field} is {value!r}, which queue {queue} may not run; it may run: {words}"
    ),
    RefusalCode.UNKNOWN_PRIORITY: (
        "{field} is {value!r}, which is no priority of queue {queue}; it has: {words}"
    ),
    RefusalCode.PRIORITY_OF_OTHERS: (
        "{field} is {value!r}, for which only {words} may ask in queue {queue}"
    ),
    RefusalCode.PRIORITY_OF_NOBODY: (
        "{field} is {value!r}, for which only {words} may ask in queue {queue}, and it is not known"
        " who asked for this: it or its owner was created before Shoal acted here, was handed to"
        " another owner, or its owner cannot be read; create it again, or leave {field} out"
    ),
    HintCode.ROUNDED: "{field} {value} counts as {mib:,} MiB",
    HintCode.UNUSED_AFTER_INIT: (
        "{devices} of the pod's devices serve only its init containers and stay unused after them"
    ),
    HintCode.SHARE_BECOMES_DEVICE: (
        "with {field} {value} the pod gets a whole device, which no other pod uses"
    ),
    HintCode.TRANSLATED: "names of {field}: {note}",
}

_CHINESE: Final[Mapping[RefusalCode | HintCode, str]] = {
    RefusalCode.NOT_A_QUANTITY: "{field} 的值 {value!r} 不是有效的数量；请写带单位的数字，例如 5Gi",
    RefusalCode.NOT_POSITIVE: "{field} 的值 {value!r} 必须大于 0；需要整张设备时请不要写这一项",
    RefusalCode.UNDER_ONE_MIB: "{field} 的值 {value!r} 小于 1 MiB；请写 {gib} 或 {mib}",
    RefusalCode.OVER_LARGEST_DEVICE: (
        "{field} 的值 {value!r} 超过最大设备的显存（{largest:,} MiB）；请减小，或申请多张设备"
    ),
    RefusalCode.NOT_A_PERCENTAGE: "{field} 的值 {value!r} 必须是 1 到 100 的整数，只用数字 0-9",
    RefusalCode.DEVICES_IN_PARTS: (
        "{field} 的值 {value!r} 应为整张设备的数量；只需一部分时请写 1，"
        "并加上 shoal.dev/memory 或 shoal.dev/compute"
    ),
    RefusalCode.NOT_A_COUNT: "{field} 的值 {value!r} 必须是 1 到 999,999 之间的整数，只用数字 0-9",
    RefusalCode.NOT_A_FRACTION: (
        "{field} 的值 {value!r} 必须是设备的一部分：大于 0、不超过 1、最多两位小数，例如 0.25"
    ),
    RefusalCode.COUNTS_MIB: (
        "{field} 的值 {value!r} 有误：该字段以 {unit} 计数，不是字节；请写 {instead}"
    ),
    RefusalCode.BAD_ISOLATION: (
        "{field} 的值 {value!r} 未知；请写 {presets} 之一，或按项写，例如 memory=driver,fault=none"
    ),
    RefusalCode.BAD_WORD: "{field} 的值 {value!r} 未知；可以写：{known}",
    RefusalCode.BAD_QUEUE_NAME: (
        "{field} 的值 {value!r} 不是队列名；队列名只含小写字母、数字和“-”。相近的有：{near}"
    ),
    RefusalCode.UNKNOWN_QUEUE: "该命名空间没有队列 {value!r}（{field}）。相近的有：{near}",
    RefusalCode.UNKNOWN_ACCELERATOR: (
        "{field} 中的 {value!r} 不是目录中的加速卡或分组。相近的有：{near}"
    ),
    RefusalCode.NO_ACCELERATOR: (
        "{field} 要求 {value!r}，但该队列可用的加速卡（{usable}）都不具备；请改为其中之一"
    ),
    RefusalCode.UNKNOWN_KEY: "未知的键 {field}。已知的键有：{known}",
    RefusalCode.MISPLACED: "{field} 的位置不对；请写在 {place} 下",
    RefusalCode.WRITTEN_BY_SHOAL: "{field} 由 Shoal 填写；请删去",
    RefusalCode.CONTRADICTION: "{field} 的值 {value!r} 与容器的要求（{other}）矛盾；请只保留一个",
    RefusalCode.SEVERAL_VENDORS: "{field} 同时要求多个厂商的设备（{words}）；请只写一个厂商的名称",
    RefusalCode.SEVERAL_SYSTEMS: "{field} 混用了多个系统的名称（{words}）；请只用一个系统的名称",
    RefusalCode.SEVERAL_PROFILES: "{field} 同时要求多种设备（{words}）；请只写一种",
    RefusalCode.BAD_NAMES: "{field}：{detail}",
    RefusalCode.NO_CONTAINER: "{field} 为空；请写出需要设备的容器",
    RefusalCode.SEVERAL_CONTAINERS: (
        "{field} 有多个（{value}），注解没有说明哪个容器需要设备；"
        "请在该容器的 limits 中写厂商的资源名，例如 nvidia.com/gpu: {count}"
    ),
    RefusalCode.NO_RESOURCE_NAME: (
        "{field} 没有写设备资源，在该命名空间（通道 device-plugin）中任何容器都得不到设备；"
        "请在需要设备的容器的 limits 中写厂商的资源名，例如 nvidia.com/gpu: {count}"
    ),
    RefusalCode.TOO_MANY_DEVICES: (
        "{field} 在一个 Pod 中要求 {value} 张设备，而一个申领最多 {most} 张；请拆分到多个 Pod"
    ),
    RefusalCode.UNSUPPORTED_AFFINITY: "无法读取 {field}：{detail}",
    RefusalCode.NOT_A_DURATION: (
        "{field} 的值 {value!r} 不是大于零的时长；请按 d、h、m、s 的顺序写整数，"
        "例如 2h 或 1h30m，最多 9999d"
    ),
    RefusalCode.NOT_A_MOMENT: (
        "{field} 的值 {value!r} 不是有效的时间；请写带时区的日期和时间（RFC 3339），"
        "例如 2026-11-29T21:04:05Z"
    ),
    RefusalCode.NOT_A_GANG: (
        "{field} 表示一组 Pod 或推理服务的副本中至少要运行多少个，而 {name} 的 Pod"
        " 既不一起启动，也不是这样的副本；请删去"
    ),
    RefusalCode.MINIMUM_ABOVE_COUNT: (
        "{field} 的值为 {value}，而 Pod 共 {count:,} 个；请写 1 到 {count} 之间的数"
    ),
    RefusalCode.NO_QUEUE_OF_NAMESPACE: (
        "命名空间 {value} 不属于任何队列；请为其添加标签（{labels}），或写 {field}（可用：{open}）"
    ),
    RefusalCode.SEVERAL_QUEUES: (
        "命名空间 {value} 属于多个队列（{words}）；请在 {field} 中写明其中之一"
    ),
    RefusalCode.CLOSING_QUEUE: (
        "{field} 的值 {value!r} 有误：该队列正在被删除，不再启动新任务。该命名空间可用：{words}"
    ),
    RefusalCode.TYPE_NOT_GRANTED: (
        "{field} 的值 {value!r} 有误：队列 {queue} 不能运行这种任务；可以运行：{words}"
    ),
    RefusalCode.UNKNOWN_PRIORITY: (
        "{field} 的值 {value!r} 不是队列 {queue} 的优先级；可用的有：{words}"
    ),
    RefusalCode.PRIORITY_OF_OTHERS: (
        "{field} 的值 {value!r} 有误：在队列 {queue} 中只有 {words} 可以使用"
    ),
    RefusalCode.PRIORITY_OF_NOBODY: (
        "{field} 的值 {value!r} 在队列 {queue} 中只有 {words} 可以使用，而提交者未知："
        "它或其所有者在 Shoal 接管之前创建、被转给了别的所有者，或其所有者无法读取；"
        "请重新创建，或删去 {field}"
    ),
    HintCode.ROUNDED: "{field} {value} 按 {mib:,} MiB 计算",
    HintCode.UNUSED_AFTER_INIT: "该 Pod 有 {devices} 张设备只供初始化容器使用，之后闲置",
    HintCode.SHARE_BECOMES_DEVICE: "按 {field} {value} 的要求，该 Pod 独占一整张设备",
    HintCode.TRANSLATED: "{field} 的名称：{note}",
}

_WORDS: Final = {Language.ENGLISH: _ENGLISH, Language.CHINESE: _CHINESE}

_PLACES: Final = {
    Language.ENGLISH: {
        "limits": "resources.limits of the container",
        "annotation": "the pod's annotations",
    },
    Language.CHINESE: {
        "limits": "容器的 resources.limits",
        "annotation": "Pod 的注解",
    },
}
_OR_WRITE: Final = {Language.ENGLISH: ", or write {it}", Language.CHINESE: "，或写 {it}"}
_MEANT: Final = {
    Language.ENGLISH: "{field} is not known; did you mean {meant}?",
    Language.CHINESE: "未知的键 {field}；您是否想写 {meant}？",
}


def refusal_text(refusal: Refusal, language: Language = Language.ENGLISH) -> str:
    """Why something is refused and what to write instead, as one sentence."""
    given = dict(refusal.details)
    words = {"field": refusal.field, "value": refusal.value, **given}
    if refusal.code is RefusalCode.UNKNOWN_KEY and given.get("meant"):
        return _MEANT[language].format(**words)
    if refusal.code is RefusalCode.MISPLACED:
        words["place"] = _PLACES[language][str(given["place"])]
    text = _WORDS[language][refusal.code].format(**words)
    instead = given.get("instead") if refusal.code is RefusalCode.MISPLACED else ""
    return text + (_OR_WRITE[language].format(it=instead) if instead else "")


def hint_text(hint: Hint, language: Language = Language.ENGLISH) -> str:
    """What a person should know about something that is accepted, as one sentence."""
    words = {"field": hint.field, "value": hint.value, **dict(hint.details)}
    return _WORDS[language][hint.code].format(**words)
