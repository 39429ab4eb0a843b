"""A scheduler's numbers, as Prometheus reads them. Each is counted when it is asked for."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from shoal.core.world import State
from shoal.kubernetes.api.transport import Transport
from shoal.kubernetes.scheduler import Scheduler


class SchedulerMetrics(Collector):
    """The metrics of one scheduler and of its transport."""

    def __init__(self, scheduler: Scheduler, transport: Transport) -> None:
        self._scheduler = scheduler
        self._transport = transport

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: families are listed as they are collected."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All families as they are now."""
        yield from self._decisions()
        yield from self._world()
        yield from self._api()

    def _decisions(self) -> Iterable[Metric]:
        counts = self._scheduler.counts
        cycles = SummaryMetricFamily("shoal_cycle_seconds", "Cycles, and the time they took.")
        cycles.add_metric([], count_value=counts.cycles, sum_value=counts.cycle_s)
        yield cycles
        longest = GaugeMetricFamily("shoal_cycle_longest_seconds", "The longest cycle so far.")
        longest.add_metric([], counts.longest_cycle_s)
        yield longest
        yield _counter("shoal_events", "Events that the world took in.", "event", counts.events)
        yield _counter("shoal_decisions", "Decisions by kind.", "decision", counts.decisions)
        waits = sorted(counts.free_to_patch_s)
        latency = GaugeMetricFamily(
            "shoal_free_to_patch_seconds",
            "From hearing that a device is free to the patch of the pod that gets it, lately.",
            labels=["quantile"],
        )
        for quantile in (0.5, 0.99):
            if waits:
                value = waits[min(len(waits) - 1, int(len(waits) * quantile))]
                latency.add_metric([str(quantile)], value)
        yield latency

    def _world(self) -> Iterable[Metric]:
        scheduler = self._scheduler
        states = Counter({state.value: 0 for state in State} | {"adopted": 0})
        for uid, entry in scheduler.world.entries.items():
            kind = uid.partition("/")[0]
            states["adopted" if kind in ("pod", "claim") else entry.state.value] += 1
        yield _gauge("shoal_workloads", "Workloads by state.", "state", states)
        holds = Counter(hold.reason.value for hold in scheduler.source.holds.values())
        yield _gauge("shoal_held_back", "Pods or owners held back, by reason.", "reason", holds)
        fleet = scheduler.world.fleet
        devices = {"all": int(fleet.device_count.sum()), "free": int(fleet.whole_free.sum())}
        yield _gauge("shoal_devices", "Devices in working order.", "state", Counter(devices))
        for name, text, value in (
            ("shoal_leader", "1 while this process decides.", scheduler.source.acts),
            (
                "shoal_nodes_in_several_pools",
                "Nodes that take nothing new because of their labels.",
                len(scheduler.several_pools.found),
            ),
            (
                "shoal_files_refused",
                "1 while changed files with pools and queues are not taken in.",
                bool(scheduler.files.refused),
            ),
            (
                "shoal_evictions_frozen",
                "1 while nobody is evicted until a person resumes.",
                scheduler.world.evictions.frozen,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)

    def _api(self) -> Iterable[Metric]:
        counters = self._transport.counters
        calls = CounterMetricFamily(
            "shoal_api_calls",
            "Answers of the API server; code 0 is none.",
            labels=["verb", "resource", "code"],
        )
        for (verb, resource, code), count in sorted(counters.calls.items()):
            calls.add_metric([verb, resource, str(code)], count)
        yield calls


def _counter(name: str, text: str, label: str, values: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _gauge(name: str, text: str, label: str, values: Counter[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
