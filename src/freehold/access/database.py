"""The SQLite file that holds keys and usage, shared by the server and the commands."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from freehold.errors import StateError
from freehold.transactions import transaction

FORMAT_VERSION = 2
"""Of the tables below. A file of another version is refused, not guessed at."""

BUSY_TIMEOUT_S = 5.0

_APPLICATION_ID = 0x46524B59
_CHANGES = {1: "ALTER TABLE keys ADD COLUMN record TEXT"}
"""What makes a file of an earlier version one of the next."""
_TABLES = """
CREATE TABLE keys (
    key_id TEXT PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL, scope BLOB NOT NULL, limits BLOB NOT NULL,
    created_s REAL NOT NULL, expires_s REAL, revoked_s REAL, record TEXT
) STRICT;
CREATE UNIQUE INDEX names_in_use ON keys (name) WHERE revoked_s IS NULL;
CREATE TABLE usage (
    day TEXT NOT NULL, key_id TEXT NOT NULL, model TEXT NOT NULL, outcome TEXT NOT NULL, requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL, PRIMARY KEY (day, key_id, model, outcome)
) STRICT, WITHOUT ROWID;
"""


def path_in(state_dir: Path) -> Path:
    """The file of keys and usage in a folder of state."""
    return state_dir / "keys.sqlite"


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, made for its owner alone if it isn't there. One thread at a time may use the connection.

    Raises:
        StateError: it can't be opened or made, is something else, or is of another version.
    """
    with state_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in a new file, bring an old one up to date, and refuse a strange one."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    with transaction(connection):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if num_tables == 0:
            for statement in _TABLES.strip().split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        elif application != _APPLICATION_ID:
            raise StateError(f"{path} isn't Freehold's file of keys; move it away, or set --home")
        elif version in _CHANGES:
            connection.execute(_CHANGES[version])
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        elif version != FORMAT_VERSION:
            raise StateError(
                f"{path} has format {version}, and this version of Freehold reads formats up to {FORMAT_VERSION}; use "
                "the version that made it, or move it away"
            )


@contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors as ours.

    Raises:
        StateError: names the file, and what is wrong with it.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StateError(
            f"the file of keys and usage {path} can't be used: {reason}; see that it is Freehold's, that this user may "
            "write it, and that the disk isn't full"
        ) from error
