"""Names that ask for devices, read to what they ask for and written back.

Three sorts are known: extended resources under ``resources.limits`` (the vendors' own, HAMi's,
gpushare's, Volcano's), annotations (KAI's), and resource names with a profile or size inside them
(MIG, AMD partitions, Ascend templates, nos). Which exist is data; this module holds the grammar.

What is read is an `Ask`. It says what one pod's container asks for and nothing about where
it will run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Self

from shoal.catalog.accelerators import Accelerator, profile_of_suffix
from shoal.catalog.quantities import parse_quantity, whole
from shoal.model.isolation import PRESETS, Isolation


@dataclass(frozen=True, slots=True)
class Ask:
    """What the names of one container ask for.

    Attributes:
        devices: how many leaves.
        memory_mib: memory on each leaf; ``None``: all of it.
        memory_percent: memory on each leaf as a percentage of the device, where asked so.
        compute_percent: compute on each leaf; ``None``: not asked for.
        profile: the partition profile that each leaf must be, as the vendor names it.
        vendor: whose devices.
        accelerators: catalogue names or groups that will do; empty: any of the vendor.
        floor: the isolation that the name promises, where it does.
        system: whose names these are (``vendor``, ``hami``, ``kai``, ``gpushare``, ...).
        notes: what a person should know about the translation.
    """

    devices: int
    memory_mib: int | None = None
    memory_percent: int | None = None
    compute_percent: int | None = None
    profile: str = ""
    vendor: str = ""
    accelerators: tuple[str, ...] = ()
    floor: Isolation = PRESETS["shared"]
    system: str = "vendor"
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it asks for whole devices."""
        parts = (self.memory_mib, self.memory_percent, self.compute_percent, self.profile or None)
        return all(part is None for part in parts)


class Field(StrEnum):
    """What a name counts."""

    DEVICES = "devices"
    MEMORY = "memory"
    MEMORY_PERCENT = "memory-percent"
    COMPUTE_PERCENT = "compute-percent"
    PROFILE = "profile"
    FRACTION = "fraction"


class Place(StrEnum):
    """Where in a pod a name belongs."""

    LIMITS = "limits"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class Name:
    """One name of one system.

    Attributes:
        name: as written; in a pattern, ``{profile}``, ``{mib}``, ``{gib}`` or ``{gb}`` stands for
            the part that varies.
        system: whose name it is.
        vendor: whose devices it asks for.
        field: what its value counts.
        place: where it belongs.
        unit_mib: for memory, the MiB in one unit of the value.
        accelerators: what it narrows the request to.
        floor: the isolation that the name stands for with its system.
        sources: names of the sources.
    """

    name: str
    system: str
    vendor: str
    field: Field
    place: Place = Place.LIMITS
    unit_mib: int = 1
    accelerators: tuple[str, ...] = ()
    floor: Isolation = PRESETS["shared"]
    sources: tuple[str, ...] = ()

    @property
    def pattern(self) -> re.Pattern[str]:
        """The names that this entry means, as a regular expression with one group."""
        head, brace, tail = self.name.partition("{")
        if not brace:
            return re.compile(re.escape(self.name))
        kind, _, rest = tail.partition("}")
        inner = r"[A-Za-z0-9._-]{1,60}" if kind == "profile" else r"[0-9]{1,7}"
        return re.compile(f"{re.escape(head)}(?P<{kind}>{inner}){re.escape(rest)}")


@dataclass(frozen=True, slots=True)
class Reading:
    """A name found in a pod, with the part of it that varies."""

    name: Name
    text: str
    value: str
    varying: str = ""
    varying_kind: str = ""


