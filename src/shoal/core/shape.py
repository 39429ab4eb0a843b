"""Shapes: equal requests are one shape, so that what is computed for one serves all."""

from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from shoal.core.fleet import Fleet
from shoal.model.request import Request


class Shape:
    """A request that caches can be keyed by without hashing it again; compare with `is`."""

    __slots__ = ("__weakref__", "_accelerator_ids", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
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
        self._by_request: WeakValueDictionary[Request, Shape] = WeakValueDictionary()

    def of(self, request: Request) -> Shape:
        """Return the one shape of equal requests."""
        shape = self._by_request.get(request)
        if shape is None:
            shape = self._by_request[request] = Shape(request)
        return shape
