"""Telling people in Kubernetes events what happened to their objects.

Recording never waits and never fails: events are told by a task of their own, and lost rather than
late when the API server is away for long. What is recorded again while its event exists becomes a
series of that event, also across restarts, because an event's name is made of what it says. Many
different notes of one reason about one object are merged, as client-go does.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import structlog

from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    KubernetesError,
    NotFoundError,
    UnreachableError,
)
from shoal.kubernetes.wire.kinds import EVENTS
from shoal.kubernetes.wire.meta import ObjectReference

_log = structlog.get_logger(__name__)

NOTE_BYTES: Final = 1024
"""The longest note that the API takes (core validation)."""

NAME_CHARACTERS: Final = 253
"""The longest name of an object."""

MANY_LIKE_IT: Final = "(many events like this one were merged)"
"""The note that stands for further notes of one reason."""


@dataclass(frozen=True)
class RecorderOptions:
    """Bounds of a recorder."""

    pending: int = 10_000
    """How many events may wait to be told; more are lost and counted."""
    concurrency: int = 4
    pause_s: float = 1.0
    """The time in which equal events are merged before anything is sent."""
    series_every_s: float = 60.0
    """How often one event's series is written at most."""
    remembered_s: float = 600.0
    """How long an event is remembered after its last occurrence."""
    notes: int = 10
    """How many different notes of one reason about one object are told before they are merged."""


DEFAULT_OPTIONS: Final = RecorderOptions()


@dataclass(frozen=True)
class Told:
    """One thing to tell. `action` is what was done or tried, `reason` why, in CamelCase."""

    about: ObjectReference
    reason: str
    note: str
    action: str
    warning: bool = False
    related: ObjectReference | None = None

    @property
    def type(self) -> str:
        """The event's type in Kubernetes' words."""
        return "Warning" if self.warning else "Normal"


@dataclass
class _Entry:
    told: Told
    first: datetime
    last: datetime
    count: int = 1
    earlier: int = 0
    """How often an earlier process had told it."""
    sent: bool = False
    sent_at_s: float = float("-inf")
    last_at_s: float = 0.0

    @property
    def total(self) -> int:
        """How often it happened, as far as anybody knows."""
        return self.earlier + self.count


