r"""Shoal's annotations on a pod, read strictly.

| key | value |
| --- | --- |
| `shoal.dev/memory` | a quantity of bytes: the memory on each device |
| `shoal.dev/compute` | a whole percentage from 1 to 100: the compute on each device |
| `shoal.dev/devices` | a whole number from 1: how many devices |
| `shoal.dev/isolation` | the least isolation: a preset, or `memory=driver,fault=none` |
| `shoal.dev/accelerators` | which will do, by name or group: `H100\|A100-80GB` |
| `shoal.dev/links` | a connection that its devices must have, such as `nvlink` |
| `shoal.dev/queue` | the queue to wait in |
| `shoal.dev/type` | `training`, `inference`, `notebook` or `batch` |
| `shoal.dev/priority` | a priority of the queue, by its name |
| `shoal.dev/run` | how long the work runs at most, such as `2h` |
| `shoal.dev/minimum` | how many of these pods have to run; the others run while there is room |
| `shoal.dev/recreate` | `true`: somebody makes the pod, which has no owner, again |
| `shoal.dev/checkpoint` | up to when the work of the pod is saved, which it says while it runs |

Any other key of the prefix is refused. `shoal.dev/claim` is written by Shoal's webhook, and
`shoal.dev/user`, `groups` and `owner` by admission in a cluster: who asks is known from the API
server, never from what people write.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shoal.model.isolation import PRESETS, Isolation, parse_isolation
from shoal.model.refusal import Details, Hint, HintCode, Refusal, RefusalCode
from shoal.model.workload import WorkloadType
from shoal.objects.durations import duration_us
from shoal.objects.moments import moment_us
from shoal.objects.quantity import MIB, QuantityError, ceiling, exact

PREFIX: Final = "shoal.dev/"
MEMORY: Final = f"{PREFIX}memory"
COMPUTE: Final = f"{PREFIX}compute"
DEVICES: Final = f"{PREFIX}devices"
ISOLATION: Final = f"{PREFIX}isolation"
ACCELERATORS: Final = f"{PREFIX}accelerators"
LINKS: Final = f"{PREFIX}links"
QUEUE: Final = f"{PREFIX}queue"
TYPE: Final = f"{PREFIX}type"
PRIORITY: Final = f"{PREFIX}priority"
RUN: Final = f"{PREFIX}run"
MINIMUM: Final = f"{PREFIX}minimum"
RECREATE: Final = f"{PREFIX}recreate"
CHECKPOINT: Final = f"{PREFIX}checkpoint"

WRITTEN_BY_PEOPLE: Final = (
    *(MEMORY, COMPUTE, DEVICES, ISOLATION, ACCELERATORS, LINKS),
    *(QUEUE, TYPE, PRIORITY, RUN, MINIMUM, RECREATE, CHECKPOINT),
)
"""Every key that a person may write on a pod."""

SAID_WHILE_RUNNING: Final = (CHECKPOINT,)
"""Keys that pods write while they run; nothing is planned with them."""

ASKING: Final = (MEMORY, COMPUTE, DEVICES)
"""Keys that by themselves make a pod ask for a device."""

CLAIM: Final = f"{PREFIX}claim"
"""What the webhook replaced by a claim: see `objects.claims`."""

PLAN: Final = f"{PREFIX}plan"
"""The scheduling gate; as an annotation it is always forged."""

HELD: Final = f"{PREFIX}held"
"""Why a pod is held back that waited, or whose work ran, for as long as it may."""

USER: Final = f"{PREFIX}user"
"""Who created the object, as the API server names users; whoever writes it would be another."""

GROUPS: Final = f"{PREFIX}groups"
"""Those of the user's groups that a priority names, separated by spaces."""

OWNER: Final = f"{PREFIX}owner"
"""The uid of the controller that the object was created for, where a controller created it."""

STAMPS: Final = (USER, GROUPS, OWNER)
"""By whom and for whom an object was created, as admission notes it."""

WRITTEN_BY_SHOAL: Final = (CLAIM, PLAN, HELD, *STAMPS)

