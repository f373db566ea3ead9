"""``freehold keys create``, ``list``, ``update`` and ``revoke``."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freehold import resolve
from freehold.access.keys import ENDPOINTS, Key, KeyLimits, Scope
from freehold.cli import streams
from freehold.cli.options import PATH, Commands
from freehold.config import RECORD_MODES, RecordMode
from freehold.errors import ConfigError, printable

if TYPE_CHECKING:
    import sqlite3

MAX_NAME_LENGTH = 64

_LIFETIME = re.compile(r"([0-9]{1,5})([hdwy])")
_UNITS_S = {"h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}

state_option = click.option("--state-dir", type=PATH, help="The server's --state-dir, if it isn't the usual one.")
_record_option = click.option(
    "--record",
    metavar="{default,off,metadata,full}",
    help="What the flight recorder keeps of its requests; default: as the server was told.",
)
_key_argument = click.argument("key", help="Its id or name, as `freehold keys list` shows them.")
_limit = click.IntRange(1)


@click.group(cls=Commands, no_args_is_help=True)
def keys() -> None:
    """Keys that clients need, kept hashed in the store."""


@keys.command()
@click.argument("name", help="Whose key it is, for the list and the ledger.")
@click.option("--models", metavar="A,B", help="Only for these models.")
@click.option("--endpoints", metavar="A,B", help=f"Only for these of {', '.join(ENDPOINTS)}.")
@click.option("--admin", is_flag=True, help="For everything, metrics and profiles included.")
@click.option("--expires", metavar="WHEN", help="12h, 30d, 4w, 1y, or a day such as 2027-01-31 (UTC).")
@click.option("--requests-per-minute", type=_limit, metavar="N")
@click.option("--tokens-per-minute", type=_limit, metavar="N")
@click.option("--concurrent-requests", type=_limit, metavar="N")
@click.option("--tokens-per-day", type=_limit, metavar="N")
@click.option("--tokens-per-month", type=_limit, metavar="N")
@_record_option
@state_option
def create(
    name: str,
    models: str | None,
    endpoints: str | None,
    admin: bool,
    expires: str | None,
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    concurrent_requests: int | None,
    tokens_per_day: int | None,
    tokens_per_month: int | None,
    record: str | None,
    state_dir: Path | None,
) -> None:
    """Make a key and print it. It is shown this once. Running servers know it within a second."""
    from freehold.access import key_table

    _check_name(name)
    now_s = time.time()
    scope = Scope(models=_names(models), endpoints=_endpoints(endpoints), is_admin=admin)
    limits = KeyLimits(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        concurrent_requests=concurrent_requests,
        tokens_per_day=tokens_per_day,
        tokens_per_month=tokens_per_month,
    )
    expires_s = None if expires is None else _moment(expires, now_s)
    mode = _record_mode(record or "default")
    with database(state_dir) as connection:
        key, secret = key_table.create(connection, name, scope, limits, now_s=now_s, expires_s=expires_s, record=mode)
    try:
        _show(key, secret)
    except BaseException:
        with database(state_dir) as connection:
            key_table.discard(connection, key.key_id)
        streams.last_word(f"freehold: the key couldn't be shown, so {key.key_id} was removed again")
        raise


@keys.command("list")
@state_option
def list_keys(state_dir: Path | None) -> None:
    """List the keys, revoked and expired ones too, without their secrets."""
    from freehold.access import key_table

    with database(state_dir) as connection:
        stored = key_table.read_all(connection)
    if not stored:
        print("no keys; `freehold keys create NAME` makes one")
        return
    now_s = time.time()
    rows = [("ID", "NAME", "STATE", "CREATED", "EXPIRES", "FOR", "RECORD", "LIMITS")] + [
        _row(key, now_s) for key in stored
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


@keys.command()
@_key_argument
@_record_option
@state_option
def update(key: str, record: str | None, state_dir: Path | None) -> None:
    """Change what is recorded of a key's requests. Running servers know it within a second."""
    from freehold.access import key_table

    if record is None:
        raise ConfigError("nothing is to be changed; say --record default, off, metadata or full")
    mode = _record_mode(record)
    with database(state_dir) as connection:
        updated = key_table.set_record(connection, key, mode)
    print(f"updated {updated.key_id} ({updated.name}): record {record}")


