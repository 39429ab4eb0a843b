"""How much a cycle may do, counted in operations, so that it is bounded without a clock."""


class Budget:
    """A number of searches for a pod's place.

    A workload that is begun is brought to its end, so that one with more pods than the budget has
    its turn too: a cycle is bounded by its budget and one workload.
    """

    __slots__ = ("_left",)

    def __init__(self, operations: int) -> None:
        self._left = operations

    @property
    def spent(self) -> bool:
        """Whether no other workload may be begun."""
        return self._left <= 0

    def spend(self, searches: int = 1) -> None:
        """Count a search, or what takes as long as so many."""
        self._left -= searches
