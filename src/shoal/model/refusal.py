"""Why something that a person wrote is refused, as a machine-readable value.

Sentences are made in `texts`; each says what was wrong, where, and what to write instead.
"""

from dataclasses import dataclass
from enum import StrEnum


class RefusalCode(StrEnum):
    """What is wrong with what was written."""

    NOT_A_QUANTITY = "not-a-quantity"
    NOT_POSITIVE = "not-positive"
    UNDER_ONE_MIB = "under-one-mib"
    OVER_LARGEST_DEVICE = "over-largest-device"
    NOT_A_PERCENTAGE = "not-a-percentage"
    DEVICES_IN_PARTS = "devices-in-parts"
    NOT_A_COUNT = "not-a-count"
    NOT_A_FRACTION = "not-a-fraction"
    COUNTS_MIB = "counts-mib"
    BAD_ISOLATION = "bad-isolation"
    BAD_WORD = "bad-word"
    BAD_QUEUE_NAME = "bad-queue-name"
    UNKNOWN_QUEUE = "unknown-queue"
    UNKNOWN_ACCELERATOR = "unknown-accelerator"
    NO_ACCELERATOR = "no-accelerator"
    UNKNOWN_KEY = "unknown-key"
    MISPLACED = "misplaced"
    WRITTEN_BY_SHOAL = "written-by-shoal"
    CONTRADICTION = "contradiction"
    SEVERAL_VENDORS = "several-vendors"
    SEVERAL_SYSTEMS = "several-systems"
    SEVERAL_PROFILES = "several-profiles"
    BAD_NAMES = "bad-names"
    NO_CONTAINER = "no-container"
    SEVERAL_CONTAINERS = "several-containers"
    NO_RESOURCE_NAME = "no-resource-name"
    TOO_MANY_DEVICES = "too-many-devices"
    UNSUPPORTED_AFFINITY = "unsupported-affinity"
    NOT_A_DURATION = "not-a-duration"
    NOT_A_MOMENT = "not-a-moment"
    NOT_A_GANG = "not-a-gang"
    MINIMUM_ABOVE_COUNT = "minimum-above-count"
    NO_QUEUE_OF_NAMESPACE = "no-queue-of-namespace"
    SEVERAL_QUEUES = "several-queues"
    CLOSING_QUEUE = "closing-queue"
    TYPE_NOT_GRANTED = "type-not-granted"
    UNKNOWN_PRIORITY = "unknown-priority"
    PRIORITY_OF_OTHERS = "priority-of-others"
    PRIORITY_OF_NOBODY = "priority-of-nobody"


class HintCode(StrEnum):
    """What a person should know about what was written although it is accepted."""

    ROUNDED = "rounded"
    UNUSED_AFTER_INIT = "unused-after-init"
    SHARE_BECOMES_DEVICE = "share-becomes-device"
    TRANSLATED = "translated"


Details = tuple[tuple[str, str | int], ...]
"""Parameters of a sentence, by name, in a fixed order."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to refuse: `field` is where it stands, `value` what was written there."""

    code: RefusalCode
    field: str
    value: str = ""
    details: Details = ()


@dataclass(frozen=True, slots=True)
class Hint:
    """One remark beside an acceptance, of the same form."""

    code: HintCode
    field: str
    value: str = ""
    details: Details = ()
