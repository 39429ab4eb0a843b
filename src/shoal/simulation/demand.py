"""The task classes of a trace, as the published runs of fragmentation gradient descent take them.

Weng et al., USENIX ATC 2023: pods grouped by CPU, devices, compute and accelerators (host memory is
ignored, pods without devices count too); the most frequent groups that together cover at least
95 % of the pods.
"""

from collections import Counter
from dataclasses import replace

from shoal.core.demand import TaskClass
from shoal.simulation.trace import Trace

COVER_PCT = 95


def task_classes(trace: Trace) -> tuple[TaskClass, ...]:
    """Return the classes of `trace`, most frequent first, weighted by the number of their pods."""
    counts = Counter(replace(pod.request, memory_mib=0) for pod in trace.pods)
    classes: list[TaskClass] = []
    covered = 0
    for request, count in counts.most_common():
        if 100 * covered >= COVER_PCT * len(trace.pods):
            break
        covered += count
        classes.append(TaskClass(request, count))
    return tuple(classes)
