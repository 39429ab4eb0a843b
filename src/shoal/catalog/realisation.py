"""Where a mode can really be had, and what it then gives.

A *way* is one installed mechanism that provides a mode on one channel: the NVIDIA device plugin's
MPS, HAMi's library, MIG through DRA. Several ways may give the same mode with different promises.
A mode is realisable on a node exactly if one of its ways has all its conditions met there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from shoal.catalog.accelerators import Accelerator, Profile
from shoal.catalog.conditions import Condition, Relation, Site, examine_any
from shoal.catalog.versions import Version
from shoal.model.isolation import Isolation, Level
from shoal.model.modes import Channel, Mode, Sharing

Requirement = tuple[Condition, ...]
"""Alternatives, one of which must hold."""


class Strength(IntEnum):
    """How far a promise goes."""

    NONE = 0
    BEST_EFFORT = 1
    GUARANTEED = 2

    @property
    def word(self) -> str:
        """``none``, ``best effort`` or ``guaranteed``."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised on one axis: where the limit lives and how far it holds."""

    level: Level
    strength: Strength

    def __str__(self) -> str:
        return self.strength.word if not self.level else f"{self.strength.word} ({self.level})"


class Idle(StrEnum):
    """What must be idle before a leaf can be switched to or from a way."""

    NOTHING = "nothing"
    PROCESS = "the tenant's own processes"
    INSTANCE = "the partitions that change"
    DEVICE = "the device"
    NODE = "all devices of the node"
    HOST = "all devices of the host and the driver"


