"""A running `shoal up`, asked through its API."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from shoal.cli.client import Api, ApiError, Json, segment
from shoal.cli.errors import CannotError
from shoal.cli.output import Column, Form, Listing, cell, cells_wide, plain, show_object
from shoal.cli.where import Wanted
from shoal.texts.language import Language
from shoal.texts.screens import counted_text, duration_text, ordinal, screen_text, word

T = TypeVar("T")


class SocketPlatform:
    """See `Platform`."""

    def __init__(self, path: Path, language: Language) -> None:
        self._language = language
        self._api = Api(path, language.value)

    def listing(self, kind: str, wanted: Wanted) -> Listing:
        """Rows of a kind."""
        alert(self._api, self._language)
        if kind == "pods":
            raise CannotError("pods are a cluster's; write get workloads.")
        query = {
            key: value for key in _QUERIES[kind] if (value := getattr(wanted, key)) is not None
        }
        rows, now = asked(lambda: self._api.items(f"/{kind}", **query))
        if wanted.name is not None and "name" not in query:
            rows = [row for row in rows if row["name"] == wanted.name]
        return Listing(rows, _columns(kind, now, self._language), _NAMES.get(kind, _by_name))

    def why(self, name: str, namespace: str | None, output: Form) -> list[str]:
        """Why a workload waits, where it is, or how it ended."""
        found = named(self._api, name, namespace)
        live = [row for row in found if row["state"] != "ended"] or found[-1:]
        waiting = [row for row in live if row["state"] == "waiting"] or live
        path = f"/workloads/{segment(waiting[0]['id'])}/why"
        answer = asked(lambda: self._api.get(path))
        if show_object(answer, output):
            return []
        return explanation_lines(answer, self._language)

    def top(self) -> Listing:
        """How many devices of each accelerator there are, and which queues hold them."""
        alert(self._api, self._language)
        devices, _ = asked(lambda: self._api.items("/devices"))
        queues, _ = asked(lambda: self._api.items("/queues"))
        columns = (
            Column("ACCELERATOR", lambda row: row["accelerator"]),
            Column("QUEUE", lambda row: row["queue"]),
            Column("DEVICES", lambda row: row["devices"], right=True),
            Column("SHARE", lambda row: row["share"], right=True),
        )
        rows = _shares(devices, queues)
        return Listing(rows, columns, lambda row: f"{row['accelerator']}/{row['queue']}")

    def release(self, *, sure: bool) -> None:  # noqa: ARG002 - it can be taken back
        """Decide nothing any more."""
        asked(lambda: self._api.post("/release"))
        print(screen_text("released", self._language))


def alert(api: Api, language: Language) -> None:
    """Say beside the answer that evictions are frozen, if they are."""
    guard = asked(lambda: api.get("/status"))["evictions"]
    if guard["frozen"]:
        line = f"{word('alert', language)}: {local(guard['since'])}  {guard['text']}"
        print(line, file=sys.stderr)


def asked(ask: Callable[[], T]) -> T:
    """What asking came to, with problems as what a command ends with."""
    try:
        return ask()
    except ApiError as error:
        raise error.as_command_error() from None


def named(api: Api, name: str, namespace: str | None) -> list[Json]:
    """Workloads of a name (or id), those of one namespace; also ended ones.

    Raises CannotError where there are none, and where several namespaces have one.
    """
    rows, _ = asked(lambda: api.items("/workloads", name=name, namespace=namespace, state="all"))
    if not rows:
        where = f" in namespace {namespace}" if namespace else ""
        raise CannotError(f"there is no workload {name}{where}; see shoal get workloads.")
    live = [row for row in rows if row["state"] != "ended"] or rows
    spaces = sorted({row["namespace"] for row in live})
    if len(spaces) > 1:
        raise CannotError(
            f"{name} is in the namespaces {', '.join(spaces)}; write -n NAMESPACE as well."
        )
    return rows


# Tables ---------------------------------------------------------------------------------------

_QUERIES: Final = {
    "workloads": ("namespace", "name", "queue", "type", "state"),
    "queues": (),
    "pools": (),
    "nodes": ("pool", "accelerator"),
    "devices": ("node", "pool", "accelerator", "state"),
}


def _by_name(row: Json) -> str:
    return str(row["name"])


def _by_namespace(row: Json) -> str:
    return f"{row['namespace']}/{row['name']}"


_NAMES: Final = {"workloads": _by_namespace}


def _columns(kind: str, now: str, language: Language) -> Sequence[Column]:
    if kind == "workloads":
        return _workload_columns(datetime.fromisoformat(now))
    if kind == "queues":
        return queue_columns(language)
    if kind == "devices":
        return _device_columns(language)
    return _COLUMNS[kind]


def _field(heading: str, field: str, *, wide: bool = False, right: bool = False) -> Column:
    return Column(heading, lambda row: row[field], wide, right)


def _workload_columns(now: datetime) -> Sequence[Column]:
    return (
        _field("NAMESPACE", "namespace"),
        _field("NAME", "name"),
        _field("QUEUE", "queue"),
        _field("TYPE", "type"),
        Column("STATE", lambda row: row["outcome"] or row["state"]),
        Column("POSITION", _position, right=True),
        Column("PODS", _pods, right=True),
        _field("DEVICES", "devices", right=True),
        Column("AGE", lambda row: _age(now, row["created_at"]), right=True),
        Column("WHY", lambda row: row["wait"]["text"] if row["wait"] else ""),
        Column("STARTED", lambda row: local(row["started_at"]), wide=True),
        Column("NODES", nodes_of, wide=True),
        Column("ACCELERATORS", _accelerators_of, wide=True),
        _field("ID", "id", wide=True),
    )


def _pods(row: Json) -> str:
    """How many pods it has, and of work that lacks some how many it holds."""
    held = len(row["placements"])
    lacks = row["state"] in ("starting", "running") and held < row["pods"]
    return f"{held}/{row['pods']}" if lacks else str(row["pods"])


def _position(row: Json) -> str:
    return f"{row['position']}/{row['waiting_in_queue']}" if row["position"] else ""


def _age(now: datetime, since: str | None) -> str:
    if since is None:
        return ""
    return duration_text((now - datetime.fromisoformat(since)).total_seconds())


def nodes_of(row: Json) -> list[str]:
    """The nodes of a workload's pods, each once."""
    return list(dict.fromkeys(each["node"] for each in row["placements"]))


