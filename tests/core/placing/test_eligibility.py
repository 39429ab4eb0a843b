"""Node tests as Kubernetes defines them, and the counts of nodes that fail them."""

import numpy as np
import pytest

from shoal.core import events as ev
from shoal.core.arrays.shape import Shapes
from shoal.core.placing import eligibility
from shoal.core.placing.eligibility import count_obstacles, static_tests, tolerates
from shoal.core.world import World
from shoal.model.node import UNSCHEDULABLE, Node, Taint, TaintEffect
from shoal.model.request import (
    AffinityTerm,
    DeviceRequest,
    Operator,
    Request,
    Requirement,
    Toleration,
    TolerationOperator,
)
from shoal.model.verdict import Obstacle, Reason
from shoal.model.workload import Outcome, Placement
from tests.core.build import (
    decide,
    device,
    divided,
    job,
    node,
    share,
    started,
    submit,
    whole,
    world_of,
)

NO_SCHEDULE, NO_EXECUTE = TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE
EXISTS = TolerationOperator.EXISTS


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        (Operator.IN, ("a", "b"), "ab"),
        (Operator.IN, ("z",), ""),
        (Operator.NOT_IN, ("a",), "b7-"),
        (Operator.EXISTS, (), "ab7"),
        (Operator.DOES_NOT_EXIST, (), "-"),
        (Operator.GT, ("6",), "7"),
        (Operator.GT, ("7",), ""),
        (Operator.LT, ("8",), "7"),
        (Operator.LT, ("7",), ""),
        (Operator.LT, ("x",), ""),
        (Operator.GT, ("1", "2"), ""),
    ],
)
def test_label_requirements(operator: Operator, values: tuple[str, ...], expected: str) -> None:
    """Nodes a, b and 7 have the label with that value, node - lacks it."""
    names = ["a", "b", "7", "-"]
    world = world_of(*(node(n, labels={} if n == "-" else {"k": n}) for n in names))
    term = AffinityTerm((Requirement("k", operator, values),))
    assert allowed(world, Request(affinity=(term,))) == set(expected)


def allowed(world: World, request: Request) -> set[str]:
    """The nodes that pass every static test."""
    rows = slice(0, world.fleet.size)
    passed = [p for _, p in static_tests(world.fleet, Shapes().of(request), rows)]
    return {world.fleet.names[row] for row in np.flatnonzero(np.all(passed, axis=0))}


def test_terms_are_alternatives_and_requirements_are_not() -> None:
    """(x and y) or z; a term without requirements matches nothing."""
    labels = {"both": {"x": "", "y": ""}, "x": {"x": ""}, "z": {"z": ""}, "none": {}}
    world = world_of(*(node(name, labels=each) for name, each in labels.items()))
    has = {key: Requirement(key, Operator.EXISTS) for key in "xyz"}
    both, third = AffinityTerm((has["x"], has["y"])), AffinityTerm((has["z"],))
    assert allowed(world, Request(affinity=(both, third))) == {"both", "z"}
    assert allowed(world, Request(affinity=(AffinityTerm(),))) == set()


@pytest.mark.parametrize(
    ("operator", "expected"), [(Operator.IN, {"n1"}), (Operator.NOT_IN, {"n0", "n2"})]
)
def test_match_fields(operator: Operator, expected: set[str]) -> None:
    """The node's name, the only field that Kubernetes knows."""
    world = world_of(*(node(f"n{i}") for i in range(3)))
    term = AffinityTerm(fields=(Requirement("metadata.name", operator, ("n1",)),))
    assert allowed(world, Request(affinity=(term,))) == expected


