"""What is asked for: task classes and how often each of them arrives, given or learned; prices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal.model.request import DeviceRequest, Request


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Pods that ask for the same; `weight` says how often they arrive beside other classes.

    Weights of one demand share a unit that only that demand knows (pods counted, or pods counted
    with a decay), so two demands are compared by shares of their total.
    """

    request: Request
    weight: int


@dataclass(frozen=True, slots=True)
class ClassPrice:
    """What room for a pod of a class is worth, in thousandths of a price unit.

    A price unit is a thousandth of a device, at its full value. `worth` is what the pod brings
    beyond what others would have paid for its place. `shortfalls` lists what it loses on an
    accelerator against the one that suits it best; on those not listed it loses nothing. `reserve`
    is what a node should be worth, beyond all else, while it could take a pod of the class: not
    nothing where pods take whole devices and few nodes would do even if they were empty.
    """

    demand: TaskClass
    worth: int
    shortfalls: tuple[tuple[str, int], ...] = ()
    reserve: int = 0


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a fleet under a demand, and the demand that they were made from.

    `scarcity` says in thousandths, by accelerator, how much of all accelerators that will do is
    asked for by classes that ask for this one by name, when the whole fleet is asked for.
    """

    classes: tuple[ClassPrice, ...] = ()
    scarcity: tuple[tuple[str, int], ...] = ()


HALF_LIFE_PODS = 1000
"""Arrivals after which an arrival counts half as much in the learned demand."""

FIRST_PRICING_PODS = 20
"""Arrivals before prices are asked for the first time; later intervals grow by half each."""

LONGEST_PRICING_PODS = 800
"""Arrivals between two askings, at most."""

MOST_CLASSES = 4096
"""Classes remembered; beyond them those with least weight are forgotten."""

ONE_ARRIVAL = 1 << 20
"""Weight of an arrival right after a halving."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a `Demand` remembers, as a value."""

    classes: tuple[TaskClass, ...] = ()
    pods: int = 0
    interval_pods: int = FIRST_PRICING_PODS
    next_pricing_pods: int = FIRST_PRICING_PODS


_Kind = tuple[int, int, tuple[int, bool, int, int, tuple[str, ...]]]
"""What a class takes and which accelerators it takes it from, as a key that is soon hashed."""


class Demand:
    """The demand as learned from arrivals, in integers, so that equal arrivals teach the same.

    Instead of letting every weight decay at every arrival, later arrivals weigh more, from 1 to 2
    units over a half-life (linearly between the halvings, at most 6 % above the exponential); then
    all weights are halved.
    """

    def __init__(self) -> None:
        self._weights: dict[_Kind, int] = {}
        self.pods = 0
        """Pods that have arrived."""
        self._interval_pods = FIRST_PRICING_PODS
        self._next_pricing_pods = FIRST_PRICING_PODS

    @property
    def pricing_due(self) -> bool:
        """Whether enough has arrived since the last pricing to ask for another."""
        return self.pods >= self._next_pricing_pods

    def arrived(self, request: Request, pods: int) -> None:
        """Count pods of a new arrival."""
        kind = _kind(request)
        while pods > 0:
            age = self.pods % HALF_LIFE_PODS
            step = min(pods, HALF_LIFE_PODS - age)
            weight = (
                step * ONE_ARRIVAL
                + ONE_ARRIVAL * (step * age + step * (step - 1) // 2) // HALF_LIFE_PODS
            )
            self._weights[kind] = self._weights.get(kind, 0) + weight
            self.pods += step
            pods -= step
            if self.pods % HALF_LIFE_PODS == 0:
                self._halve()

    def priced(self) -> None:
        """Note that prices were set, and when the next are due."""
        if self.pricing_due:
            self._interval_pods = min(self._interval_pods * 3 // 2, LONGEST_PRICING_PODS)
        self._next_pricing_pods = self.pods + self._interval_pods

    def classes(self) -> tuple[TaskClass, ...]:
        """What is expected, heaviest classes first."""
        return _heaviest_first(self._weights)

    def learned(self) -> Learned:
        """Everything that is remembered."""
        return Learned(self.classes(), self.pods, self._interval_pods, self._next_pricing_pods)

    def restore(self, learned: Learned) -> None:
        """Remember `learned` and nothing else."""
        self._weights = {_kind(each.request): each.weight for each in learned.classes}
        self.pods = learned.pods
        self._interval_pods = learned.interval_pods
        self._next_pricing_pods = learned.next_pricing_pods

    def _halve(self) -> None:
        self._weights = {kind: half for kind, all_ in self._weights.items() if (half := all_ >> 1)}
        if len(self._weights) > MOST_CLASSES:
            kept = _heaviest_first(self._weights)[:MOST_CLASSES]
            self._weights = {_kind(each.request): each.weight for each in kept}


def _kind(request: Request) -> _Kind:
    """The class of a request.

    Labels, taints and masks decide where it may run, not what a device is worth.
    """
    devices = request.devices
    accelerators = tuple(sorted(set(devices.accelerators)))
    taken = devices.count, devices.whole, devices.memory_mib, devices.compute_milli, accelerators
    return request.cpu_milli, request.memory_mib, taken


def _heaviest_first(weights: Mapping[_Kind, int]) -> tuple[TaskClass, ...]:
    classes = [
        TaskClass(Request(cpu_milli, memory_mib, DeviceRequest(*devices)), weight)
        for (cpu_milli, memory_mib, devices), weight in weights.items()
    ]
    return tuple(sorted(classes, key=lambda each: (-each.weight, repr(each.request))))


def merged(classes: Iterable[TaskClass]) -> tuple[TaskClass, ...]:
    """Classes as the learned demand would have them: equal ones are one, heaviest first."""
    weights: dict[_Kind, int] = {}
    for each in classes:
        kind = _kind(each.request)
        weights[kind] = weights.get(kind, 0) + each.weight
    return _heaviest_first(weights)
