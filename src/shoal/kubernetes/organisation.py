"""The pools and queues that a scheduler keeps to, and the way to others while it runs."""

from shoal.core.tenancy.inside import inside_of, running_on
from shoal.core.world import World
from shoal.kubernetes.watching.source import Source
from shoal.model.meaning import Meaning
from shoal.model.queue import QueueTree
from shoal.objects.files import Written
from shoal.objects.meaning import closing_kept, meaning, pools_meaning, without_closed
from shoal.objects.quotas import Names
from shoal.objects.tree import resolved


class Organisation:
    """Pools and queues as they are written, and queues that close until nothing is in them."""

    def __init__(self, source: Source, names: Names) -> None:
        """Keep to none yet; `names` are what quotas may name."""
        self._source = source
        self._names = names
        self.written = Written()

    def take(self, written: Written, now_us: int) -> tuple[Meaning, ...]:
        """Keep to these from now on, all at once; return what that means for who is there."""
        said = meanings(self._source.world, self.written, written, self._names)
        self._keep_to(self.written.tree, written, now_us)
        return said

    def recall(self, before: QueueTree, now_us: int) -> None:
        """Have queues close that an earlier leader kept to, and in which work runs still."""
        self._keep_to(before, self.written, now_us)

    def let_closed_go(self, now_us: int) -> None:
        """Forget queues that were closing and hold nothing any more."""
        tree = self.written.tree
        if not any(queue.closing for queue in tree.queues):
            return
        holders = self._source.world.holders
        left = without_closed(tree, {above for name in holders for above in tree.path(name)})
        if left is not tree:
            self._keep_to(left, Written(self.written.pools, left), now_us)

    def _keep_to(self, before: QueueTree, after: Written, now_us: int) -> None:
        inside = inside_of(self._source.world)
        tree = closing_kept(before, after.tree, inside, self._names)
        self.written = Written(after.pools, tree)
        self._source.keep_to(after.pools, resolved(tree, self._names), now_us)


def meanings(world: World, old: Written, new: Written, names: Names) -> tuple[Meaning, ...]:
    """What it means for who is in the world that pools and queues are others than before."""
    labels = {node.name: node.labels for node in world.fleet.nodes if node is not None}
    return (
        *pools_meaning(old.pools, new.pools, running_on(world), labels),
        *meaning(old.tree, new.tree, inside_of(world), names),
    )
