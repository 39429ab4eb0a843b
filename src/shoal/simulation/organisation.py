"""The organisation of the demo: its fleet, its teams, and the work they send through the day.

It has 24 nodes of three accelerators and six teams. Their work comes by the hour: notebooks in
working hours, training above all before people go to lunch and home, batch at night. Services run
all day. On the first morning the work of the weekend stands at the door.

Most owners of training and batch declare how long it runs, and most of them generously. Some work
is urgent, and large training can do with half of its pods.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from shoal.core.policies import Policy
from shoal.model.isolation import PRESETS
from shoal.model.modes import Cap, Sharing
from shoal.model.node import Device, Leaf, Node
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import PodSet, Workload, WorkloadType
from shoal.simulation.chance import Chance

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US

FIRST_MORNING_US = 1_767_600_000_000_000
"""Monday 5 January 2026, 08:00 UTC: when the demo begins, so that it is the same for everybody."""

FIRST_WAVE_US = 90_000_000
"""The time in which the work of the weekend comes in."""

POLICY = Policy("fragmentation")

H100, A100, L40S = "H100-SXM5-80GB", "A100-SXM4-80GB", "L40S"
MEMORY_MIB = {H100: 81_559, A100: 81_920, L40S: 46_068}
"""Of a device, as its driver reports it."""

SHARERS = 6
"""Pods on one L40S at most."""

_SLICES, _SLICE_MIB, _SLICE_MILLI = 7, 9_728, 142
"""The seven 1g.10gb instances of an A100-80GB (NVIDIA, MIG user guide, supported profiles)."""

_OFFICE = (0, 0, 0, 0, 0, 0, 1, 3, 9, 12, 11, 8, 5, 9, 12, 10, 8, 5, 3, 2, 2, 1, 1, 0)
_TRAINING = (2, 1, 1, 1, 1, 1, 1, 2, 4, 7, 8, 9, 6, 7, 8, 8, 9, 10, 7, 5, 4, 4, 3, 3)
_NIGHT = (9, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 2, 3, 5, 8, 11, 12, 11, 10)
_STEADY = (1,) * 24


@dataclass(frozen=True, slots=True)
class Kind:
    """Work that a team sends again and again: `a_day` on average, over the hours as in `hours`.

    `first` of them stand at the door on the first morning. What ends by itself runs about
    `hours_long`. `pods` and `devices` list sizes, each as likely as the others. `urgent` is the
    part of it that is; of what is `elastic` half of the pods have to run.
    """

    queue: str
    name: str
    type: WorkloadType
    a_day: float
    hours: tuple[int, ...]
    first: int
    request: Request
    devices: tuple[int, ...] = (1,)
    pods: tuple[int, ...] = (1,)
    urgent: float = 0.0
    elastic: bool = False


def _whole(accelerator: str) -> Request:
    return Request(devices=DeviceRequest(1, accelerators=(accelerator,)))


def _share(floor: str, memory_mib: int, compute_milli: int, *accelerators: str) -> Request:
    devices = DeviceRequest(1, False, memory_mib, compute_milli, accelerators, PRESETS[floor])
    return Request(2_000, 16_384, devices)


def _serving(memory_mib: int, compute_milli: int) -> Request:
    """What a service asks for that writes no isolation."""
    request = _share("driver", memory_mib, compute_milli, L40S)
    return replace(request, devices=replace(request.devices, keeps_to_party=True))


_T, _I, _N, _B = (
    WorkloadType.TRAINING,
    WorkloadType.INFERENCE,
    WorkloadType.NOTEBOOK,
    WorkloadType.BATCH,
)

KINDS = (
    Kind("nlp", "pretrain", _T, 12, _TRAINING, 2, _whole(H100), (8,), (2, 2, 4), elastic=True),
    Kind("nlp", "finetune", _T, 46, _TRAINING, 6, _whole(H100), (2, 4, 8), urgent=0.15),
    Kind("nlp", "eval", _B, 50, _NIGHT, 4, _whole(H100)),
    Kind("vision", "train", _T, 60, _TRAINING, 9, _whole(A100), (1, 2, 4, 8), urgent=0.15),
    Kind("vision", "sweep", _B, 90, _NIGHT, 8, _whole(A100)),
    Kind("vision", "notebook", _N, 26, _OFFICE, 4, _share("soft", 9_000, 140, A100)),
    Kind("speech", "train", _T, 30, _TRAINING, 4, _whole(A100), (4, 8), (1, 1, 2), elastic=True),
    Kind("speech", "notebook", _N, 14, _OFFICE, 3, _share("soft", 8_192, 120, A100, L40S)),
    Kind("search", "embed", _T, 26, _TRAINING, 3, _whole(H100), (4, 8)),
    Kind("search", "serve", _I, 36, _STEADY, 20, _serving(12_288, 300)),
    Kind("ranking", "train", _T, 38, _TRAINING, 6, _whole(A100), (2, 4), urgent=0.1),
    Kind("ranking", "serve", _I, 46, _STEADY, 26, _serving(7_168, 200)),
    Kind("analytics", "score", _B, 110, _NIGHT, 6, _whole(L40S)),
    Kind("analytics", "notebook", _N, 40, _OFFICE, 8, _share("soft", 6_144, 100, L40S)),
)

HOURS_LONG = {_T: (1.6, 0.9), _I: (14.0, 0.5), _N: (2.6, 0.7), _B: (0.7, 0.7)}
"""How long work runs: the median, and its spread (`Chance.around`)."""

DECLARED = 0.8
"""The part of training and batch whose owners say how long it runs at most."""

DECLARED_TIMES = (0.95, 2.2)
"""How often what it takes fits into that; some run longer than they said."""

GRACE_US = {_T: 120_000_000, _I: 30_000_000, _N: 60_000_000, _B: 30_000_000}
"""What pods take to stop, at most."""

PEOPLE = 4
"""In each team."""


def fleet() -> tuple[Node, ...]:
    """Return the demo's 24 nodes: eight of each accelerator, two racks of four in a block."""
    nodes = []
    for accelerator, short, devices, cpu in ((H100, "h100", 8, 192), (A100, "a100", 8, 128)):
        nodes += [_node(accelerator, short, number, devices, cpu) for number in range(1, 9)]
    nodes += [_node(L40S, "l40s", number, 4, 64) for number in range(1, 9)]
    return tuple(nodes)


