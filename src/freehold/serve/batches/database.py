"""The folder that files and batches are kept in: a SQLite database, and the files' bytes beside it.

One process at a time has it open. What a transaction has written survives the death of the process and of the machine.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from freehold.errors import FreeholdError, StateError
from freehold.state_file import Layout, open_state
from freehold.transactions import transaction

_TABLES = """
CREATE TABLE files (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    purpose TEXT NOT NULL,
    num_bytes INTEGER NOT NULL,
    expires_at INTEGER,
    record BLOB NOT NULL
);
CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    status TEXT NOT NULL,
    input_file_id TEXT NOT NULL,
    is_overdue INTEGER NOT NULL DEFAULT 0,
    output_lasts_s INTEGER,
    num_completed INTEGER NOT NULL DEFAULT 0,
    num_failed INTEGER NOT NULL DEFAULT 0,
    record BLOB NOT NULL
);
CREATE TABLE lines (
    batch_number INTEGER NOT NULL,
    line INTEGER NOT NULL,
    begin INTEGER NOT NULL,
    num_bytes INTEGER NOT NULL,
    custom_id TEXT NOT NULL,
    PRIMARY KEY (batch_number, line)
) WITHOUT ROWID;
CREATE TABLE answers (
    batch_number INTEGER NOT NULL,
    line INTEGER NOT NULL,
    is_failure INTEGER NOT NULL,
    text BLOB NOT NULL,
    PRIMARY KEY (batch_number, line)
)
"""
_LAYOUT = Layout(what="files and batches", version=1, tables=_TABLES, is_durable=True)


class StateBusyError(FreeholdError):
    """Another process has the folder open."""


class Database:
    """The folder, open. To be used in the thread that made it.

    Attributes:
        files: folder of the files' bytes, each under its id.
    """

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            StateBusyError: another process has it open.
            StateError: it can't be made or written, or is something else (`freehold.state_file.open_state`).
        """
        self.folder = folder
        self.files = folder / "files"
        with ExitStack() as failing:
            try:
                self.files.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                failing.callback(os.close, self._lock)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateBusyError(f"another server has {folder} open; give this one another --state-dir") from None
            except OSError as error:
                raise StateError(f"can't use {folder} for files and batches: {error}; see --state-dir") from None
            self._connection = open_state(folder / "batches.sqlite3", _LAYOUT)
            failing.pop_all()

    def close(self) -> None:
        """Let go of the folder."""
        self._connection.close()
        os.close(self._lock)

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Rows that a query finds."""
        return self._connection.execute(query, values).fetchall()

    def each(self, query: str, *values: object) -> Iterator[tuple[object, ...]]:
        """The same, one after the other."""
        yield from self._connection.execute(query, values)

    def write(self, statement: str, *values: object) -> int:
        """Change something, inside `transaction`; returns how many rows were changed."""
        return self._connection.execute(statement, values).rowcount

    def write_many(self, statement: str, rows: Iterator[tuple[object, ...]]) -> None:
        """Change something for each row, inside `transaction`."""
        self._connection.executemany(statement, rows)

    def transaction(self) -> AbstractContextManager[None]:
        """See `freehold.transactions.transaction`."""
        return transaction(self._connection)
