"""The limits of one key, and what its requests hold of them. Everything here happens in the event loop's thread.

A request takes its place when it comes (`Meter.enter`), reserves the most that it may use when its prompt is known
(`Visit.reserve`), and gives back what it didn't use (`Visit.settle`). Nothing waits between looking and taking, so that
no limit is ever exceeded, however many come at once.
"""

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from freehold.access.clocks import Clocks
from freehold.access.keys import Key, KeyId
from freehold.access.window import SPAN_S, Tick, Window
from freehold.amounts import amount
from freehold.errors import LimitError, RequestError


class Meter:
    """How much of its limits a key has used."""

    def __init__(self, key: Key, spent: Mapping[str, int], clocks: Clocks) -> None:
        """
        Args:
            spent: tokens by day, as in ``2026-11-30``, of this month at least.
        """
        limits = key.limits
        self.key = key
        self.clocks = clocks
        self.num_running = 0
        self.requests = None if limits.requests_per_minute is None else Window(limits.requests_per_minute)
        self.tokens = None if limits.tokens_per_minute is None else Window(limits.tokens_per_minute)
        self._spent = dict(spent)

    def enter(self) -> "Visit":
        """Let a request of the key in, until the visit is left.

        Raises:
            LimitError: too many run, or came within a minute.
        """
        now_s = self.clocks.monotonic_s()
        most = self.key.limits.concurrent_requests
        if most is not None and self.num_running >= most:
            raise LimitError(
                f"{amount(self.num_running, 'request of this key runs', 'requests of this key run')} already, "
                f"which may have {most} at once; wait for one",
                code="rate_limit_exceeded",
            )
        if self.requests is not None and (wait_s := self.requests.wait_s(now_s, 1)) != 0:
            raise LimitError(
                f"this key may ask {self.requests.limit} times a minute, and has; try again "
                f"in {wait_s or SPAN_S:.1f} s",
                code="rate_limit_exceeded",
                retry_after_s=wait_s,
            )
        if self.requests is not None:
            self.requests.add(now_s, 1)
        self.num_running += 1
        return Visit(self)

    def headers(self) -> dict[str, str]:
        """What is left of the limits a minute, as OpenAI's headers tell it."""
        now_s = self.clocks.monotonic_s()
        found = {}
        for name, window in (("requests", self.requests), ("tokens", self.tokens)):
            if window is not None:
                found[f"x-ratelimit-limit-{name}"] = str(window.limit)
                found[f"x-ratelimit-remaining-{name}"] = str(window.remaining(now_s))
                found[f"x-ratelimit-reset-{name}"] = duration(window.empty_in_s(now_s))
        return found

    def take(self, day: str, num_tokens: int) -> Tick | None:
        """Count tokens that may be used.

        Returns:
            Where they count in the minute's window, if there is one.

        Raises:
            RequestError: it is more than the key may ever use at once.
            LimitError: it is more than is left in this minute, day or month.
        """
        now_s = self.clocks.monotonic_s()
        if self.tokens is not None and (wait_s := self.tokens.wait_s(now_s, num_tokens)) != 0:
            if wait_s is None:
                raise _never(num_tokens, self.tokens.limit, "minute")
            left = self.tokens.remaining(now_s)
            raise LimitError(
                f"the request may use {num_tokens} tokens (prompt and max_tokens), and of this key's "
                f"{self.tokens.limit} a minute {left} are left; try again in {wait_s:.1f} s or ask for fewer",
                code="rate_limit_exceeded",
                retry_after_s=wait_s,
            )
        if (budget := self._budget(day, num_tokens)) is not None:
            raise budget
        self._spent[day] = self._spent.get(day, 0) + num_tokens
        return None if self.tokens is None else self.tokens.add(now_s, num_tokens)

    def give_back(self, day: str, tick: Tick | None, num_tokens: int) -> None:
        """So many tokens that `take` counted were not used."""
        self._spent[day] -= num_tokens
        if self.tokens is not None and tick is not None:
            self.tokens.lower(tick, num_tokens)

    def spent(self, period: str) -> int:
        """Tokens used or reserved in a day, as in ``2026-11-30``, or a month, as in ``2026-11``."""
        return sum(num_tokens for day, num_tokens in self._spent.items() if day.startswith(period))

    def _budget(self, day: str, num_tokens: int) -> LimitError | RequestError | None:
        """What is to be said if so many tokens are more than a budget has left."""
        limits = self.key.limits
        for name, most, period, until_next_s in (
            ("day", limits.tokens_per_day, day, self.clocks.until_tomorrow_s),
            ("month", limits.tokens_per_month, day[:7], self.clocks.until_next_month_s),
        ):
            if most is None or (left := most - self.spent(period)) >= num_tokens:
                continue
            if num_tokens > most:
                return _never(num_tokens, most, name)
            return LimitError(
                f"of this key's {most} tokens a {name} {max(0, left)} are left, and the request may use {num_tokens}; "
                f"the next {name} (UTC) begins in {until_next_s():.0f} s",
                code="insufficient_quota",
                retry_after_s=until_next_s(),
            )
        return None


class Visit:
    """One request of a key, from its coming to its leaving.

    Attributes:
        day: the one it counts for, however long it takes.
        num_reserved: tokens that it holds; 0 until `reserve`.
    """

    def __init__(self, meter: Meter) -> None:
        """See `Meter.enter`."""
        self.meter = meter
        self.day = meter.clocks.today()
        self.num_reserved = 0
        self._tick: Tick | None = None

    @property
    def key_id(self) -> KeyId:
        return self.meter.key.key_id

    def reserve(self, num_tokens: int) -> None:
        """Hold the most tokens that the request can use, once.

        Raises:
            RequestError, LimitError: see `Meter.take`.
        """
        self._tick = self.meter.take(self.day, num_tokens)
        self.num_reserved = num_tokens

    def settle(self, num_used: int) -> None:
        """So many of the reserved tokens were used in the end. The rest is free for others."""
        num_unused = max(0, self.num_reserved - num_used)
        if num_unused:
            self.meter.give_back(self.day, self._tick, num_unused)
            self.num_reserved -= num_unused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.meter.num_running -= 1


def _never(num_tokens: int, limit: int, period: str) -> RequestError:
    return RequestError(
        f"the request may use {num_tokens} tokens (prompt and max_tokens), more than this key's {limit} a {period}; "
        "lower max_tokens or shorten the prompt",
        param="max_tokens",
        code="exceeds_key_limit",
    )


def duration(seconds: float) -> str:
    """Seconds as OpenAI's headers have them: ``0s``, ``120ms``, ``7.5s``, ``1m0s``."""
    tenths = math.ceil(seconds * 10)
    if 0 < tenths < 10:
        return f"{tenths * 100}ms"
    minutes, rest = divmod(tenths, 600)
    return f"{minutes}m{rest / 10:g}s" if minutes else f"{rest / 10:g}s"
