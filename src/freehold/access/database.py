"""The SQLite file that holds keys and usage, shared by the server and the commands."""

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from freehold import state_file
from freehold.state_file import Layout

FORMAT_VERSION = 2

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
) STRICT, WITHOUT ROWID
"""
_LAYOUT = Layout(
    what="keys and usage",
    application_id=0x46524B59,
    version=FORMAT_VERSION,
    tables=_TABLES,
    changes={1: "ALTER TABLE keys ADD COLUMN record TEXT"},
)


def path_in(state_dir: Path) -> Path:
    """The file of keys and usage in a folder of state."""
    return state_dir / "keys.sqlite"


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, made for its owner alone if it isn't there. One thread at a time may use the connection.

    Raises:
        StateError: see `freehold.state_file.open_state`.
    """
    return state_file.open_state(path, _LAYOUT)


def state_errors(path: Path) -> AbstractContextManager[None]:
    """SQLite's and the system's errors as `StateError`."""
    return state_file.state_errors(path, _LAYOUT)
