"""A transaction that fails, at whatever moment, leaves nothing behind."""

import sqlite3
from collections.abc import Iterator

import pytest

from freehold.transactions import transaction


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE children (parent REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "statements",
    [
        ["INSERT INTO parents VALUES (1)", "INSERT INTO strangers VALUES (1)"],
        # Deferred keys are looked at when it is committed, as a disk may only then turn out to be full.
        ["INSERT INTO children VALUES (7)"],
        ["INSERT INTO parents VALUES (1)", "INSERT OR ROLLBACK INTO parents VALUES (1)"],
    ],
    ids=["inside", "at its end", "ended by SQLite itself"],
)
def test_one_that_fails_is_undone_and_another_may_follow(connection: sqlite3.Connection, statements: list[str]) -> None:
    with pytest.raises(sqlite3.Error):
        write(connection, statements)
    write(connection, ["INSERT INTO parents VALUES (2)"])
    assert connection.execute("SELECT id FROM parents").fetchall() == [(2,)]
    assert connection.execute("SELECT parent FROM children").fetchall() == []


def write(connection: sqlite3.Connection, statements: list[str]) -> None:
    with transaction(connection):
        for statement in statements:
            connection.execute(statement)
