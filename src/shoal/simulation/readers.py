"""Readers of node and pod lists: those of openb, and a plain form of Shoal's own.

openb is Alibaba's published cluster (Weng et al., "Beware of Fragmentation", USENIX ATC 2023). How
its lists become Shoal's words:

- A GPU becomes a device with one leaf of 1,000 compute milli that many pods may share over time.
  The trace says nothing of GPU memory, so leaves have none, requests ask for none, and it never
  binds.
- `num_gpu` GPUs of 1,000 `gpu_milli` are whole devices; one of less is a share of one device.
- `gpu_spec` lists the accelerators that will do; `memory_mib` is host memory. A list that is
  written in two ways stays two, because the published classes tell them apart.
- How many pods a node may run is not in the lists and never binds.
- `qos`, `pod_phase` and the times are not used.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from shoal.model.modes import Cap, Sharing
from shoal.model.node import WHOLE_COMPUTE_MILLI, Device, Leaf, Node
from shoal.model.request import DeviceRequest, Request
from shoal.simulation.demand import task_classes
from shoal.simulation.inflation import MOST_ARRIVALS, expected_arrivals
from shoal.simulation.source import (
    LARGEST_ROWS,
    BadInputError,
    Form,
    Row,
    Table,
    listed,
    read_table,
    shown,
)
from shoal.simulation.trace import Trace, TracePod

OPENB_NODES = Form("an openb node list", required=("sn", "cpu_milli", "memory_mib", "gpu", "model"))
OPENB_PODS = Form(
    "an openb pod list",
    required=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    optional=(
        "gpu_spec",
        "qos",
        "pod_phase",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    ),
)
PLAIN_NODES = Form(
    "a node list",
    required=("name", "cpu_milli", "memory_mib", "devices", "accelerator"),
    optional=("device_memory_mib", "count"),
)
PLAIN_PODS = Form(
    "a pod list",
    required=("name", "cpu_milli", "memory_mib", "devices"),
    optional=("compute_milli", "device_memory_mib", "accelerators", "count"),
)

OPENB_POD_LIST_PREFIX = "openb_pod_list_"

PODS_PER_NODE = 1_000_000
"""More than fit on any node, because the lists do not say how many do."""

MOST_CPU_MILLI = 10**9
MOST_MEMORY_MIB = 10**9
MOST_DEVICES = 1024
MOST_COUNT = LARGEST_ROWS
MOST_CLASSES_ON_NODES = 20_000_000
"""Task classes times nodes; fragmentation keeps a number for each, in every process."""

Made = TypeVar("Made")


def read_trace(nodes_file: Path, pods_file: Path) -> Trace:
    """Read a fleet and the pods asked for; the workload is called as the file of pods.

    Raises BadInputError with one sentence about the first mistake found.
    """
    nodes = read_nodes(nodes_file)
    pods = read_pods(pods_file, nodes, nodes_file)
    trace = Trace(pods_file.stem.removeprefix(OPENB_POD_LIST_PREFIX), nodes, pods)
    arrivals = expected_arrivals(trace)
    if arrivals > MOST_ARRIVALS:
        raise BadInputError(
            pods_file,
            f"the pods ask for so little that filling the devices of {nodes_file} takes"
            f" {arrivals} of them; expected at most {MOST_ARRIVALS}.",
        )
    classes = len(task_classes(trace))
    if classes * len(nodes) > MOST_CLASSES_ON_NODES:
        raise BadInputError(
            pods_file,
            f"the frequent pods ask for {classes} different things, too many to be tried on each of"
            f" {len(nodes)} nodes; expected at most {MOST_CLASSES_ON_NODES // len(nodes)}:"
            " round what they ask for.",
        )
    return trace


def read_nodes(file: Path) -> tuple[Node, ...]:
    """Read a list of nodes, of openb's form or the plain one; at least one has a device.

    Raises BadInputError.
    """
    table = read_table(file, (PLAIN_NODES, OPENB_NODES))
    make = _openb_node if table.form is OPENB_NODES else _plain_node
    nodes = tuple(_expanded(table, "sn" if table.form is OPENB_NODES else "name", make))
    if not any(node.devices for node in nodes):
        raise BadInputError(file, "no node has a device; expected at least one that has.")
    return nodes


def read_pods(file: Path, nodes: tuple[Node, ...], nodes_file: Path) -> tuple[TracePod, ...]:
    """Read a list of pods, of openb's form or the plain one; at least one asks for a device.

    `nodes`, from `nodes_file`, are the fleet that they are meant for: a pod that allows only
    accelerators which it has not is a mistake.

    Raises BadInputError.
    """
    table = read_table(file, (PLAIN_PODS, OPENB_PODS))
    request = _openb_request if table.form is OPENB_PODS else _plain_request
    accelerators = {device.accelerator for node in nodes for device in node.devices}
    column = "gpu_spec" if table.form is OPENB_PODS else "accelerators"

    def pod(row: Row, name: str) -> TracePod:
        asked = request(row)
        allowed = asked.devices.accelerators
        if allowed and accelerators.isdisjoint(allowed):
            raise row.bad(
                column,
                f"no node of {nodes_file} has {shown(row.values[column])};"
                f" expected at least one of {listed(sorted(accelerators))}.",
            )
        return TracePod(name, asked)

    pods = tuple(_expanded(table, "name", pod))
    if not any(each.request.devices.count for each in pods):
        raise BadInputError(file, "no pod asks for a device; expected at least one that does.")
    return pods


def _expanded(table: Table, key: str, make: Callable[[Row, str], Made]) -> Iterator[Made]:
    """Yield what `make` makes of each row, as often as its `count` says.

    A row without a count keeps its name; the others are numbered from 0. A name made twice is a
    mistake.
    """
    counts = [row.whole_number("count", 1, MOST_COUNT, empty=1) for row in table.rows]
    for row, total in zip(table.rows, accumulate(counts), strict=True):
        if total > LARGEST_ROWS:
            raise row.bad("count", f"the counts add up to more than {LARGEST_ROWS}.")
    seen: dict[str, int] = {}
    for row, count in zip(table.rows, counts, strict=True):
        name = row.text(key)
        for each in [f"{name}-{i}" for i in range(count)] if row.has("count") else [name]:
            if each in seen:
                raise row.bad(
                    key, f"expected a new name, but {shown(each)} stands on line {seen[each]} too."
                )
            seen[each] = row.line
            yield make(row, each)


def _openb_node(row: Row, name: str) -> Node:
    return _node(row, name, devices="gpu", accelerator="model", device_memory_mib=0)


def _plain_node(row: Row, name: str) -> Node:
    memory_mib = row.whole_number("device_memory_mib", 0, MOST_MEMORY_MIB, empty=0)
    return _node(
        row, name, devices="devices", accelerator="accelerator", device_memory_mib=memory_mib
    )


def _node(row: Row, name: str, *, devices: str, accelerator: str, device_memory_mib: int) -> Node:
    """Make a node; `devices` and `accelerator` are the columns that say what cards it has."""
    count = row.whole_number(devices, 0, MOST_DEVICES)
    if not count and (row.has(accelerator) or device_memory_mib):
        raise row.bad(devices, "expected at least 1, because the accelerator is described.")
    model = row.text(accelerator) if count else ""
    if "|" in model:
        raise row.bad(accelerator, f"expected one accelerator, found {shown(model)}.")
    return Node(
        name=name,
        cpu_milli=row.whole_number("cpu_milli", 0, MOST_CPU_MILLI),
        memory_mib=row.whole_number("memory_mib", 0, MOST_MEMORY_MIB),
        pods=PODS_PER_NODE,
        devices=tuple(_device(f"{name}/{i}", model, device_memory_mib) for i in range(count)),
    )


def _device(name: str, accelerator: str, memory_mib: int) -> Device:
    """Make a card whose one leaf many pods may share; a pod takes at least a milli of it."""
    leaf = Leaf(
        name, memory_mib, tenants=WHOLE_COMPUTE_MILLI, sharing=Sharing.TIME_SLICED, cap=Cap.NONE
    )
    return Device(name, accelerator, (leaf,))


def _openb_request(row: Row) -> Request:
    count = row.whole_number("num_gpu", 0, MOST_DEVICES)
    least = WHOLE_COMPUTE_MILLI if count > 1 else min(count, 1)
    most = WHOLE_COMPUTE_MILLI if count else 0
    compute_milli = row.whole_number("gpu_milli", least, most)
    devices = DeviceRequest(
        count=count,
        whole=compute_milli in {0, WHOLE_COMPUTE_MILLI},
        compute_milli=compute_milli % WHOLE_COMPUTE_MILLI,
        accelerators=_accelerators(row, "gpu_spec", asked=count),
    )
    return _request(row, devices)


def _plain_request(row: Row) -> Request:
    count = row.whole_number("devices", 0, MOST_DEVICES)
    most = WHOLE_COMPUTE_MILLI if count else 0
    compute_milli = row.whole_number("compute_milli", min(count, 1), most, empty=most)
    memory_mib = row.whole_number("device_memory_mib", 0, MOST_MEMORY_MIB, empty=0)
    whole = compute_milli in {0, WHOLE_COMPUTE_MILLI}
    if whole and memory_mib:
        raise row.bad(
            "device_memory_mib",
            "expected nothing, because it is only for shares: a whole device has all its memory.",
        )
    devices = DeviceRequest(
        count=count,
        whole=whole,
        memory_mib=memory_mib,
        compute_milli=0 if whole else compute_milli,
        accelerators=tuple(sorted(set(_accelerators(row, "accelerators", asked=count)))),
    )
    return _request(row, devices)


def _request(row: Row, devices: DeviceRequest) -> Request:
    return Request(
        cpu_milli=row.whole_number("cpu_milli", 0, MOST_CPU_MILLI),
        memory_mib=row.whole_number("memory_mib", 0, MOST_MEMORY_MIB),
        devices=devices,
    )


def _accelerators(row: Row, column: str, *, asked: int) -> tuple[str, ...]:
    """Return the accelerators joined by `|` in `column`, as they are written."""
    if not row.has(column):
        return ()
    if not asked:
        raise row.bad(column, "expected nothing, because no device is asked for.")
    names = tuple(name.strip() for name in row.text(column).split("|"))
    if "" in names:
        raise row.bad(column, f'expected names joined by "|", found {shown(row.values[column])}.')
    return names
