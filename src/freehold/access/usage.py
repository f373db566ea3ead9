"""What keys used: entries that the server counts, and their sums in the database."""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from freehold.access.keys import KeyId
from freehold.transactions import transaction

Outcome = Literal["completed", "cancelled", "failed", "refused"]
"""How a request ended: answered; its client left; an error of the server's; one of the client's, or a limit."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class Account(NamedTuple):
    """What usage is summed by. `day` is UTC's, as in ``2026-11-30``."""

    day: str
    key_id: KeyId
    model: str
    outcome: Outcome


class Usage(msgspec.Struct):
    """Counts of requests, and of their tokens. Cached tokens are a part of the prompt's, reasoning of the output's."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """What counts against limits."""
        return self.prompt_tokens + self.output_tokens

    def add(self, other: "Usage") -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


FIELDS = Usage.__struct_fields__


def write(connection: sqlite3.Connection, sums: Mapping[Account, Usage]) -> None:
    """Add to the sums in the database: all of them, or none."""
    columns = ", ".join(FIELDS)
    raised = ", ".join(f"{name} = {name} + excluded.{name}" for name in FIELDS)
    with transaction(connection):
        connection.executemany(
            f"INSERT INTO usage (day, key_id, model, outcome, {columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT DO UPDATE SET {raised}",
            [(*account, *(getattr(usage, name) for name in FIELDS)) for account, usage in sums.items()],
        )


def read(connection: sqlite3.Connection, since: str = "", until: str = "9999") -> list[tuple[Account, Usage]]:
    """Sums of the days from `since` to `until`, in order."""
    rows = connection.execute(
        f"SELECT day, key_id, model, outcome, {', '.join(FIELDS)} FROM usage WHERE day BETWEEN ? AND ? "
        "ORDER BY day, key_id, model, outcome",
        (since, until),
    )
    return [(Account(*row[:4]), Usage(*row[4:])) for row in rows]


def spent_by_day(sums: Iterable[tuple[Account, Usage]]) -> dict[KeyId, dict[str, int]]:
    """Tokens of each key by day."""
    spent: dict[KeyId, dict[str, int]] = {}
    for account, usage in sums:
        days = spent.setdefault(account.key_id, {})
        days[account.day] = days.get(account.day, 0) + usage.num_tokens
    return spent