DEFAULT_QUEUE: Final = "default"

PERCENTAGE_FORM: Final = "100|[1-9][0-9]?"
COUNT_FORM: Final = "[1-9][0-9]{0,5}"
QUEUE_FORM: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
WORDS_FORM: Final = r"[A-Za-z0-9._-]+(\|[A-Za-z0-9._-]+)*"


@dataclass(frozen=True, slots=True)
class Annotations:
    """What a pod's annotations say. `None` and empty: not written.

    `memory_mib` is rounded up to whole MiB; `accelerators` and `links` are words as written, and so
    is `priority`. `run_us` is in microseconds, and `checkpoint_us` in those since the epoch.
    """

    memory_mib: int | None = None
    compute_percent: int | None = None
    devices: int | None = None
    isolation: Isolation | None = None
    accelerators: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    queue: str = DEFAULT_QUEUE
    type: WorkloadType = WorkloadType.BATCH
    priority: str = ""
    run_us: int | None = None
    minimum: int | None = None
    recreate: bool = False
    checkpoint_us: int | None = None
    hints: tuple[Hint, ...] = field(default=(), compare=False)

    @property
    def asks(self) -> bool:
        """Whether they ask for a device by themselves."""
        return (self.memory_mib, self.compute_percent, self.devices) != (None, None, None)


def read_annotations(
    annotations: Mapping[str, str], queues: Collection[str] = (DEFAULT_QUEUE,)
) -> Annotations | Refusal:
    """Read the keys of the prefix; all others are left alone.

    Args:
        annotations: of the pod, or of the template of pods.
        queues: those that the pod's namespace may use.
    """
    mine = sorted(key for key in annotations if key.startswith(PREFIX) and key != CLAIM)
    for key in mine:
        if key not in WRITTEN_BY_PEOPLE:
            return _unknown(key, annotations[key])
    found: dict[str, Any] = {}
    for key in mine:
        text = annotations[key]
        value = _queue(text, queues) if key == QUEUE else _READERS[key](key, text)
        if isinstance(value, Refusal):
            return value
        found[_FIELDS[key]] = value
    return Annotations(**found, hints=_rounded(annotations.get(MEMORY)))


def nearest(
    word: str, known: Collection[str], most: int = 3, least: float = 0.5
) -> tuple[str, ...]:
    """Words of `known` that look like `word`, the likest first; with `least` 0 however little."""
    folded = {each.lower(): each for each in sorted(known)}
    near = difflib.get_close_matches(word.lower()[:80], folded, n=most, cutoff=least)
    return tuple(folded[each] for each in near)


def refuse(code: RefusalCode, key: str, text: str = "", **details: str | int) -> Refusal:
    """A refusal with its details in the order given."""
    given: Details = tuple(details.items())
    return Refusal(code, key, text[:100], given)


def _unknown(key: str, text: str) -> Refusal:
    if key in WRITTEN_BY_SHOAL:
        return refuse(RefusalCode.WRITTEN_BY_SHOAL, key, text)
    near = nearest(key.removeprefix(PREFIX), [k.removeprefix(PREFIX) for k in WRITTEN_BY_PEOPLE], 1)
    meant = f"{PREFIX}{near[0]}" if near else ""
    known = ", ".join(WRITTEN_BY_PEOPLE)
    return refuse(RefusalCode.UNKNOWN_KEY, key, text, meant=meant, known=known)


def _memory(key: str, text: str) -> int | Refusal:
    try:
        value = exact(text)
    except QuantityError:
        return refuse(RefusalCode.NOT_A_QUANTITY, key, text)
    if value <= 0:
        return refuse(RefusalCode.NOT_POSITIVE, key, text)
    if value < MIB:
        number = text if re.fullmatch("[0-9]{1,6}", text) else "5"
        return refuse(RefusalCode.UNDER_ONE_MIB, key, text, gib=f"{number}Gi", mib=f"{number}Mi")
    return ceiling(text, MIB)


