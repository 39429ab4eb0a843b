"""What the API server says in Shoal's name when it refuses something, as sentences.

They stand in policies, so each is complete without any number or name of the moment.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from shoal.texts.language import Language


class Rule(StrEnum):
    """What is held by a policy."""

    GATED = "gated"
    SWAPPED = "swapped"
    GATE_STAYS = "gate-stays"
    MARKS_STAY = "marks-stay"
    STAMPS = "stamps"
    NO_NODE_NAME = "no-node-name"
    KNOWN_KEYS = "known-keys"
    NO_LABELS = "no-labels"
    MEMORY = "memory"
    COMPUTE = "compute"
    DEVICES = "devices"
    WORDS = "words"
    QUEUE = "queue"
    TYPE = "type"
    PRIORITY = "priority"
    RUN = "run"
    MINIMUM = "minimum"
    RECREATE = "recreate"
    CHECKPOINT = "checkpoint"
    NO_DEVICE_VARIABLES = "no-device-variables"
    NO_FOREIGN_MARKS = "no-foreign-marks"
    NO_CLASS_NAMES = "no-class-names"
    NO_CLAIM_OF_OTHERS = "no-claim-of-others"
    CLAIM_NAMES = "claim-names"
    MODE = "mode"
    CHANNEL = "channel"


_ENGLISH: Final[Mapping[Rule, str]] = {
    Rule.GATED: (
        "Shoal is unreachable, so this pod cannot be held back for planning. Nothing is wrong with"
        " the pod: its controller will try again by itself; a bare pod has to be created again"
    ),
    Rule.SWAPPED: (
        "Shoal is unreachable, so the devices of this pod cannot be replaced by a claim. Nothing is"
        " wrong with the pod: its controller will try again by itself; a bare pod has to be created"
        " again"
    ),
    Rule.GATE_STAYS: (
        "spec.schedulingGates: the gate shoal.dev/plan is lifted by Shoal when the pod has been"
        " planned; ask `shoal why` what it waits for, or use `shoal release` to stop Shoal"
    ),
    Rule.MARKS_STAY: (
        "metadata: labels and annotations of shoal.dev/ are what was planned with and stay as they"
        " were created; delete this object and create it with the values that you want"
    ),
    Rule.STAMPS: (
        "metadata.annotations: shoal.dev/user, groups and owner (deployment-user and so on for"
        " Deployments) are Shoal's note of who asked for this; leave them out, or as they are. If"
        " you did not write them, Shoal is unreachable: try again later"
    ),
    Rule.NO_NODE_NAME: (
        "spec.nodeName: it goes round Shoal's plan; leave it out, and write a node selector or node"
        " affinity if the pod must run there"
    ),
    Rule.KNOWN_KEYS: (
        "metadata.annotations: a key of shoal.dev/ is not known or is written by Shoal only;"
        " known are shoal.dev/ memory, compute, devices, isolation, accelerators, links, queue,"
        " type, priority, run, minimum, recreate and checkpoint"
    ),
    Rule.NO_LABELS: (
        "metadata.labels: people do not set labels of shoal.dev/ on pods; write what you want as an"
        " annotation, such as shoal.dev/queue"
    ),
    Rule.MEMORY: "shoal.dev/memory: write a quantity of more than 0, such as 5Gi",
    Rule.COMPUTE: "shoal.dev/compute: write a whole number from 1 to 100, in digits 0-9",
    Rule.DEVICES: (
        "shoal.dev/devices: write a whole number from 1, in digits 0-9; for a part of a device"
        " write 1, and shoal.dev/memory or shoal.dev/compute"
    ),
    Rule.WORDS: (
        "shoal.dev/accelerators and shoal.dev/links: write names separated by |, such as"
        " H100|A100-80GB"
    ),
    Rule.QUEUE: "shoal.dev/queue: names of queues are lower-case letters, digits and '-'",
    Rule.TYPE: "shoal.dev/type: write training, inference, notebook or batch",
    Rule.PRIORITY: "shoal.dev/priority: names of priorities are lower-case letters, digits and '-'",
    Rule.RUN: "shoal.dev/run: write whole numbers with d, h, m or s, such as 2h or 1h30m",
    Rule.MINIMUM: "shoal.dev/minimum: write a whole number of pods from 1, in digits 0-9",
    Rule.RECREATE: "shoal.dev/recreate: write true, or leave it out",
    Rule.CHECKPOINT: (
        "shoal.dev/checkpoint: write when the last checkpoint was complete as date and time with a"
        " zone (RFC 3339), such as 2026-11-29T21:04:05Z"
    ),
    Rule.NO_DEVICE_VARIABLES: (
        "env: NVIDIA_VISIBLE_DEVICES and its like hand out devices that nobody planned; leave them"
        " out, and write the devices under resources.limits"
    ),
    Rule.NO_FOREIGN_MARKS: (
        "metadata: marks by which another scheduler notes allocations, or is told to skip a pod,"
        " do not count here; leave them out"
    ),
    Rule.NO_CLASS_NAMES: (
        "resources.limits: names of deviceclass.resource.kubernetes.io/ go round Shoal's plan;"
        " write the vendor's resource, such as nvidia.com/gpu"
    ),
    Rule.NO_CLAIM_OF_OTHERS: (
        "spec.resourceClaims: claims whose names end in .shoal.dev are made by Shoal for one pod;"
        " write the devices under resources.limits instead"
    ),
    Rule.CLAIM_NAMES: (
        "metadata.name: names of ResourceClaims that end in .shoal.dev are Shoal's; choose another"
    ),
    Rule.MODE: "metadata.labels: shoal.dev/mode is observe or manage",
    Rule.CHANNEL: "metadata.labels: shoal.dev/channel is device-plugin or dra",
}

_CHINESE: Final[Mapping[Rule, str]] = {
    Rule.GATED: (
        "Shoal 暂时无法访问，无法将该 Pod 留待规划。Pod 本身没有问题："
        "控制器会自动重试；单独的 Pod 需要重新创建"
    ),
    Rule.SWAPPED: (
        "Shoal 暂时无法访问，无法把该 Pod 的设备换成申领。Pod 本身没有问题："
        "控制器会自动重试；单独的 Pod 需要重新创建"
    ),
    Rule.GATE_STAYS: (
        "spec.schedulingGates：调度门 shoal.dev/plan 在规划完成后由 Shoal 移除；"
        "用 `shoal why` 查看等待原因，或用 `shoal release` 停用 Shoal"
    ),
    Rule.MARKS_STAY: (
        "metadata：shoal.dev/ 的标签和注解是规划的依据，创建后不能修改；"
        "请删除该对象，并以所需的值重新创建"
    ),
    Rule.STAMPS: (
        "metadata.annotations：shoal.dev/user、groups 和 owner"
        "（Deployment 上为 deployment-user 等）是 Shoal 对提交者的记录；请删去，或保持原样。"
        "如果不是您填写的，说明 Shoal 暂时无法访问：请稍后重试"
    ),
    Rule.NO_NODE_NAME: (
        "spec.nodeName 绕过了 Shoal 的规划；请删去，需要指定节点时请用节点选择器或节点亲和性"
    ),
    Rule.KNOWN_KEYS: (
        "metadata.annotations：有未知的或只能由 Shoal 填写的 shoal.dev/ 键；"
        "已知的键是 shoal.dev/ 下的"
        " memory、compute、devices、isolation、accelerators、links、queue、type、priority、"
        "run、minimum、recreate 和 checkpoint"
    ),
    Rule.NO_LABELS: (
        "metadata.labels：Pod 上不能自行设置 shoal.dev/ 标签；请写成注解，例如 shoal.dev/queue"
    ),
    Rule.MEMORY: "shoal.dev/memory：请写大于 0 的数量，例如 5Gi",
    Rule.COMPUTE: "shoal.dev/compute：请写 1 到 100 的整数，只用数字 0-9",
    Rule.DEVICES: (
        "shoal.dev/devices：请写不小于 1 的整数，只用数字 0-9；只需设备的一部分时请写 1，"
        "并加上 shoal.dev/memory 或 shoal.dev/compute"
    ),
    Rule.WORDS: (
        "shoal.dev/accelerators 和 shoal.dev/links：请写以 | 分隔的名称，例如 H100|A100-80GB"
    ),
    Rule.QUEUE: "shoal.dev/queue：队列名只含小写字母、数字和“-”",
    Rule.TYPE: "shoal.dev/type：请写 training、inference、notebook 或 batch",
    Rule.PRIORITY: "shoal.dev/priority：优先级名只含小写字母、数字和“-”",
    Rule.RUN: "shoal.dev/run：请用整数加 d、h、m、s，例如 2h 或 1h30m",
    Rule.MINIMUM: "shoal.dev/minimum：请写不小于 1 的 Pod 数，只用数字 0-9",
    Rule.RECREATE: "shoal.dev/recreate：请写 true，或删去",
    Rule.CHECKPOINT: (
        "shoal.dev/checkpoint：请写最近一个完整检查点的时间，须带时区（RFC 3339），"
        "例如 2026-11-29T21:04:05Z"
    ),
    Rule.NO_DEVICE_VARIABLES: (
        "env：NVIDIA_VISIBLE_DEVICES 等变量会绕过规划得到设备；"
        "请删去，并在 resources.limits 中写所需的设备"
    ),
    Rule.NO_FOREIGN_MARKS: "metadata：其他调度器记录分配或跳过 Pod 的标记在这里无效；请删去",
    Rule.NO_CLASS_NAMES: (
        "resources.limits：deviceclass.resource.kubernetes.io/ 下的名称绕过了 Shoal 的规划；"
        "请写厂商的资源名，例如 nvidia.com/gpu"
    ),
    Rule.NO_CLAIM_OF_OTHERS: (
        "spec.resourceClaims：名称以 .shoal.dev 结尾的申领由 Shoal 为某个 Pod 创建；"
        "请改在 resources.limits 中写所需的设备"
    ),
    Rule.CLAIM_NAMES: "metadata.name：以 .shoal.dev 结尾的 ResourceClaim 名称属于 Shoal；请换一个",
    Rule.MODE: "metadata.labels：shoal.dev/mode 只能是 observe 或 manage",
    Rule.CHANNEL: "metadata.labels：shoal.dev/channel 只能是 device-plugin 或 dra",
}

_WORDS: Final = {Language.ENGLISH: _ENGLISH, Language.CHINESE: _CHINESE}


def rule_text(rule: Rule, language: Language = Language.ENGLISH) -> str:
    """What a policy says when it refuses something."""
    return _WORDS[language][rule]
