"""Loading, extending and overriding; and errors that name file, line and fact."""

import copy
import os
import re
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.catalog.catalog import Catalog
from shoal.catalog.load import CatalogError, build, load_catalog, own_files
from shoal.catalog.load.reader import read_bytes

OWN = own_files()
HEAD = "schema: shoal.dev/catalog/v1\n"
SOURCE = """
sources:
  mine: {what: "our own measurement", url: "https://example.org/", read: "2026-11-29"}
"""


def load(text: str) -> Catalog:
    return build([*OWN, read_bytes((HEAD + text).encode(), "mine.yaml")])


def problems(text: str) -> list[str]:
    with pytest.raises(CatalogError) as error:
        load(text)
    return list(error.value.problems)


PRICE = """
prices:
  - accelerator: H100
    micro_per_hour: 1
    currency: EUR
    valid_from: 2026-01-01
    valid_until: 2026-01-02
"""

CARD = (
    SOURCE
    + """
accelerators:
  - name: NEW-1
    vendor: acme
    facts:
      - {source: [mine], memory_mib: 1000, products: [ACME NEW 1]}
"""
)


def test_a_users_file_adds_an_accelerator() -> None:
    card = load(CARD).accelerator("NEW-1")
    assert (card.vendor, card.memory_mib, card.sources["memory_mib"]) == ("acme", 1000, ("mine",))


def test_a_users_file_overrides_one_fact_and_keeps_the_others(catalog: Catalog) -> None:
    changed = load(
        SOURCE
        + """
accelerators:
  - name: T4
    facts:
      - {source: [mine], reserved_mib: 360}
"""
    ).accelerator("T4")
    plain = catalog.accelerator("T4")
    assert changed.usable_mib() == 15_000
    assert changed.sources["reserved_mib"] == ("mine",)
    assert changed.memory_mib == plain.memory_mib
    assert changed.products == plain.products


def test_a_users_rate_and_price_are_dated() -> None:
    own = load(
        """
rates:
  - {accelerator: H100, milli: 1500, valid_from: 2026-01-01, reason: agreed}
prices:
  - {accelerator: H100, micro_per_hour: 2000000, currency: XTS, valid_from: 2026-01-01}
"""
    )
    rate = own.rate("H100-SXM5-80GB", date(2026, 6, 1))
    price = own.price("H100-SXM5-80GB", date(2026, 6, 1))
    assert rate is not None
    assert rate.milli == 1500
    assert price is not None
    assert price.micro_per_hour == 2_000_000
    assert own.price("H100-SXM5-80GB", date(2025, 12, 31)) is None


def test_a_users_way_replaces_one_of_the_same_name() -> None:
    own = load(
        SOURCE
        + """
ways:
  - name: hami
    mode: time-sliced+library
    vendor: nvidia
    channel: device-plugin
    source: [mine]
    requires: [component hami-device-plugin >= 3.0]
    memory: soft best-effort
    compute: none
    fault: none
    switch: As before.
"""
    )
    (way,) = (way for way in own.ways if way.name == "hami")
    assert str(way.requires[0][0]) == "component hami-device-plugin >= 3.0"


def test_files_and_folders_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(HEAD + CARD.replace("1000", "2000"))
    (tmp_path / "a.yaml").write_text(HEAD + CARD)
    (tmp_path / "readme.txt").write_text("no YAML: [")
    assert load_catalog([tmp_path]).accelerator("NEW-1").memory_mib == 2000
    last = [tmp_path / "b.yaml", tmp_path / "a.yaml"]
    assert load_catalog(last).accelerator("NEW-1").memory_mib == 1000


def test_nothing_is_remembered_between_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + CARD)
    assert load_catalog([path]).accelerator("NEW-1").memory_mib == 1000
    path.write_text(HEAD + CARD.replace("1000", "3000"))
    assert load_catalog([path]).accelerator("NEW-1").memory_mib == 3000
    assert "NEW-1" not in load_catalog().accelerators


def test_a_pipe_in_a_folder_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "a.yaml"
    os.mkfifo(pipe)
    with pytest.raises(CatalogError, match=re.escape(f"{pipe}: is not a file; move it away")):
        load_catalog([tmp_path])


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"has no \*\.yaml file"):
        load_catalog([tmp_path])