def _accelerators_of(row: Json) -> list[str]:
    return list(dict.fromkeys(name for each in row["pod_sets"] for name in each["accelerators"]))


def local(at: str | None) -> str:
    """A time in the time zone of whoever looks (TZ)."""
    if at is None:
        return ""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _counts(field: str) -> Callable[[Json], int]:
    return lambda row: sum(each[field] for each in row["accelerators"])


def _kinds(row: Json) -> list[str]:
    return [each["accelerator"] for each in row["accelerators"]]


def _cpu(milli: int) -> str:
    return cell(milli / 1000)


def _holders(row: Json, language: Language) -> list[str]:
    """Who holds a device, or else for whom it is kept."""

    def names(key: str) -> list[str]:
        found = (each for leaf in row["leaves"] for each in leaf[key])
        return list(dict.fromkeys(_by_namespace(each) for each in found))

    held, kept = names("held_by"), names("kept_for")
    if held or not kept:
        return held
    return [screen_text("kept-for", language, names=", ".join(kept))]


_COLUMNS: Final[dict[str, Sequence[Column]]] = {
    "nodes": (
        _field("NAME", "name"),
        _field("POOL", "pools"),
        _field("STATE", "state"),
        Column("ACCELERATORS", _kinds),
        Column("DEVICES", _counts("devices"), right=True),
        Column("FREE", _counts("free"), right=True),
        Column(
            "CPU FREE",
            lambda row: f"{_cpu(row['cpu_free_milli'])}/{_cpu(row['cpu_milli'])}",
            right=True,
        ),
        Column(
            "MEMORY FREE",
            lambda row: f"{row['memory_free_mib'] // 1024}/{row['memory_mib'] // 1024} GiB",
            right=True,
        ),
        _field("PODS", "pods", wide=True, right=True),
        _field("TAINTS", "taints", wide=True),
        Column("LABELS", lambda row: [f"{k}={v}" for k, v in row["labels"].items()], wide=True),
    ),
    "pools": (
        _field("NAME", "name"),
        _field("TYPES", "types"),
        _field("SHARED", "shared_between_queues"),
        _field("MODES", "modes"),
        _field("PLACEMENT", "placement"),
        _field("NODES", "nodes", right=True),
        Column("DEVICES", _counts("devices"), right=True),
        Column("FREE", _counts("free"), right=True),
        Column(
            "ACCELERATORS",
            lambda row: [
                f"{each['accelerator']} {each['devices']}" for each in row["accelerators"]
            ],
            wide=True,
        ),
        _field("LEVELS", "levels", wide=True),
    ),
}