def test_selector_follows_labels() -> None:
    """A node whose label changes becomes eligible, and stops being so."""
    world = world_of(node("n", labels={"zone": "a"}))
    request = Request(selector=(("zone", "b"),))
    assert allowed(world, request) == set()
    world.apply(ev.NodeSeen(1, node("n", labels={"zone": "b"})))
    assert allowed(world, request) == {"n"}
    world.apply(ev.NodeSeen(2, node("n")))
    assert allowed(world, request) == set()


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("k", value="v"), True),
        (Toleration("k", value="w"), False),
        (Toleration("other", value="v"), False),
        (Toleration("k", EXISTS), True),
        (Toleration("", EXISTS), True),
        (Toleration("", value="v"), False),
        (Toleration("k", EXISTS, effect=NO_SCHEDULE), True),
        (Toleration("k", EXISTS, effect=NO_EXECUTE), False),
    ],
)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    """Against the taint k=v:NoSchedule."""
    assert tolerates((toleration,), Taint("k", NO_SCHEDULE, "v")) is expected


def test_preference_keeps_nobody_away() -> None:
    """PreferNoSchedule is no obstacle."""
    assert tolerates((), Taint("k", TaintEffect.PREFER_NO_SCHEDULE))


def test_cordon() -> None:
    """Keeps pods away, except those that tolerate it as DaemonSets do; may be lifted."""
    world = world_of(node("n"))
    world.apply(ev.NodeCordoned(1, "n", cordoned=True))
    tolerant = Toleration(UNSCHEDULABLE.key, EXISTS)
    assert allowed(world, Request()) == set()
    assert allowed(world, Request(tolerations=(tolerant,))) == {"n"}
    world.apply(ev.NodeCordoned(2, "n", cordoned=False))
    assert allowed(world, Request()) == {"n"}


def test_mask() -> None:
    """An adapter's set of nodes; without one the mask allows nothing."""
    world = world_of(node("a"), node("b"))
    assert allowed(world, Request(mask="m")) == set()
    world.apply(ev.MaskSet(1, "m", ("b", "unknown")))
    assert allowed(world, Request(mask="m")) == {"b"}
    world.apply(ev.NodeSeen(2, node("unknown")))
    assert allowed(world, Request(mask="m")) == {"b", "unknown"}


def test_accelerators_on_a_mixed_node() -> None:
    """Only the devices of an accelerator that will do count."""
    cards = (*node("m", 1).devices, *node("x", 2, accelerator="A100").devices)
    world = world_of(Node("m", 32_000, 0, 110, cards))
    came = submit(world, job("two", whole(2, 1, "H100")), job("one", whole(1, 1, "H100")))
    assert started(came) == {"one": ["m"]}
    assert world.entries["one"].held[0].leaves == ("m/0",)
    assert count_obstacles(world.fleet, Shapes().of(whole(1, 1, "H100"))) == (
        Obstacle(Reason.WHOLE_DEVICES, 1),
    )


@pytest.mark.parametrize("tenants", [1, 8])
def test_whole_devices_of_one_accelerator_on_a_mixed_node(tenants: int) -> None:
    """Undivided ones, shared or not, and nothing of a divided one though all of it is free."""
    cards = (
        divided("m/0", 2, "H100"),
        device("m/1", "H100", tenants),
        device("m/2", "A100", tenants),
        device("m/3", "H100", tenants),
    )
    world = world_of(Node("m", 32_000, 0, 110, cards))
    came = submit(world, job("a", whole(2, 1, "H100")), job("b", whole(1, 1, "H100")))
    assert started(came) == {"a": ["m"]}
    assert world.entries["a"].held[0].leaves == ("m/1", "m/3")


def test_leaves_of_one_pod_are_on_different_devices() -> None:
    """Two partitions are asked for: one device with seven does not do, two devices do."""
    cards = (divided("n/0", 7),)
    world = world_of(Node("n", 32_000, 0, 110, cards))
    asked = share(100, count=2)
    assert started(submit(world, job("w", asked))) == {}
    world.apply(ev.NodeSeen(1, Node("n", 32_000, 0, 110, (*cards, divided("n/1", 2)))))
    assert started(submit(world)) == {"w": ["n"]}
    leaves = world.entries["w"].held[0].leaves
    assert {leaf.rpartition("/")[0] for leaf in leaves} == {"n/0", "n/1"}


