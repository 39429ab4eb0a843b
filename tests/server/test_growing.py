"""What is said of a gang that runs without some of its pods, and of its growing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.core import events as ev
from shoal.model.workload import Outcome
from shoal.server.app import PREFIX, make_app
from tests.server.client import Api, why
from tests.server.rig import TWO_QUEUES, platform, shrink


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with platform(tmp_path, queues=TWO_QUEUES) as rig:
        client = Api(make_app(rig.standing), raise_server_exceptions=False)
        client.rig = rig
        shrink(rig, client.submit)
        yield client


def test_it_is_told_how_many_of_its_pods_run_and_when_the_others_join(api: Api) -> None:
    said = why(api, "big")
    row = said["workload"]
    assert (row["state"], row["pods"], len(row["placements"])) == ("running", 8, 4)
    assert said["headline"] == (
        "It runs on n1 with 4 of 8 pods. The others join it as soon as there is room for them that"
        " nobody who waits can use."
    )
    chinese = why(api, "big", **{"accept-language": "zh"})["headline"]
    assert "8 个 Pod 中已有 4 个" in chinese


def test_its_growing_is_a_decision_with_its_places_and_a_moment_of_its_story(api: Api) -> None:
    api.rig.step(ev.WorkloadEnded(api.rig.now_us, api.rig.uid("p"), Outcome.COMPLETED))
    said = why(api, "big")
    assert said["headline"] == "It runs on n1, n2."
    assert said["moments"][-1]["text"] == "pods that it lacked were placed"
    last = api.get(f"{PREFIX}/decisions").json()["items"][-1]
    assert (last["kind"], last["reason"]) == ("resize", "placed")
    assert last["text"] == "Gives default/big 4 of the pods that it lacks, on n2."
    assert [each["node"] for each in last["placements"]] == ["n2"] * 4
    chinese = api.get(f"{PREFIX}/decisions", headers={"accept-language": "zh"}).json()["items"][-1]
    assert "为 default/big 补充其缺少的 4 个 Pod" in chinese["text"]
