"""SQLite files that Freehold keeps: opened in one way, whatever they hold."""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from freehold.errors import StateError
from freehold.transactions import transaction

BUSY_TIMEOUT_S = 5.0
"""So long a statement waits for another process to finish its own."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is in a kind of file.

    Attributes:
        what: names the kind, for people.
        version: of the tables. A file of another version is refused, not guessed at.
        tables: statements that make them.
        changes: by version, the statement that makes a file of it one of the next.
        application_id: marks such files; 0: nothing does.
        is_durable: what was written survives the death of the machine, and not just of the process.
        elsewhere: what names another place for such a file, for people.
    """

    what: str
    version: int
    tables: str
    changes: Mapping[int, str] = field(default_factory=dict)
    application_id: int = 0
    is_durable: bool = False
    elsewhere: str = "set --state-dir"


def open_state(path: Path, layout: Layout) -> sqlite3.Connection:
    """Open a file, made for its owner alone if it isn't there. One thread at a time may use the connection.

    Raises:
        StateError: it can't be opened or made, is something else, was emptied, or is of another version.
    """
    with state_errors(path, layout):
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(path, layout)
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))  # whose errors say what is wrong, unlike SQLite's
        connection = _connect(path)
        try:
            with transaction(connection):
                _check(connection, path, layout)
            _use_log(connection)  # after the check: it may change the file
            connection.execute(f"PRAGMA synchronous = {'FULL' if layout.is_durable else 'NORMAL'}")
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def state_errors(path: Path, layout: Layout) -> Iterator[None]:
    """SQLite's and the system's errors as ours.

    Raises:
        StateError: names the file, and what is wrong with it.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StateError(
            f"the file of {layout.what} {path} can't be used: {reason}; see that it is Freehold's, that this user may "
            "write it, and that the disk isn't full"
        ) from error


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def _make(path: Path, layout: Layout) -> None:
    """Make a file that is complete from the moment it is there, so that an empty one is known to have been emptied."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(_connect(unfinished)) as connection:
            with transaction(connection):
                for statement in layout.tables.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {layout.application_id}")
                connection.execute(f"PRAGMA user_version = {layout.version}")
            _use_log(connection)
        with suppress(FileExistsError):  # made by another process meanwhile
            os.link(unfinished, path)
    finally:
        unfinished.unlink()


def _use_log(connection: sqlite3.Connection) -> None:
    """Write ahead into a log, whose readers wait for no writer; the file stays so.

    To make a file so (a copy may not be) nobody else may read or write it, and SQLite itself does not wait for that.
    """
    until_s = time.monotonic() + BUSY_TIMEOUT_S
    while connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(0.01)


def _check(connection: sqlite3.Connection, path: Path, layout: Layout) -> None:
    """Bring an old file up to date, and refuse a strange one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (num_tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if num_tables == 0:
        raise StateError(
            f"the file of {layout.what} {path} is empty, and wasn't made so: what it held is gone; bring it back from "
            "a copy, or delete it to begin anew"
        )
    if application != layout.application_id:
        raise StateError(f"{path} isn't Freehold's file of {layout.what}; move it away, or {layout.elsewhere}")
    if version in layout.changes:
        connection.execute(layout.changes[version])
        connection.execute(f"PRAGMA user_version = {version + 1}")
        _check(connection, path, layout)
    elif version != layout.version:
        raise StateError(
            f"{path} has format {version}, and this version of Freehold reads formats up to {layout.version}; use the "
            "version that made it, or move it away"
        )