class EventRecorder:
    """Records events and sends them in the background."""

    def __init__(
        self,
        client: Client,
        controller: str,
        instance: str,
        options: RecorderOptions = DEFAULT_OPTIONS,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Speak as `controller` (such as `shoal.dev/scheduler`), process `instance`."""
        self.lost = 0
        """How many events were not told: too many waiting, or refused."""
        self._client = client
        self._controller = controller
        self._instance = instance[:128]
        self._options = options
        self._monotonic_s = monotonic_s
        self._now = now
        self._sleep = sleep
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._waiting: dict[str, None] = {}
        self._notes: dict[tuple[str, str, str], set[str]] = {}
        self._wake = asyncio.Event()

    def record(self, told: Told) -> None:
        """Tell this soon."""
        told = self._merged(replace(told, note=_shortened(told.note)))
        name = self._name(told)
        now, now_s = self._now(), self._monotonic_s()
        entry = self._entries.get(name)
        if entry is not None:
            entry.count += 1
            entry.last, entry.last_at_s = now, now_s
            self._entries.move_to_end(name)
        elif len(self._waiting) >= self._options.pending:
            self.lost += 1
            return
        else:
            self._entries[name] = _Entry(told, now, now, last_at_s=now_s)
        self._waiting[name] = None
        self._wake.set()

    async def run(self) -> None:
        """Send what is recorded, until cancelled."""
        while True:
            await self._wake.wait()
            await self._sleep(self._options.pause_s)
            await self.flush()

    async def flush(self) -> None:
        """Send what is due now; a series that was written lately waits."""
        self._wake.clear()
        now_s = self._monotonic_s()
        due = [
            name
            for name in self._waiting
            if now_s - self._entries[name].sent_at_s >= self._options.series_every_s
        ]
        slots, away = asyncio.Semaphore(self._options.concurrency), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for name in due:
                tasks.create_task(self._send(name, slots, away))
        self._forget(now_s)
        if self._waiting:
            self._wake.set()

    async def _send(self, name: str, slots: asyncio.Semaphore, away: asyncio.Event) -> None:
        async with slots:
            if away.is_set():
                return
            entry = self._entries[name]
            count = entry.count
            try:
                if entry.sent:
                    await self._prolong(name, entry)
                else:
                    await self._create(name, entry)
            except UnreachableError:
                away.set()
                return
            except KubernetesError as error:
                self.lost += 1
                _log.info("event refused", reason=entry.told.reason, why=str(error))
        entry.sent, entry.sent_at_s = True, self._monotonic_s()
        if entry.count == count:
            self._waiting.pop(name, None)

    async def _create(self, name: str, entry: _Entry) -> None:
        told = entry.told
        body: dict[str, object] = {
            "metadata": {"name": name},
            "eventTime": _stamp(entry.first),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": told.action,
            "reason": told.reason,
            "regarding": _reference(told.about),
            "note": told.note,
            "type": told.type,
        }
        if told.related is not None:
            body["related"] = _reference(told.related)
        if entry.total > 1:
            body["series"] = _series(entry)
        try:
            await self._client.create(EVENTS, body, _namespace(told), patience_s=0.0)
        except AlreadyExistsError:
            known = await self._client.get(EVENTS, name, _namespace(told))
            entry.earlier = known.series.count if known.series is not None else 1
            await self._prolong(name, entry)

    async def _prolong(self, name: str, entry: _Entry) -> None:
        body = {"series": _series(entry)}
        namespace = _namespace(entry.told)
        try:
            await self._client.patch(EVENTS, name, body, namespace, patience_s=0.0)
        except NotFoundError:
            # Kubernetes forgets events after an hour: begin anew.
            entry.first, entry.count, entry.earlier = entry.last, 1, 0
            await self._create(name, entry)

    def _merged(self, told: Told) -> Told:
        """The same, with a common note once this reason has had many about this object."""
        key = (told.about.uid or told.about.name, told.reason, told.action)
        notes = self._notes.setdefault(key, set())
        if told.note in notes or len(notes) < self._options.notes:
            notes.add(told.note)
            return told
        return replace(told, note=MANY_LIKE_IT)

    def _forget(self, now_s: float) -> None:
        """Drop what has not happened again for long, oldest first."""
        if len(self._notes) > self._options.pending:
            self._notes.clear()
        while self._entries:
            name, entry = next(iter(self._entries.items()))
            if now_s - entry.last_at_s < self._options.remembered_s or name in self._waiting:
                return
            del self._entries[name]
            told = entry.told
            self._notes.pop((told.about.uid or told.about.name, told.reason, told.action), None)

    def _name(self, told: Told) -> str:
        related = told.related.uid if told.related is not None else ""
        about = told.about
        said = (
            self._controller, about.kind, about.namespace, about.name, about.uid,
            told.type, told.reason, told.action, told.note, related,
        )  # fmt: skip
        digest = hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]
        stem = about.name[: NAME_CHARACTERS - 17].rstrip("-.")
        return f"{stem}.{digest}"


def _namespace(told: Told) -> str:
    """Where the event lives: beside its object; for objects of the cluster, in `default`."""
    return told.about.namespace or "default"


def _shortened(note: str) -> str:
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    return encoded[: NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _series(entry: _Entry) -> dict[str, object]:
    """The series as the API takes it: of two occurrences at least."""
    return {"count": max(entry.total, 2), "lastObservedTime": _stamp(entry.last)}


def _reference(reference: ObjectReference) -> dict[str, object]:
    fields = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    return {name: value for name, value in fields.items() if value}
