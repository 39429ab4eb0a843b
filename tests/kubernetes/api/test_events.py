"""Events are few, true, and never in the way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.events import (
    MANY_LIKE_IT,
    NOTE_BYTES,
    EventRecorder,
    RecorderOptions,
    Told,
)
from shoal.kubernetes.wire.meta import ObjectReference
from tests.kubernetes.fake_api import PATIENT, FakeApi, Pauses, Refusal, in_loop, transport_to

POD = ObjectReference("v1", "Pod", "ns", "a", "u1")
WAITS = Told(POD, "Waiting", "no rack has 2 nodes", "Planning")


class Desk:
    """A recorder whose clock a test turns."""

    def __init__(self, api: FakeApi, client: Client, options: RecorderOptions) -> None:
        self.api = api
        self.now_s = 0.0
        self.recorder = self.another(client, options)
        self.client = client

    def another(self, client: Client, options: RecorderOptions) -> EventRecorder:
        start = datetime(2026, 11, 29, tzinfo=UTC)
        return EventRecorder(
            client,
            "shoal.dev/scheduler",
            "pod-0",
            options,
            monotonic_s=lambda: self.now_s,
            now=lambda: start + timedelta(seconds=self.now_s),
            sleep=Pauses(),
        )

    def events(self) -> list[dict[str, Any]]:
        return list(self.api.objects.get("events", {}).values())


@asynccontextmanager
async def _desk(options: RecorderOptions | None = None) -> AsyncIterator[Desk]:
    limits = replace(PATIENT, patience_s=0)
    async with FakeApi() as api, transport_to(api, limits=limits) as transport:
        yield Desk(api, Client(transport), options or RecorderOptions())


@in_loop
async def test_an_event_has_what_the_api_asks_for() -> None:
    async with _desk() as desk:
        desk.recorder.record(replace(WAITS, warning=True))
        await desk.recorder.flush()
        (event,) = desk.events()
        assert event["regarding"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ns",
            "name": "a",
            "uid": "u1",
        }
        assert event["eventTime"] == "2026-11-29T00:00:00.000000Z"
        assert event["metadata"]["namespace"] == "ns"
        assert event["metadata"]["name"].startswith("a.")
        given = {name: event[name] for name in ("action", "reason", "note", "type")}
        assert given == {
            "action": "Planning",
            "reason": "Waiting",
            "note": "no rack has 2 nodes",
            "type": "Warning",
        }
        assert (event["reportingController"], event["reportingInstance"]) == (
            "shoal.dev/scheduler",
            "pod-0",
        )
        assert "series" not in event


@in_loop
async def test_the_same_again_is_a_series_written_at_most_once_a_minute() -> None:
    async with _desk() as desk:
        for second in range(180):
            desk.now_s = second
            desk.recorder.record(WAITS)
            await desk.recorder.flush()
        (event,) = desk.events()
        assert desk.api.version == 3
        assert event["series"]["count"] == 121
        assert event["series"]["lastObservedTime"] == "2026-11-29T00:02:00.000000Z"
        desk.now_s = 240
        await desk.recorder.flush()
        assert desk.events()[0]["series"]["count"] == 180
        desk.now_s = 400
        await desk.recorder.flush()
        assert desk.api.version == 4


@in_loop
async def test_what_was_told_before_a_restart_is_not_told_anew() -> None:
    async with _desk() as desk:
        for _ in range(3):
            desk.recorder.record(WAITS)
        await desk.recorder.flush()
        successor = desk.another(desk.client, RecorderOptions())
        successor.record(WAITS)
        await successor.flush()
        (event,) = desk.events()
        assert event["series"]["count"] == 4
        await successor.flush()
        assert desk.api.version == 2


@in_loop
async def test_an_event_that_kubernetes_forgot_begins_anew() -> None:
    async with _desk() as desk:
        desk.recorder.record(WAITS)
        await desk.recorder.flush()
        name = desk.events()[0]["metadata"]["name"]
        desk.api.remove("events", name, "ns")
        desk.now_s = 100
        desk.recorder.record(WAITS)
        await desk.recorder.flush()
        (event,) = desk.events()
        assert event["eventTime"] == "2026-11-29T00:01:40.000000Z"
        assert "series" not in event


@in_loop
async def test_other_objects_reasons_and_notes_are_other_events() -> None:
    async with _desk() as desk:
        for told in (
            WAITS,
            replace(WAITS, reason="Refused"),
            replace(WAITS, note="another"),
            replace(WAITS, about=ObjectReference("v1", "Pod", "ns", "a", "u2")),
            replace(WAITS, warning=True),
        ):
            desk.recorder.record(told)
        await desk.recorder.flush()
        assert len(desk.events()) == 5


@in_loop
async def test_many_notes_of_one_reason_are_merged() -> None:
    async with _desk() as desk:
        for position in range(100):
            desk.recorder.record(replace(WAITS, note=f"position {position}"))
        await desk.recorder.flush()
        assert len(desk.events()) == 11
        (merged,) = [event for event in desk.events() if event["note"] == MANY_LIKE_IT]
        assert merged["series"]["count"] == 90


@in_loop
async def test_notes_and_names_stay_within_what_the_api_takes() -> None:
    async with _desk() as desk:
        about = ObjectReference("v1", "Pod", "ns", "x" * 235 + "-" * 18, "u")
        desk.recorder.record(replace(WAITS, about=about, note="视" * 2000))
        desk.recorder.record(replace(WAITS, about=ObjectReference("v1", "Node", "", "n1", "u")))
        await desk.recorder.flush()
        first, second = desk.events()
        assert len(first["note"].encode()) <= NOTE_BYTES
        assert first["note"].endswith("视…")
        assert len(first["metadata"]["name"]) <= 253
        assert "-." not in first["metadata"]["name"]
        assert second["metadata"]["namespace"] == "default"


@in_loop
async def test_events_wait_for_a_server_that_is_away_and_are_lost_beyond_a_bound() -> None:
    async with _desk(RecorderOptions(pending=5, concurrency=1)) as desk:
        await desk.api.stop()
        for i in range(8):
            about = ObjectReference("v1", "Pod", "ns", f"p{i}", f"u{i}")
            desk.recorder.record(replace(WAITS, about=about))
            desk.recorder.record(replace(WAITS, about=about))
        await desk.recorder.flush()
        assert desk.recorder.lost == 6
        tries = desk.client.transport.counters.calls["POST", "events.events.k8s.io", 0]
        assert tries == 1
        await desk.api.start()
        await desk.recorder.flush()
        assert [event["series"]["count"] for event in desk.events()] == [2] * 5


@in_loop
async def test_a_refused_event_is_counted_and_forgotten() -> None:
    async with _desk() as desk:
        desk.api.refuse("POST", Refusal(403, "namespace is being terminated"))
        desk.recorder.record(WAITS)
        await desk.recorder.flush()
        await desk.recorder.flush()
        assert desk.recorder.lost == 1
        assert desk.events() == []
        desk.now_s = 10_000
        await desk.recorder.flush()
        assert not desk.recorder._entries
        assert not desk.recorder._notes
