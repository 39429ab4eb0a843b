"""`AcceleratorPool` as people write it, and the value that it becomes."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from shoal.model.modes import Mode, parse_mode
from shoal.model.pool import PlacementPolicy, Pool, pools_of_node
from shoal.model.workload import WorkloadType
from shoal.objects.forms import (
    LabelKey,
    MetadataModel,
    SelectorModel,
    Source,
    Strict,
    Text,
)

KIND = "AcceleratorPool"

TypeWord = Literal["training", "inference", "notebook", "batch"]

EVERY_TYPE: Final[tuple[TypeWord, ...]] = ("training", "inference", "notebook", "batch")


class PlacementModel(Strict):
    """How nodes and leaves are scored."""

    policy: Literal["pack", "spread", "fragmentation", "topology"]
    levels: Annotated[list[LabelKey], Field(max_length=8)] = Field(default_factory=list)


class PoolSpec(Strict):
    """What a pool is made of, and how it is used."""

    nodes: SelectorModel
    types: Annotated[list[TypeWord], Field(min_length=1, max_length=4)] = Field(
        default_factory=lambda: list(EVERY_TYPE)
    )
    modes: Annotated[list[Text], Field(min_length=1, max_length=16)] = Field(
        default_factory=lambda: ["whole"]
    )
    placement: PlacementModel | None = None
    shared_between_queues: bool = False


class PoolModel(Strict):
    """The object."""

    api_version: Literal["shoal.dev/v1alpha1"]
    kind: Literal["AcceleratorPool"]
    metadata: MetadataModel
    spec: PoolSpec


def read_pool(source: Source) -> Pool | None:
    """The pool in a document; None where something is wrong, which `source` then has noted."""
    before = len(source.problems)
    model = source.parsed(PoolModel)
    if model is None:
        return None
    spec = model.spec
    nodes = source.selector(("spec", "nodes"), spec.nodes)
    if not nodes.requirements:
        source.complain(
            ("spec", "nodes"),
            "chooses every node; write matchLabels or matchExpressions that choose this pool's",
        )
    _once(source, ("spec", "types"), spec.types)
    modes = _modes(source, spec.modes)
    placement = spec.placement
    if placement is not None:
        _check_levels(source, placement)
    if len(source.problems) > before:
        return None
    return Pool(
        name=model.metadata.name,
        nodes=nodes,
        types=tuple(WorkloadType(word) for word in spec.types),
        modes=modes,
        placement=None if placement is None else PlacementPolicy(placement.policy),
        levels=() if placement is None else tuple(placement.levels),
        mixes_queues=spec.shared_between_queues,
    )


def _modes(source: Source, words: list[str]) -> tuple[Mode, ...]:
    modes: list[Mode] = []
    for index, word in enumerate(words):
        try:
            mode = parse_mode(word)
        except ValueError as error:
            source.complain(("spec", "modes", index), str(error))
            continue
        if mode in modes:
            source.complain(("spec", "modes", index), f"names the mode {mode} twice; keep one")
        modes.append(mode)
    return tuple(modes)


def _check_levels(source: Source, placement: PlacementModel) -> None:
    path = ("spec", "placement", "levels")
    topology = placement.policy == "topology"
    if topology and not placement.levels:
        source.complain(
            path, "the policy topology needs levels; write node labels, the smallest domain first"
        )
    if not topology and placement.levels:
        source.complain(
            path, f"the policy {placement.policy} has no levels; remove them or write topology"
        )
    _once(source, path, placement.levels)


def _once(source: Source, path: tuple[str, ...], words: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, word in enumerate(words):
        if word in seen:
            source.complain((*path, index), f"names {word} twice; keep one")
        seen.add(word)


def node_problems(pools: Iterable[Pool], nodes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Sentences about nodes, given with their labels by name, that are in more than one pool."""
    listed = tuple(pools)
    return [
        several_pools_problem(node, found)
        for node, labels in sorted(nodes.items())
        if len(found := pools_of_node(listed, labels)) > 1
    ]


def several_pools_problem(node: str, pools: Iterable[str]) -> str:
    """What is wrong with a node that is in these pools."""
    return (
        f"node {node} is in the pools {' and '.join(pools)}; a node is in one pool: change its"
        " labels or the pools' spec.nodes"
    )
