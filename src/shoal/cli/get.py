"""`shoal get`: nodes, devices, workloads and pods of a cluster, with who holds what."""

from typing import Annotated

from cyclopts import App, Parameter

from shoal.cli.cluster import DEFAULT_ACCESS, Access, Format, look, show

app = App(name="get", help="List nodes, devices, workloads or pods of a cluster.")

Namespace = Annotated[str | None, Parameter(name=["--namespace", "-n"])]


@app.command
def nodes(*, access: Access = DEFAULT_ACCESS, output: Format = "table") -> None:
    """List the nodes that have devices.

    Parameters
    ----------
    output
        A table for people, or JSON.
    """
    columns = [
        ("NODE", "node"),
        ("ACCELERATORS", "accelerators"),
        ("DEVICES", "devices"),
        ("HELD", "held"),
        ("STATE", "state"),
    ]
    show(look(access).nodes(), columns, output)


@app.command
def devices(*, access: Access = DEFAULT_ACCESS, output: Format = "table") -> None:
    """List every device, and the pods that hold it.

    Parameters
    ----------
    output
        A table for people, or JSON.
    """
    columns = [
        ("NODE", "node"),
        ("DEVICE", "device"),
        ("ACCELERATOR", "accelerator"),
        ("MEMORY MiB", "memory_mib"),
        ("HELD BY", "holders"),
    ]
    show(look(access).devices(), columns, output)


@app.command
def workloads(
    *, namespace: Namespace = None, access: Access = DEFAULT_ACCESS, output: Format = "table"
) -> None:
    """List workloads that wait or run; where Shoal only observes, those that would wait.

    Parameters
    ----------
    namespace
        Only those of this namespace.
    output
        A table for people, or JSON.
    """
    columns = [
        ("NAMESPACE", "namespace"),
        ("NAME", "name"),
        ("STATE", "state"),
        ("PODS", "pods"),
        ("DEVICES", "devices"),
        ("NODES", "nodes"),
        ("MANAGED", "acts"),
    ]
    rows = [row for row in look(access).workloads() if namespace in (None, row.namespace)]
    show(rows, columns, output)


@app.command
def pods(
    *, namespace: Namespace = None, access: Access = DEFAULT_ACCESS, output: Format = "table"
) -> None:
    """List pods that ask for devices or hold some.

    Parameters
    ----------
    namespace
        Only those of this namespace.
    output
        A table for people, or JSON.
    """
    columns = [
        ("NAMESPACE", "namespace"),
        ("POD", "pod"),
        ("STAGE", "stage"),
        ("DEVICES", "devices"),
        ("NODE", "node"),
        ("HOLDS", "leaves"),
    ]
    rows = [row for row in look(access).pods() if namespace in (None, row.namespace)]
    show(rows, columns, output)
