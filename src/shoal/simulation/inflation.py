"""The protocol of the published packing results: arrivals until 130 % of the fleet is asked for.

Weng et al., USENIX ATC 2023: the trace's pods are shuffled, then pods drawn from it with
replacement are appended until the next draw would take the compute asked for over 1.3 times the
fleet's. Pods arrive one by one; none leaves; one that does not fit has failed and is not retried.
"""

import numpy as np

from shoal.simulation.trace import Trace, capacity_milli, demand_milli

LOAD_PCT = 130
"""How much of the fleet's compute is asked for at the end, in percent of it."""

MOST_ARRIVALS = 2_000_000
"""A trace that needs more to fill its fleet is refused: a run would take hours."""

_DRAWS = 1024


def expected_arrivals(trace: Trace) -> int:
    """Return about how many pods the inflated trace has; one pod at least asks for a device."""
    load_milli = capacity_milli(trace.nodes) * LOAD_PCT // 100
    asked_milli = sum(demand_milli(pod.request) for pod in trace.pods)
    return load_milli * len(trace.pods) // asked_milli


def inflated(trace: Trace, seed: int) -> list[int]:
    """Return the arrivals of one run in order, as indices into `trace.pods`.

    A trace that asks for more than the load to begin with is cut to it, by pods chosen at random.

    The published code tests a draw by its compute on one device instead of on all of them, so the
    end may lie above the load by a few devices; it is kept, because it belongs to the results.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    asked = [demand_milli(pod.request) for pod in trace.pods]
    most_milli = capacity_milli(trace.nodes) * LOAD_PCT // 100
    order: list[int] = generator.permutation(len(asked)).tolist()
    total_milli = sum(asked)
    while total_milli > most_milli:
        total_milli -= asked[order.pop()]  # the order is random, so its end is
    while True:
        for drawn in generator.integers(len(asked), size=_DRAWS).tolist():
            per_device_milli = asked[drawn] // max(1, trace.pods[drawn].request.devices.count)
            if total_milli + per_device_milli > most_milli:
                return order
            order.append(drawn)
            total_milli += asked[drawn]
