"""What a store tells adds up to what it has, whatever order things come in."""

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shoal.kubernetes.api.store import Store
from shoal.kubernetes.wire.kinds import PODS, WatchEvent
from shoal.kubernetes.wire.meta import ObjectMeta
from shoal.kubernetes.wire.pod import Pod, PodSpec, PodStatus


def _pod(name: str, version: int | str, uid: str = "u", node: str = "", phase: str = "") -> Pod:
    return Pod(
        ObjectMeta(name=name, namespace="ns", uid=uid, resource_version=str(version)),
        PodSpec(node_name=node),
        PodStatus(phase=phase),
    )


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class Told:
    """A subscriber that keeps a copy from nothing but what it is told."""

    def __init__(self) -> None:
        self.copy: dict[tuple[str, str], Pod] = {}
        self.changes: list[tuple[str | None, str | None]] = []

    def __call__(self, old: Pod | None, new: Pod | None) -> None:
        self.changes.append(
            (
                old.metadata.resource_version if old is not None else None,
                new.metadata.resource_version if new is not None else None,
            )
        )
        if old is not None:
            assert self.copy.pop(old.key) is old
        if new is not None:
            assert old is None or (old.key, old.uid) == (new.key, new.uid)
            assert new.key not in self.copy
            self.copy[new.key] = new


def _listed(*pods: Pod, version: str = "1") -> tuple[Store[Pod], Told]:
    store = Store(PODS, {"node": _node})
    told = Told()
    store.subscribe(told)
    store.begin_list()
    for pod in pods:
        store.put(pod)
    store.end_list(version)
    return store, told


def test_case_o02_late_and_double_events_change_nothing() -> None:
    store, told = _listed()
    store.apply(WatchEvent("ADDED", _pod("p", 10, phase="Running")))
    store.apply(WatchEvent("MODIFIED", _pod("p", 20, phase="Succeeded")))
    store.apply(WatchEvent("MODIFIED", _pod("p", 15, phase="Running")))
    assert [pod.status.phase for pod in store.values()] == ["Succeeded"]
    store.apply(WatchEvent("DELETED", _pod("p", 30, phase="Succeeded")))
    store.apply(WatchEvent("DELETED", _pod("p", 30, phase="Succeeded")))
    store.apply(WatchEvent("MODIFIED", _pod("p", 15, phase="Running")))
    assert told.changes == [(None, "10"), ("10", "20"), ("20", None)]
    assert len(store) == 0
    assert store.late == 3


def test_an_event_that_comes_twice_is_told_once() -> None:
    store, told = _listed()
    for _ in range(3):
        store.apply(WatchEvent("ADDED", _pod("p", 10)))
    assert told.changes == [(None, "10")]


def test_a_new_uid_under_an_old_name_is_a_deletion_and_an_addition() -> None:
    store, told = _listed(_pod("p", 10, "old"), version="10")
    store.apply(WatchEvent("ADDED", _pod("p", 12, "new")))
    assert told.changes == [(None, "10"), ("10", None), (None, "12")]
    store.apply(WatchEvent("DELETED", _pod("p", 12, "old")))
    assert len(store) == 1
    store.begin_list()
    store.put(_pod("p", 14, "newest"))
    store.end_list("14")
    assert told.changes[3:] == [("12", None), (None, "14")]


def test_deletions_that_nobody_saw_become_deletions() -> None:
    store, told = _listed(_pod("a", 1), _pod("b", 2), _pod("c", 3), version="3")
    store.begin_list()
    store.put(_pod("b", 2))
    assert len(store) == 3
    store.end_list("9")
    assert told.changes[3:] == [("1", None), ("3", None)]
    assert list(store.values()) == [_pod("b", 2)]


def test_a_list_that_broke_off_deletes_nothing() -> None:
    store, told = _listed(_pod("a", 1), _pod("b", 2), version="2")
    store.begin_list()
    store.put(_pod("a", 1))
    store.begin_list()
    store.put(_pod("b", 2))
    assert len(store) == 2
    store.put(_pod("a", 1))
    store.end_list("2")
    assert len(store) == 2
    assert len(told.changes) == 2


def test_a_restored_cluster_whose_versions_fell_back_is_believed() -> None:
    store, told = _listed(_pod("a", 900), version="1000")
    store.begin_list()
    store.put(_pod("a", 40))
    store.end_list("50")
    store.apply(WatchEvent("MODIFIED", _pod("a", 51)))
    assert told.changes == [(None, "900"), ("900", "40"), ("40", "51")]