def _device_columns(language: Language) -> Sequence[Column]:
    return (
        _field("NODE", "node"),
        _field("NAME", "name"),
        _field("ACCELERATOR", "accelerator"),
        _field("STATE", "state"),
        Column("MEMORY", lambda row: f"{row['memory_mib']:,} MiB", right=True),
        Column("HELD BY", lambda row: _holders(row, language)),
        Column("LEAVES", lambda row: [_leaf(each) for each in row["leaves"]], wide=True),
    )


def _leaf(leaf: Json) -> str:
    free = f"{leaf['memory_free_mib']} MiB and {cell(leaf['compute_free_percent'])} % free"
    return f"{leaf['name']} ({leaf['sharing']}: {free})"


def queue_columns(language: Language, *, indent: bool = False) -> Sequence[Column]:
    """The columns of queues; with `indent` the names show the tree."""

    def name(row: Json) -> str:
        depth = len(row["path"]) - 1 if indent else 0
        said = str(row["name"])
        if row["closing"]:
            said = screen_text("closing", language, name=said)
        return "  " * depth + said

    def granted(field: str) -> Callable[[Json], list[str]]:
        return lambda row: [
            f"{each['accelerator']} {cell(each[field])}" for each in row["quotas"] if each[field]
        ]

    def fair(row: Json) -> list[str]:
        return [f"{each['accelerator']} {cell(each['devices'])}" for each in row["fair"]]

    def waiting(row: Json) -> str:
        if not row["waiting"]:
            return "0"
        return f"{row['waiting']:,} ({counted_text(row['waiting_devices'], language)})"

    def lost_today(row: Json) -> str:
        hours = row["lost_device_hours_today"]
        return screen_text("hours-lost", language, n=cell(hours)) if hours else ""

    return (
        Column("QUEUE", name),
        Column("GUARANTEE", granted("guarantee")),
        Column("USED", granted("used")),
        Column("BORROWED", granted("borrowed")),
        _field("RUNNING", "running", right=True),
        Column("WAITING", waiting, right=True),
        Column("FAIR SHARE", fair, wide=True),
        Column("KEPT", granted("kept"), wide=True),
        Column("LIMIT", granted("limit"), wide=True),
        _field("WEIGHT", "weight", wide=True, right=True),
        Column("LOST TODAY", lost_today, wide=True, right=True),
        _field("TYPES", "types", wide=True),
    )


def _shares(devices: Sequence[Json], queues: Sequence[Json]) -> list[Json]:
    """Devices of each accelerator: all, by leaf queue, free and lost.

    What closes below a leaf counts for itself.
    """
    rows: list[Json] = []
    for accelerator in sorted({each["accelerator"] for each in devices}):
        own = [each for each in devices if each["accelerator"] == accelerator]
        used = {
            queue["name"]: each["devices"]
            for queue in queues
            for each in queue["used"]
            if each["accelerator"] == accelerator
        }
        below: Counter[str | None] = Counter()
        for queue in queues:
            below[queue["parent"]] += used.get(queue["name"], 0)
        leaves = [queue["name"] for queue in queues if queue["leaf"] and queue["name"] in used]
        parts = [(name, round(used[name] - below[name], 2)) for name in leaves]
        parts = [(name, held) for name, held in parts if held > 0]
        parts.sort(key=lambda part: (-part[1], part[0]))
        states = [each["state"] for each in own]
        named = [("all", len(own)), *parts, ("free", states.count("free"))]
        named += [(state, states.count(state)) for state in ("kept", "lost") if state in states]
        rows += [
            {
                "accelerator": accelerator,
                "queue": queue,
                "devices": number,
                "share": f"{number / len(own):.0%}",
            }
            for queue, number in named
        ]
    return rows


# Explanations ---------------------------------------------------------------------------------


