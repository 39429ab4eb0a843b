"""Files with pools and queues: what they become, and what is said where they are wrong."""

from pathlib import Path

import pytest

from shoal.catalog.load import load_catalog
from shoal.catalog.load.reader import read_documents
from shoal.model.modes import Cap, Mode, Sharing
from shoal.model.pool import PlacementPolicy
from shoal.model.queue import Budget, EvictionBounds, Period, Priority, WhenSpent
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.model.workload import WorkloadType
from shoal.objects.files import BadObjectsError, Written, read_object_documents, read_objects
from shoal.objects.pools import node_problems
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved, words_of
from tests.objects.written import pool, queue

CATALOG = load_catalog()
EXAMPLE = Path(__file__).parents[2] / "docs/examples/organisation"
MINUTE_US = 60_000_000


def read(*texts: str) -> Written:
    return read_object_documents(read_documents("".join(texts).encode(), "q.yaml"), CATALOG)


def problems(*texts: str) -> list[str]:
    with pytest.raises(BadObjectsError) as caught:
        read(*texts)
    return list(caught.value.problems)


def test_a_pool_says_whether_queues_share_its_devices() -> None:
    chosen = "nodes: {matchLabels: {a: b}}"
    (mixing,) = read(pool("p", f"{chosen}, sharedBetweenQueues: true")).pools
    (strict,) = read(pool("p", chosen)).pools
    assert (mixing.mixes_queues, strict.mixes_queues) == (True, False)


def test_the_example_is_read_whole() -> None:
    written = read_objects([EXAMPLE], CATALOG)
    shared, training = written.pools
    assert training.nodes == Selector((Requirement("shoal.dev/pool", Operator.IN, ("training",)),))
    assert training.types == (WorkloadType.TRAINING, WorkloadType.BATCH)
    assert training.placement is PlacementPolicy.TOPOLOGY
    assert training.levels == ("shoal.dev/rack", "shoal.dev/block")
    assert training.modes == (Mode(False, Sharing.EXCLUSIVE, Cap.NONE),)
    assert [mode.name for mode in shared.modes] == ["partition", "mps", "time-sliced+library"]
    vision = written.tree.get("vision")
    assert vision is not None
    assert vision.guarantee == (("A100-80GB", 8), ("H100", 16))
    assert vision.limit == (("H100", 32),)
    assert (vision.weight, vision.reclaim_within_us) == (2, 10 * MINUTE_US)
    assert vision.priorities == (
        Priority("normal", 0),
        Priority("urgent", 100, ("group:vision-leads",)),
    )
    assert vision.eviction == EvictionBounds(30 * MINUTE_US, 4, 20, 30 * MINUTE_US)
    assert vision.budget == Budget(Period.MONTH, 5000, WhenSpent.NO_BORROWING)
    assert vision.maximum_run_us == ((WorkloadType.NOTEBOOK, 12 * 60 * MINUTE_US),)
    assert vision.namespaces is not None
    assert vision.namespaces.matches({"team": "vision"})
    assert not vision.namespaces.matches({"team": "nlp"})


def test_the_tree_stands_from_the_root_down() -> None:
    tree = read_objects([EXAMPLE], CATALOG).tree
    assert [each.name for each in tree.queues] == ["acme", "research", "serving", "vision", "nlp"]
    assert tree.path("vision") == ("acme", "research", "vision")
    assert [each.name for each in tree.children("research")] == ["vision", "nlp"]
    assert [each.name for each in tree.leaves()] == ["serving", "vision", "nlp"]


