"""The default policy on a real cluster: prices are learned, fed, recorded, and replayed alike."""

from pathlib import Path
from typing import get_args

import pytest

from shoal.core.demand import FIRST_PRICING_PODS
from shoal.core.events import Event, PricesSet
from shoal.loop.following import Follower
from shoal.loop.records import Header
from shoal.loop.replay import replay
from tests.cluster.harness.api import eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.way import Shoal, gated, managed, wait_bound

pytestmark = [pytest.mark.cluster]


def test_the_scheduler_prices_what_it_has_learned(cluster: Cluster, tmp_path: Path) -> None:
    managed(cluster)
    cluster.fake_nodes.add("gpu", 4, 8)
    folder = tmp_path / "recording"
    shoal = Shoal(cluster, recording=folder)
    cluster.api.create_all([gated(f"p{n}") for n in range(FIRST_PRICING_PODS)])
    wait_bound(cluster, FIRST_PRICING_PODS)
    counted = 'shoal_events_total{event="PricesSet"}'
    eventually(lambda: counted in shoal.get("/metrics").decode(), 30, "no prices")
    cluster.api.create(gated("later"))
    wait_bound(cluster, FIRST_PRICING_PODS + 1)
    shoal.check()
    assert shoal.process.stop() == 0
    records = list(Follower(folder).poll())
    header = next(each for each in records if isinstance(each, Header))
    assert header.policy.name == "fragmentation"
    events = [each for each in records if isinstance(each, get_args(Event))]
    assert any(isinstance(each, PricesSet) and each.prices.classes for each in events)
    _, differences = replay(events, header.policy, int(header.seed))
    assert not differences
