"""Checked files turned into values, with everything that refers to something found."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

from shoal.catalog.accelerators import (
    Accelerator,
    Engines,
    Link,
    Profile,
    Source,
    obstacle_of,
    suffix_of_profile,
)
from shoal.catalog.catalog import Catalog, Unsupported
from shoal.catalog.conditions import Condition
from shoal.catalog.geometry import Apart, AtMost, Geometry, Kind, OnlyWith, Shape
from shoal.catalog.labels import Clue, Reads
from shoal.catalog.load.reader import CatalogError, Document
from shoal.catalog.load.schema import (
    AcceleratorModel,
    CatalogFile,
    FactsModel,
    GeometryModel,
    PartitioningModel,
    WayModel,
)
from shoal.catalog.names import Field, Name, Names, Place
from shoal.catalog.rates import Price, RateOverride
from shoal.catalog.realisation import Idle, Limit, Promise, Requirement, Split, Strength, Way
from shoal.catalog.versions import Version
from shoal.model.isolation import PRESETS, Level, parse_isolation
from shoal.model.modes import Channel, parse_mode

_LONGEST_AXIS: Final = 4096
_T = TypeVar("_T")

FACTS: Final = tuple(name for name in FactsModel.model_fields if name != "source")
"""Facts that an accelerator can have, by their names in files."""


@dataclass(slots=True)
class Builder:
    """Collects the parts of all files, later files overriding earlier ones, and their problems."""

    problems: list[str] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    geometries: dict[str, Geometry] = field(default_factory=dict)
    partitionings: dict[str, tuple[PartitioningModel, Document, int]] = field(default_factory=dict)
    accelerators: dict[str, dict[str, Any]] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)
    names: dict[tuple[str, str], Name] = field(default_factory=dict)
    clues: dict[tuple[str, str], Clue] = field(default_factory=dict)
    unsupported: dict[str, Unsupported] = field(default_factory=dict)
    cuda: tuple[tuple[Version, Version], ...] = ()
    reference: str = ""
    rates: list[RateOverride] = field(default_factory=list)
    prices: list[Price] = field(default_factory=list)
    quoted: list[tuple[Document, tuple[int | str, ...], Sequence[str]]] = field(
        default_factory=list
    )

    def add(self, document: Document, parsed: CatalogFile) -> None:
        """Take in one file. Geometry and sources of all files come before what refers to them."""
        for name, source in parsed.sources.items():
            self.sources[name] = Source(name, source.what, source.url, source.read)
        for index, geometry in enumerate(parsed.geometries):
            self._once(document, ("geometries",), index, parsed.geometries)
            self._quote(document, ("geometries", index), geometry.source)
            built = self._try(document, ("geometries", index), _geometry, geometry)
            if built is not None:
                self.geometries[geometry.name] = built
        for index, table in enumerate(parsed.partitionings):
            self._once(document, ("partitionings",), index, parsed.partitionings)
            self._quote(document, ("partitionings", index), table.source)
            self.partitionings[table.name] = (table, document, index)
        for index, model in enumerate(parsed.accelerators):
            self._once(document, ("accelerators",), index, parsed.accelerators)
            self._accelerator(document, index, model)
        for index, way in enumerate(parsed.ways):
            self._once(document, ("ways",), index, parsed.ways)
            self._quote(document, ("ways", index), way.source)
            made = self._try(document, ("ways", index), _way, way)
            if made is not None:
                self.ways[way.name] = made
        self._rest(document, parsed)

    def _rest(self, document: Document, parsed: CatalogFile) -> None:
        for index, name in enumerate(parsed.names):
            self._quote(document, ("names", index), name.source)
            made = self._try(document, ("names", index), _name, name)
            if made is not None:
                self.names[name.name, name.system] = made
        for index, clue in enumerate(parsed.clues):
            self._quote(document, ("clues", index), clue.source)
            self.clues[clue.driver or "", clue.key] = Clue(
                key=clue.key,
                vendor=clue.vendor,
                reads=Reads(clue.reads),
                driver=clue.driver or "",
                count=clue.count or "",
                replicas=clue.replicas or "",
                resource=clue.resource or "",
                sources=tuple(clue.source),
            )
        for index, thing in enumerate(parsed.unsupported):
            self._quote(document, ("unsupported", index), thing.source)
            self.unsupported[thing.name] = Unsupported(
                thing.name, thing.what, thing.reason.strip(), tuple(thing.source)
            )
        if parsed.cuda is not None:
            self._quote(document, ("cuda",), parsed.cuda.source)
            pairs = self._try(document, ("cuda", "drivers"), _cuda, parsed.cuda.drivers)
            self.cuda = pairs or self.cuda
        self.reference = parsed.reference or self.reference
        for rate in parsed.rates:
            self.rates.append(
                RateOverride(rate.accelerator, rate.milli, rate.valid_from, rate.reason)
            )
        for index, price in enumerate(parsed.prices):
            if price.valid_until is not None and price.valid_until <= price.valid_from:
                sentence = "ends before it begins; valid_until is the first day without it"
                self.problems.append(document.problem(("prices", index, "valid_until"), sentence))
            self.prices.append(
                Price(
                    price.accelerator,
                    price.micro_per_hour,
                    price.currency,
                    price.valid_from,
                    price.valid_until,
                    price.pool or "",
                    price.example,
                )
            )

    def build(self) -> Catalog:
        """The catalogue.

        Raises:
            CatalogError: with everything that is wrong in any file.
        """
        for document, path, quoted in self.quoted:
            for name in quoted:
                if name not in self.sources:
                    near = _near(name, self.sources)
                    sentence = f"the source {name!r} is not described under sources{near}"
                    self.problems.append(document.problem((*path, "source"), sentence))
        models = {name: self._model(facts) for name, facts in self.accelerators.items()}
        accelerators = {name: model for name, model in models.items() if model is not None}
        groups = {group for model in accelerators.values() for group in model.groups}
        self._check_prices(accelerators, groups)
        if not self.problems and self.reference not in accelerators:
            self.problems.append(f"reference: no accelerator is named {self.reference!r}")
        if self.problems:
            raise CatalogError(self.problems)
        return Catalog(
            accelerators=MappingProxyType(accelerators),
            ways=tuple(self.ways.values()),
            cuda=self.cuda,
            names=Names.of(self.names.values()),
            clues=tuple(self.clues.values()),
            sources=MappingProxyType(self.sources),
            unsupported=tuple(self.unsupported.values()),
            reference=self.reference,
            rates=tuple(self.rates),
            prices=tuple(self.prices),
        )

    def _accelerator(self, document: Document, index: int, model: AcceleratorModel) -> None:
        held = self.accelerators.setdefault(
            model.name, {"name": model.name, "facts": {}, "sources": {}, "where": (document, index)}
        )
        known = held.get("vendor")
        if known is not None and model.vendor not in (None, known):
            sentence = f"is of {known} in another file; leave vendor out or write {known}"
            self.problems.append(document.problem(("accelerators", index, "vendor"), sentence))
        held["vendor"] = known or model.vendor
        if model.vendor is None and known is None:
            sentence = "needs a vendor, as no other file describes it"
            self.problems.append(document.problem(("accelerators", index), sentence))
        for key in ("groups", "notes"):
            if getattr(model, key) is not None:
                held[key] = tuple(getattr(model, key))
        written: set[str] = set()
        for place, facts in enumerate(model.facts):
            path = ("accelerators", index, "facts", place)
            self._quote(document, path, facts.source)
            for fact in FACTS:
                value = getattr(facts, fact)
                if value is None:
                    continue
                if fact in written:
                    sentence = "is given twice in this file; keep the one with the better source"
                    self.problems.append(document.problem((*path, fact), sentence))
                written.add(fact)
                held["facts"][fact] = (value, document, (*path, fact))
                held["sources"][fact] = tuple(facts.source)

    def _model(self, held: dict[str, Any]) -> Accelerator | None:
        facts = {name: value for name, (value, _, _) in held["facts"].items()}
        document, index = held["where"]
        path = ("accelerators", index)
        capability = facts.get("compute_capability")
        geometry: Geometry | None = None
        profiles: tuple[Profile, ...] = ()
        driver: Version | None = None
        notes = held.get("notes", ())
        if "partitioning" in facts:
            _, where, at = held["facts"]["partitioning"]
            found = self._partitioning(where, at, facts["partitioning"], facts)
            if found is None:
                return None
            geometry, profiles, driver, more = found
            notes = (*notes, *more)
        reserved, memory = facts.get("reserved_mib", 0), facts.get("memory_mib")
        if memory is not None and reserved >= memory:
            sentence = f"the reserve of {reserved} MiB leaves nothing of {memory} MiB"
            self.problems.append(document.problem(path, sentence))
        return self._try(
            document,
            path,
            lambda: Accelerator(
                name=held["name"],
                vendor=held["vendor"] or "",
                groups=held.get("groups", ()),
                architecture=facts.get("architecture", ""),
                memory_gb=facts.get("memory_gb"),
                memory_mib=memory,
                reserved_mib=facts.get("reserved_mib"),
                compute_units=facts.get("compute_units"),
                bandwidth_gbytes_per_s=facts.get("bandwidth_gbytes_per_s"),
                fp16_gflops=facts.get("fp16_gflops"),
                compute_capability=Version.parse(capability) if capability else None,
                links=tuple(Link(**link.model_dump()) for link in facts.get("links", ())),
                products=tuple(facts.get("products", ())),
                device_ids=tuple(facts.get("device_ids", ())),
                partition_driver=driver,
                geometry=geometry,
                profiles=profiles,
                notes=tuple(notes),
                sources=MappingProxyType(held["sources"]),
            ),
        )

    def _partitioning(
        self,
        document: Document,
        path: Sequence[int | str],
        name: str,
        facts: dict[str, Any],
    ) -> tuple[Geometry, tuple[Profile, ...], Version | None, tuple[str, ...]] | None:
        if name not in self.partitionings:
            sentence = f"no partitioning is named {name!r}{_near(name, self.partitionings)}"
            self.problems.append(document.problem(path, sentence))
            return None
        table, where, index = self.partitionings[name]
        geometry = self.geometries.get(table.geometry)
        if geometry is None:
            sentence = (
                f"no geometry is named {table.geometry!r}{_near(table.geometry, self.geometries)}"
            )
            self._report(where.problem(("partitionings", index, "geometry"), sentence))
            return None
        measured = table.measured_on is None or table.measured_on == facts.get("compute_units")
        profiles = []
        shapes = {shape.name: shape for shape in geometry.shapes}
        for key, profile in table.profiles.items():
            if key not in shapes:
                sentence = f"{geometry.name} has no shape {key!r}{_near(key, shapes)}"
                self._report(where.problem(("partitionings", index, "profiles", key), sentence))
                continue
            shape = shapes[key]
            profiles.append(
                Profile(
                    name=profile.name,
                    shape=shape,
                    memory_mib=profile.memory_mib,
                    compute_units=profile.compute_units if measured else None,
                    engines=Engines(*profile.engines) if profile.engines else None,
                    resource=table.resource.replace(
                        "{profile}", suffix_of_profile(profile.name)
                    ).replace("{suffix}", shape.suffix or shape.name),
                    aliases=tuple(profile.aliases),
                    obstacle=obstacle_of(geometry),
                )
            )
        driver = self._try(
            where,
            ("partitionings", index, "driver"),
            lambda: Version.parse(table.driver) if table.driver else None,
        )
        return geometry, tuple(profiles), driver, tuple(table.notes)

    def _check_prices(self, accelerators: dict[str, Accelerator], groups: set[str]) -> None:
        known = set(accelerators) | groups
        for what, entries in (("rates", self.rates), ("prices", self.prices)):
            for entry in entries:
                if entry.accelerator not in known:
                    near = _near(entry.accelerator, known)
                    self._report(
                        f"{what}: no accelerator or group is named {entry.accelerator!r}{near}"
                    )

    def _once(
        self, document: Document, path: tuple[str], index: int, entries: Sequence[Any]
    ) -> None:
        name = entries[index].name
        if any(entry.name == name for entry in entries[:index]):
            sentence = f"{name!r} is described twice in this file; keep one"
            self.problems.append(document.problem((*path, index), sentence))

    def _quote(
        self, document: Document, path: tuple[int | str, ...], sources: Sequence[str]
    ) -> None:
        self.quoted.append((document, path, sources))

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _try(
        self,
        document: Document,
        path: Sequence[int | str],
        make: Callable[..., _T],
        *arguments: Any,
    ) -> _T | None:
        try:
            return make(*arguments)
        except ValueError as error:
            self._report(document.problem(path, str(error)))
            return None


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word[:80], list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _geometry(model: GeometryModel) -> Geometry:
    kind = Kind(model.kind)
    if kind in (Kind.PLACED, Kind.UNIFORM) and model.memory > _LONGEST_AXIS:
        raise ValueError(f"an axis with places has at most {_LONGEST_AXIS} units")
    names = [shape.name for shape in model.shapes]
    if len(set(names)) < len(names):
        raise ValueError("a shape is described twice; keep one")
    for shape in model.shapes:
        if shape.compute > model.compute or shape.memory > model.memory:
            raise ValueError(f"the shape {shape.name} is larger than the device")
    geometry = Geometry(
        name=model.name,
        kind=kind,
        compute=model.compute,
        memory=model.memory,
        shapes=tuple(
            Shape(
                shape.name,
                shape.compute,
                shape.memory,
                frozenset(shape.attributes),
                shape.cpu,
                shape.groups,
                shape.per_group,
                shape.suffix or "",
                tuple(shape.ids),
            )
            for shape in model.shapes
        ),
        units_per_slice=model.units_per_slice,
        cpu=model.cpu,
        groups=model.groups,
        at_most=tuple(
            AtMost(rule.count, frozenset(rule.attributes), rule.text) for rule in model.at_most
        ),
        only_with=tuple(
            OnlyWith(rule.attribute, frozenset(rule.others), rule.text) for rule in model.only_with
        ),
        apart=tuple(
            Apart(frozenset(rule.shapes), Version.parse(rule.before_driver), rule.text)
            for rule in model.apart
        ),
    )
    _check_geometry(geometry)
    return geometry


def _check_geometry(geometry: Geometry) -> None:
    names = {shape.name for shape in geometry.shapes}
    for rule in geometry.apart:
        for name in sorted(rule.shapes - names):
            raise ValueError(f"a rule names the shape {name!r}, which does not exist")
    for shape in geometry.shapes:
        if geometry.kind is Kind.PLACED and not geometry.starts(shape):
            raise ValueError(f"the shape {shape.name} has no place on the device")
        parts = geometry.memory // shape.memory
        uneven = geometry.memory % shape.memory or parts * shape.compute > geometry.compute
        if geometry.kind is Kind.UNIFORM and uneven:
            raise ValueError(f"the shape {shape.name} does not cut the device into equal parts")


_STRENGTHS: Final = {"best-effort": Strength.BEST_EFFORT, "guaranteed": Strength.GUARANTEED}
_LEVELS: Final = {level.word: level for level in Level}


def _promise(axis: str, text: str) -> Promise:
    if text == "none":
        return Promise(Level.NONE, Strength.NONE)
    level, _, strength = text.partition(" ")
    if level not in _LEVELS or level == "none" or strength not in _STRENGTHS:
        raise ValueError(
            f"{axis} {text!r} is not a promise; write none, or soft, driver or hardware followed "
            "by best-effort or guaranteed"
        )
    return Promise(_LEVELS[level], _STRENGTHS[strength])


def _requirement(text: str) -> Requirement:
    return tuple(Condition.parse(part.strip()) for part in text.split("|"))


def _way(model: WayModel) -> Way:
    return Way(
        name=model.name,
        mode=parse_mode(model.mode),
        vendor=model.vendor,
        channel=Channel.parse(model.channel),
        requires=tuple(_requirement(text) for text in model.requires),
        memory=_promise("memory", model.memory),
        compute=_promise("compute", model.compute),
        fault=_promise("fault", model.fault),
        limits=tuple(
            Limit(limit.tenants, tuple(_requirement(text) for text in limit.when))
            for limit in model.tenants
        ),
        split=Split(model.split),
        replicas=model.replicas or "",
        single=model.single,
        per_process=model.per_process,
        profile_attribute=model.profile_attribute or "",
        idle=Idle[model.idle.upper()],
        switch=model.switch,
        cautions=tuple(model.cautions),
        sources=tuple(model.source),
    )


def _name(model: Any) -> Name:
    return Name(
        name=model.name,
        system=model.system,
        vendor=model.vendor,
        field=Field(model.field),
        place=Place(model.place),
        unit_mib=model.unit_mib,
        accelerators=tuple(model.accelerators),
        floor=parse_isolation(model.floor) if model.floor else PRESETS["shared"],
        sources=tuple(model.source),
    )


def _cuda(drivers: Sequence[Sequence[str]]) -> tuple[tuple[Version, Version], ...]:
    pairs = tuple((Version.parse(driver), Version.parse(cuda)) for driver, cuda in drivers)
    if any(later <= earlier for (earlier, _), (later, _) in itertools.pairwise(pairs)):
        raise ValueError("drivers must rise from pair to pair")
    return pairs
