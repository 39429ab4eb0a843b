"""`shoal catalog` as a person meets it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shoal.cli.app import run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FLEET = str(EXAMPLES / "fleet.yaml")


def call(capsys: pytest.CaptureFixture[str], *tokens: str, status: int = 0) -> tuple[str, str]:
    assert run("shoal", ["catalog", *tokens]) == status
    out = capsys.readouterr()
    return out.out, out.err


def test_list_shows_every_accelerator(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, "list")
    assert out.splitlines()[0].split() == [
        "NAME", "VENDOR", "MEMORY", "MiB", "UNITS", "PARTITIONS", "RATE", "GROUPS"
    ]  # fmt: skip
    assert re.search(r"^T4 +nvidia +15360 +40 +- +0\.187", out, re.MULTILINE)
    assert re.search(r"^RTX-PRO-5000-Blackwell .* not plannable", out, re.MULTILINE)


def test_list_of_one_vendor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, "list", "--vendor", "amd", "-o", "json")
    models = json.loads(out)
    assert {model["vendor"] for model in models} == {"amd"}
    (card,) = (model for model in models if model["name"] == "MI300X")
    assert card["facts"]["memory_mib"] == {"value": 196592, "sources": ["amdDra"]}
    assert card["profiles"][0]["name"] == "spx_nps1"


def test_a_vendor_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = call(capsys, "list", "--vendor", "acme", status=2)
    assert "vendors are amd, ascend, nvidia" in err


def test_show_gives_facts_with_sources_and_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, "show", "A100-SXM4-80GB")
    assert re.search(r"memory_mib +81920 +MiB as the driver reports +smi", out)
    assert re.search(r"1g\.10gb\+me +1/7 +1/8 +9856 +0,1,2,3,4,5,6 +1 +120000", out)
    assert "nvidia.com/mig-1g.10gb.me" in out
    assert re.search(r"rate +1\.000 +of A100-SXM4-80GB +derived", out)


def test_show_of_a_group_shows_each(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, "show", "H100")
    assert out.count("nvidia   H100") == 3


def test_a_misspelt_name_is_met_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = call(capsys, "show", "H10O", status=2)
    assert re.search(r"; did you mean .*H100.*\?$", err.strip())
    assert "H100" in err


def test_check_counts_facts_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, "check")
    assert re.fullmatch(r"\d+ accelerators, \d+ facts from \d+ sources, .*: all well\.\n", out)


def test_check_names_file_line_and_fact(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema: shoal.dev/catalog/v1\naccelerators:\n  - {name: X, vendr: acme}\n")
    _, err = call(capsys, "check", str(path), status=1)
    lines = err.splitlines()
    assert lines[0] == f"{path}:3: accelerators.X.vendr: is not known here; did you mean vendor?"
    assert lines[-1] == "shoal: 1 problem in the files."


@pytest.mark.parametrize("option", [(), ("--catalog",)])
def test_check_warns_of_example_prices(
    capsys: pytest.CaptureFixture[str], option: tuple[str, ...]
) -> None:
    out, _ = call(capsys, "check", *option, str(EXAMPLES / "catalogue" / "prices.yaml"))
    assert "example figures are among them" in out


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        ("nvidia.com/mig-1g.10gb", "asks for 1 device of nvidia, each a partition 1g.10gb"),
        ("nvidia.com/gpumem=3000", "1 device of nvidia, 3000 MiB of memory (a name of hami)"),
        ("nvidia.com/gpumem=16Gi", "is refused: nvidia.com/gpumem counts MiB, not bytes"),
        ("gpu-fraction=0.5", "50 percent of memory, 50 percent of compute (a name of kai)"),
        ("nvidia.com/gpu.product=Tesla-T4", "means T4."),
        ("accelerator=huawei-Ascend910", "means Ascend910A, Ascend910B2"),
        ("mps", "nvidia-plugin-mps: mode mps on nvidia by device-plugin"),
        ("mig", "nvidia-plugin-mig: mode partition on nvidia"),
        ("hami", "caution: A tenant can switch the library off"),
        ("nvidia-vgpu", "not supported"),
        ("T4.memory_mib", "T4.memory_mib = 15360 MiB as the driver reports"),
        ("T4", "T4   nvidia"),
    ],
)
def test_explain_says_what_a_name_means_and_where_it_was_read(
    capsys: pytest.CaptureFixture[str], thing: str, said: str
) -> None:
    out, _ = call(capsys, "explain", thing)
    assert said in out
    if "refused" not in said and thing != "T4":
        assert "source " in out
        assert "https://" in out


@pytest.mark.parametrize(
    "thing", ["nothing", "T4.colour", "", "x" * 3000, "a=b", "example.com/gpu", "a/b=c"]
)
def test_what_cannot_be_explained_is_refused(
    capsys: pytest.CaptureFixture[str], thing: str
) -> None:
    _, err = call(capsys, "explain", thing, status=2)
    assert err.startswith("shoal: ")
    assert len(err.splitlines()) == 1


def test_the_matrix_is_markdown_with_what_an_upgrade_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, _ = call(capsys, "matrix", "--fleet", FLEET, "--with", "notebooks:driver=615.10")
    assert "## training" in out
    assert "| whole | yes | guaranteed (hardware) |" in out
    assert "no: needs driver 615 or newer; this node has 580.95.05" in out
    assert "- notebooks: time-sliced+driver becomes possible (memory guaranteed (driver)" in out
    assert "training: mps" not in out.partition("## With")[2]
    assert "NVIDIA virtual GPU software" in out
    for line in out.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 9


def test_the_matrix_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = call(capsys, "matrix", "--fleet", FLEET, "--with", "driver=615", "-o", "json")
    data = json.loads(out)
    groups = {one["name"]: one for one in data["groups"]}
    mode = groups["notebooks"]["modes"]["mps"]
    assert mode["realisable"]
    assert mode["ways"][0]["memory"] == {"level": "soft", "strength": "best effort"}
    assert mode["ways"][0]["tenants"] == 48
    assert data["with"] == ["driver=615"]
    assert {change["mode"] for change in data["changes"]} >= {"time-sliced+driver", "mps+driver"}


class Page(HTMLParser):
    """Collects tags, and checks that they close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name == "src" for name, _ in attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_matrix_is_a_page_that_needs_no_network(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.yaml"
    text = (
        Path(FLEET).read_text().replace("{sharing: none", '{sharing: "<script>alert(1)</script>"')
    )
    fleet.write_text(text)
    out, _ = call(capsys, "matrix", "--fleet", str(fleet), "-o", "html")
    page = Page()
    page.feed(out)
    assert page.open == []
    assert "script" not in page.tags
    assert page.tags.count("table") == 3
    assert "&lt;script&gt;" in out
    assert "http" not in out


@pytest.mark.parametrize(
    ("tokens", "status", "said"),
    [
        (["--fleet", "none.yaml"], 1, "cannot be read"),
        (["--fleet", FLEET, "--with", "colour=red"], 2, "'colour' is not known of a node"),
        (["--fleet", FLEET, "--with", "nowhere:driver=1"], 2, "no group 'nowhere'"),
        (["--fleet", FLEET, "--with", "driver"], 2, "is not a change"),
        ([], 2, "--fleet"),
    ],
)
def test_a_matrix_asked_for_wrongly_says_what_to_write(
    capsys: pytest.CaptureFixture[str], tokens: list[str], status: int, said: str
) -> None:
    _, err = call(capsys, "matrix", *tokens, status=status)
    assert said in err


def test_an_accelerator_of_ones_own_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--catalog", str(EXAMPLES / "catalogue" / "cambricon.yaml"))
    out, _ = call(capsys, "show", "MLU370-X8", *files)
    assert "cambricon" in out
