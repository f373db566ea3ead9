"""The two clocks of access: one that nobody can set, for rates; the time of day, for expiry and budgets."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the time comes from; tests bring their own.

    Attributes:
        monotonic_s: seconds since whenever, never set back.
        wall_s: Unix seconds.
    """

    monotonic_s: Callable[[], float] = time.monotonic
    wall_s: Callable[[], float] = time.time

    def today(self) -> str:
        """The day in UTC, as in ``2026-11-30``."""
        return self._now().date().isoformat()

    def until_tomorrow_s(self) -> float:
        """Seconds until the next day begins in UTC."""
        now = self._now()
        return (_midnight(now) + timedelta(days=1) - now).total_seconds()

    def until_next_month_s(self) -> float:
        """Seconds until the next month begins in UTC."""
        now = self._now()
        next_month = (_midnight(now).replace(day=1) + timedelta(days=32)).replace(day=1)
        return (next_month - now).total_seconds()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.wall_s(), UTC)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
