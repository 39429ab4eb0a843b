"""Shapes: equal requests are one shape, so that what is computed for one serves all."""

from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from shoal.core.arrays.fleet import Fleet
from shoal.model.isolation import NO_FLOOR, Isolation
from shoal.model.request import AffinityTerm, Request, Toleration
from shoal.model.workload import WorkloadType


@dataclass(frozen=True, slots=True)
class StaticDemand:
    """What of a request decides where a pod may run at all, whatever is free there."""

    needs_devices: bool
    type: WorkloadType | None
    accelerators: tuple[str, ...]
    floor: Isolation
    selector: tuple[tuple[str, str], ...]
    affinity: tuple[AffinityTerm, ...]
    tolerations: tuple[Toleration, ...]
    mask: str


class Shape:
    """A request that caches can be keyed by without hashing it again; compare with `is`.

    `type` is that of its work where pools are told apart by it, else None. A shape belongs to one
    fleet, whose numbers of accelerators it remembers.
    """

    __slots__ = ("__weakref__", "_accelerator_ids", "request", "static", "type")

    def __init__(self, request: Request, static: StaticDemand) -> None:
        self.request = request
        self.static = static
        self.type = static.type
        self._accelerator_ids: NDArray[np.int64] | None = None

    def accelerator_ids(self, fleet: Fleet) -> NDArray[np.int64] | None:
        """Return the numbers of the accelerators that will do, or None for any."""
        names = self.request.devices.accelerators
        if not names:
            return None
        if self._accelerator_ids is None:
            ids = [fleet.accelerator_id(name) for name in names]
            self._accelerator_ids = np.array(ids, dtype=np.int64)
        return self._accelerator_ids


class Shapes:
    """The shapes in use, by request; one that nobody uses any more is forgotten."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[Request, WorkloadType | None], Shape] = (
            WeakValueDictionary()
        )

    def of(self, request: Request, type_: WorkloadType | None = None) -> Shape:
        """Return the one shape of equal requests by work of a type."""
        shape = self._known.get((request, type_))
        if shape is None:
            shape = Shape(request, _static_demand(request, type_))
            self._known[request, type_] = shape
        return shape


def _static_demand(request: Request, type_: WorkloadType | None) -> StaticDemand:
    return StaticDemand(
        type=type_,
        needs_devices=request.devices.count > 0,
        accelerators=request.devices.accelerators if request.devices.count else (),
        floor=NO_FLOOR if request.devices.whole else request.devices.floor,
        selector=request.selector,
        affinity=request.affinity,
        tolerations=request.tolerations,
        mask=request.mask,
    )
