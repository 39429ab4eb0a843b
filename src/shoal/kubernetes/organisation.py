"""The pools and queues that a scheduler keeps to, and the way to others while it runs."""

from shoal.core.tenancy.inside import inside_of
from shoal.kubernetes.watching.source import Source
from shoal.loop.meanings import change, several_pools
from shoal.model.meaning import Meaning
from shoal.model.queue import QueueTree
from shoal.objects.files import BadObjectsError, Written
from shoal.objects.meaning import closing_kept, without_closed
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
        """Keep to these from now on, all at once; return what that means for who is there.

        Raises `BadObjectsError` where a node would come to be in several pools, and changes nothing
        then.
        """
        problems = several_pools(self._source.world, self.written, written)
        if problems:
            raise BadObjectsError(problems)
        foreseen = change(self._source.world, self.written, written, self._names, now_us)
        self._keep(foreseen.written, now_us)
        return foreseen.meanings

    def recall(self, before: QueueTree, now_us: int) -> None:
        """Have queues close that an earlier leader kept to, and in which work runs still."""
        inside = inside_of(self._source.world)
        tree = closing_kept(before, self.written.tree, inside, self._names)
        self._keep(Written(self.written.pools, tree), now_us)

    def let_closed_go(self, now_us: int) -> None:
        """Forget queues that were closing and hold nothing any more."""
        tree = self.written.tree
        left = without_closed(tree, self._source.world.holders)
        if left is not tree:
            self._keep(Written(self.written.pools, left), now_us)

    def _keep(self, written: Written, now_us: int) -> None:
        self.written = written
        self._source.keep_to(written.pools, resolved(written.tree, self._names), now_us)
