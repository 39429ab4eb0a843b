"""A server on a socket: it comes, it goes, and says nothing about it."""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from pathlib import Path

import pytest
import uvicorn

from shoal.cli.client import Api
from shoal.server.address import AddressError
from tests.server.rig import job, platform, served


def test_streams_end_with_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with platform(tmp_path) as rig:
        with served(rig.standing, tmp_path / "run" / "s.sock") as path:
            api = Api(path)
            events = api.events("/decisions/stream?after=0", None)
            api.post("/workloads", {"manifests": [job("a", 4, 2)]})
            identity, kind, data = next(events)
            assert (kind, data["text"]) == ("decision", "Starts default/a on n1, n2.")
            assert int(identity) == data["id"]
        assert list(events) == []
        assert not path.exists()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    with platform(tmp_path) as rig, served(rig.standing, tmp_path / "run" / "s.sock") as path:
        api = Api(path)
        api.post("/workloads", {"manifests": [job("a", 2), job("b", 2), job("c", 2)]})
        first = api.events("/decisions/stream?after=0", None)
        seen = [next(first)[0]]
        first.close()
        again = api.events("/decisions/stream", seen[0])
        seen += [next(again)[0] for _ in range(2)]
        again.close()
    assert len(set(seen)) == 3


def test_a_gap_is_told(tmp_path: Path) -> None:
    with platform(tmp_path) as rig, served(rig.standing, tmp_path / "run" / "s.sock") as path:
        api = Api(path)
        rig.replica.story.noted = deque(maxlen=2)
        api.post("/workloads", {"manifests": [job(f"j{n}", 2) for n in range(4)]})
        events = api.events("/decisions/stream?after=1", None)
        assert [next(events)[1] for _ in range(3)] == ["gap", "decision", "decision"]
        events.close()


def test_a_second_server_is_turned_away(tmp_path: Path) -> None:
    with platform(tmp_path) as rig, served(rig.standing, tmp_path / "run" / "s.sock") as path:
        with pytest.raises(AddressError, match="already"), served(rig.standing, path):
            pass
        assert Api(path).get("/status")["acting"]


def test_whoever_connects_while_it_stops_is_not_kept_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run" / "s.sock"

    def stopped_behind(client: socket.socket, turns: int) -> None:
        """Serve until so many turns of the loop after a client has connected."""

        async def main_loop(_: uvicorn.Server) -> None:
            client.connect(str(path))
            for _turn in range(turns):
                await asyncio.sleep(0)

        monkeypatch.setattr(uvicorn.Server, "main_loop", main_loop)
        with served(rig.standing, path):
            pass

    with platform(tmp_path) as rig:
        for turns in range(6):
            with socket.socket(socket.AF_UNIX) as client:
                stopped_behind(client, turns)
                client.settimeout(200)
                with contextlib.suppress(ConnectionError):
                    assert client.recv(1) == b"", turns
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
