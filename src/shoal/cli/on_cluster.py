"""A cluster, looked at once through its API server."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shoal.cli.cluster import Access, look
from shoal.cli.errors import CannotError, UsageError
from shoal.cli.output import Column, Form, Listing, show_object
from shoal.cli.where import Reading, Wanted, Where
from shoal.texts.language import Language

if TYPE_CHECKING:
    from shoal.kubernetes.picture import Answer, Picture


def _column(heading: str, field: str, *, wide: bool = False, right: bool = False) -> Column:
    return Column(heading, lambda row: row[field], wide=wide, right=right)


_COLUMNS = {
    "nodes": (
        _column("NODE", "node"),
        _column("POOL", "pools"),
        _column("ACCELERATORS", "accelerators"),
        _column("DEVICES", "devices", right=True),
        _column("HELD", "held", right=True),
        _column("STATE", "state"),
    ),
    "pools": (
        _column("NAME", "pool"),
        _column("TYPES", "types"),
        _column("SHARED", "shared"),
        _column("NODES", "nodes", right=True),
        _column("DEVICES", "devices", right=True),
        _column("FREE", "free", right=True),
    ),
    "devices": (
        _column("NODE", "node"),
        _column("DEVICE", "device"),
        _column("ACCELERATOR", "accelerator"),
        _column("MEMORY MiB", "memory_mib", right=True),
        _column("HELD BY", "holders"),
    ),
    "workloads": (
        _column("NAMESPACE", "namespace"),
        _column("NAME", "name"),
        _column("STATE", "state"),
        _column("PODS", "pods", right=True),
        _column("DEVICES", "devices", right=True),
        _column("NODES", "nodes"),
        _column("MANAGED", "acts"),
        _column("USER", "user", wide=True),
    ),
    "pods": (
        _column("NAMESPACE", "namespace"),
        _column("POD", "pod"),
        _column("STAGE", "stage"),
        _column("DEVICES", "devices", right=True),
        _column("NODE", "node"),
        _column("HOLDS", "leaves"),
    ),
}

_NAMES: dict[str, Callable[[dict[str, Any]], str]] = {
    "nodes": lambda row: str(row["node"]),
    "pools": lambda row: str(row["pool"]),
    "devices": lambda row: str(row["device"]),
    "workloads": lambda row: f"{row['namespace']}/{row['name']}",
    "pods": lambda row: f"{row['namespace']}/{row['pod']}",
}

_FIELDS = {
    "nodes": {"name": "node", "pool": "pools"},
    "pools": {"name": "pool"},
    "devices": {"name": "device"},
    "pods": {"name": "pod"},
}
"""What a wanted word is called in rows of a kind, where that differs."""


class ClusterPlatform:
    """See `Platform`."""

    def __init__(self, where: Where, reading: Reading) -> None:
        self._access = Access(
            *(where.kubeconfig, where.context, reading.catalog, reading.policy, reading.queues),
            controllers=reading.controllers,
        )
        self._language = where.language

    def listing(self, kind: str, wanted: Wanted) -> Listing:
        """Rows of a kind."""
        if kind not in _COLUMNS:
            raise CannotError(
                f"{kind} of a cluster are not kept by Shoal yet; write get {', '.join(_COLUMNS)}."
            )
        asked = {key: value for key, value in asdict(wanted).items() if value is not None}
        fields = {key: _FIELDS.get(kind, {}).get(key, key) for key in asked}
        picture = look(self._access)
        rows = [asdict(row) for row in _rows(picture, kind)]
        known = {heading_field for row in rows[:1] for heading_field in row}
        for key, field in fields.items():
            if rows and field not in known:
                raise UsageError(f"--{key} is not known for {kind} of a cluster; leave it out.")
        kept = [row for row in rows if all(_is(row[fields[key]], asked[key]) for key in asked)]
        plain = [{key: _plain(value) for key, value in row.items()} for row in kept]
        return Listing(plain, _COLUMNS[kind], _NAMES[kind])

    def why(self, name: str, namespace: str | None, output: Form) -> list[str]:
        """Why a pod waits, where it is, or where it would start now."""
        answer = look(self._access).why(namespace or "default", name)
        if answer is None:
            raise CannotError(f"there is no pod {name} in namespace {namespace or 'default'}.")
        if show_object(_plain(asdict(answer)), output):
            return []
        return why_lines(answer, self._language)

    def top(self) -> Listing:
        """How many devices of each accelerator there are, and which namespaces hold them."""
        return Listing(
            _shares(look(self._access)),
            (
                _column("ACCELERATOR", "accelerator"),
                _column("NAMESPACE", "namespace"),
                _column("DEVICES", "devices", right=True),
                _column("SHARE", "share", right=True),
            ),
            lambda row: f"{row['accelerator']}/{row['namespace']}",
        )

    def release(self, *, sure: bool) -> None:
        """Lift every gate and stop acting."""
        from shoal.cli.release import release_cluster

        release_cluster(self._access, sure=sure)


def _is(value: object, asked: str) -> bool:
    """Whether a row's value is what is asked for, or has it among several."""
    return asked in value if isinstance(value, tuple) else value == asked


