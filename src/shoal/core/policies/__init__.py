"""Placement policies, each a few small named pieces (`pieces`).

Rule of this room: a policy scores and chooses, nothing else. It reads the fleet's arrays, may keep
caches derived from them by the change log, and never writes. Policies do not know of one another.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shoal.core.demand import Prices, TaskClass
from shoal.core.policies.fgd import Fgd
from shoal.core.policies.fragmentation import Fragmentation
from shoal.core.policies.pieces import Scorer
from shoal.core.policies.published import BestFit, Clustering, DotProduct, Packing, Random
from shoal.core.policies.simple import Pack, Spread


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Which policy places work, and the demand that it is told to expect (for `fgd`)."""

    name: str
    demand: tuple[TaskClass, ...] = ()

    def scorer(self, prices: Prices) -> Scorer:
        """Make the policy's scorer. Raises `ValueError` if no policy has this name."""
        make = _SCORERS.get(self.name)
        if make is None:
            raise ValueError(
                f"There is no placement policy named {self.name!r}; "
                f"write one of {', '.join(POLICIES)}."
            )
        return make(self, prices)


_SCORERS: dict[str, Callable[[Policy, Prices], Scorer]] = {
    "fragmentation": lambda _policy, prices: Fragmentation(prices),
    "random": lambda _policy, _prices: Random(),
    "dot-product": lambda _policy, _prices: DotProduct(),
    "clustering": lambda _policy, _prices: Clustering(),
    "packing": lambda _policy, _prices: Packing(),
    "best-fit": lambda _policy, _prices: BestFit(),
    "fgd": lambda policy, _prices: Fgd(policy.demand),
    "pack": lambda _policy, _prices: Pack(),
    "spread": lambda _policy, _prices: Spread(),
}

POLICIES = tuple(_SCORERS)
"""Names of all policies."""
