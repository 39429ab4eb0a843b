"""Cases at dates of the calendar, with budgets that have their periods."""

from dataclasses import dataclass
from datetime import datetime

from shoal.core.cycle import Cycle
from shoal.core.decisions import Warn
from shoal.loop.periods import periods_due
from tests.core.cases import MINUTE_US, Case, Seen

HOUR_US = 60 * MINUTE_US


def us(written: str) -> int:
    """A time with its offset, in microseconds since the epoch."""
    return int(datetime.fromisoformat(written).timestamp()) * 1_000_000


@dataclass
class Dated(Case):
    """A case at dates of the calendar, whose budgets have their periods."""

    def at(self, written: str) -> None:
        """Let time pass to a date."""
        self.to(us(written) // MINUTE_US)

    def turn(self) -> Cycle:
        """Let the periods begin that are due, and decide."""
        for begun in periods_due(self.world, self.now_us):
            self.feed(begun)
        return super().turn()

    def hours(self, name: str) -> tuple[float, float]:
        """Device hours that are used and reserved of a queue's budget now."""
        account = self.world.spending.accounts[name]
        over = account.over(account.used_at(self.now_us), account.reserved_at(self.now_us), 0)
        return over.used / HOUR_US, over.reserved / HOUR_US

    @property
    def warned(self) -> list[Seen]:
        """The warnings that were given."""
        return [seen for seen in self.seen if isinstance(seen.decision, Warn)]
