"""The folder that files and batches are kept in: a SQLite database, and the files' bytes beside it.

One process at a time has it open. What a transaction has written survives the death of the process and of the machine.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from freehold.errors import FreeholdError, ResourceError
from freehold.transactions import transaction

FORMAT = 1

_SCHEMA = """
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
);
"""


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
            ResourceError: it can't be made or written, or another version of Freehold wrote it.
        """
        self.folder = folder
        self.files = folder / "files"
        with ExitStack() as failing:
            try:
                self.files.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                failing.callback(os.close, self._lock)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._connection = sqlite3.connect(folder / "batches.sqlite3", isolation_level=None)
                failing.callback(self._connection.close)
                self._prepare()
            except BlockingIOError:
                raise StateBusyError(f"another server has {folder} open; give this one another --state-dir") from None
            except (OSError, sqlite3.Error) as error:
                raise ResourceError(f"can't use {folder} for files and batches: {error}; see --state-dir") from None
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

    def _prepare(self) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        ((version,),) = self.rows("PRAGMA user_version")
        if version == 0:
            with self.transaction():
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif version != FORMAT:
            raise ResourceError(
                f"{self.folder} was written in format {version}, and this version of Freehold reads {FORMAT}; use the "
                "version that wrote it, or another --state-dir"
            )