_UNITS: Final = {"mib": 1, "gib": 1024, "gb": 1024}
"""MiB in the sizes inside names. Where a system writes gb and does not say which, the larger is
meant, so that nobody gets less than was asked for."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Names:
    """All names, indexed so that reading a pod costs a look-up per resource.

    Of two entries of one name (``nvidia.com/gpu`` is the vendor's and HAMi's), the first is read.
    """

    every: tuple[Name, ...]
    exact: Mapping[str, Name]
    patterns: tuple[tuple[re.Pattern[str], Name], ...]

    @classmethod
    def of(cls, names: Iterable[Name]) -> Self:
        """Index ``names``; earlier entries win."""
        every = tuple(names)
        exact: dict[str, Name] = {}
        for name in every:
            if "{" not in name.name:
                exact.setdefault(name.name, name)
        patterns = tuple((name.pattern, name) for name in every if "{" in name.name)
        return cls(every, MappingProxyType(exact), patterns)

    def find(self, text: str) -> tuple[Name, str, str] | None:
        """The entry that ``text`` is a name of, the part that varies and its kind.

        An exact name wins over a pattern.
        """
        if text in self.exact:
            return self.exact[text], "", ""
        for pattern, name in self.patterns:
            match = pattern.fullmatch(text)
            if match:
                kind, part = next(iter(match.groupdict().items()))
                return name, part, kind
        return None


def read(
    names: Names, limits: Mapping[str, str], annotations: Mapping[str, str] = _NOTHING
) -> Ask | None:
    """What ``limits`` and ``annotations`` of one container ask for; ``None``: no devices.

    Names of no system are other resources (``cpu``, ``memory``) and are left alone.

    Raises:
        ValueError: with a sentence that says what to write, for a value that its field cannot
            hold, for a name in the wrong place, and for names that contradict one another.
    """
    readings = _readings(names, limits, Place.LIMITS)
    readings += _readings(names, annotations, Place.ANNOTATION)
    if not readings:
        return None
    vendors = sorted({reading.name.vendor for reading in readings})
    if len(vendors) > 1:
        raise ValueError(
            f"one container asks for devices of {' and '.join(vendors)}; write one vendor's names"
        )
    # A system's own names decide whose meaning the vendor's plain name has beside them.
    systems = sorted({reading.name.system for reading in readings} - {"vendor"})
    if len(systems) > 1:
        raise ValueError(
            f"one container mixes names of {' and '.join(systems)}; write those of one system"
        )
    ask = Ask(devices=0, vendor=vendors[0], system=systems[0] if systems else "vendor")
    for reading in sorted(readings, key=lambda reading: reading.text):
        ask = _apply(ask, reading)
    return _complete(ask)


def _readings(names: Names, pairs: Mapping[str, str], place: Place) -> list[Reading]:
    readings = []
    for text, value in pairs.items():
        found = names.find(text)
        if found is None:
            continue
        name, part, kind = found
        if name.place is not place:
            raise ValueError(_misplaced(name, text, value))
        readings.append(Reading(name, text, value, part, kind))
    return readings


def _misplaced(name: Name, text: str, value: str) -> str:
    if name.place is Place.ANNOTATION:
        return f"{text} belongs under the pod's annotations"
    if name.field is Field.MEMORY and re.fullmatch("[1-9][0-9]{0,8}", value):
        amount = int(value) * name.unit_mib
        return f"{text} belongs under resources.limits; or write shoal.dev/memory: {amount}Mi"
    return f"{text} belongs under resources.limits"


def _apply(ask: Ask, reading: Reading) -> Ask:
    name = reading.name
    if name.accelerators:
        ask = replace(ask, accelerators=ask.accelerators or name.accelerators)
    if name.floor.reaches(ask.floor):
        ask = replace(ask, floor=name.floor)
    match name.field:
        case Field.DEVICES | Field.PROFILE:
            return _apply_devices(ask, reading)
        case Field.MEMORY:
            return _apply_memory(ask, reading)
        case Field.MEMORY_PERCENT:
            return replace(ask, memory_percent=percent(reading.text, reading.value))
        case Field.COMPUTE_PERCENT:
            return replace(ask, compute_percent=percent(reading.text, reading.value))
        case Field.FRACTION:
            return _apply_fraction(ask, reading)


def _apply_devices(ask: Ask, reading: Reading) -> Ask:
    if ask.profile and reading.name.field is Field.PROFILE:
        raise ValueError(
            f"one container asks for two partition profiles, {ask.profile} and {reading.varying}; "
            "write one"
        )
    devices = whole(reading.value, f"devices for {reading.text}")
    if reading.varying_kind in _UNITS:
        # A size inside the name: the size is per device, the value counts devices.
        memory = int(reading.varying) * _UNITS[reading.varying_kind]
        return replace(ask, devices=ask.devices + devices, memory_mib=memory)
    profile = ask.profile
    if reading.varying_kind == "profile":
        profile = reading.varying
        if ask.vendor == "nvidia":
            profile = profile_of_suffix(profile)
    return replace(ask, devices=ask.devices + devices, profile=profile)


def _apply_memory(ask: Ask, reading: Reading) -> Ask:
    name, text = reading.name, reading.text
    value = reading.value
    unit = "MiB" if name.unit_mib == 1 else f"{name.unit_mib} MiB"
    if re.search(r"(?:[KMGTPE]i|[MGTPE])$", value):
        amount = parse_quantity(value) / 2**20 / name.unit_mib
        instead = -(-amount.numerator // amount.denominator)
        raise ValueError(f"{text} counts {unit}, not bytes; write {instead} instead of {value}")
    return replace(ask, memory_mib=whole(value, f"{unit} for {text}") * name.unit_mib)


def _apply_fraction(ask: Ask, reading: Reading) -> Ask:
    value = parse_quantity(reading.value)
    if not 0 < value <= 1 or value != round(value, 2):
        raise ValueError(
            f"{reading.text} {reading.value!r} is not a fraction of a device; "
            "write a number above 0 and up to 1 with at most two decimals"
        )
    if value == 1:
        return ask
    share = int(value * 100)
    return replace(ask, memory_percent=share, compute_percent=share)


def _complete(ask: Ask) -> Ask:
    if ask.memory_mib is not None and ask.memory_percent is not None:
        raise ValueError("memory is asked for both as an amount and as a percentage; write one")
    if ask.profile and (ask.memory_mib, ask.memory_percent, ask.compute_percent) != (None,) * 3:
        raise ValueError("a partition profile fixes memory and compute; leave the other names out")
    if not ask.devices:
        ask = replace(ask, devices=1)
    if ask.system == "hami" and not ask.profile and ask.memory_mib is None:
        return _hami_whole(ask)
    return ask


def _hami_whole(ask: Ask) -> Ask:
    """HAMi gives the whole device where memory is not asked for, or all of it is."""
    if ask.memory_percent not in (None, 100):
        return ask
    note = "HAMi gives the whole device where less memory than all is not asked for"
    notes = (note,) if ask.compute_percent not in (None, 100) else ()
    return replace(ask, memory_percent=None, compute_percent=None, notes=notes)


def percent(name: str, text: str) -> int:
    """A whole percentage from 1 to 100.

    Raises:
        ValueError: with a sentence that says what to write.
    """
    value = parse_quantity(text)
    if value.denominator != 1 or not 1 <= value <= 100:
        raise ValueError(f"{name} {text!r} is not a percentage; write a whole number from 1 to 100")
    return int(value)


def write(names: Names, ask: Ask, system: str) -> tuple[dict[str, str], dict[str, str]]:
    """The (limits, annotations) by which ``system`` asks for ``ask``.

    Raises:
        ValueError: where that system has no name for a part of it. Nothing is left out silently.
    """
    own = [name for name in names.every if name.system == system and name.vendor == ask.vendor]
    wanted: dict[Field, str] = {}
    if ask.profile:
        return _write_profile(own, ask, system)
    if ask.memory_percent is not None and ask.memory_percent == ask.compute_percent:
        fraction = [name for name in own if name.field is Field.FRACTION]
        if fraction:
            share = Fraction(ask.memory_percent, 100)
            value = f"{share.numerator / share.denominator:.2f}"
            return _placed({fraction[0]: value, **_devices(own, ask)})
    if ask.memory_mib is not None:
        wanted[Field.MEMORY] = str(ask.memory_mib)
    if ask.memory_percent is not None:
        wanted[Field.MEMORY_PERCENT] = str(ask.memory_percent)
    if ask.compute_percent is not None:
        wanted[Field.COMPUTE_PERCENT] = str(ask.compute_percent)
    sized = _write_sized(own, ask)
    if sized is not None:
        return sized
    chosen: dict[Name, str] = {}
    for field, value in wanted.items():
        fitting = [name for name in own if name.field is field and _narrows(name, ask)]
        if not fitting:
            raise ValueError(f"{system} has no name for {field} of {ask.vendor} devices")
        name = fitting[0]
        units = -(-int(value) // name.unit_mib) if field is Field.MEMORY else int(value)
        chosen[name] = str(units)
    chosen.update(_devices(own, ask))
    return _placed(chosen)


def _write_sized(own: list[Name], ask: Ask) -> tuple[dict[str, str], dict[str, str]] | None:
    """The ask by a name with the size inside it, where the system has one that says it exactly."""
    for name in own:
        kind = name.name.partition("{")[2].partition("}")[0]
        if kind not in _UNITS or ask.memory_mib is None or ask.compute_percent is not None:
            continue
        amount, rest = divmod(ask.memory_mib, _UNITS[kind])
        if not rest:
            return {name.name.replace(f"{{{kind}}}", str(amount)): str(ask.devices)}, {}
    return None


def _narrows(name: Name, ask: Ask) -> bool:
    return not name.accelerators or set(name.accelerators) == set(ask.accelerators)


def _devices(own: list[Name], ask: Ask) -> dict[Name, str]:
    plain = [n for n in own if n.field is Field.DEVICES and "{" not in n.name and _narrows(n, ask)]
    if not plain:
        if ask.devices == 1 and not ask.whole:
            return {}
        raise ValueError("that system has no name for a number of devices")
    plain.sort(key=lambda name: not name.accelerators)
    if plain[0].place is Place.ANNOTATION and ask.devices == 1:
        return {}
    return {plain[0]: str(ask.devices)}


def _write_profile(own: list[Name], ask: Ask, system: str) -> tuple[dict[str, str], dict[str, str]]:
    fitting = [name for name in own if name.field is Field.PROFILE]
    if not fitting:
        raise ValueError(f"{system} has no name for partition profiles of {ask.vendor} devices")
    part = ask.profile.replace("+", ".") if ask.vendor == "nvidia" else ask.profile
    return {fitting[0].name.replace("{profile}", part): str(ask.devices)}, {}


def _placed(chosen: Mapping[Name, str]) -> tuple[dict[str, str], dict[str, str]]:
    limits = {n.name: value for n, value in chosen.items() if n.place is Place.LIMITS}
    annotations = {n.name: value for n, value in chosen.items() if n.place is Place.ANNOTATION}
    return limits, annotations


def kai_booking(memory_mib: int, device_mib: int) -> tuple[int, int]:
    """What KAI books for ``gpu-memory`` on a device: (hundredths of the device, MiB of it).

    KAI keeps a fraction with two decimals, rounded up, so more is booked than was asked for: 4,096
    of 15,360 MiB becomes 0.27, which is 4,147 MiB. The sum over several pods can be more than one
    device although their memory fits.
    """
    hundredths = -(-memory_mib * 100 // device_mib)
    return hundredths, hundredths * device_mib // 100


def resolve_percent(ask: Ask, accelerator: Accelerator) -> Ask:
    """``ask`` with a percentage of memory turned into MiB of this accelerator, rounded down.

    Raises:
        ValueError: where the accelerator's memory is not known.
    """
    if ask.memory_percent is None:
        return ask
    if accelerator.memory_mib is None:
        raise ValueError(
            f"the memory of {accelerator.name} is not known, so {ask.memory_percent} percent of "
            "it is not; write an amount"
        )
    memory = accelerator.memory_mib * ask.memory_percent // 100
    return replace(ask, memory_mib=memory, memory_percent=None)
