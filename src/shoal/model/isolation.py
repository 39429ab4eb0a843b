"""What protects a tenant from its neighbours: three answers, each on one ladder.

The levels of `Level` are the words of the field for *where* a limit lives:
nowhere, inside the tenant's own process, in the driver or kernel, or in the silicon.
An `Isolation` value is used twice, as the floor that a request asks for and as
what a mode gives on a node; `Isolation.reaches` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Level(IntEnum):
    """How firmly one resource of a tenant is kept from its neighbours."""

    NONE = 0
    """Nothing enforces a limit."""
    SOFT = 1
    """A library or server inside the tenant's reach enforces it; the tenant can undo it."""
    DRIVER = 2
    """The driver or kernel enforces it, outside the tenant's address space."""
    HARDWARE = 3
    """The silicon enforces it: memory, compute units and fault domain are the tenant's own."""

    @property
    def word(self) -> str:
        """The name that people write: ``none``, ``soft``, ``driver`` or ``hardware``."""
        return self.name.lower()

    def __str__(self) -> str:
        return self.word


AXES: Final = ("memory", "compute", "fault")
"""The three things that isolation is about, in the order in which they are written."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Memory, compute and fault isolation, and whether the device has no other tenant.

    ``alone`` is what the preset ``device`` adds to ``hardware``: one tenant per device, so
    that nothing at all is shared, not even the PCIe link and the power budget.
    """

    memory: Level = Level.NONE
    compute: Level = Level.NONE
    fault: Level = Level.NONE
    alone: bool = False

    def reaches(self, floor: Isolation) -> bool:
        """Whether this is at least ``floor`` on every axis."""
        return (
            self.memory >= floor.memory
            and self.compute >= floor.compute
            and self.fault >= floor.fault
            and self.alone >= floor.alone
        )

    def shortfalls(self, floor: Isolation) -> tuple[str, ...]:
        """The axes on which this is weaker than ``floor``; empty exactly if it reaches it.

        Names are those of `AXES`, and ``alone`` where a neighbour is the obstacle.
        """
        missing = [axis for axis in AXES if getattr(self, axis) < getattr(floor, axis)]
        if floor.alone and not self.alone:
            missing.append("alone")
        return tuple(missing)

    @property
    def preset(self) -> str:
        """The strongest preset that this value reaches."""
        return next(name for name, floor in _STRONGEST_FIRST if self.reaches(floor))

    def __str__(self) -> str:
        """The preset's name if this equals one, otherwise ``memory=...,compute=...,fault=...``."""
        for name, floor in PRESETS.items():
            if self == floor:
                return name
        levels = ",".join(f"{axis}={getattr(self, axis).word}" for axis in AXES)
        return f"{levels},alone" if self.alone else levels


NO_FLOOR: Final = Isolation()
"""Anything will do."""

PRESETS: Final[dict[str, Isolation]] = {
    "shared": NO_FLOOR,
    "soft": Isolation(memory=Level.SOFT),
    "driver": Isolation(memory=Level.DRIVER),
    "hardware": Isolation(Level.HARDWARE, Level.HARDWARE, Level.HARDWARE),
    "device": Isolation(Level.HARDWARE, Level.HARDWARE, Level.HARDWARE, alone=True),
}
"""From weakest to strongest. ``soft`` and ``driver`` promise memory only: no mode below a
hardware partition keeps a fault of one tenant from the others on every device, and compute is
asked for by name where it matters (``memory=driver,compute=soft``)."""

_STRONGEST_FIRST: Final = tuple(reversed(PRESETS.items()))


def parse_isolation(text: str) -> Isolation:
    """Read an isolation floor as people write it.

    Accepted: a preset (``hardware``), or levels by axis (``memory=driver,fault=none``), where an
    axis that is not named is ``none``; ``alone`` among them asks for a device without neighbours.

    Raises:
        ValueError: with a sentence that says what was wrong and what to write instead.
    """
    if text in PRESETS:
        return PRESETS[text]
    presets = ", ".join(PRESETS)
    if "=" not in text:
        msg = (
            f"isolation {text!r} is unknown; write one of {presets}, "
            "or levels such as memory=driver,fault=none"
        )
        raise ValueError(msg)
    levels: dict[str, Level] = {}
    alone = False
    for part in text.split(","):
        if part == "alone" and not alone:
            alone = True
            continue
        axis, _, word = part.partition("=")
        if axis not in AXES:
            msg = f"isolation of {axis!r} is unknown; write {', '.join(AXES)}, each once"
            raise ValueError(msg)
        if axis in levels:
            msg = f"isolation names {axis} twice in {text!r}; write it once"
            raise ValueError(msg)
        levels[axis] = _level(axis, word)
    return Isolation(**levels, alone=alone)


def _level(axis: str, word: str) -> Level:
    for level in Level:
        if level.word == word:
            return level
    msg = (
        f"isolation level {word!r} for {axis} is unknown; "
        f"write one of {', '.join(level.word for level in Level)}"
    )
    raise ValueError(msg)
