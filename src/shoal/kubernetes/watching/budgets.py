"""Disruption budgets as the core counts them: how many pods of which workloads may go now.

The number is the one that the Eviction API goes by, `status.disruptionsAllowed`. A budget that the
disruption controller has not looked at since it was changed allows none, as for the API server.

Whom the API server refuses to evict although no budget that is known forbids it counts as covered
by a budget of its own for a while, so that the same is not asked again and again.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from shoal.core import events as ev
from shoal.kubernetes.api.store import Store
from shoal.kubernetes.watching.truth import NAMESPACE, Truth
from shoal.kubernetes.wire.cluster import DisruptionBudget
from shoal.kubernetes.wire.pod import Pod
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector


class _Expression(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Expression, ...] = ()


_decoder = msgspec.json.Decoder(_Selector)

REFUSED_US: Final = 30_000_000
"""For so long an eviction is not tried again that was refused for a reason that is not known."""

Told = tuple[int, tuple[str, ...]]
"""How many pods may be evicted, and the workloads that are covered."""


class Budgets:
    """Compares budgets and the pods under them with what the world was told."""

    def __init__(self, truth: Truth, workload_of: Callable[[str], str]) -> None:
        """Prepare; `workload_of` names the started workload of a pod, empty if there is none."""
        self._truth = truth
        self._workload_of = workload_of
        self._told: dict[str, Told] = {}
        self._dirty: dict[str, None] = {}
        self._refused: dict[str, tuple[str, int]] = {}
        """By name: a workload that could not be evicted, and until when it is left alone (us)."""
        self._new: list[str] = []
        truth.budgets.subscribe(self._changed)

    def _changed(self, old: DisruptionBudget | None, new: DisruptionBudget | None) -> None:
        budget = new or old
        if budget is not None:
            self._dirty[budget.metadata.namespace] = None

    @property
    def is_dirty(self) -> bool:
        """Whether `changes` has anything to look at, times aside."""
        return bool(self._dirty or self._new)

    @property
    def due_us(self) -> list[int]:
        """When refusals are forgotten."""
        return [until_us for _, until_us in self._refused.values()]

    def refused(self, uid: str, now_us: int) -> None:
        """Leave a workload alone for a while that could not be evicted."""
        name = f"eviction refused/{uid}"
        self._refused[name] = uid, now_us + REFUSED_US
        self._new.append(name)

    def pod_changed(self, pod: Pod) -> None:
        """Look at the budgets of a pod's namespace again, if it has any."""
        namespace = pod.metadata.namespace
        if namespace not in self._dirty and self._of(self._truth.budgets, namespace):
            self._dirty[namespace] = None

    def changes(self, now_us: int) -> Iterator[ev.DisruptionBudgetSet]:
        """Yield what the world has to be told."""
        new, self._new = self._new, []
        for name in new:
            yield ev.DisruptionBudgetSet(now_us, name, 0, (self._refused[name][0],))
        for name in [name for name, (_, until_us) in self._refused.items() if until_us <= now_us]:
            del self._refused[name]
            yield ev.DisruptionBudgetSet(now_us, name, None)
        dirty, self._dirty = self._dirty, {}
        for namespace in dirty:
            now = self._covered(namespace)
            prefix = f"{namespace}/"
            for name in [each for each in self._told if each.startswith(prefix)]:
                if name not in now:
                    del self._told[name]
                    yield ev.DisruptionBudgetSet(now_us, name, None)
            for name, told in sorted(now.items()):
                if self._told.get(name) != told:
                    self._told[name] = told
                    yield ev.DisruptionBudgetSet(now_us, name, *told)

    def _covered(self, namespace: str) -> dict[str, Told]:
        budgets = self._of(self._truth.budgets, namespace)
        if not budgets:
            return {}
        pods = [
            (uid, pod.metadata.labels)
            for pod in self._truth.pods.by(NAMESPACE, namespace)
            if (uid := self._workload_of(pod.uid))
        ]
        found = {}
        for budget in budgets:
            covers = _selection(budget)
            uids = sorted({uid for uid, labels in pods if covers(labels)})
            found["/".join(budget.key)] = (_allowed(budget), tuple(uids))
        return found

    @staticmethod
    def _of(store: Store[DisruptionBudget], namespace: str) -> list[DisruptionBudget]:
        return list(store.by(NAMESPACE, namespace))


def _allowed(budget: DisruptionBudget) -> int:
    seen = budget.status.observed_generation >= budget.metadata.generation
    return max(0, budget.status.disruptions_allowed) if seen else 0


def _selection(budget: DisruptionBudget) -> Callable[[Mapping[str, str]], bool]:
    """Which labels a budget covers: with an empty selector all, without one none.

    One that cannot be read covers all: what may not be evicted must not be tried.
    """
    if not budget.spec.selector:
        return lambda _: False
    try:
        written = _decoder.decode(budget.spec.selector)
        requirements = [
            Requirement(key, Operator.IN, (value,)) for key, value in written.match_labels.items()
        ]
        requirements += [
            Requirement(each.key, Operator(each.operator), each.values)
            for each in written.match_expressions
        ]
    except (msgspec.DecodeError, ValueError):
        return lambda _: True
    return Selector(tuple(requirements)).matches
