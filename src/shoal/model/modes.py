"""How a leaf is used: by partition, sharing and cap, and over which channel.

A `Mode` is one combination of the three. Which combinations exist, and where each can be
realised, is hardware knowledge and lives in the catalogue; here are only the words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self


class _Word(IntEnum):
    """An enumeration that is stored as a small integer and written as a word."""

    @property
    def word(self) -> str:
        """The name that people write, such as ``time-sliced``."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the word that people write.

        Raises:
            ValueError: with the words that are known.
        """
        for member in cls:
            if member.word == text:
                return member
        known = ", ".join(member.word for member in cls)
        msg = f"{cls.__name__.lower()} {text!r} is unknown; write one of {known}"
        raise ValueError(msg)

    def __str__(self) -> str:
        return self.word


class Sharing(_Word):
    """How a leaf is used by several pods at once. One leaf has one sharing at a time."""

    EXCLUSIVE = 0
    TIME_SLICED = 1
    MPS = 2


class Cap(_Word):
    """What keeps a pod inside its memory on a shared leaf. One leaf has one cap at a time."""

    NONE = 0
    LIBRARY = 1
    MPS = 2
    DRIVER = 3


class Channel(_Word):
    """How an allocation reaches the node."""

    DEVICE_PLUGIN = 0
    DRA = 1


@dataclass(frozen=True, slots=True, order=True)
class Mode:
    """One combination of partition, sharing and cap.

    ``partition`` says that the leaf is a hardware slice of a device and not the whole of it.
    An exclusive leaf has one tenant and therefore needs no cap.

    Raises:
        ValueError: for an exclusive mode with a cap, or the ``mps`` cap without MPS sharing.
    """

    partition: bool
    sharing: Sharing
    cap: Cap

    def __post_init__(self) -> None:
        if self.sharing is Sharing.EXCLUSIVE and self.cap is not Cap.NONE:
            msg = f"an exclusive leaf has one tenant and no cap, not {self.cap.word!r}"
            raise ValueError(msg)
        if self.cap is Cap.MPS and self.sharing is not Sharing.MPS:
            msg = "the mps cap belongs to an MPS server; write mps as the sharing too"
            raise ValueError(msg)

    @property
    def name(self) -> str:
        """The name in pools, messages and tables: ``whole``, ``partition+mps``, ``mps+driver``.

        MPS sharing has the ``mps`` cap unless another is named, so ``mps`` alone means both.
        """
        parts = ["partition"] if self.partition else []
        if self.sharing is not Sharing.EXCLUSIVE:
            parts.append(self.sharing.word)
        if self.sharing is Sharing.MPS:
            if self.cap is not Cap.MPS:
                parts.append("uncapped" if self.cap is Cap.NONE else self.cap.word)
        elif self.cap is not Cap.NONE:
            parts.append(self.cap.word)
        return "+".join(parts) or "whole"

    def __str__(self) -> str:
        return self.name


MODE_ALIASES: Final[dict[str, str]] = {
    "mig": "partition",
    "mig+mps": "partition+mps",
    "mig+time-sliced": "partition+time-sliced",
}
"""Names that people bring along and the mode that each means."""


def every_mode() -> tuple[Mode, ...]:
    """All combinations that make sense, listed by the catalogue or not, in a fixed order."""
    modes = []
    for partition in (False, True):
        modes.append(Mode(partition, Sharing.EXCLUSIVE, Cap.NONE))
        modes.extend(
            Mode(partition, Sharing.TIME_SLICED, cap) for cap in (Cap.NONE, Cap.LIBRARY, Cap.DRIVER)
        )
        modes.extend(Mode(partition, Sharing.MPS, cap) for cap in Cap)
    return tuple(modes)


_BY_NAME: Final = {mode.name: mode for mode in every_mode()}


def parse_mode(text: str) -> Mode:
    """Read a mode by its name or by an alias of `MODE_ALIASES`.

    Raises:
        ValueError: with the names that are known.
    """
    mode = _BY_NAME.get(MODE_ALIASES.get(text, text))
    if mode is None:
        msg = f"mode {text!r} is unknown; write one of {', '.join(_BY_NAME)}"
        raise ValueError(msg)
    return mode