def _node(accelerator: str, short: str, number: int, devices: int, cpu: int) -> Node:
    name = f"{short}-{number:02}"
    rack = f"{short}-r{(number + 3) // 4}"
    labels = {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.product": accelerator,
        "shoal.dev/rack": rack,
        "shoal.dev/block": short,
    }
    if accelerator != L40S:
        labels["shoal.dev/nvlink"] = name
    cards = tuple(_card(accelerator, name, number, card) for card in range(devices))
    return Node(name, cpu * 1000, cpu * 8_192, 110, cards, labels)


def _card(accelerator: str, node: str, number: int, card: int) -> Device:
    """A device; the last A100 node has two of its cards in slices, and L40S are shared."""
    name = f"{node}/gpu{card}"
    if accelerator == A100 and number == 8 and card >= 6:
        return Device(
            name,
            accelerator,
            tuple(Leaf(f"{name}/1g{part}", _SLICE_MIB, _SLICE_MILLI) for part in range(_SLICES)),
        )
    leaf = Leaf(name, MEMORY_MIB[accelerator])
    if accelerator == L40S:
        leaf = Leaf(
            name,
            MEMORY_MIB[accelerator],
            tenants=SHARERS,
            sharing=Sharing.TIME_SLICED,
            cap=Cap.DRIVER,
        )
    return Device(name, accelerator, (leaf,))