def test_types_that_are_not_written_are_the_parents() -> None:
    nlp = read_objects([EXAMPLE], CATALOG).tree.get("nlp")
    assert nlp is not None
    assert nlp.types == (WorkloadType.TRAINING, WorkloadType.NOTEBOOK, WorkloadType.BATCH)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            [queue("a", "parent: b"), queue("b", "parent: c"), queue("c", "parent: a")],
            [
                (
                    "q.yaml:5: spec.parent: no queue is the root; leave parent out of the one"
                    " above all others"
                ),
                (
                    "q.yaml:5: spec.parent: is in a circle: a under b under c under a; change one"
                    " parent"
                ),
            ],
        ),
        (
            [queue("top"), queue("a", "parent: b"), queue("b", "parent: a")],
            ["q.yaml:10: spec.parent: is in a circle: a under b under a; change one parent"],
        ),
        (
            [queue("top"), queue("a", "parent: a")],
            ["q.yaml:10: spec.parent: is the queue itself; write the queue above it"],
        ),
        (
            [queue("research"), queue("vision", "parent: reserch")],
            ["q.yaml:10: spec.parent: there is no queue reserch; nearest: research"],
        ),
        (
            [queue("a"), queue("b")],
            [
                (
                    "q.yaml:10: spec.parent: b and a both have no parent, and there is one root;"
                    " write a parent"
                )
            ],
        ),
        (
            [queue("a"), queue("b", "parent: a"), queue("b", "parent: a")],
            ["q.yaml:14: metadata.name: the queue b is written twice; rename one"],
        ),
        (
            [
                queue("a", "guarantee: {H100: 4}"),
                queue("b", "parent: a, guarantee: {H100: 3}"),
                queue("c", "parent: a, guarantee: {H100-SXM5-80GB: 2}"),
            ],
            [
                (
                    "q.yaml:5: spec.guarantee.H100: its children are guaranteed b 3 + c 2 = 5,"
                    " and a only 4; raise it to 5 or lower theirs"
                )
            ],
        ),
        (
            [queue("a", "guarantee: {H100: 4}"), queue("b", "parent: a, guarantee: {T4: 1}")],
            [
                (
                    "q.yaml:10: spec.guarantee.T4: a is guaranteed no T4 that it could pass on;"
                    " it has H100: 4"
                )
            ],
        ),
        (
            [
                queue("a", "guarantee: {H100: 4}"),
                queue("b", "parent: a"),
                queue("c", "parent: b, guarantee: {H100: 5}"),
            ],
            [
                (
                    "q.yaml:5: spec.guarantee.H100: its children are guaranteed b 5 = 5, and a"
                    " only 4; raise it to 5 or lower theirs"
                )
            ],
        ),
        (
            [queue("a", "guarantee: {H100-SXM5-80GB: 3, H100-PCIE-80GB: 2}, limit: {H100: 4}")],
            [
                (
                    "q.yaml:5: spec.limit.H100: is 4, less than the guarantee H100-PCIE-80GB 2 +"
                    " H100-SXM5-80GB 3 = 5; raise it to 5 or lower the guarantee"
                )
            ],
        ),
        (
            [queue("a", "limit: {H100: 2}"), queue("b", "parent: a, guarantee: {H100: 3}")],
            [
                (
                    "q.yaml:5: spec.limit.H100: is 2, less than what is guaranteed: b 3 H100; raise"
                    " it to 3 or lower that"
                )
            ],
        ),
        (
            [queue("a", "guarantee: {H100: 1, H100-SXM5-80GB: 1}")],
            [
                (
                    "q.yaml:5: spec.guarantee.H100-SXM5-80GB: is also part of H100; write one of"
                    " the two, or disjoint ones"
                )
            ],
        ),
        (
            [queue("a", "guarantee: {H101: 1}")],
            [
                (
                    "q.yaml:5: spec.guarantee.H101: no accelerator or group is named 'H101'; did"
                    " you mean H100, H20, A10?"
                )
            ],
        ),
        (
            [queue("a", "types: [batch]"), queue("b", "parent: a, types: [training, batch]")],
            ["q.yaml:10: spec.types: a grants batch, not training; write some of those"],
        ),
        (
            [queue("a", "namespaces: {}"), queue("b", "parent: a")],
            [
                (
                    "q.yaml:5: spec.namespaces: work waits in leaves of the tree, and a is above b;"
                    " write namespaces there"
                )
            ],
        ),
        (
            [queue("a", "weigth: 2")],
            [
                (
                    "q.yaml:5: spec.weigth: is not known here; did you mean weight? Known are:"
                    " parent, namespaces, guarantee, limit, weight, reclaimWithin, types,"
                    " priorities, eviction, budget, maximumRun, maximumWait, borrow, lend,"
                    " placeable, order, aging, starvationAfter, shrinkAfter, usageHalfLife"
                )
            ],
        ),
        (
            [queue("a", "eviction: {minimumrun: 5m}")],
            [
                (
                    "q.yaml:5: spec.eviction.minimumrun: is not known here; did you mean"
                    " minimumRun? Known are: minimumRun, perWorkloadPerDay, deviceHoursLostPerDay,"
                    " checkpointInterval, graceMax"
                )
            ],
        ),
        (
            [queue("a", "reclaimWithin: soon")],
            [
                (
                    "q.yaml:5: spec.reclaimWithin: 'soon' is no duration above zero; write whole"
                    " numbers with d, h, m or s, in this order, such as 10m or 1h30m, and at most"
                    " 9999d"
                )
            ],
        ),
        (
            [queue("a", 'weight: "2"')],
            [
                "q.yaml:5: spec.weight: must be a whole number without quotes and units, not '2'",
            ],
        ),
        (
            [pool("p", "nodes: {}")],
            [
                (
                    "q.yaml:5: spec.nodes: chooses every node; write matchLabels or"
                    " matchExpressions that choose this pool's"
                )
            ],
        ),
        (
            [pool("p", "nodes: {matchLabels: {a: b}}, modes: [mig, partition, mip]")],
            [
                "q.yaml:5: spec.modes.2: names the mode partition twice; keep one",
                (
                    "q.yaml:5: spec.modes.3: mode 'mip' is unknown; write one of whole,"
                    " time-sliced, time-sliced+library, time-sliced+driver, mps+uncapped,"
                    " mps+library, mps, mps+driver, partition, partition+time-sliced,"
                    " partition+time-sliced+library, partition+time-sliced+driver,"
                    " partition+mps+uncapped, partition+mps+library, partition+mps,"
                    " partition+mps+driver"
                ),
            ],
        ),
        (
            [pool("p", "nodes: {matchLabels: {a: b}}, placement: {policy: topology}")],
            [
                (
                    "q.yaml:5: spec.placement.levels: the policy topology needs levels; write node"
                    " labels, the smallest domain first"
                )
            ],
        ),
        (
            [pool("p", "nodes: {matchLabels: {a: b}}, placement: {policy: pack, levels: [r]}")],
            [
                (
                    "q.yaml:5: spec.placement.levels: the policy pack has no levels; remove them or"
                    " write topology"
                )
            ],
        ),
        (
            [pool("p", "nodes: {matchExpressions: [{key: a, operator: In}]}")],
            ["q.yaml:5: spec.nodes.matchExpressions.1: In needs values; write values: [...]"],
        ),
        (
            [pool("p", "nodes: {matchLabels: {a: b}}"), pool("p", "nodes: {matchLabels: {a: c}}")],
            ["q.yaml:9: metadata.name: the pool p is written twice; rename one"],
        ),
        (["kind: Pod\n"], ["q.yaml:1: apiVersion: must be shoal.dev/v1alpha1"]),
        (
            ["apiVersion: shoal.dev/v1alpha1\nkind: Queue\n"],
            ["q.yaml:2: kind: must be AcceleratorPool or AcceleratorQueue"],
        ),
        (
            ["[]\n"],
            [
                (
                    "q.yaml:1: must be an object: write apiVersion, kind (AcceleratorPool or"
                    " AcceleratorQueue), metadata, spec"
                )
            ],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(texts: list[str], said: list[str]) -> None:
    assert problems(*texts) == said


def test_several_accelerators_may_count_together() -> None:
    texts = [
        queue("a", 'guarantee: {"H100|H200": 8, T4: 1}'),
        queue("b", "parent: a, guarantee: {H200: 8}"),
    ]
    tree = read(*texts).tree
    names = names_of(CATALOG)
    top = resolved(tree, names).queues[0]
    assert top.guarantee == (
        ("H100-NVL-94GB|H100-PCIE-80GB|H100-SXM5-80GB|H200-NVL-141GB|H200-SXM5-141GB", 8),
        ("T4", 1),
    )
    written = words_of(tree, names)
    assert [written[word] for word, _ in top.guarantee] == ["H100|H200", "T4"]
    texts.append(queue("c", "parent: a, guarantee: {H100: 1}"))
    assert "b 8 + c 1 = 9, and a only 8" in problems(*texts)[0]


def test_a_chain_of_queues_may_not_be_endless() -> None:
    chain = [queue("q0"), *(queue(f"q{n}", f"parent: q{n - 1}") for n in range(1, 2000))]
    said = problems(*chain)
    assert len(said) == 1
    assert "is 17 queues deep, and 16 is the most" in said[0]


def test_a_node_in_two_pools_is_named_with_both() -> None:
    pools = read(
        pool("big", "nodes: {matchLabels: {size: big}}"),
        pool("new", "nodes: {matchExpressions: [{key: age, operator: Exists}]}"),
    ).pools
    nodes = {"n1": {"size": "big"}, "n2": {"size": "big", "age": "1"}, "n3": {}}
    assert node_problems(pools, nodes) == [
        (
            "node n2 is in the pools big and new; a node is in one pool: change its labels or the"
            " pools' spec.nodes"
        )
    ]


def test_many_problems_are_told_up_to_a_number() -> None:
    said = problems(queue("a"), *(queue(f"b{n}") for n in range(80)))
    assert len(said) == 51
    assert said[-1] == "... and 30 more"


def test_a_file_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadObjectsError, match=r"none\.yaml: cannot be read: No such file"):
        read_objects([tmp_path / "none.yaml"], CATALOG)
    with pytest.raises(BadObjectsError, match=r"has no \*\.yaml file"):
        read_objects([tmp_path], CATALOG)
    assert read_objects([], CATALOG) == Written()
