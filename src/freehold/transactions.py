"""Changes to a SQLite file that hold together or not at all."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written inside holds, or none of it does; nobody else writes meanwhile.

    However it fails, at its end too, the connection is ready for another one.

    Raises:
        sqlite3.Error: the file is locked, or the disk is full or broken.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has ended it itself after some failures
            connection.execute("ROLLBACK")
        raise
