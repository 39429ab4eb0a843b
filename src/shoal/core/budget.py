"""How much a cycle may do, counted in operations, so that it is bounded without a clock."""


class Budget:
    """A number of placements that may be tried. An operation is the search for one pod's place."""

    __slots__ = ("left",)

    def __init__(self, operations: int) -> None:
        self.left = operations

    def spend(self) -> bool:
        """Take one operation; False if there is none left."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True
