"""Versions of drivers, runtimes and components, compared by their numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Self

_FORM: Final = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})(?:[-+~_][0-9A-Za-z.+~_-]{0,64})?")


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """Up to six numbers, compared from the left; a missing number counts as 0.

    What follows the numbers (``-gke.1``, ``+build``) is dropped: it says who built it, not what
    it can do. ``text`` is how it was written, for messages.
    """

    numbers: tuple[int, ...]
    text: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``550.90.07``, ``v1.36.2-gke.1`` or ``13.1``.

        Raises:
            ValueError: with the form to write.
        """
        match = _FORM.fullmatch(text, 0) if text.isascii() else None
        if match is None:
            msg = f"{text!r} is not a version; write numbers with dots, such as 550.90.07"
            raise ValueError(msg)
        numbers = [int(number) for number in match.group(1).split(".")]
        while len(numbers) > 1 and numbers[-1] == 0:
            numbers.pop()
        return cls(tuple(numbers), text)

    def __str__(self) -> str:
        return self.text or ".".join(str(number) for number in self.numbers)
