"""When devices and nodes fail, and when they are back; a function of seed and time alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shoal.model.node import Node
from shoal.simulation.chance import Chance

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000

DEVICE_FAILS_A_DAY = 1 / 60
NODE_FAILS_A_DAY = 1 / 30
"""Chances in a day. They are those of a lively demo, and higher than those of good hardware."""

DEVICE_GONE_HOURS = (0.5, 3.5)
NODE_GONE_HOURS = (0.2, 1.5)


@dataclass(frozen=True, slots=True)
class Turn:
    """Something fails (`back` is False) or works again; without `device` it is the whole node."""

    at_us: int
    node: str
    device: str
    back: bool


class Breakdowns:
    """What fails on a fleet. What fails on a day is back before the day is over."""

    def __init__(self, seed: int, nodes: Sequence[Node], begin_us: int) -> None:
        self._chance = Chance(seed)
        self._nodes = nodes
        self._begin_us = begin_us

    def turns(self, after_us: int) -> Iterator[Turn]:
        """Yield every turn later than `after_us`, in order, without end."""
        day = max(0, (after_us - self._begin_us) // DAY_US)
        while True:
            for turn in self._day(day):
                if turn.at_us > after_us:
                    yield turn
            day += 1

    def _day(self, day: int) -> list[Turn]:
        turns: list[Turn] = []
        for node in self._nodes:
            turns += self._of_day(day, node.name, "", NODE_FAILS_A_DAY, NODE_GONE_HOURS)
            for device in node.devices:
                turns += self._of_day(
                    day, node.name, device.name, DEVICE_FAILS_A_DAY, DEVICE_GONE_HOURS
                )
        return sorted(turns, key=lambda turn: (turn.at_us, turn.node, turn.device))

    def _of_day(
        self, day: int, node: str, device: str, chance: float, hours: tuple[float, float]
    ) -> list[Turn]:
        name = f"{node}\0{device}\0{day}"
        if self._chance.unit("fails", name) >= chance:
            return []
        day_us = self._begin_us + day * DAY_US
        gone_us = day_us + int(self._chance.between(0.1, 20, "fails at", name) * HOUR_US)
        back_us = gone_us + int(self._chance.between(*hours, "is back", name) * HOUR_US)
        return [Turn(gone_us, node, device, back=False), Turn(back_us, node, device, back=True)]
