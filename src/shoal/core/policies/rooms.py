"""What nodes are worth as rooms for pods that few nodes could take even if they were empty.

Such a pod is not served by what is left elsewhere, so the price of its room says too little: when
the last room has gone, the pod is refused. Every node that could take it at this moment is worth
what that would cost, times how likely it is, beyond everything else (`ClassPrice.reserve`).
"""

import numpy as np

from shoal.core.arrays.journal import IntArray
from shoal.core.demand import Prices


class Rooms:
    """The rooms that are reserved, one column per class of pods."""

    def __init__(self, prices: Prices) -> None:
        reserved = [each for each in prices.classes if each.reserve]
        requests = [each.demand.request for each in reserved]
        self._accelerators = [request.devices.accelerators for request in requests]
        self._whole = np.array([r.devices.count for r in requests], dtype=np.int64)
        self._cpu = np.array([r.cpu_milli for r in requests], dtype=np.int64)
        self._memory = np.array([r.memory_mib for r in requests], dtype=np.int64)
        self._reserve = np.array([each.reserve for each in reserved], dtype=np.int64)

    @property
    def any(self) -> bool:
        """Whether rooms are reserved for anybody."""
        return len(self._reserve) > 0

    def on(self, accelerator: str) -> IntArray:
        """Return what a room for each class is worth on nodes with this accelerator."""
        suits = np.array(
            [not names or accelerator in names for names in self._accelerators], dtype=np.bool_
        )
        reserve: IntArray = self._reserve * suits
        return reserve

    def worth(
        self, reserves: IntArray, whole: IntArray, cpu: IntArray, memory: IntArray
    ) -> IntArray:
        """Return what nodes are worth as rooms, by what is free there.

        `reserves` is what `on` returned for each node, [row, class].
        """
        room = (whole[:, None] >= self._whole) & (cpu[:, None] >= self._cpu)
        room &= memory[:, None] >= self._memory
        worth: IntArray = (reserves * room).sum(axis=1)
        return worth
