"""What a way of sharing needs of a node, and what is known about a node.

A condition is written as people read it: ``driver >= 615``, ``component hami-device-plugin``,
``no component hami-device-plugin``, ``config nvidia-device-plugin.sharing = mps``,
``partitions``. Several joined by ``|`` are alternatives.
What is not known about a node does not hold: nothing is planned on a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from shoal.catalog.accelerators import Accelerator
from shoal.catalog.geometry import Kind
from shoal.catalog.versions import Version
from shoal.model.modes import Channel


@dataclass(frozen=True, slots=True)
class Component:
    """An installed component of a node: its version, and its settings as written."""

    version: Version | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Site:
    """What is known about the software of one node, or of a group of equal nodes.

    ``cuda`` may be left out: it follows from the driver by the catalogue's table.
    """

    driver: Version | None = None
    cuda: Version | None = None
    kernel: Version | None = None
    cgroup: int | None = None
    kubernetes: Version | None = None
    channels: frozenset[Channel] = frozenset({Channel.DEVICE_PLUGIN})
    components: Mapping[str, Component] = field(default_factory=dict)

    def with_change(self, change: str) -> Site:
        """This node after one change, written ``key=value``.

        Keys: ``driver``, ``cuda``, ``kernel``, ``kubernetes``, ``cgroup``, ``channel``,
        ``component.NAME`` (a version; empty removes it) and ``config.NAME.KEY``.
        A new driver makes a stated CUDA version void.

        Raises:
            ValueError: for a key or value that does not exist, with what to write.
        """
        key, found, value = change.partition("=")
        if not found:
            raise ValueError(f"{change!r} is not a change; write key=value, such as driver=615.10")
        head, _, name = key.partition(".")
        if head == "component" and name:
            components = dict(self.components)
            if value:
                held = components.get(name, Component())
                components[name] = replace(held, version=Version.parse(value))
            else:
                components.pop(name, None)
            return replace(self, components=components)
        if head == "config" and "." in name:
            component, _, setting = name.partition(".")
            held = self.components.get(component, Component())
            changed = replace(held, config={**held.config, setting: value})
            return replace(self, components={**self.components, component: changed})
        match key:
            case "driver":
                return replace(self, driver=Version.parse(value), cuda=None)
            case "cuda":
                return replace(self, cuda=Version.parse(value))
            case "kernel":
                return replace(self, kernel=Version.parse(value))
            case "kubernetes":
                return replace(self, kubernetes=Version.parse(value))
            case "channel":
                return replace(self, channels=self.channels | {Channel.parse(value)})
            case "cgroup" if value in ("1", "2"):
                return replace(self, cgroup=int(value))
            case "cgroup":
                raise ValueError(f"cgroup {value!r} does not exist; write 1 or 2")
        raise ValueError(
            f"{key!r} is not known of a node; write driver, cuda, kernel, kubernetes, cgroup, "
            "channel, component.NAME or config.NAME.KEY"
        )


class Relation(StrEnum):
    """How a condition compares."""

    AT_LEAST = ">="
    BELOW = "<"
    EQUALS = "="
    PRESENT = "present"
    ABSENT = "absent"


_NUMBERS: Final = ("driver", "cuda", "kernel", "kubernetes", "cgroup", "compute-capability")
_FORM: Final = re.compile(
    r"(?P<no>no )?(?P<subject>partitions|component|config|architecture|"
    + "|".join(_NUMBERS)
    + r")(?: (?P<name>[A-Za-z0-9][A-Za-z0-9.-]{0,80}))?"
    r"(?: (?P<relation>>=|<|=) (?P<value>[^|]{1,80}))?"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One test on a node and its accelerator; see the module's text for the form.

    ``default`` is what a setting is where nobody wrote it (``config X.Y = none by default``).
    """

    subject: str
    name: str
    relation: Relation
    value: str
    default: bool = False

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition.

        Raises:
            ValueError: with the forms that exist.
        """
        form, _, tail = text.partition(" by default")
        match = _FORM.fullmatch(form.strip())
        if match is None or tail.strip():
            raise ValueError(
                f"{text!r} is not a condition; write such as 'driver >= 615', 'partitions', "
                "'component NAME', 'no component NAME' or 'config NAME.KEY = VALUE'"
            )
        subject, name, value = match["subject"], match["name"] or "", match["value"] or ""
        if (subject in ("component", "config")) != bool(name):
            raise ValueError(f"{text!r} is not a condition: {subject} needs exactly one name")
        default = " by default" in text
        if match["relation"] is None:
            if subject not in ("component", "partitions"):
                raise ValueError(f"{text!r} compares nothing; add '>= VALUE' or '= VALUE'")
            return cls(subject, name, Relation.ABSENT if match["no"] else Relation.PRESENT, "")
        numbers = subject in _NUMBERS or subject == "component"
        if match["no"] or numbers == (match["relation"] == "="):
            raise ValueError(
                f"{text!r} compares in a way that does not exist: numbers with >= and <, "
                "architecture and config with ="
            )
        if numbers:
            Version.parse(value)
        return cls(subject, name, Relation(match["relation"]), value, default)

    def __str__(self) -> str:
        name = f"{self.subject} {self.name}".strip()
        if self.relation is Relation.PRESENT:
            return name
        if self.relation is Relation.ABSENT:
            return f"no {name}"
        return f"{name} {self.relation} {self.value}" + (" by default" if self.default else "")


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a test: whether it holds (``None``: not known), and a sentence about it.

    ``lasting`` if the accelerator itself decided, so that no software changes the result.
    """

    holds: bool | None
    sentence: str
    lasting: bool = False


