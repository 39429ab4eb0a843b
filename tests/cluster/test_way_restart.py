"""Restarts, crashes and changes of leader on a real cluster."""

import time

import pytest

from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.way import (
    POD,
    Shoal,
    bound,
    gated,
    gated_job,
    managed,
    node_of,
    wait_bound,
)

pytestmark = [pytest.mark.cluster]


def in_use(cluster: Cluster) -> None:
    """No device was given twice: no pod was refused by its node."""
    failed = [p for p in cluster.api.list(POD, "team") if p["status"].get("phase") == "Failed"]
    assert failed == []


def test_killed_at_any_moment_it_finishes_what_it_began(cluster: Cluster) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 10, 8)
    shoal = Shoal(cluster, no_leader_elect=None)
    pods = [gated(f"p{n}") for n in range(40)]
    jobs = [gated_job(f"j{n}", 4) for n in range(10)]
    cluster.api.create_all([*pods, *jobs])
    for pause_s in (0.0, 0.02, 0.05, 0.1, 0.2):
        time.sleep(pause_s)
        shoal.process.kill()
        shoal.start()
    found = wait_bound(cluster, 80, seconds=60)
    assert sorted(found.values()) == [f"gpu-{n}" for n in range(10) for _ in range(8)]
    in_use(cluster)
    shoal.check()
    shoal.process.stop()


def test_o01_a_restart_counts_once_and_keeps_the_order(cluster: Cluster) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 1, 2)
    shoal = Shoal(cluster)
    short = {"fake-node/runs-for": "0.1"}
    cluster.api.create(gated("f1", annotations=short))
    cluster.api.create(gated("f2", annotations=short | {"fake-node/exit-code": "1"}))
    for name in ("f1", "f2"):
        cluster.api.wait(
            POD, name, "team", until=lambda o: o["status"]["phase"] in ("Succeeded", "Failed")
        )
    cluster.api.create(gated("r"))
    cluster.api.wait(POD, "r", "team", until=node_of)
    for name in ("w2", "w3", "w1"):
        cluster.api.create(gated(name, 2))
        time.sleep(1.1)  # creation times have whole seconds
    shoal.check()
    versions = {p["metadata"]["name"]: p["metadata"]["resourceVersion"] for p in _pods(cluster)}
    shoal.process.kill()
    shoal.start()
    shoal.check()
    assert {
        p["metadata"]["name"]: p["metadata"]["resourceVersion"] for p in _pods(cluster)
    } == versions
    assert shoal.metric('shoal_devices{state="free"}') == 1
    # The order is that of creation.
    cluster.api.delete(POD, "r", "team", grace_s=0)
    for name in ("w2", "w3", "w1"):
        cluster.api.wait(POD, name, "team", until=node_of)
        others = {"w2", "w3", "w1"} & set(bound(cluster)) - {name}
        assert others == set()
        cluster.api.delete(POD, name, "team", grace_s=0)
    shoal.check()


def test_o01_the_api_server_goes_away_and_comes_back(cluster: Cluster) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 1, 2)
    shoal = Shoal(cluster)
    cluster.api.create(gated("a"))
    wait_bound(cluster, 1)
    cluster.api_server.kill()
    time.sleep(2)
    cluster.api_server.start()
    cluster.ready()
    cluster.api.create(gated("b"))
    assert len(wait_bound(cluster, 2, seconds=60)) == 2
    shoal.check()


def test_a_standby_takes_over_from_a_leader_that_was_killed(cluster: Cluster) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 4, 8)
    one = Shoal(cluster, "one")
    eventually(lambda: one.leads, 30, "nobody leads")
    two = Shoal(cluster, "two")
    cluster.api.create_all([gated(f"p{n}") for n in range(8)])
    wait_bound(cluster, 8)
    assert not two.leads
    two.check()
    cluster.api.create_all([gated(f"q{n}") for n in range(24)])
    one.process.kill()
    # The lease runs out after 15 s.
    found = wait_bound(cluster, 32, seconds=90)
    assert sorted(found.values()) == [f"gpu-{n}" for n in range(4) for _ in range(8)]
    eventually(lambda: two.leads, 1, "the standby does not lead")
    in_use(cluster)
    two.check()


def test_a_leader_that_is_told_to_stop_hands_over_at_once(cluster: Cluster) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 1, 8)
    one = Shoal(cluster, "one")
    eventually(lambda: one.leads, 30, "nobody leads")
    two = Shoal(cluster, "two")
    assert one.process.stop() == 0
    assert one.log()[-1]["event"] == "stopped"
    eventually(lambda: two.leads, 14, "the standby did not take over before the lease ran out")
    cluster.api.create(gated("a"))
    wait_bound(cluster, 1)
    two.check()


def _pods(cluster: Cluster) -> list[dict[str, dict[str, str]]]:
    return cluster.api.list(POD, "team")
