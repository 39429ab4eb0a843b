"""`shoal why`: why a workload, or a cluster's pod, is where it is, or is not."""

import sys
import time
from typing import Annotated

from cyclopts import Parameter

from shoal.cli.output import DEFAULT_VIEW, WATCH_S, View, only_tables
from shoal.cli.where import DEFAULT_READING, DEFAULT_WHERE, Reading, Where, find


def why(
    name: str,
    /,
    *,
    namespace: Annotated[str | None, Parameter(name=["--namespace", "-n"])] = None,
    view: View = DEFAULT_VIEW,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """Say why something waits, where it is, or where it would start now.

    Parameters
    ----------
    name
        The workload's name or id; in a cluster the pod's name.
    namespace
        Its namespace; for a workload only needed where several have the name.
    """
    only_tables(view, "why")
    platform = find(where, reading)
    before: list[str] = []
    while True:
        said = platform.why(name, namespace, view.output)
        if said != before:
            print("\n".join(said))
            before = said
        if not view.watch:
            return
        sys.stdout.flush()
        time.sleep(WATCH_S)