@keys.command()
@_key_argument
@state_option
def revoke(key: str, state_dir: Path | None) -> None:
    """End a key for good. Running servers refuse it within a second; what runs already may finish."""
    from freehold.access import key_table

    with database(state_dir) as connection:
        revoked = key_table.revoke(connection, key, now_s=time.time())
    print(f"revoked {revoked.key_id} ({revoked.name})")


def _show(key: Key, secret: str) -> None:
    if unknown := [model for model in key.scope.models or () if model not in _served_names()]:
        print(
            f"note: {', '.join(map(repr, unknown))} is in no store here, and none of the names that a server would "
            "have; the key is of use for it once one serves it under that name (--served-model-name)",
            file=sys.stderr,
        )
    print(f"key {key.key_id} for {key.name}; it is shown this once:", file=sys.stderr)
    print(secret, flush=True)


@contextmanager
def database(state_dir: Path | None) -> "Iterator[sqlite3.Connection]":
    """The file of keys and usage, for one command."""
    from freehold.access.database import connect, path_in, state_errors

    path = path_in(resolve.lookup("state_dir", {"state_dir": state_dir}).value)
    connection = connect(path)
    try:
        with state_errors(path):
            yield connection
    finally:
        connection.close()


def _check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise ConfigError(f"a key's name has 1 to {MAX_NAME_LENGTH} printable characters, and {name[:100]!r} doesn't")


def _names(text: str | None) -> tuple[str, ...] | None:
    """Names between commas.

    Raises:
        ConfigError: an empty one.
    """
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ConfigError(f"{text!r} holds an empty name; write names with commas between them")
    return names


def _served_names() -> set[str]:
    """Names that models have or would have, as far as can be known from here."""
    from freehold.files import store

    return {*resolve.served_names(), *(model.name for model in store.list_models(resolve.home_directory()))}


def _endpoints(text: str | None) -> tuple[str, ...] | None:
    names = _names(text)
    if unknown := [name for name in names or () if name not in ENDPOINTS]:
        raise ConfigError(f"there is no endpoint {unknown[0]!r}; there are {', '.join(ENDPOINTS)}")
    return names


def _record_mode(text: str) -> RecordMode | None:
    """
    Raises:
        ConfigError: there is no such mode.
    """
    if text == "default":
        return None
    for mode in RECORD_MODES:
        if text == mode:
            return mode
    raise ConfigError(f"record can't be {text!r}; say default, {', '.join(RECORD_MODES)}")


def _moment(text: str, now_s: float) -> float:
    """When a key expires, in Unix seconds.

    Raises:
        ConfigError: it isn't a time, or one that is over.
    """
    if match := _LIFETIME.fullmatch(text):
        expires_s = now_s + int(match[1]) * _UNITS_S[match[2]]
    else:
        try:
            expires_s = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise ConfigError(f"expires can't be {text!r}; say 12h, 30d, 4w, 1y, or a day such as 2027-01-31") from None
    if expires_s <= now_s:
        raise ConfigError(f"expires can't be {text!r}, which is over already")
    return expires_s


def _row(key: Key, now_s: float) -> tuple[str, ...]:
    scope = "everything" if key.scope.is_admin else ", ".join(key.scope.endpoints or ("inference",))
    if key.scope.models is not None:
        scope += f" of {', '.join(key.scope.models)}"
    limits = [
        f"{value} {name.replace('_per_', '/').replace('_', ' ')}"
        for name in KeyLimits.__struct_fields__
        if (value := getattr(key.limits, name)) is not None
    ]
    expires = "never" if key.expires_s is None else _day(key.expires_s)
    allowed = ", ".join(limits) or "none"
    recorded = key.record or "default"
    row = (key.key_id, key.name, key.state(now_s), _day(key.created_s), expires, scope, recorded, allowed)
    return tuple(printable(cell) for cell in row)


def _day(moment_s: float) -> str:
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M}"
