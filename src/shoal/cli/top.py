"""`shoal top`: how many devices there are, and who holds them."""

from shoal.cli.output import DEFAULT_VIEW, View, show
from shoal.cli.where import DEFAULT_READING, DEFAULT_WHERE, Reading, Where, find


def top(
    *, view: View = DEFAULT_VIEW, where: Where = DEFAULT_WHERE, reading: Reading = DEFAULT_READING
) -> None:
    """Show how many devices of each accelerator there are, and who holds them.

    Queues hold them where shoal up runs, namespaces in a cluster.
    """
    platform = find(where, reading)
    show(platform.top, view, where.language)