def test_errors_name_file_line_and_fact() -> None:
    (problem,) = problems(CARD.replace("memory_mib: 1000", 'memory_mib: "80GB"'))
    assert problem == (
        "mine.yaml:10: accelerators.NEW-1.facts.1.memory_mib: "
        "must be a whole number without quotes and units, not '80GB'"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            CARD.replace("memory_mib", "memory_mb"),
            "memory_mb: is not known here; did you mean memory_",
        ),
        (CARD.replace("memory_mib: 1000", "memory_mib: -1"), "must be 1 or more, not -1"),
        (CARD.replace("memory_mib: 1000", "memory_mib: 0"), "must be 1 or more, not 0"),
        (CARD.replace("memory_mib: 1000", "memory_mib: 99999999999"), "or less, not 99999999999"),
        (CARD.replace("memory_mib: 1000", "memory_mib: true"), "must be a whole number"),
        (CARD.replace("{source: [mine], ", "{"), "facts.1.source: is missing; write it"),
        (CARD.replace("[mine]", "[]"), "has 0 entries; write 1 or more"),
        (CARD.replace("[mine]", "[yours]"), "the source 'yours' is not described under sources"),
        (CARD.replace("[mine]", "[min]"), "did you mean 'mine'?"),
        (CARD.replace("    vendor: acme\n", ""), "needs a vendor"),
        (CARD.replace("NEW-1", "NEW 1"), "does not have the form"),
        (CARD + "  - name: NEW-1\n", "'NEW-1' is described twice in this file"),
        (CARD.replace("[ACME NEW 1]", "ACME"), "must be a list"),
        (CARD + "      - {source: [mine], memory_mib: 2}\n", "is given twice in this file"),
        (
            CARD.replace("memory_mib: 1000", "memory_mib: 1000, reserved_mib: 1000"),
            "leaves nothing",
        ),
        (CARD.replace("memory_mib: 1000", "partitioning: mig7"), "no partitioning is named 'mig7'"),
        (CARD.replace("memory_mib: 1000", "compute_capability: new"), "is not a version"),
        (CARD.replace("https://", "ftp://"), "does not have the form"),
        ("accelerators:\n  - {name: T4, vendor: amd}\n", "is of nvidia in another file"),
        ("colours: [red]\n", "colours: is not known here"),
        ("reference: T5\n", "no accelerator is named 'T5'"),
        (
            "rates: [{accelerator: H101, milli: 1, valid_from: 2026-01-01, reason: x}]",
            "no accelerator or group is named 'H101'; did you mean 'H100'?",
        ),
        (
            "rates: [{accelerator: H100, milli: 1, valid_from: '2026-01-01', reason: x}]",
            "must be a day without quotes",
        ),
        (PRICE.replace("EUR", "euro"), "does not have the form"),
        (PRICE.replace("2026-01-02", "2026-01-01"), "ends before it begins"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(text: str, said: str) -> None:
    found = problems(text)
    assert any(said in problem for problem in found), found
    assert all(
        problem.startswith(("mine.yaml:", "rates:", "prices:", "reference:")) for problem in found
    )


GEOMETRY = (
    SOURCE
    + """
geometries:
  - name: cut
    kind: placed
    source: [mine]
    compute: 4
    memory: 4
    shapes: [{name: half, compute: 2, memory: 2}]
partitionings:
  - name: new-table
    geometry: cut
    source: [mine]
    resource: "acme.com/{profile}"
    profiles: {half: {name: h, memory_mib: 500}}
accelerators:
  - name: NEW-1
    vendor: acme
    facts: [{source: [mine], memory_mib: 1000, partitioning: new-table}]
"""
)


def test_a_users_geometry_is_derived_like_our_own() -> None:
    own = load(GEOMETRY)
    card = own.accelerator("NEW-1")
    assert card.geometry is not None
    assert card.geometry.starts(card.profiles[0].shape) == (0, 2)
    assert card.profiles[0].resource == "acme.com/h"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("memory: 2}", "memory: 5}", "larger than the device"),
        ("compute: 2,", "compute: 5,", "larger than the device"),
        ("memory: 4\n", "memory: 99999\n", "at most 4096 units"),
        ("geometry: cut", "geometry: cat", "no geometry is named 'cat'; did you mean 'cut'?"),
        ("{half: {name", "{hall: {name", "has no shape 'hall'; did you mean 'half'?"),
        ("kind: placed", "kind: sliced", "must be 'placed', 'uniform', 'counted' or 'unplaced'"),
        ("acme.com/{profile}", "acme.com/x", "does not have the form"),
        (
            "shapes: [{name: half, compute: 2, memory: 2}]",
            "shapes: [{name: half, compute: 2, memory: 2}, {name: half, compute: 1, memory: 1}]",
            "a shape is described twice",
        ),
        (
            "    shapes:",
            "    apart: [{shapes: [half, full], before_driver: '1', text: t}]\n    shapes:",
            "a rule names the shape 'full'",
        ),
    ],
)
def test_a_wrong_geometry_is_refused(old: str, new: str, said: str) -> None:
    assert old in GEOMETRY
    found = problems(GEOMETRY.replace(old, new))
    assert any(said in problem for problem in found), found