def hours_long(chance: Chance, workload: Workload) -> float:
    """Return for how many hours a workload runs, whoever sent it."""
    median, spread = HOURS_LONG[workload.type]
    return chance.around(median, spread, "hours", workload.uid)


def declared_us(chance: Chance, workload: Workload) -> int | None:
    """Return how long work runs at most as its owner says, in whole quarters of an hour."""
    declares = chance.unit("declares", workload.uid) < DECLARED
    if workload.type not in (WorkloadType.TRAINING, WorkloadType.BATCH) or not declares:
        return None
    times = chance.between(*DECLARED_TIMES, "declares times", workload.uid)
    quarters = ceil(4 * hours_long(chance, workload) * times)
    return quarters * HOUR_US // 4


class Organisation:
    """What comes in, from one seed. `begin_us` is the first morning, eight o'clock."""

    def __init__(self, seed: int, begin_us: int) -> None:
        self._chance = Chance(seed)
        self._begin_us = begin_us

    def arrivals(self, after_us: int) -> Iterator[Workload]:
        """Yield all work created later than `after_us`, in order, without end.

        No two workloads are created at the same time.
        """
        since_us = after_us - self._begin_us
        hour = since_us // HOUR_US if since_us >= FIRST_WAVE_US else -1
        while True:
            for workload in self._hour(hour):
                if workload.created_us > after_us:
                    yield workload
            hour += 1

    def _hour(self, hour: int) -> list[Workload]:
        """Return the work of an hour since the beginning; that of hour -1 stood at the door."""
        chance = self._chance
        begin_us = self._begin_us + max(0, hour) * HOUR_US + (hour == 0) * FIRST_WAVE_US
        width_us = FIRST_WAVE_US if hour < 0 else HOUR_US - (hour == 0) * FIRST_WAVE_US
        drawn = []
        for kind in KINDS:
            of_day = kind.hours[(8 + hour) % 24] / sum(kind.hours)
            key = f"{kind.queue}/{kind.name}/{hour}"
            count = kind.first if hour < 0 else chance.count(kind.a_day * of_day, "arrivals", key)
            for number in range(count):
                name = f"{key}/{number}"
                drawn.append((chance.unit("minute", name), name, kind))
        drawn.sort(key=lambda each: each[:2])
        # A millisecond at the end of the hour keeps room for moving apart what coincides.
        times = [begin_us + 1 + int(part * (width_us - 1000)) for part, _, _ in drawn]
        for i in range(1, len(times)):
            times[i] = max(times[i], times[i - 1] + 1)
        return [
            self._workload(kind, name, at_us)
            for at_us, (_, name, kind) in zip(times, drawn, strict=True)
        ]

    def _workload(self, kind: Kind, key: str, at_us: int) -> Workload:
        hour, number = key.rsplit("/", 2)[1:]
        clock = "mon" if hour == "-1" else f"{int(hour):03}"
        name = f"{kind.name}-{clock}-{number}"
        devices = self._chance.one_of(kind.devices, "devices", key)
        pods = self._chance.one_of(kind.pods, "pods", key)
        request = kind.request
        if request.devices.whole:
            asked = DeviceRequest(devices, accelerators=request.devices.accelerators)
            request = Request(6_000 * devices, 65_536 * devices, asked)
        minimum = pods - pods // 2 if kind.elastic else None
        person = self._chance.one_of(range(1, PEOPLE + 1), "person", key)
        is_urgent = self._chance.unit("urgent", key) < kind.urgent
        workload = Workload(
            uid=f"{kind.queue}/{name}",
            pod_sets=(PodSet("main", pods, request, minimum),),
            queue=kind.queue,
            type=kind.type,
            created_us=at_us,
            name=name,
            namespace=kind.queue,
            user=f"{kind.queue}-{person}",
            grace_us=GRACE_US[kind.type],
            priority_name="urgent" if is_urgent else "normal",
        )
        return replace(workload, run_us=declared_us(self._chance, workload))
