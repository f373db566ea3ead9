"""``freehold usage``: what keys have used, from the ledger in the store."""

import csv
import sys
from datetime import date
from pathlib import Path

import click

from freehold.access.keys import ANYONE, KeyId
from freehold.access.usage import FIELDS, OUTCOMES, Account, Usage
from freehold.cli.keys import database, state_option
from freehold.errors import ConfigError, printable

BY = ("day", "key", "model")


@click.command()
@click.option("--by", metavar="A,B", default="key", help=f"What a line is for: any of {', '.join(BY)}.")
@click.option("--key", metavar="KEY", help="Only of the key with this id or name.")
@click.option("--since", metavar="DAY", help="The first day, such as 2026-11-30 (UTC).")
@click.option("--until", metavar="DAY", help="The last day.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, for other programs.")
@state_option
def usage(by: str, key: str | None, since: str | None, until: str | None, as_csv: bool, state_dir: Path | None) -> None:
    """Show requests and tokens by key, day or model. A running server writes what was used within a second."""
    from freehold.access import key_table
    from freehold.access import usage as usage_table

    columns = tuple(name.strip() for name in by.split(","))
    if unknown := [name for name in columns if name not in BY]:
        raise ConfigError(f"by can't be {unknown[0]!r}; it is any of {', '.join(BY)}, with commas between")
    with database(state_dir) as connection:
        names = {stored.key_id: stored.name for stored in key_table.read_all(connection)}
        sums = usage_table.read(connection, _day(since, ""), _day(until, "9999"))
    if key is not None:
        wanted = {key_id for key_id, name in names.items() if key in (key_id, name)} or {KeyId(key)}
        sums = [(account, used) for account, used in sums if account.key_id in wanted]
    header = [*columns, "requests", *OUTCOMES, *FIELDS[1:]]
    if "key" in columns:
        header.insert(columns.index("key") + 1, "name")
    rows = [header, *_rows(columns, sums, names)]
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
    elif len(rows) == 1:
        print("no usage")
    else:
        _print_table(rows)


def _rows(columns: tuple[str, ...], sums: list[tuple[Account, Usage]], names: dict[KeyId, str]) -> list[list[str]]:
    """A line for each group."""
    totals: dict[tuple[str, ...], tuple[Usage, dict[str, int]]] = {}
    for account, used in sums:
        group = tuple(getattr(account, "key_id" if name == "key" else name) for name in columns)
        total, outcomes = totals.setdefault(group, (Usage(), dict.fromkeys(OUTCOMES, 0)))
        total.add(used)
        outcomes[account.outcome] += used.requests
    rows = []
    for group, (total, outcomes) in sorted(totals.items()):
        cells: list[str] = []
        for name, value in zip(columns, group, strict=True):
            cells.append(value)
            if name == "key":
                cells.append("(no key)" if value == ANYONE else names.get(KeyId(value), value))
        numbers = [total.requests, *outcomes.values(), *(getattr(total, field) for field in FIELDS[1:])]
        rows.append([*cells, *map(str, numbers)])
    return rows


def _print_table(rows: list[list[str]]) -> None:
    shown = [[printable(cell).replace("\n", "\\n") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    for row in shown:
        print(
            "  ".join(
                f"{cell:{'>' if cell.isdigit() else ''}{width}}" for cell, width in zip(row, widths, strict=True)
            ).rstrip()
        )


def _day(text: str | None, default: str) -> str:
    if text is None:
        return default
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"a day can't be {text!r}; write it as 2026-11-30") from None
