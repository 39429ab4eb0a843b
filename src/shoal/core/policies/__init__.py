"""Placement policies, each a few small named pieces (`pieces`).

Rule of this room: a policy scores and chooses, nothing else. It reads the fleet's arrays, may keep
caches derived from them by the change log, and never writes. Policies do not know of one another.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shoal.core.demand import TaskClass
from shoal.core.policies.fgd import Fgd
from shoal.core.policies.pieces import Scorer
from shoal.core.policies.published import BestFit, Clustering, DotProduct, Packing, Random
from shoal.core.policies.simple import Pack, Spread


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Which policy places work, and the demand that it is told to expect (for `fgd`)."""

    name: str
    demand: tuple[TaskClass, ...] = ()

    def scorer(self) -> Scorer:
        """Make the policy's scorer. Raises `ValueError` if no policy has this name."""
        make = _SCORERS.get(self.name)
        if make is None:
            raise ValueError(
                f"There is no placement policy named {self.name!r}; "
                f"write one of {', '.join(POLICIES)}."
            )
        return make(self)


_SCORERS: dict[str, Callable[[Policy], Scorer]] = {
    "random": lambda _: Random(),
    "dot-product": lambda _: DotProduct(),
    "clustering": lambda _: Clustering(),
    "packing": lambda _: Packing(),
    "best-fit": lambda _: BestFit(),
    "fgd": lambda policy: Fgd(policy.demand),
    "pack": lambda _: Pack(),
    "spread": lambda _: Spread(),
}

POLICIES = tuple(_SCORERS)
"""Names of all policies."""
