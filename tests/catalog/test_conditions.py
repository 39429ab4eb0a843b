import pytest

from shoal.catalog.catalog import Catalog
from shoal.catalog.conditions import Component, Condition, Site, examine, examine_any
from shoal.catalog.versions import Version
from shoal.model.modes import Channel


def holds(catalog: Catalog, text: str, site: Site, card: str = "H100-SXM5-80GB") -> bool | None:
    alternatives = [Condition.parse(part.strip()) for part in text.split("|")]
    return examine_any(alternatives, catalog.accelerator(card), site).holds


SITE = Site(
    driver=Version.parse("580.95"),
    cgroup=2,
    components={
        "plugin": Component(Version.parse("0.17"), {"sharing": "mps"}),
        "bare": Component(),
    },
)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("driver >= 580", True),
        ("driver >= 580.95", True),
        ("driver >= 581", False),
        ("driver < 581", True),
        ("driver < 580.95", False),
        ("kernel >= 5.0", None),
        ("kubernetes < 1.30", None),
        ("cgroup >= 2", True),
        ("compute-capability >= 9.0", True),
        ("compute-capability >= 10", False),
        ("architecture = Hopper,Blackwell", True),
        ("architecture = Ampere", False),
        ("component plugin", True),
        ("component plugin >= 0.17", True),
        ("component plugin >= 0.18", False),
        ("component bare >= 1", None),
        ("component other", False),
        ("no component other", True),
        ("no component plugin", False),
        ("config plugin.sharing = mps", True),
        ("config plugin.sharing = none,mps", True),
        ("config plugin.sharing = none", False),
        ("config plugin.strategy = none", False),
        ("config plugin.strategy = none by default", True),
        ("config other.strategy = none by default", False),
        ("partitions", True),
        ("no partitions", False),
        ("driver >= 999 | cgroup >= 2", True),
        ("driver >= 999 | kernel >= 1", None),
        ("driver >= 999 | component other", False),
    ],
)
def test_conditions_hold_or_not_or_are_not_known(
    catalog: Catalog, text: str, result: bool | None
) -> None:
    assert holds(catalog, text, SITE) is result


@pytest.mark.parametrize(
    "text",
    [
        "driver >= 615", "compute-capability < 9.0", "component a", "no component a", "partitions",
        "component a >= 1.2", "config a.b = c by default", "config a.B = c,d",
        "architecture = Hopper",
    ],
)  # fmt: skip
def test_conditions_are_written_as_they_are_read(text: str) -> None:
    assert str(Condition.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "driver", "driver = 1", "driver >= new", "component", "component a = 1", "config a.b",
        "config a.b >= 1", "no driver >= 1", "temperature < 80", "driver x >= 1", "partitions >= 2",
        "driver >= 1 by defaults", "config = 1", "driver>=615", "no config a.b = c",
    ],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"condition|compares|version"):
        Condition.parse(text)


def test_a_found_sentence_says_what_is_needed_and_what_is_there(catalog: Catalog) -> None:
    card = catalog.accelerator("T4")
    found = examine(Condition.parse("driver >= 615"), card, SITE)
    assert found.sentence == "needs driver 615 or newer; this node has 580.95"


@pytest.mark.parametrize(
    ("change", "attribute", "value"),
    [
        ("driver=615.10", "driver", Version.parse("615.10")),
        ("kernel=6.14", "kernel", Version.parse("6.14")),
        ("kubernetes=1.36", "kubernetes", Version.parse("1.36")),
        ("cuda=13.4", "cuda", Version.parse("13.4")),
        ("cgroup=1", "cgroup", 1),
    ],
)
def test_a_change_changes_one_thing(change: str, attribute: str, value: object) -> None:
    assert getattr(SITE.with_change(change), attribute) == value


def test_changes_of_components_and_settings() -> None:
    changed = SITE.with_change("component.plugin=0.20")
    assert changed.components["plugin"] == Component(Version.parse("0.20"), {"sharing": "mps"})
    assert "plugin" not in SITE.with_change("component.plugin=").components
    changed = SITE.with_change("config.plugin.sharing=none").with_change("config.new.key=")
    assert changed.components["plugin"].config == {"sharing": "none"}
    assert changed.components["new"].config == {"key": ""}
    assert SITE.components["plugin"].config == {"sharing": "mps"}
    assert SITE.with_change("channel=dra").channels == {Channel.DEVICE_PLUGIN, Channel.DRA}


def test_a_new_driver_makes_a_stated_cuda_version_void() -> None:
    stated = Site(driver=Version.parse("580"), cuda=Version.parse("13.0"))
    assert stated.with_change("driver=590").cuda is None


@pytest.mark.parametrize(
    "change",
    [
        "driver",
        "driver=",
        "colour=red",
        "cgroup=3",
        "component=1",
        "config.a=b",
        "=",
        "channel=usb",
    ],
)
def test_a_change_that_does_not_exist_is_refused(change: str) -> None:
    with pytest.raises(ValueError, match="write"):
        SITE.with_change(change)