WAY = (
    SOURCE
    + """
ways:
  - name: mine
    mode: mps
    vendor: nvidia
    channel: dra
    source: [mine]
    requires: [driver >= 1]
    memory: soft best-effort
    compute: none
    fault: none
    switch: Now.
"""
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mode: mps", "mode: vgpu", "mode 'vgpu' is unknown"),
        ("driver >= 1", "driver above 1", "is not a condition"),
        ("soft best-effort", "soft", "is not a promise; write none, or soft"),
        ("soft best-effort", "none guaranteed", "is not a promise"),
        ("channel: dra", "channel: usb", "must be 'device-plugin' or 'dra'"),
        ("    switch: Now.\n", "", "switch: is missing"),
    ],
)
def test_a_wrong_way_is_refused(old: str, new: str, said: str) -> None:
    assert "mine" in {way.name for way in load(WAY).ways}
    found = problems(WAY.replace(old, new))
    assert any(said in problem for problem in found), found


def test_drivers_of_the_cuda_table_must_rise() -> None:
    text = SOURCE + "cuda: {source: [mine], drivers: [['580', '13.0'], ['570', '12.8']]}\n"
    assert any("must rise" in problem for problem in problems(text))


@pytest.mark.parametrize("text", ["- a\n", "a\n", "schema: v2\n", "schema: [1]\n", "{}\n"])
def test_a_file_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(CatalogError, match=r"mine\.yaml:1: "):
        build([*OWN, read_bytes(text.encode(), "mine.yaml")])


def test_many_problems_are_cut_with_their_number() -> None:
    lines = "".join(f"  - {{name: X{n}, colour: red}}\n" for n in range(200))
    found = problems("accelerators:\n" + lines)
    assert len(found) == 51
    assert found[-1] == "... and 150 more"


def test_every_problem_of_a_file_is_told_at_once() -> None:
    found = problems(CARD.replace("memory_mib: 1000", 'memory_mib: "a", colour: 1'))
    assert len(found) == 2


# --- whatever happens to a file, it loads or it is refused


def mutate(data: Any, draw: st.DataObject) -> Any:
    """Replace one part of the data by something else."""
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({})
    )
    here = data
    for _ in range(draw.draw(st.integers(1, 6))):
        if isinstance(here, dict) and here:
            key = draw.draw(st.sampled_from(sorted(here)))
            if draw.draw(st.integers(0, 3)) == 0:
                here[key] = draw.draw(junk)
                return data
            here = here[key]
        elif isinstance(here, list) and here:
            index = draw.draw(st.integers(0, len(here) - 1))
            if draw.draw(st.integers(0, 3)) == 0:
                here[index] = draw.draw(junk)
                return data
            here = here[index]
    return data


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_file_is_refused_with_its_name_or_still_loads(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(OWN) - 1))
    damaged = mutate(copy.deepcopy(OWN[index].data), data)
    text = yaml.safe_dump(damaged, allow_unicode=True)
    with suppress(CatalogError):
        document = read_bytes(text.encode(), "damaged.yaml")
        others = [own for place, own in enumerate(OWN) if place != index]
        build([*others, document])


EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "catalogue"


@pytest.mark.parametrize("name", ["cambricon", "hygon", "metax", "intel", "prices"])
def test_the_examples_of_the_documentation_load(name: str) -> None:
    assert load_catalog([EXAMPLES / f"{name}.yaml"]).models


def test_the_documented_card_has_all_that_a_card_of_our_own_has() -> None:
    own = load_catalog([EXAMPLES / "cambricon.yaml"])
    rate = own.rate("MLU370-X8", date(2026, 11, 29))
    assert rate is not None
    assert rate.milli == 382
    ask = own.read({"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "20"})
    assert ask is not None
    assert (ask.vendor, ask.memory_mib) == ("cambricon", 5120)
    assert own.identify({"shoal.dev/accelerator": "MLU370-X8"}).certain


def test_example_prices_are_marked_and_in_no_currency() -> None:
    prices = load_catalog([EXAMPLES / "prices.yaml"]).prices
    assert prices
    assert all(price.example and price.currency == "XTS" for price in prices)
