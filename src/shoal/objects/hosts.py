"""CPU and memory of a pod, summed as kube-scheduler sums them.

Source: `k8s.io/component-helpers/resource`, `PodRequests`. App containers and sidecars run at once
and are added; an ordinary init container runs beside the sidecars started before it, and the pod
needs the most that any moment needs; overhead comes on top. Where the pod itself states its
resources, that is what counts. A request that is not written is the limit, as the API server
fills it in on pods, but not in templates.
"""

from fractions import Fraction
from typing import Final

from shoal.objects.manifests import ContainerLike, PodSpecLike, ResourcesLike
from shoal.objects.quantity import MIB, MILLI, QuantityError, exact

ZERO: Final = Fraction(0)

MOST: Final = 10**12
"""The most that is asked for, in thousandths of a core or MiB: a thousand times what any machine
has, and little enough to be counted in 64 bits."""

ALWAYS: Final = "Always"


def host_request(spec: PodSpecLike) -> tuple[int, int]:
    """CPU in thousandths of a core and memory in MiB, each rounded up, and at most `MOST`.

    Raises QuantityError for a manifest that no API server took.
    """
    cpu, memory = _total(spec, "cpu") / MILLI, _total(spec, "memory") / MIB
    return _rounded_up(cpu), _rounded_up(memory)


def is_sidecar(init: ContainerLike) -> bool:
    """Whether an init container keeps running beside the app containers."""
    return init.restart_policy == ALWAYS


def _rounded_up(value: Fraction) -> int:
    return min(MOST, -(-value.numerator // value.denominator))


def _total(spec: PodSpecLike, name: str) -> Fraction:
    overhead = spec.overhead.get(name)
    added = _not_negative(overhead) if overhead else ZERO
    of_pod = _wanted(spec.resources, name) if spec.resources is not None else None
    if of_pod is not None:
        return of_pod + added
    most = beside = ZERO
    for init in spec.init_containers:
        wanted = _wanted(init.resources, name) or ZERO
        most = max(most, beside + wanted)
        if is_sidecar(init):
            beside += wanted
    running = sum((_wanted(each.resources, name) or ZERO for each in spec.containers), beside)
    return max(most, running) + added


def _wanted(resources: ResourcesLike, name: str) -> Fraction | None:
    text = resources.requests.get(name, resources.limits.get(name))
    return None if text is None else _not_negative(text)


def _not_negative(text: str) -> Fraction:
    value = exact(text)
    if value < 0:
        raise QuantityError(f"{text!r} is below zero; write 0 or more")
    return value
