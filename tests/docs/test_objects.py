"""The page on pools and queues as files: what it shows is read, and every field is explained."""

import re
from pathlib import Path

import yaml

from shoal.objects.queues import QueueModel
from tests.objects.written import only, priced, problems, queue, read

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


def test_blocks_of_yaml_are_yaml() -> None:
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        assert yaml.safe_load(block)
