"""Models of card: what each has, what tenants may use of it, and how it can be cut."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shoal.catalog.geometry import Geometry, Kind, Shape
from shoal.catalog.versions import Version
from shoal.model.fractions import charge_units, fraction_up


@dataclass(frozen=True, slots=True)
class Source:
    """Where facts were read: what it is, its address, and the day it was read (ISO)."""

    name: str
    what: str
    url: str
    read: str


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of the device: ``nvlink``, ``infinity-fabric``, ``hccs``, ``pcie``.

    ``gbytes_per_s`` is the vendor's total for both directions; ``bridge`` says that it exists only
    where a bridge was bought, ``peers`` how many devices it reaches (0: not stated).
    """

    kind: str
    gbytes_per_s: int
    peers: int = 0
    bridge: bool = False


@dataclass(frozen=True, slots=True)
class Engines:
    """Fixed-function engines of a partition."""

    copy: int
    nvdec: int
    nvenc: int
    jpeg: int
    ofa: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A shape as one model of card offers it.

    Attributes:
        name: the vendor's name on this card, such as ``1g.10gb+me``. It is a name, not a size.
        shape: what it takes of the device.
        memory_mib: the least memory that a driver was seen to give it; ``None`` where nobody
            published one, so that no request that names memory is planned on it.
        compute_units: multiprocessors or compute units seen in it.
        engines: its fixed-function engines, where known.
        resource: the extended resource that asks for it.
        aliases: other names that drivers and boards have given the same shape on this card.
        obstacle: why it is not plannable; empty where it is.
    """

    name: str
    shape: Shape
    memory_mib: int | None
    compute_units: int | None
    engines: Engines | None
    resource: str
    aliases: tuple[str, ...] = ()
    obstacle: str = ""

    @property
    def plannable(self) -> bool:
        """Whether the planner may create or place it."""
        return not self.obstacle


@dataclass(frozen=True, slots=True)
class Deductions:
    """Memory that tenants do not get, by name, so that an explanation can name it.

    ``driver_mib`` is taken once per device, ``context_mib`` once per tenant.
    """

    driver_mib: int = 0
    context_mib: int = 0


_PROFILE_NAME: Final = re.compile(r"(\d{1,3})g\.(\d{1,5})gb((?:[+-][a-z.]+)*)")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A model of card, with every fact that was found for it (``None`` or empty: none found).

    Attributes:
        name: the catalogue's name, unique.
        vendor: ``nvidia``, ``amd``, ``ascend`` or a user's own.
        groups: wider names that include this model (``A100``, ``A100-80GB``).
        memory_gb: nominal memory in decimal gigabytes, as marketed.
        memory_mib: memory that the driver reports for the whole device.
        reserved_mib: what the driver keeps of it, where the vendor publishes that.
        compute_units: multiprocessors (NVIDIA), compute units (AMD), AI cores (Ascend).
        bandwidth_gbytes_per_s: peak memory bandwidth.
        fp16_gflops: peak dense FP16 (or BF16) matrix throughput, without sparsity.
        compute_capability: CUDA compute capability, NVIDIA only.
        products: names by which drivers report it (NVML name, AMD product name, Ascend chip name).
        device_ids: PCI device ids in hexadecimal, without ``0x``.
        partition_driver: the first driver that can partition it.
        sources: per fact, the names of its sources.
    """

    name: str
    vendor: str
    groups: tuple[str, ...] = ()
    architecture: str = ""
    memory_gb: int | None = None
    memory_mib: int | None = None
    reserved_mib: int | None = None
    compute_units: int | None = None
    bandwidth_gbytes_per_s: int | None = None
    fp16_gflops: int | None = None
    compute_capability: Version | None = None
    links: tuple[Link, ...] = ()
    products: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    partition_driver: Version | None = None
    geometry: Geometry | None = None
    profiles: tuple[Profile, ...] = ()
    notes: tuple[str, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def usable_mib(self, deductions: Deductions = Deductions()) -> int | None:
        """Memory for tenants of a whole device: reported, less the reserve and the deduction.

        ``None`` where no source gives the memory that the driver reports; the node says it then.
        """
        if self.memory_mib is None:
            return None
        return max(0, self.memory_mib - (self.reserved_mib or 0) - deductions.driver_mib)

    def tenants(self, memory_mib: int, deductions: Deductions = Deductions()) -> int | None:
        """How many tenants that ask for ``memory_mib`` each fit the device's usable memory."""
        usable = self.usable_mib(deductions)
        if usable is None:
            return None
        return usable // max(1, memory_mib + deductions.context_mib)

    def profile(self, name: str) -> Profile | None:
        """The profile that ``name`` means on this card, by name, alias or slices.

        Boards and drivers have named one shape differently (``1g.24gb`` and ``1g.23gb`` on GB200,
        ``7g.79gb`` on A100), so a name that is not listed is matched by its compute slices, its
        attributes and the memory units nearest to its gigabytes.
        """
        for profile in self.profiles:
            if name == profile.name or name in profile.aliases:
                return profile
        return self._by_slices(name)

    def by_resource(self, resource: str) -> Profile | None:
        """The profile that the extended resource ``resource`` asks for on this card."""
        for profile in self.profiles:
            if resource == profile.resource:
                return profile
        head, _, tail = resource.partition("/mig-")
        return self.profile(profile_of_suffix(tail)) if head == "nvidia.com" and tail else None

    def candidates(
        self, memory_mib: int | None = None, compute_percent: int | None = None
    ) -> tuple[Profile, ...]:
        """Plannable profiles that reach a request on both axes, cheapest first.

        Memory is compared with what the driver was seen to give, never with the name. Compute is
        compared with the nominal fraction, which no driver undercuts.
        """
        if self.geometry is None:
            return ()
        fitting = [
            profile
            for profile in self.profiles
            if profile.plannable
            and (
                memory_mib is None
                or (profile.memory_mib is not None and profile.memory_mib >= memory_mib)
            )
            and (
                compute_percent is None
                or profile.shape.compute * 100 >= compute_percent * self.geometry.compute
            )
        ]
        geometry = self.geometry
        return tuple(
            sorted(fitting, key=lambda p: (geometry.charge_units(p.shape), p.shape.memory, p.name))
        )

    def share_units(self, memory_mib: int, compute_percent: int) -> int | None:
        """What a share of the whole device is charged, in units of 1/840,000; ``None`` if unknown.

        Raises:
            ValueError: if the memory is more than the device reports, or the percent above 100.
        """
        if self.memory_mib is None:
            return None
        return charge_units(
            fraction_up(memory_mib, self.memory_mib), fraction_up(compute_percent, 100)
        )

    def _by_slices(self, name: str) -> Profile | None:
        match = _PROFILE_NAME.fullmatch(name)
        if match is None or self.geometry is None or not self.memory_gb:
            return None
        slices, gigabytes = int(match.group(1)), int(match.group(2))
        same = [
            profile
            for profile in self.profiles
            if profile.shape.compute == slices and profile.name.partition("gb")[2] == match.group(3)
        ]
        total, units = self.memory_gb, self.geometry.memory
        # A name that is more than a twentieth off means something else.
        near = [
            (abs(gigabytes * units - profile.shape.memory * total), profile)
            for profile in same
            if 20 * abs(gigabytes * units - profile.shape.memory * total)
            <= profile.shape.memory * total
        ]
        return min(near, key=lambda pair: pair[0])[1] if near else None


def suffix_of_profile(name: str) -> str:
    """How a MIG profile is written in a resource name: each ``+`` and ``,`` becomes ``.``."""
    return name.replace("+", ".").replace(",", ".")


def profile_of_suffix(suffix: str) -> str:
    """The MIG profile that a resource name's suffix means: the inverse of the above.

    ``1g.24gb.me.all`` is ``1g.24gb+me.all``; ``1g.24gb-me`` is itself.
    """
    head, found, tail = suffix.partition("gb")
    if not found:
        return suffix
    return f"{head}gb+{tail[1:]}" if tail.startswith(".") else suffix


UNPUBLISHED: Final = (
    "the vendor publishes no placements for this card: not plannable until the node agent reads "
    "them from the driver"
)
"""Why a profile of an ``unplaced`` geometry cannot be planned."""


def obstacle_of(geometry: Geometry) -> str:
    """The obstacle that every profile of ``geometry`` has; empty if none."""
    return UNPUBLISHED if geometry.kind is Kind.UNPLACED else ""
