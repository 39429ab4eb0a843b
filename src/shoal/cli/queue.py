"""`shoal queue`: the tenant tree of a running `shoal up`."""

from shoal.cli.client import Api
from shoal.cli.errors import CannotError
from shoal.cli.on_socket import alert, asked, queue_columns
from shoal.cli.output import DEFAULT_VIEW, Listing, View, show
from shoal.cli.where import DEFAULT_WHERE, Where, socket_of


def queue(
    name: str | None = None, /, *, view: View = DEFAULT_VIEW, where: Where = DEFAULT_WHERE
) -> None:
    """Show the tree of queues: what is guaranteed, used and borrowed, and what waits.

    What a queue uses includes what is below it. Borrowed is what it uses above its guarantee.

    Parameters
    ----------
    name
        Only this queue and those below it.
    """
    path = socket_of(where, "queues of a cluster are not kept by Shoal yet")
    api = Api(path, where.language.value)

    def look() -> Listing:
        alert(api, where.language)
        rows, _ = asked(lambda: api.items("/queues"))
        kept = [row for row in rows if name is None or name in row["path"]]
        if not kept:
            known = ", ".join(row["name"] for row in rows[:8]) or "none yet"
            raise CannotError(f"there is no queue {name}; there are: {known}.")
        return Listing(kept, queue_columns(where.language, indent=True))

    show(look, view, where.language)
