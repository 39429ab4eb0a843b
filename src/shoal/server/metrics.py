"""Prometheus' text, read from the replica and the loop's own numbers when it is asked for."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from shoal.loop.metrics import SECONDS, Histogram
from shoal.server.standing import Standing
from shoal.server.views import count_accelerators, present_nodes
from shoal.texts.verdicts import HOUR_US

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(standing: Standing) -> bytes:
    """All metrics of a platform."""
    registry = CollectorRegistry()
    registry.register(_Platform(standing))
    return generate_latest(registry)


class _Platform(Collector):
    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        loop = self._standing.doors.metrics
        yield _counter("shoal_events", "Events taken in.", "kind", loop.events)
        yield _counter("shoal_decisions", "Decisions taken.", "kind", loop.decisions)
        yield _counter("shoal_evictions", "Evictions decided.", "reason", loop.evictions)
        lost = {key: us / HOUR_US for key, us in loop.lost_device_us.items()}
        yield _counter(
            "shoal_lost_device_hours", "Work lost by evictions, at most.", "reason", lost
        )
        yield _histogram("shoal_cycle_seconds", "Duration of a cycle.", loop.cycles)
        yield _histogram(
            "shoal_step_seconds", "From taking in to carrying out what was decided.", loop.steps
        )
        yield _histogram("shoal_answer_seconds", "From asking to the answer.", loop.answers)
        yield GaugeMetricFamily(
            "shoal_lag_seconds", "How late the oldest event was decided upon.", value=loop.lag_s
        )
        yield GaugeMetricFamily("shoal_asking", "Questions that wait.", value=loop.asking)
        yield from self._world(loop.offset)

    def _world(self, recorded: int) -> Iterator[Metric]:
        workloads = GaugeMetricFamily("shoal_workloads", "Workloads.", labels=["state"])
        devices = GaugeMetricFamily("shoal_devices", "Devices.", labels=["accelerator", "state"])
        with self._standing.reading() as look:
            states = Counter(entry.state.value for entry in look.world.entries.values())
            counts = count_accelerators(look, present_nodes(look))
            acts = look.story.acts
            frozen = look.world.evictions.frozen
            behind = max(0, recorded - look.offset)
        for state in ("waiting", "starting", "running"):
            workloads.add_metric([state], states[state])
        for each in counts:
            held = each.healthy - each.free - each.kept
            for state, value in (
                ("free", each.free),
                ("kept", each.kept),
                ("held", held),
                ("lost", each.devices - each.healthy),
            ):
                devices.add_metric([each.accelerator, state], value)
        yield workloads
        yield devices
        yield CounterMetricFamily("shoal_recorded", "Items recorded.", value=recorded)
        yield GaugeMetricFamily(
            "shoal_replica_behind", "Items recorded that the replica lacks.", value=behind
        )
        yield GaugeMetricFamily("shoal_acting", "1 while Shoal decides.", value=int(acts))
        yield GaugeMetricFamily(
            "shoal_evictions_frozen", "1 while nobody is evicted.", value=int(frozen)
        )


def _counter(name: str, said: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, said, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _histogram(name: str, said: str, found: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, said)
    total, buckets = 0, []
    for bound, count in zip((*map(str, SECONDS), "+Inf"), found.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric([], buckets=buckets, sum_value=found.sum_s)
    return family
