"""`shoal cancel`: end workloads of a running `shoal up`."""

from typing import Annotated

from cyclopts import Parameter

from shoal.cli.client import Api, segment
from shoal.cli.errors import CannotError, UsageError
from shoal.cli.on_socket import asked, named
from shoal.cli.where import DEFAULT_WHERE, Where, socket_of
from shoal.texts.screens import screen_text


def cancel(
    *names: str,
    namespace: Annotated[str | None, Parameter(name=["--namespace", "-n"])] = None,
    where: Where = DEFAULT_WHERE,
) -> None:
    """End workloads, whether they wait or run.

    Parameters
    ----------
    names
        Names or ids. The name of what has replicas ends them all.
    namespace
        Their namespace; only needed where several have the name.
    """
    if not names:
        raise UsageError("cancel expects names; write shoal cancel NAME.")
    path = socket_of(where, "kubectl delete")
    api = Api(path, where.language.value)
    live = []
    for name in names:
        found = [row for row in named(api, name, namespace) if row["state"] != "ended"]
        if not found:
            raise CannotError(f"{name} has ended already.")
        live += found
    for row in live:
        asked(lambda row=row: api.delete(f"/workloads/{segment(row['id'])}"))  # type: ignore[misc]
        shown = f"{row['namespace']}/{row['name']}"
        print(screen_text("cancelled", where.language, name=shown))