def test_a_divided_device_is_not_given_whole() -> None:
    """Not even where all of its partitions are free."""
    world = world_of(Node("n", 32_000, 0, 110, (divided("n/0", 2),)))
    assert started(submit(world, job("w", whole(1)))) == {}


def test_more_masks_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sleeps wakes when its own node has room, whatever was forgotten meanwhile."""
    monkeypatch.setattr(eligibility, "CACHED_ANSWERS", 0)  # so that eight are kept
    zones = [f"z{number:02}" for number in range(12)]
    world = world_of(node("other"), *(node(zone, 1, labels={"zone": zone}) for zone in zones))
    asks = {zone: Request(devices=DeviceRequest(1), selector=(("zone", zone),)) for zone in zones}
    submit(world, *(job(f"{zone}/holds", ask) for zone, ask in asks.items()))
    assert started(submit(world, *(job(zone, ask) for zone, ask in asks.items()))) == {}
    for zone in zones:
        world.apply(ev.NodeCordoned(1, "other", cordoned=zone in zones[::2]))
        world.apply(ev.WorkloadEnded(1, f"{zone}/holds", Outcome.COMPLETED))
        assert started(decide(world)) == {zone: [zone]}, zone


def test_a_node_that_left_its_row_is_no_obstacle() -> None:
    """It is forgotten; one that still holds something is counted as gone."""
    world = world_of(node("a"), node("b"))
    submit(world, job("w", Request(1000)))
    for name in ("a", "b"):
        world.apply(ev.NodeLost(1, name))
    assert count_obstacles(world.fleet, Shapes().of(Request())) == (Obstacle(Reason.GONE, 1),)
    world.apply(ev.WorkloadEnded(2, "w", Outcome.FAILED))
    assert count_obstacles(world.fleet, Shapes().of(Request())) == (Obstacle(Reason.NO_NODES, 0),)


def test_obstacles_are_counted_by_the_first_test_failed() -> None:
    """Nine nodes, each kept back by another test."""
    kept = Taint("kept", NO_SCHEDULE)
    labels = {"zone": "a", "size": "2"}
    world = world_of(
        node("selector", 2, labels={"zone": "b"}),
        node("affinity", 2, labels={"zone": "a", "size": "1"}),
        node("taint", 2, labels=labels, taints=(kept,)),
        node("cordon", 2, labels=labels),
        node("accelerator", 2, labels=labels, accelerator="T4"),
        node("cpu", 2, labels=labels, cpu=1),
        node("memory", 2, labels=labels, memory=1),
        node("pods", 2, labels=labels, pods=0),
        node("devices", 1, labels=labels),
        node("gone", 2, labels=labels),
    )
    world.fleet.take(Request(), Placement(0, "gone"))
    world.apply(ev.NodeLost(1, "gone"))
    world.apply(ev.NodeCordoned(1, "cordon", cordoned=True))
    request = Request(
        cpu_milli=2000,
        memory_mib=2,
        devices=DeviceRequest(2, accelerators=("H100",)),
        selector=(("zone", "a"),),
        affinity=(AffinityTerm((Requirement("size", Operator.GT, ("1",)),)),),
    )
    counted = count_obstacles(world.fleet, Shapes().of(request))
    assert [(o.reason, o.nodes) for o in counted] == [
        (Reason.GONE, 1),
        (Reason.SELECTOR, 1),
        (Reason.AFFINITY, 1),
        (Reason.TAINT, 1),
        (Reason.CORDONED, 1),
        (Reason.ACCELERATOR, 1),
        (Reason.CPU, 1),
        (Reason.MEMORY, 1),
        (Reason.PODS, 1),
        (Reason.WHOLE_DEVICES, 1),
    ]