def explanation_lines(answer: Json, language: Language) -> list[str]:
    """An explanation in words: a heading, then what stands in the way."""
    lines = [_heading(answer, language)]
    row = answer["workload"]
    if answer["alert"]:
        lines.append(_labelled("alert", answer["alert"], language))
    if row["eviction"]:
        eviction = row["eviction"]
        text = f"{local(eviction['at'])}  {eviction['text']}"
        lines.append(_labelled("evicted", text, language))
    said = [answer["headline"]] if answer["headline"] else []
    said += [each["text"] for each in answer["obstacles"]]
    label = "quota" if answer["over_quota"] else "blocked" if answer["obstacles"] else "place"
    lines += _several(label, said, language)
    if row["reservation"]:
        kept = row["reservation"]
        lines.append(_labelled("kept since", local(kept["since"]), language))
        if kept["at"]:
            expected = screen_text("expected", language, time=local(kept["at"]))
            lines.append(_labelled("expected", expected, language))
    near = [_candidate(each, language) for each in answer["candidates"]]
    lines += _several("nearest", near, language)
    holders = [_holder(each, language) for each in answer["holders"]]
    if answer["more_holders"]:
        holders.append(screen_text("more-holders", language, n=answer["more_holders"]))
    lines += _several("in the way", holders, language)
    if answer["wakes_text"]:
        lines.append(f"  {screen_text('wakes', language, wakes=answer['wakes_text'])}")
    moments = [f"{local(each['at'])}  {plain(each['text'])}" for each in answer["moments"]]
    return lines + _several("so far", moments, language)


def _heading(answer: Json, language: Language) -> str:
    row = answer["workload"]
    now = datetime.fromisoformat(answer["now"])
    state = row["outcome"] or row["state"]
    type_ = word(row["type"], language)
    parts = [
        plain(row["name"]),
        screen_text("spare", language, type=type_) if row["spare"] else type_,
        _size(row, language),
        screen_text("queue", language, queue=plain(row["queue"])),
    ]
    if row["state"] == "waiting":
        waiting = _age(now, row["waiting_since"])
        parts.append(screen_text("waiting-for", language, time=waiting))
        if row["position"]:
            place = ordinal(row["position"], language)
            all_of = row["waiting_in_queue"]
            parts.append(screen_text("position", language, position=place, all=all_of))
    else:
        parts.append(word(state, language))
    return " · ".join(parts)


def _size(row: Json, language: Language) -> str:
    devices = counted_text(row["devices"], language)
    if row["pods"] == 1:
        return devices
    return screen_text("pods", language, devices=devices, pods=row["pods"])


def _labelled(label: str, text: str, language: Language) -> str:
    said = word(label, language)
    return f"  {said}{' ' * max(1, 12 - cells_wide(said))}{plain(text)}"


def _several(label: str, texts: Sequence[str], language: Language) -> list[str]:
    return [
        _labelled(label, text, language) if index == 0 else f"{' ' * 14}{plain(text)}"
        for index, text in enumerate(texts)
    ]


def _candidate(gap: Json, language: Language) -> str:
    free, needed, node = gap["free"], gap["needed"], str(gap["node"])
    if not gap["short_of"]:
        return screen_text("fits", language, node=node)
    parts = []
    if "devices" in needed:
        parts.append(
            screen_text(
                "has-devices", language, node=node, free=free["devices"], needed=needed["devices"]
            )
        )
    else:
        parts.append(node)
    for what, key, unit in (("cpu_milli", "has-cpu", 1000), ("memory_mib", "has-memory", 1)):
        if what in gap["short_of"]:
            shown = {"free": cell(free[what] / unit), "needed": cell(needed[what] / unit)}
            parts.append(screen_text(key, language, **shown))
    if "pods" in gap["short_of"]:
        parts.append(screen_text("has-pods", language))
    return ", ".join(parts)


def _holder(row: Json, language: Language) -> str:
    if row["kept"]:
        return str(row["kept"])
    since = until = ""
    if row["started_at"] is not None:
        since = screen_text("since", language, time=local(row["started_at"]))
    if row["evicting"]:
        until = screen_text("stopping", language)
    elif row["ends_at"] is not None:
        until = screen_text("until", language, time=local(row["ends_at"]))
    nodes: list[Any] = row["nodes"]
    shown = ", ".join(nodes[:3]) + (" ..." if len(nodes) > 3 else "")
    return screen_text(
        "holder",
        language,
        name=_by_namespace(row),
        devices=counted_text(row["devices"], language),
        nodes=shown,
        type=word(row["type"], language),
        since=since,
        until=until,
    )
