"""The file that describes a fleet for the compatibility matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from shoal.catalog.catalog import Catalog
from shoal.catalog.conditions import Component, Site
from shoal.catalog.load import in_words
from shoal.catalog.load.reader import CatalogError, Document, read_file
from shoal.catalog.load.schema import Count, Key, Short, Strict, VersionText
from shoal.catalog.matrix import Group
from shoal.catalog.versions import Version
from shoal.model.modes import Channel

SCHEMA = "shoal.dev/fleet/v1"

Word = Literal["device-plugin", "dra"]
Value = Annotated[str, StringConstraints(max_length=120)]
Labels = Annotated[dict[Short, Value], Field(max_length=500)]
Counts = Annotated[dict[Short, Annotated[int, Field(ge=0)]], Field(max_length=100)]


class ComponentModel(Strict):
    """An installed component."""

    version: VersionText | None = None
    config: Annotated[dict[Short, Value], Field(max_length=100)] = Field(default_factory=dict)


Components = Annotated[dict[Key, ComponentModel], Field(max_length=100)]


class GroupModel(Strict):
    """Equal nodes. ``accelerator`` or ``labels`` says what they carry."""

    name: Key
    nodes: Count = 1
    devices: Count = 1
    accelerator: Key | None = None
    labels: Labels = Field(default_factory=dict)
    resources: Counts = Field(default_factory=dict)
    driver: VersionText | None = None
    cuda: VersionText | None = None
    kernel: VersionText | None = None
    cgroup: Literal[1, 2] | None = None
    kubernetes: VersionText | None = None
    channels: Annotated[tuple[Word, ...], Field(strict=False)] = ("device-plugin",)
    components: Components = Field(default_factory=dict)


class FleetFile(Strict):
    """The file."""

    schema_: Annotated[Literal["shoal.dev/fleet/v1"], Field(alias="schema")]
    groups: Annotated[list[GroupModel], Field(min_length=1, max_length=1000)]


def load_fleet(path: Path, catalog: Catalog) -> tuple[Group, ...]:
    """The groups of a fleet file.

    Raises:
        CatalogError: with every problem found, each with file and line.
    """
    document = read_file(path)
    if not isinstance(document.data, dict) or document.data.get("schema") != SCHEMA:
        said = f"the file must say 'schema: {SCHEMA}'"
        raise CatalogError([document.problem(("schema",), said)])
    try:
        parsed = FleetFile.model_validate(document.data)
    except ValidationError as error:
        raise CatalogError(
            [
                document.problem([step for step in part["loc"] if step != "[key]"], in_words(part))
                for part in error.errors(include_url=False)
            ]
        ) from None
    problems: list[str] = []
    groups = [
        group
        for index, model in enumerate(parsed.groups)
        if (group := _group(document, index, model, catalog, problems)) is not None
    ]
    names = [model.name for model in parsed.groups]
    problems += [
        document.problem(("groups", index), "a group of this name is described above; rename one")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    if problems:
        raise CatalogError(problems)
    return tuple(groups)


def _group(
    document: Document, index: int, model: GroupModel, catalog: Catalog, problems: list[str]
) -> Group | None:
    path = ("groups", index)
    try:
        certain = True
        if model.accelerator is not None:
            accelerator = catalog.accelerator(model.accelerator)
        else:
            found = catalog.identify(model.labels, model.resources)
            if len(found.accelerators) != 1:
                said = (*found.cautions, "write accelerator, or labels that name one")[0]
                problems.append(document.problem(path, said))
                return None
            accelerator, certain = found.accelerators[0], found.certain
        site = Site(
            driver=_version(model.driver),
            cuda=_version(model.cuda),
            kernel=_version(model.kernel),
            cgroup=model.cgroup,
            kubernetes=_version(model.kubernetes),
            channels=frozenset(Channel.parse(word) for word in model.channels),
            components={
                name: Component(_version(part.version), part.config)
                for name, part in model.components.items()
            },
        )
    except (ValueError, KeyError) as error:
        problems.append(document.problem(path, str(error.args[0])))
        return None
    return Group(model.name, model.nodes, model.devices, accelerator, site, certain)


def _version(text: str | None) -> Version | None:
    return None if text is None else Version.parse(text)