def test_versions_that_are_no_numbers_follow_the_order_of_the_watch() -> None:
    store, told = _listed()
    for version in ("zz", "aa", "mm"):
        store.apply(WatchEvent("MODIFIED", _pod("a", version)))
    assert told.changes == [(None, "zz"), ("zz", "aa"), ("aa", "mm")]


def test_a_bookmark_moves_time_on_and_changes_nothing() -> None:
    store, told = _listed()
    store.apply(WatchEvent("BOOKMARK", _pod("", 100)))
    store.apply(WatchEvent("ADDED", _pod("a", 99)))
    assert told.changes == []
    assert store.late == 1


def test_indexes_follow_their_objects() -> None:
    store, _ = _listed(_pod("a", 1, node="n1"), _pod("b", 2), version="2")
    assert list(store.by("node", "n1")) == [_pod("a", 1, node="n1")]
    store.apply(WatchEvent("MODIFIED", _pod("b", 3, node="n1")))
    store.apply(WatchEvent("MODIFIED", _pod("a", 4, node="n2")))
    assert [pod.metadata.name for pod in store.by("node", "n1")] == ["b"]
    store.apply(WatchEvent("DELETED", _pod("b", 5, node="n1")))
    assert list(store.by("node", "n1")) == []
    assert set(store._indexes["node"]) == {"n2"}
    with pytest.raises(KeyError):
        store.by("rack", "r1")


def test_a_late_subscriber_hears_what_is_there_and_can_leave() -> None:
    store, _ = _listed(_pod("a", 1), version="1")
    told = Told()
    leave = store.subscribe(told)
    assert told.changes == [(None, "1")]
    leave()
    store.apply(WatchEvent("MODIFIED", _pod("a", 2)))
    assert told.changes == [(None, "1")]


def test_waiting_ends_with_the_first_whole_list() -> None:
    async def wait() -> None:
        store = Store(PODS)
        waiting = asyncio.ensure_future(store.wait_listed())
        store.begin_list()
        store.put(_pod("a", 1))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert not store.is_listed
        store.end_list("1")
        await waiting
        store.begin_list()
        assert store.is_listed

    asyncio.run(wait())


class Cluster(RuleBasedStateMachine):
    """A cluster that changes while the store sees it in order, twice, late, or by a new list."""

    names = st.sampled_from("abcde")

    def __init__(self) -> None:
        super().__init__()
        self.truth: dict[str, Pod] = {}
        self.version = 0
        self.events: list[WatchEvent[Pod]] = []
        self.seen = 0

    @initialize()
    def list_first(self) -> None:
        self.store, self.told = _listed(version="0")

    @rule(name=names, node=st.sampled_from(["", "n1", "n2"]))
    def change(self, name: str, node: str) -> None:
        self.version += 1
        known = self.truth.get(name)
        uid = known.uid if known else f"u{self.version}"
        self.truth[name] = _pod(name, self.version, uid, node)
        self.events.append(WatchEvent("MODIFIED" if known else "ADDED", self.truth[name]))

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name in self.truth:
            self.version += 1
            gone = self.truth.pop(name)
            self.events.append(WatchEvent("DELETED", _pod(name, self.version, gone.uid)))

    @rule(count=st.integers(1, 5))
    def watch(self, count: int) -> None:
        for event in self.events[self.seen : self.seen + count]:
            self.store.apply(event)
        self.seen = min(self.seen + count, len(self.events))

    @rule(back=st.integers(1, 5))
    def hear_again(self, back: int) -> None:
        for event in self.events[max(self.seen - back, 0) : self.seen]:
            self.store.apply(event)

    @rule()
    def list_again(self) -> None:
        self.store.begin_list()
        for pod in self.truth.values():
            self.store.put(pod)
        self.store.end_list(str(self.version))
        self.seen = len(self.events)

    @invariant()
    def what_was_told_adds_up(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.told.copy == {pod.key: pod for pod in self.store.values()}
        for node in ("n1", "n2"):
            expected = {pod.key for pod in self.store.values() if pod.spec.node_name == node}
            assert {pod.key for pod in self.store.by("node", node)} == expected
        if self.seen == len(self.events):
            assert self.told.copy == {pod.key: pod for pod in self.truth.values()}


TestCluster = Cluster.TestCase
