"""What is said of evictions, of kept places, and of evictions that are frozen."""

from collections.abc import Iterator
from os import getuid
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest

from shoal.core import events as ev
from shoal.core.decisions import Freeze, Reserve
from shoal.model.verdict import Reason
from shoal.model.workload import Placement
from shoal.server.app import PREFIX, make_app
from tests.server.client import Api, why
from tests.server.rig import MINUTE_US, TWO_QUEUES, job, platform, reclaim


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with platform(tmp_path, queues=TWO_QUEUES) as rig:
        client = Api(make_app(rig.standing), raise_server_exceptions=False)
        client.rig = rig
        yield client


@pytest.fixture
def reclaimed(api: Api) -> Api:
    """Queue a takes four devices back."""
    reclaim(api.rig, api.submit)
    return api


def workload(api: Api, name: str) -> Any:
    return api.get(f"{PREFIX}/workloads?name={name}&state=all").json()["items"][-1]


def test_who_takes_back_is_told_what_is_kept_and_whom_it_waits_for(reclaimed: Api) -> None:
    said = why(reclaimed, "p")
    assert said["headline"] == said["workload"]["reservation"]["text"]
    assert said["headline"] == (
        "Room on n2 is kept for it: queue a takes back what it is guaranteed. It starts when the"
        " pods of default/x1, default/x2 have stopped."
    )
    kept = said["workload"]["reservation"]
    assert (kept["since"], kept["at"]) == ("2026-11-29T10:10:04Z", None)
    assert [each["name"] for each in kept["evicted"]] == ["x1", "x2"]
    assert [(each["name"], each["evicting"]) for each in said["holders"]] == [
        ("x1", True),
        ("x2", True),
    ]
    assert said["workload"]["wait"]["text"] == "room is being freed"
    assert said["moments"][-1]["text"] == "room is kept for it: taken back for a guarantee"


def test_who_is_evicted_is_told_for_whom_why_and_what_it_loses(reclaimed: Api) -> None:
    row = workload(reclaimed, "x1")
    assert row["state"] == "evicting"
    said = row["eviction"]
    assert said["text"] == (
        "Evicted for default/p, to give queue a back what it is guaranteed. At most 0.34"
        " device hours of work are lost; no other choice costs less."
    )
    assert said["at"] == "2026-11-29T10:10:04Z"
    assert [each["name"] for each in said["evicted_for"]] == ["p"]
    assert (said["lost_device_hours"], said["exact"], said["grace_seconds"]) == (0.3339, True, 30)
    assert why(reclaimed, "x1")["moments"][-1]["text"] == (
        "is evicted for default/p: taken back for a guarantee"
    )
    reclaimed.rig.leave(1)
    row = workload(reclaimed, "x1")
    assert (row["state"], row["waiting_since"]) == ("waiting", "2026-11-29T10:10:05Z")
    assert row["created_at"] == "2026-11-29T10:00:03Z"
    assert row["eviction"] == said


def test_who_sees_devices_free_is_told_for_whom_they_are_kept(reclaimed: Api) -> None:
    reclaimed.rig.leave(1)
    holders = why(reclaimed, "late")["holders"]
    assert [each["kept"] for each in holders if each["kept"]] == [
        "2 devices free on n2, kept for default/p, which reclaims the guarantee of a"
    ]
    states = [each["state"] for each in reclaimed.get(f"{PREFIX}/devices?node=n2").json()["items"]]
    assert sorted(states) == ["held", "held", "kept", "kept"]
    devices = reclaimed.get(f"{PREFIX}/devices?state=kept").json()["items"]
    assert [leaf["kept_for"][0]["name"] for each in devices for leaf in each["leaves"]] == ["p"] * 2
    (queue,) = [
        each for each in reclaimed.get(f"{PREFIX}/queues").json()["items"] if each["name"] == "a"
    ]
    assert [(each["used"], each["kept"]) for each in queue["quotas"]] == [(0, 4)]
    counts = [
        (each["free"], each["kept"])
        for node in reclaimed.get(f"{PREFIX}/nodes").json()["items"]
        for each in node["accelerators"]
        if node["name"] == "n2"
    ]
    assert counts == [(0, 2)]
    reclaimed.rig.leave()
    assert workload(reclaimed, "p")["state"] == "running"


def test_decisions_say_it_in_both_languages(reclaimed: Api) -> None:
    answer = reclaimed.get(f"{PREFIX}/decisions").json()["items"]
    said = [(each["kind"], each["text"]) for each in answer if each["kind"] in ("evict", "reserve")]
    evicts = (
        "Evicts default/{} for default/p, to give queue a back what it is guaranteed. At most 0.34"
        " device hours of work are lost; no other choice costs less. Its pods get 30s to stop."
    )
    keeps = (
        "Keeps room on n2 for default/p, to give queue a back what it is guaranteed; it is freed by"
        " default/x1, default/x2."
    )
    assert said == [
        ("evict", evicts.format("x1")),
        ("evict", evicts.format("x2")),
        ("reserve", keeps),
    ]
    chinese = reclaimed.get(f"{PREFIX}/decisions", headers={"Accept-Language": "zh"}).json()
    assert any(
        each["text"] == "驱逐 default/x1，为 default/p 归还队列 a 的保障配额。"  # noqa: RUF001 - Chinese
        "最多损失 0.34 设备小时的工作；没有代价更小的选择。其 Pod 有 30s 的时间停止。"  # noqa: RUF001
        for each in chinese["items"]
    )
    of_p = reclaimed.get(f"{PREFIX}/decisions?workload={workload(reclaimed, 'p')['id']}").json()[
        "items"
    ]
    assert [each["kind"] for each in of_p] == ["evict", "evict", "reserve"]


