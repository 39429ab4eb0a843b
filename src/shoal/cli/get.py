"""`shoal get`: rows of a platform, whether it is a cluster or a running `shoal up`."""

from typing import Annotated

from cyclopts import App, Parameter

from shoal.cli.output import DEFAULT_VIEW, View, show
from shoal.cli.where import DEFAULT_READING, DEFAULT_WHERE, Reading, Wanted, Where, find

app = App(name="get", help="List workloads, queues, pools, nodes, devices or pods.")

Namespace = Annotated[str | None, Parameter(name=["--namespace", "-n"])]


def _get(kind: str, wanted: Wanted, where: Where, reading: Reading, view: View) -> None:
    platform = find(where, reading)
    show(lambda: platform.listing(kind, wanted), view, where.language)


@app.command(name=["workloads", "workload"])
def workloads(
    name: str | None = None,
    /,
    *,
    namespace: Namespace = None,
    queue: str | None = None,
    type: Annotated[str | None, Parameter(name="--type")] = None,  # noqa: A002 - the option's name
    state: str | None = None,
    view: View = DEFAULT_VIEW,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """List workloads, the oldest first; in a cluster that Shoal observes, those that would wait.

    Parameters
    ----------
    name
        Only the one of this name.
    namespace
        Only those of this namespace.
    queue
        Only those of this queue and of queues below it.
    type
        Only those of this type: training, inference, notebook or batch.
    state
        Only those in this state: waiting, starting, running, evicting, stopping or ended; all:
        ended ones too.
    """
    wanted = Wanted(namespace=namespace, name=name, queue=queue, type=type, state=state)
    _get("workloads", wanted, where, reading, view)


@app.command(name=["queues", "queue"])
def queues(
    name: str | None = None,
    /,
    *,
    view: View = DEFAULT_VIEW,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """List queues, with what each uses and how much waits there.

    Parameters
    ----------
    name
        Only the one of this name.
    """
    _get("queues", Wanted(name=name), where, reading, view)


@app.command(name=["pools", "pool"])
def pools(
    name: str | None = None,
    /,
    *,
    view: View = DEFAULT_VIEW,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """List pools, and how many of their devices are free.

    Parameters
    ----------
    name
        Only the one of this name.
    """
    _get("pools", Wanted(name=name), where, reading, view)


@app.command(name=["nodes", "node"])
def nodes(
    name: str | None = None,
    /,
    *,
    pool: str | None = None,
    accelerator: str | None = None,
    view: View = DEFAULT_VIEW,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """List nodes, and how many of their devices are free.

    Parameters
    ----------
    name
        Only the one of this name.
    pool
        Only those of this pool.
    accelerator
        Only those with this accelerator, or one of this group.
    """
    _get("nodes", Wanted(name=name, pool=pool, accelerator=accelerator), where, reading, view)


@app.command(name=["devices", "device"])
def devices(
    *,
    node: str | None = None,
    pool: str | None = None,
    accelerator: str | None = None,
    state: str | None = None,
    view: View = DEFAULT_VIEW,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """List every device, and who holds it.

    Parameters
    ----------
    node
        Only those of this node.
    pool
        Only those of this pool.
    accelerator
        Only this accelerator, or those of this group.
    state
        Only those in this state: free, held or lost.
    """
    wanted = Wanted(node=node, pool=pool, accelerator=accelerator, state=state)
    _get("devices", wanted, where, reading, view)


@app.command(name=["pods", "pod"])
def pods(
    name: str | None = None,
    /,
    *,
    namespace: Namespace = None,
    view: View = DEFAULT_VIEW,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """List pods of a cluster that ask for devices or hold some.

    Parameters
    ----------
    name
        Only the one of this name.
    namespace
        Only those of this namespace.
    """
    _get("pods", Wanted(namespace=namespace, name=name), where, reading, view)