class Split(StrEnum):
    """How a shared leaf is divided among its tenants."""

    WHOLE = "whole"
    EQUAL = "equal"
    OWN = "own"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``tenants`` on a leaf where all of ``when`` holds."""

    tenants: int
    when: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """One mechanism that provides a mode.

    Attributes:
        name: unique in the catalogue.
        mode: the mode that it provides.
        vendor: whose accelerators it serves.
        channel: how allocations reach the node.
        requires: conditions, all of which must hold.
        memory, compute, fault: what it promises.
        limits: numbers of tenants per leaf; the first whose conditions hold counts.
        split: how tenants get their parts: all the same, each its own, or none.
        replicas: ``component.setting`` that holds the number of equal parts, for equal splits.
        single: whether a pod may ask for one share only, as two could be the same device.
        per_process: whether the cap counts each process rather than the pod.
        profile_attribute: for partitions, the attribute of the shapes that it speaks about.
        idle: what must be idle to switch to it or from it.
        switch: how switching goes, in a sentence.
        cautions: what a person should know before choosing it.
        sources: names of the sources of all this.
    """

    name: str
    mode: Mode
    vendor: str
    channel: Channel
    requires: tuple[Requirement, ...]
    memory: Promise
    compute: Promise
    fault: Promise
    limits: tuple[Limit, ...] = ()
    split: Split = Split.NONE
    replicas: str = ""
    single: bool = False
    per_process: bool = False
    profile_attribute: str = ""
    idle: Idle = Idle.DEVICE
    switch: str = ""
    cautions: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def isolation(self) -> Isolation:
        """What it gives a tenant; only a whole device used alone has no neighbour at all."""
        alone = self.mode.sharing is Sharing.EXCLUSIVE and not self.mode.partition
        return Isolation(self.memory.level, self.compute.level, self.fault.level, alone)

    def profiles(self, accelerator: Accelerator) -> tuple[Profile, ...]:
        """The plannable profiles of ``accelerator`` that this way speaks about."""
        return tuple(
            profile
            for profile in accelerator.profiles
            if profile.plannable
            and (not self.profile_attribute or self.profile_attribute in profile.shape.attributes)
        )


@dataclass(frozen=True, slots=True)
class Share:
    """An equal part of a device: memory in MiB (``None``: not known) and percent of compute."""

    memory_mib: int | None
    compute_percent: int


@dataclass(frozen=True, slots=True)
class Realisation:
    """The answer for one way on one node.

    ``obstacles`` says what is missing, each as a sentence; ``unknown`` what would have to be known.
    ``missing`` names components to install, or to remove, before anything else could help.
    ``never`` if the accelerator itself cannot, whatever is installed.
    ``tenants`` is the most tenants per leaf (``None``: the mechanism sets no limit), ``share`` what
    each gets where parts are equal.
    """

    way: Way
    obstacles: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    tenants: int | None = None
    share: Share | None = None
    never: bool = False

    @property
    def realisable(self) -> bool:
        """Whether the mode may be planned here by this way."""
        return not self.obstacles and not self.unknown

    def serves(self, floor: Isolation, devices: int = 1, compute_percent: int | None = None) -> str:
        """Why a request cannot be served by this way here; empty if it can.

        Args:
            floor: the isolation that the request asks for.
            devices: how many leaves one pod asks for.
            compute_percent: the compute that each leaf must give, where it is asked for.
        """
        if not self.realisable:
            return (self.obstacles + self.unknown)[0]
        missing = self.way.isolation.shortfalls(floor)
        if missing:
            return f"{self.way.name} gives {self.way.isolation}; short on {', '.join(missing)}"
        if self.way.single and devices > 1:
            return (
                f"{self.way.name} serves one share per pod: {devices} shares could lie on one "
                "device, or be refused when the pod starts"
            )
        if self.share and compute_percent and compute_percent > self.share.compute_percent:
            return (
                f"each share is {self.share.compute_percent} percent of the device (100 divided by "
                f"the replicas, rounded down), less than {compute_percent}"
            )
        return ""


def cuda_of(driver: Version | None, table: Sequence[tuple[Version, Version]]) -> Version | None:
    """The CUDA version that ``driver`` brings, by the rising ``table`` of (driver, CUDA)."""
    if driver is None:
        return None
    found = [cuda for first, cuda in table if first <= driver]
    return found[-1] if found else None


def realise(
    way: Way, accelerator: Accelerator, site: Site, cuda: Sequence[tuple[Version, Version]]
) -> Realisation:
    """Whether and how ``way`` works on a node with ``site``'s software and this accelerator.

    ``site.cuda`` is taken from the driver by the table ``cuda`` where it is not stated.
    """
    if way.vendor != accelerator.vendor:
        return Realisation(way, (f"{way.name} is for {way.vendor}, not {accelerator.vendor}",))
    if site.cuda is None:
        site = replace(site, cuda=cuda_of(site.driver, cuda))
    obstacles: list[str] = []
    unknown: list[str] = []
    missing: list[str] = []
    if way.channel not in site.channels:
        obstacles.append(f"needs the {way.channel} channel, which this node does not serve")
    for requirement in way.requires:
        found = examine_any(requirement, accelerator, site)
        if found.holds is False and found.lasting:
            return Realisation(way, (found.sentence,), never=True)
        if found.holds is None:
            unknown.append(found.sentence)
        elif not found.holds and not _follows(requirement, missing):
            obstacles.append(found.sentence)
            missing += [c.name for c in requirement if _is_missing(c, site)][:1]
    if way.mode.partition and not obstacles and not way.profiles(accelerator):
        obstacles.append(f"{accelerator.name} has no plannable profile of this sort")
    replicas = _replicas(way, site)
    tenants = _tenants(way, accelerator, site)
    if replicas is not None and tenants is not None and replicas > tenants:
        obstacles.append(f"{replicas} replicas are more than the {tenants} clients that it allows")
    if replicas is not None:
        tenants = replicas
    return Realisation(
        way,
        tuple(obstacles),
        tuple(unknown),
        tuple(missing),
        tenants,
        equal_share(way, accelerator, replicas),
    )


def equal_share(way: Way, accelerator: Accelerator, replicas: int | None) -> Share | None:
    """What each tenant of an equal split gets: total and 100 percent divided, rounded down."""
    if way.split is not Split.EQUAL or not replicas:
        return None
    total = accelerator.memory_mib
    return Share(None if total is None else total // replicas, 100 // replicas)


def realise_all(
    ways: Sequence[Way],
    accelerator: Accelerator,
    site: Site,
    cuda: Sequence[tuple[Version, Version]],
) -> Mapping[Mode, tuple[Realisation, ...]]:
    """All ways of the accelerator's vendor by mode; within a mode the best answer first.

    Best: realisable before not, never last, then fewer components to install or remove, then fewer
    obstacles, then the stronger isolation, then the name.
    """
    by_mode: dict[Mode, list[Realisation]] = {}
    for way in ways:
        if way.vendor == accelerator.vendor:
            answer = realise(way, accelerator, site, cuda)
            by_mode.setdefault(way.mode, []).append(answer)
    return {mode: tuple(sorted(answers, key=_rank)) for mode, answers in by_mode.items()}


def _is_missing(condition: Condition, site: Site) -> bool:
    wrong = (condition.name in site.components) == (condition.relation is Relation.ABSENT)
    return condition.subject == "component" and wrong


def _follows(requirement: Sequence[Condition], missing: Sequence[str]) -> bool:
    """Whether it asks for a setting of a component that is already said to be missing."""
    return all(
        condition.subject == "config" and condition.name.partition(".")[0] in missing
        for condition in requirement
    )


def _rank(answer: Realisation) -> tuple[bool, bool, int, int, int, str]:
    way = answer.way
    strength = sum(int(p.level) * 10 + p.strength for p in (way.memory, way.compute, way.fault))
    obstacles = len(answer.obstacles) + len(answer.unknown)
    return (
        not answer.realisable,
        answer.never,
        len(answer.missing),
        obstacles,
        -strength,
        way.name,
    )


def _replicas(way: Way, site: Site) -> int | None:
    """The configured number of equal parts; ``None`` where it is not set or not a number."""
    component, _, setting = way.replicas.partition(".")
    held = site.components.get(component)
    text = held.config.get(setting, "") if held else ""
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) <= 6 else None


def _tenants(way: Way, accelerator: Accelerator, site: Site) -> int | None:
    for limit in way.limits:
        if all(examine_any(one, accelerator, site).holds for one in limit.when):
            return limit.tenants
    return None