FROM = (
    "Room on n1, n2 is kept for it. It is free when default/x have ended, by 1h30m from now as"
    " their owners declared; work that has ended by then may use it."
)
UNKNOWN = (
    "Room on n1, n2 is kept for it. When it is free is not known: default/x did not declare how"
    " long they run, or run longer than they declared."
)


@pytest.mark.parametrize(("minutes", "said"), [(90, FROM), (None, UNKNOWN)])
def test_whoever_waits_for_ends_is_told_when_and_on_which_grounds(
    api: Api, minutes: int | None, said: str
) -> None:
    api.submit(job("x", 4, 2, queue="b", accelerators="H100"))
    api.submit(job("q", 4, 2, queue="b", accelerators="H100"))
    api.rig.step()
    at_us = None if minutes is None else api.rig.now_us + minutes * MINUTE_US
    places = tuple(Placement(n, f"n{n + 1}", _leaves(f"n{n + 1}")) for n in range(2))
    kept = Reserve("reserve/q", api.rig.uid("q"), places, at_us, (), Reason.RESERVED)
    api.rig.step(ev.Decided(api.rig.now_us, kept))
    answer = why(api, "q")
    assert answer["headline"] == said
    assert answer["workload"]["reservation"]["at"] == (
        None if minutes is None else "2026-11-29T11:30:00Z"
    )
    assert [each["name"] for each in answer["holders"]] == ["x"]


def _leaves(name: str) -> tuple[str, ...]:
    return tuple(f"{name}-{n}" for n in range(4))


def test_frozen_evictions_are_an_alert_until_a_person_resumes(reclaimed: Api) -> None:
    frozen = Freeze("freeze/1", 12, 10, Reason.TOO_MANY_EVICTIONS)
    reclaimed.rig.step(ev.Decided(reclaimed.rig.now_us, frozen))
    guard = reclaimed.get(f"{PREFIX}/status").json()["evictions"]
    assert (guard["frozen"], guard["since"]) == (True, "2026-11-29T10:10:05Z")
    assert (guard["lately"], guard["most"]) == (2, 10)
    assert guard["text"] == (
        "Evictions are frozen: 12 workloads would be evicted within 5 minutes, and at most 10 may"
        " be. If that is as it should be, shoal resume lets them go on."
    )
    assert why(reclaimed, "late")["alert"] == (
        f"Nobody is evicted for it while evictions are frozen. {guard['text']}"
    )
    assert why(reclaimed, "x3")["alert"] == ""
    assert "shoal_evictions_frozen 1.0" in reclaimed.get(f"{PREFIX}/metrics").text
    assert reclaimed.post(f"{PREFIX}/resume").json() == {"acting": True, "evictions_resumed": True}
    guard = reclaimed.get(f"{PREFIX}/status").json()["evictions"]
    assert (guard["frozen"], guard["text"]) == (False, "")
    assert (guard["resumed_by"], guard["resumed_at"]) == (
        f"user:{getpwuid(getuid()).pw_name}",
        "2026-11-29T10:10:05Z",
    )


def test_metrics_count_evictions_and_what_they_cost(reclaimed: Api) -> None:
    text = reclaimed.get(f"{PREFIX}/metrics").text
    assert 'shoal_evictions_total{reason="reclaim"} 2.0' in text
    (line,) = [
        each for each in text.splitlines() if each.startswith("shoal_lost_device_hours_total{")
    ]
    assert line.startswith('shoal_lost_device_hours_total{reason="reclaim"} 0.66')
    assert "shoal_evictions_frozen 0.0" in text


def test_of_a_service_only_replicas_above_its_minimum_borrow_and_go(api: Api) -> None:
    """It has six replicas, of which queue b is guaranteed four; a takes two devices back."""
    web = job("web", queue="b", type="inference", minimum="2", accelerators="H100")
    web |= {"apiVersion": "apps/v1", "kind": "Deployment"}
    web["spec"] |= {"replicas": 6}
    del web["spec"]["parallelism"]
    api.submit(web)
    api.rig.step()
    api.rig.now_us += 10 * MINUTE_US
    rows = [workload(api, f"web/{slot}") for slot in range(6)]
    assert {row["state"] for row in rows} == {"running"}
    assert [row["spare"] for row in rows] == [False, False, True, True, True, True]
    api.submit(job("p", 4, queue="a", accelerators="H100"))
    api.rig.step()
    states = [workload(api, f"web/{slot}")["state"] for slot in range(6)]
    assert states[:2] == ["running", "running"]
    assert sorted(states[2:]) == ["evicting", "evicting", "running", "running"]
    api.rig.leave()
    states = [workload(api, f"web/{slot}")["state"] for slot in range(6)]
    assert (states.count("running"), states.count("waiting")) == (4, 2)
    assert workload(api, "p")["state"] == "running"


def test_a_service_without_a_minimum_neither_borrows_nor_goes(api: Api) -> None:
    web = job("web", queue="b", type="inference", accelerators="H100")
    web |= {"apiVersion": "apps/v1", "kind": "Deployment"}
    web["spec"] |= {"replicas": 6}
    api.submit(web)
    api.rig.step()
    states = [workload(api, f"web/{slot}")["state"] for slot in range(6)]
    assert states == ["running"] * 4 + ["waiting"] * 2
