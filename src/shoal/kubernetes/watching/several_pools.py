"""Nodes that several pools choose: labels of a cluster change at any time, and nothing checks them.

The core starts nothing new there. Here it is noticed, so that people can be told.
"""

from collections.abc import Iterator

from shoal.core import events as ev
from shoal.core.world import World
from shoal.model.pool import pools_of_node


class SeveralPools:
    """Nodes by the pools that choose them, where they are more than one."""

    def __init__(self, world: World) -> None:
        self.found: dict[str, tuple[str, ...]] = {}
        """The names of the pools by node."""
        self._world = world
        self._fresh: dict[str, None] = {}
        """Nodes of which nobody has been told what is to be said of them now."""

    def applied(self, event: ev.Event) -> None:
        """Look at a node that the world has taken in, or has lost."""
        match event:
            case ev.NodeSeen():
                node = event.node
                pools = pools_of_node(self._world.fleet.pools, node.labels)
                if len(pools) > 1 and self.found.get(node.name) != pools:
                    self.found[node.name] = pools
                    self._fresh[node.name] = None
                elif len(pools) <= 1:
                    self._forget(node.name)
            case ev.NodeLost():
                self._forget(event.name)

    def news(self) -> Iterator[str]:
        """The nodes that have come to be in several pools, or in others, since this was asked."""
        fresh, self._fresh = self._fresh, {}
        yield from fresh

    def _forget(self, node: str) -> None:
        self.found.pop(node, None)
        self._fresh.pop(node, None)