def _rows(picture: "Picture", kind: str) -> Sequence[Any]:
    read: Callable[[], Sequence[Any]] = getattr(picture, kind)
    return read()


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _shares(picture: "Picture") -> list[dict[str, Any]]:
    total: Counter[str] = Counter()
    held: Counter[tuple[str, str]] = Counter()
    free: Counter[str] = Counter()
    for device in picture.devices():
        total[device.accelerator] += 1
        names = {who.removeprefix("claim ").partition("/")[0] for who in device.holders}
        for namespace in names:
            held[device.accelerator, namespace] += 1
        free[device.accelerator] += not names
    rows = []
    for accelerator, count in sorted(total.items()):
        parts = sorted(
            ((n, who) for (kind, who), n in held.items() if kind == accelerator), reverse=True
        )
        named = [("all", count), *((who, n) for n, who in parts), ("free", free[accelerator])]
        rows += [
            {
                "accelerator": accelerator,
                "namespace": who,
                "devices": number,
                "share": f"{number / count:.0%}" if who != "all" else "100 %",
            }
            for who, number in named
        ]
    return rows


def why_lines(answer: "Answer", language: Language = Language.ENGLISH) -> list[str]:
    """The answer in words: a heading, then one fact a line."""
    row = answer.row
    parts = [row.pod, row.stage]
    if row.devices:
        parts.append("1 device" if row.devices == 1 else f"{row.devices} devices")
    if row.workload:
        parts.append(f"workload {row.workload}")
    if answer.user:
        parts.append(f"asked by {answer.user}")
    said = [" · ".join(parts)]
    if answer.position is not None:
        said.append(f"position  {answer.position[0]} of {answer.position[1]} that wait")
    said += _state(answer, language)
    if answer.scheduler:
        said.append(f"kube-scheduler says: {answer.scheduler}")
    if not answer.acts:
        said.append(
            f"Shoal only observes namespace {row.namespace};"
            " label it shoal.dev/mode=manage to have it act there."
        )
    return said


def _state(answer: "Answer", language: Language) -> list[str]:
    from shoal.texts.holds import hold_text
    from shoal.texts.verdicts import verdict_text

    row = answer.row
    if answer.hold is not None:
        return [f"held back {hold_text(answer.hold, language)}"]
    if answer.verdict is not None:
        return [f"waits     {verdict_text(answer.verdict, language)}"]
    if answer.place is not None:
        would = "starts now" if answer.acts else "would start"
        devices = ", ".join(answer.place.leaves) or "no device"
        return [f"place     {would} on {answer.place.node} with {devices}"]
    if row.stage == "released":
        return [f"place     let go for {row.node}; kube-scheduler has not bound it yet"]
    if row.stage == "bound":
        return [f"place     on {row.node} with {', '.join(row.leaves) or 'no device'}"]
    if row.stage == "gone":
        return ["ended     it holds nothing any more"]
    return []
