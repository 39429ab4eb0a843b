"""The page on pools and queues as files: what it shows is read, and every field is explained."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from shoal.objects.queues import QueueModel
from shoal.objects.quotas import Scale, guaranteed, names_of
from tests.core.build import node
from tests.core.cases import Case, batch, tree, work
from tests.core.cases import queue as devices
from tests.objects.written import CATALOG, only, priced, problems, queue, read

PAGE = (Path(__file__).parents[2] / "docs/objects.md").read_text()
ABOVE = queue("research", "guarantee: {H100: 16, A100-80GB: 8}")


def blocks(kind: str) -> list[str]:
    """Blocks of YAML on the page that hold an object of a kind."""
    found = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return [block for block in found if f"kind: {kind}" in block]


def test_the_queue_on_the_page_is_read_whole() -> None:
    (block,) = blocks("AcceleratorQueue")
    vision = only([ABOVE, "---\n", block], "vision")
    assert (vision.borrow, vision.placeable) == ((("H100", 8),), (("H100", 8),))
    assert vision.budget is not None
    assert vision.budget.time_zone == "Europe/Berlin"


def test_the_pool_on_the_page_is_read_whole() -> None:
    (block,) = blocks("AcceleratorPool")
    assert [each.name for each in read([block]).pools] == ["training"]


def test_the_budget_in_money_on_the_page_is_read() -> None:
    (block,) = re.findall(r"```yaml\nbudget: (.*?)\n```", PAGE)
    price = "accelerator: H100, micro_per_hour: 1, currency: EUR, valid_from: 2026-01-01"
    found = only(
        [queue("a", f"guarantee: {{H100: 1}}, budget: {block}")], "a", priced(price)
    ).budget
    assert found is not None
    assert found.money_micro == 12_000_500_000


def test_every_field_of_a_queue_is_explained() -> None:
    schema = QueueModel.model_json_schema()["$defs"]
    fields = {*schema["QueueSpec"]["properties"]} - {"eviction", "budget"}
    fields |= {f"eviction.{each}" for each in schema["EvictionModel"]["properties"]}
    explained = set(
        re.findall(r"`([A-Za-z.]+)`", "".join(re.findall(r"^\| [^|]+ \|", PAGE, re.MULTILINE)))
    )
    assert fields - explained == set()
    for word in schema["BudgetModel"]["properties"]:
        assert word in PAGE


def test_the_worked_example_of_units_adds_up() -> None:
    team = queue("a", "parent: top, guarantee: {H100-SXM5-80GB: 16}")
    assert read([queue("top", "guarantee: {units: 40}"), team, _units(12)]).tree.queues
    said = problems([queue("top", "guarantee: {units: 40}"), team, _units(13)])
    assert "16 H100-SXM5-80GB x 1.734 + b 13 = 40.744" in said[0]
    assert "16 x 1.734 = 27.744, and\n12 makes 39.744" in PAGE


def _units(count: int) -> str:
    return queue("b", f"parent: top, guarantee: {{units: {count}}}")


REFUSED = {
    "its children are guaranteed vision 16 + nlp 12": (
        queue("research", "guarantee: {H100: 24}"),
        queue("vision", "parent: research, guarantee: {H100: 16}"),
        queue("nlp", "parent: research, guarantee: {H100: 12}"),
    ),
    "its children are guaranteed vision 8 H100-SXM5-80GB x 1.734": (
        queue("research", "guarantee: {units: 20}"),
        queue("vision", "parent: research, guarantee: {H100-SXM5-80GB: 8}"),
        queue("nlp", "parent: research, guarantee: {units: 7}"),
    ),
    "is in a circle": (queue("a", "parent: b"), queue("b", "parent: a")),
    "less than the guarantee H100 8": (queue("a", "guarantee: {H100: 8}, limit: {H100: 4}"),),
    "less than what is guaranteed: vision 4": (
        queue("a", "limit: {H100-SXM5-80GB: 2}, guarantee: {H100: 4}"),
        queue("vision", "parent: a, guarantee: {H100-SXM5-80GB: 4}"),
    ),
    "and 7 together with H100: 4": (
        queue("a", 'guarantee: {"H100|A100": 8}, limit: {H100: 4, A100: 3}'),
    ),
    "more than the guarantee H100 4": (queue("a", "guarantee: {H100: 4}, lend: {H100: 8}"),),
    "which protects better": (
        queue("top", "eviction: {minimumRun: 30m}"),
        queue("a", "parent: top, eviction: {minimumRun: 1h}"),
    ),
    "is no time zone": (
        queue("a", "budget: {period: day, deviceHours: 1, timeZone: Europe/Berln}"),
    ),
}


@pytest.mark.parametrize("about", REFUSED)
def test_what_is_refused_is_said_as_the_page_says(about: str) -> None:
    (said,) = [each for each in problems(REFUSED[about]) if about in each]
    shown = re.findall(r"^q\.yaml:\d+: (.+)$", PAGE, re.MULTILINE)
    assert said.split(": ", 1)[1] in shown


def test_every_refusal_on_the_page_is_one_that_is_made() -> None:
    assert len(re.findall(r"^q\.yaml:\d+: ", PAGE, re.MULTILINE)) == len(REFUSED)


def test_what_a_parent_does_not_write_is_what_its_children_have() -> None:
    below = [queue("a", "parent: top, guarantee: {H100-SXM5-80GB: 2}")]
    below.append(queue("b", "parent: top, guarantee: {H100: 1}"))
    tree = read([queue("top"), *below]).tree
    scale = Scale.of(tree, names_of(CATALOG))
    assert guaranteed(tree, tree.queues[0], scale) == (("H100", 3),)


def test_more_evictions_than_the_root_says_protect_less_and_none_is_refused() -> None:
    top = queue("top", "eviction: {perWorkloadPerDay: 4}")
    assert "If the root says `perWorkloadPerDay: 4`, a\nteam may write 6" in PAGE
    six = only([top, queue("a", "parent: top, eviction: {perWorkloadPerDay: 6}")], "a")
    assert six.eviction.per_workload_per_day == 6
    assert problems([top, queue("a", "parent: top, eviction: {perWorkloadPerDay: 0}")])


def test_a_team_that_lends_twelve_of_sixteen_and_borrows_eight() -> None:
    """Four are free for it while it sleeps, twelve come back, and it holds twenty-four at most."""
    assert "`guarantee: {H100: 16}, lend: {H100: 12}, borrow: {H100: 8}`, four of your" in PAGE
    team = replace(devices("team", 16), lend=(("H100", 12),), borrow=(("H100", 8),))
    nodes = [node("n", 16, cpu=99), node("m", 16, cpu=99)]
    case = Case(nodes, tree(team, devices("others")))
    case.submit(*(batch(f"others/{k}", 4) for k in range(8)))
    assert case.holds("others") == 28_000
    case.submit(*(work(f"team/{k}", 4) for k in range(4)))
    assert (case.holds("team"), case.holds("others")) == (16_000, 16_000)
    assert len(case.evictions) == 3
    alone = Case(nodes, tree(team, devices("others")))
    alone.submit(*(work(f"team/{k}") for k in range(32)))
    assert alone.holds("team") == 24_000


def test_blocks_of_yaml_are_yaml() -> None:
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        assert yaml.safe_load(block)
