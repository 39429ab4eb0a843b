from pathlib import Path

import pytest

from shoal.catalog.catalog import Catalog
from shoal.catalog.load.fleet import load_fleet
from shoal.catalog.load.reader import CatalogError
from shoal.model.modes import Channel

HEAD = "schema: shoal.dev/fleet/v1\ngroups:\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(text)
    return path


def test_a_group_is_read_with_its_software(tmp_path: Path, catalog: Catalog) -> None:
    text = HEAD + (
        '  - {name: a, nodes: 3, devices: 8, accelerator: T4, driver: "580.95", cgroup: 2,\n'
        '     channels: [dra], components: {x: {version: "1.2", config: {k: "v"}}}}\n'
    )
    (group,) = load_fleet(write(tmp_path, text), catalog)
    assert (group.name, group.nodes, group.devices, group.accelerator.name) == ("a", 3, 8, "T4")
    assert str(group.site.driver) == "580.95"
    assert group.site.channels == {Channel.DRA}
    assert group.site.components["x"].config == {"k": "v"}
    assert group.certain


def test_labels_may_name_the_accelerator(tmp_path: Path, catalog: Catalog) -> None:
    labels = "{nvidia.com/gpu.product: Tesla-T4, nvidia.com/gpu.count: '2'}"
    text = HEAD + f"  - {{name: a, labels: {labels}, resources: {{nvidia.com/gpu: 2}}}}\n"
    text += f"  - {{name: b, labels: {labels}}}\n"
    sure, unsure = load_fleet(write(tmp_path, text), catalog)
    assert sure.accelerator.name == unsure.accelerator.name == "T4"
    assert sure.certain
    assert not unsure.certain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups: []\n", "must say 'schema: shoal.dev/fleet/v1'"),
        (HEAD, "must be a list"),
        (
            HEAD + "  - {name: a, accelerator: T5}\n",
            "fleet.yaml:3: groups.a: no accelerator is named",
        ),
        (HEAD + "  - {name: a}\n", "write accelerator, or labels that name one"),
        (
            HEAD + "  - {name: a, labels: {nvidia.com/gpu.product: X9}}\n",
            "add one to the catalogue",
        ),
        (HEAD + "  - {name: a, accelerator: T4, driver: new}\n", "is not a version"),
        (HEAD + "  - {name: a, accelerator: T4, driver: 580}\n", "must be text, not 580"),
        (HEAD + "  - {name: a, accelerator: T4, cgroup: 3}\n", "groups.a.cgroup: must be 1 or 2"),
        (
            HEAD + "  - {name: a, accelerator: T4, channels: [usb]}\n",
            "must be 'device-plugin' or 'dra'",
        ),
        (HEAD + "  - {name: a, accelerator: T4, drivers: x}\n", "is not known here"),
        (HEAD + "  - {name: a, accelerator: T4}\n" * 2, "rename one"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, catalog: Catalog, text: str, said: str
) -> None:
    with pytest.raises(CatalogError) as error:
        load_fleet(write(tmp_path, text), catalog)
    assert said in str(error.value)