def examine(condition: Condition, accelerator: Accelerator, site: Site) -> Found:
    """Test one condition on a node with one accelerator."""
    if condition.subject == "partitions":
        return _partitions(condition, accelerator, site)
    if condition.subject == "component":
        return _component(condition, site)
    if condition.subject == "config":
        return _config(condition, site)
    if condition.subject == "architecture":
        known = accelerator.architecture
        wanted = condition.value.split(",")
        return Found(
            known in wanted if known else None,
            f"needs architecture {' or '.join(wanted)}; {accelerator.name} is {known or 'unknown'}",
            lasting=True,
        )
    if condition.subject == "compute-capability":
        found = _compare("compute capability", condition, accelerator.compute_capability)
        return replace(found, lasting=True)
    if condition.subject == "cgroup":
        number = None if site.cgroup is None else Version((site.cgroup,))
        return _compare("cgroup version", condition, number)
    labels = {"driver": "driver", "cuda": "CUDA", "kernel": "kernel", "kubernetes": "Kubernetes"}
    return _compare(labels[condition.subject], condition, getattr(site, condition.subject))


def examine_any(alternatives: Sequence[Condition], accelerator: Accelerator, site: Site) -> Found:
    """Test alternatives: holds if one does, is unknown if none does and one is unknown."""
    results = [examine(condition, accelerator, site) for condition in alternatives]
    for result in results:
        if result.holds:
            return result
    unknown = any(result.holds is None for result in results)
    sentence = "; or it ".join(result.sentence for result in results)
    lasting = all(result.lasting for result in results)
    return Found(None if unknown else False, sentence, lasting)


def _compare(label: str, condition: Condition, known: Version | None) -> Found:
    bound = Version.parse(condition.value)
    newer = condition.relation is Relation.AT_LEAST
    want = f"needs {label} {bound} or newer" if newer else f"needs {label} older than {bound}"
    if known is None:
        return Found(holds=None, sentence=f"{want}; this node's {label} is not known")
    holds = known >= bound if newer else known < bound
    return Found(holds, f"{want}; this node has {known}")


def _partitions(condition: Condition, accelerator: Accelerator, site: Site) -> Found:
    geometry = accelerator.geometry
    if condition.relation is Relation.ABSENT:
        return Found(geometry is None, f"{accelerator.name} can be partitioned", lasting=True)
    if geometry is None:
        sentence = f"{accelerator.name} cannot be partitioned"
        return Found(holds=False, sentence=sentence, lasting=True)
    if geometry.kind is Kind.UNPLACED:
        sentence = f"{accelerator.name}: {accelerator.profiles[0].obstacle}"
        return Found(holds=False, sentence=sentence, lasting=True)
    first = accelerator.partition_driver
    if first is None:
        return Found(holds=True, sentence=f"{accelerator.name} can be partitioned")
    return _compare("driver", Condition("driver", "", Relation.AT_LEAST, str(first)), site.driver)


def _component(condition: Condition, site: Site) -> Found:
    held = site.components.get(condition.name)
    if condition.relation is Relation.ABSENT:
        return Found(held is None, f"{condition.name} must not be installed beside it")
    if held is None:
        wanted = f" {condition.relation} {condition.value}" if condition.value else ""
        return Found(
            holds=False, sentence=f"needs {condition.name}{wanted}, which is not installed"
        )
    if condition.relation is Relation.PRESENT:
        return Found(holds=True, sentence=f"{condition.name} is installed")
    return _compare(condition.name, condition, held.version)


def _config(condition: Condition, site: Site) -> Found:
    component, _, setting = condition.name.partition(".")
    wanted = condition.value.split(",")
    want = f"needs {component} with {setting} = {' or '.join(wanted)}"
    held = site.components.get(component)
    if held is None:
        return Found(holds=False, sentence=f"{want}; {component} is not installed")
    value = held.config.get(setting)
    if value is None:
        if condition.default:
            return Found(holds=True, sentence=f"{setting} of {component} is at its default")
        return Found(holds=False, sentence=f"{want}; it is not set")
    return Found(value in wanted, f"{want}; it is {value}")