def _rounded(text: str | None) -> tuple[Hint, ...]:
    """Which memory is used, where it is not exactly the one that was written."""
    if text is None or exact(text) == (mib := ceiling(text, MIB)) * MIB:
        return ()
    return (Hint(HintCode.ROUNDED, MEMORY, text, (("mib", mib),)),)


def _compute(key: str, text: str) -> int | Refusal:
    if re.fullmatch(PERCENTAGE_FORM, text) is None:
        return refuse(RefusalCode.NOT_A_PERCENTAGE, key, text)
    return int(text)


def _devices(key: str, text: str) -> int | Refusal:
    if re.fullmatch(COUNT_FORM, text):
        return int(text)
    try:
        in_parts = exact(text) > 0 and exact(text).denominator != 1
    except QuantityError:
        in_parts = False
    code = RefusalCode.DEVICES_IN_PARTS if in_parts else RefusalCode.NOT_A_COUNT
    return refuse(code, key, text)


def _pods(key: str, text: str) -> int | Refusal:
    if re.fullmatch(COUNT_FORM, text) is None:
        return refuse(RefusalCode.NOT_A_COUNT, key, text)
    return int(text)


def _isolation(key: str, text: str) -> Isolation | Refusal:
    try:
        return parse_isolation(text)
    except ValueError:
        return refuse(RefusalCode.BAD_ISOLATION, key, text, presets=", ".join(PRESETS))


def _words(key: str, text: str) -> tuple[str, ...] | Refusal:
    if re.fullmatch(WORDS_FORM, text) is None:
        example = "nvlink" if key == LINKS else "H100|A100-80GB"
        return refuse(RefusalCode.BAD_WORD, key, text, known=example)
    return tuple(dict.fromkeys(text.split("|")))


def _type(key: str, text: str) -> WorkloadType | Refusal:
    if text not in [each.value for each in WorkloadType]:
        return refuse(RefusalCode.BAD_WORD, key, text, known=", ".join(WorkloadType))
    return WorkloadType(text)


def _priority(key: str, text: str) -> str | Refusal:
    if re.fullmatch(QUEUE_FORM, text) is None:
        return refuse(RefusalCode.BAD_WORD, key, text, known="urgent")
    return text


def _run(key: str, text: str) -> int | Refusal:
    return duration_us(text) or refuse(RefusalCode.NOT_A_DURATION, key, text)


def _recreate(key: str, text: str) -> bool | Refusal:
    # Work of which nobody makes the pods again is never evicted, so "false" could be abused.
    return text == "true" or refuse(RefusalCode.BAD_WORD, key, text, known="true")


def _checkpoint(key: str, text: str) -> int | Refusal:
    found = moment_us(text)
    return refuse(RefusalCode.NOT_A_MOMENT, key, text) if found is None else found


def _queue(text: str, queues: Collection[str]) -> str | Refusal:
    if text in queues:
        return text
    near = ", ".join(nearest(text, queues) or sorted(queues)[:3])
    formed = re.fullmatch(QUEUE_FORM, text) is not None
    code = RefusalCode.UNKNOWN_QUEUE if formed else RefusalCode.BAD_QUEUE_NAME
    return refuse(code, QUEUE, text, near=near)


_READERS: Final[Mapping[str, Callable[[str, str], object]]] = {
    MEMORY: _memory,
    COMPUTE: _compute,
    DEVICES: _devices,
    ISOLATION: _isolation,
    ACCELERATORS: _words,
    LINKS: _words,
    TYPE: _type,
    PRIORITY: _priority,
    RUN: _run,
    MINIMUM: _pods,
    RECREATE: _recreate,
    CHECKPOINT: _checkpoint,
}
_FIELDS: Final[Mapping[str, str]] = {key: key.removeprefix(PREFIX) for key in WRITTEN_BY_PEOPLE} | {
    MEMORY: "memory_mib",
    COMPUTE: "compute_percent",
    RUN: "run_us",
    CHECKPOINT: "checkpoint_us",
}
