"""The file of keys and usage: what is in it, who may read it, and what happens if it can't be used."""

import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from freehold import state_file
from freehold.access import bookkeeper, key_table, usage
from freehold.access.bookkeeper import Bookkeeper
from freehold.access.database import FORMAT_VERSION, connect
from freehold.access.gatekeeper import Gatekeeper
from freehold.access.keys import ANYONE, Key, KeyId, KeyLimits, Scope
from freehold.access.usage import Account, Usage
from freehold.errors import ConfigError, StateError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.sqlite"


@pytest.fixture
def table(path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(path)
    yield connection
    connection.close()


def create(table: sqlite3.Connection, name: str = "ci", **fields: Any) -> tuple[Key, str]:
    fields = {"scope": Scope(), "limits": KeyLimits(), "now_s": 1.0, "expires_s": None, **fields}
    return key_table.create(table, name, **fields)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_only_its_owner_may_read_it(table: sqlite3.Connection, path: Path) -> None:
    create(table)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_secrets_are_long_random_and_not_kept(table: sqlite3.Connection, path: Path) -> None:
    secrets = [create(table, f"key {i}")[1] for i in range(50)]
    assert len(set(secrets)) == 50
    assert all(re.fullmatch(r"fh-[a-z2-7]{8}-[A-Za-z0-9_-]{43}", secret) for secret in secrets)
    table.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stored = path.read_bytes()
    assert not any(secret[12:].encode() in stored for secret in secrets)


def test_a_key_comes_back_as_it_was_made(table: sqlite3.Connection) -> None:
    scope = Scope(models=("a", "b"), endpoints=("chat",), is_admin=True)
    limits = KeyLimits(requests_per_minute=1, tokens_per_month=5)
    key, _ = create(table, "Zoë", scope=scope, limits=limits, expires_s=9.5)
    assert key_table.read_all(table) == (key,)
    assert (key.state(9.4), key.state(9.5)) == ("active", "expired")


def test_names_are_unique_among_keys_in_use(table: sqlite3.Connection) -> None:
    first, _ = create(table)
    with pytest.raises(ConfigError, match="named 'ci' already"):
        create(table)
    assert key_table.revoke(table, "ci", now_s=5).key_id == first.key_id
    second, _ = create(table)
    with pytest.raises(ConfigError, match="no key"):
        key_table.revoke(table, first.key_id, now_s=6)
    assert key_table.revoke(table, second.key_id, now_s=6).name == "ci"
    assert [key.state(7) for key in key_table.read_all(table)] == ["revoked", "revoked"]


def test_many_commands_at_once_lose_nothing(path: Path) -> None:
    connect(path).close()

    def work(number: int) -> None:
        connection = connect(path)
        for i in range(5):
            create(connection, f"{number}.{i}")
        connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connection = connect(path)
    assert len(key_table.read_all(connection)) == 30
    connection.close()


def version(number: int) -> Callable[[sqlite3.Connection], Any]:
    return lambda connection: connection.execute(f"PRAGMA user_version = {number}")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (version(FORMAT_VERSION + 1), f"format {FORMAT_VERSION + 1}"),
        (version(0), "format 0"),
        (lambda connection: connection.execute("PRAGMA application_id = 7"), "isn't Freehold's"),
    ],
)
def test_a_strange_file_is_refused(path: Path, damage: Callable[[sqlite3.Connection], Any], words: str) -> None:
    connection = connect(path)
    damage(connection)
    connection.close()
    with pytest.raises(StateError, match=words):
        connect(path)


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_junk_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"keys\.sqlite"):
        connect(path)
    assert path.read_bytes() == content


FORMAT_1 = """
CREATE TABLE keys (
    key_id TEXT PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL, scope BLOB NOT NULL, limits BLOB NOT NULL,
    created_s REAL NOT NULL, expires_s REAL, revoked_s REAL
) STRICT;
CREATE UNIQUE INDEX names_in_use ON keys (name) WHERE revoked_s IS NULL;
CREATE TABLE usage (
    day TEXT NOT NULL, key_id TEXT NOT NULL, model TEXT NOT NULL, outcome TEXT NOT NULL, requests INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL, PRIMARY KEY (day, key_id, model, outcome)
) STRICT, WITHOUT ROWID;
INSERT INTO keys VALUES ('abc', 'ci', x'01', x'7b7d', x'7b7d', 1.5, NULL, NULL);
INSERT INTO usage VALUES ('2026-11-29', 'abc', 'm', 'completed', 1, 2, 3, 4, 5);
PRAGMA application_id = 0x46524B59;
PRAGMA user_version = 1;
"""


def test_a_file_of_the_first_format_becomes_one_of_this(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    old = sqlite3.connect(path)
    old.executescript(FORMAT_1)
    old.close()
    for _ in range(2):
        table = connect(path)
        (key,) = key_table.read_all(table)
        assert (key.key_id, key.name, key.created_s, key.record) == ("abc", "ci", 1.5, None)
        assert table.execute("SELECT output_tokens FROM usage").fetchall() == [(4,)]
        assert table.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
        table.close()
    table = connect(path)
    create(table, "another")
    assert len(key_table.read_all(table)) == 2
    table.close()


def test_an_emptied_file_is_refused_as_its_keys_are_gone(path: Path) -> None:
    """A server that took it for a new one would need no keys."""
    connect(path).close()
    for file in path.parent.iterdir():
        file.write_bytes(b"")
    with pytest.raises(StateError, match="is empty, and wasn't made so"):
        connect(path)
    path.unlink()
    connect(path).close()


def test_a_file_is_there_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes it may die at any moment, and others may make it at the same time."""

    def fail(_connection: sqlite3.Connection) -> Iterator[None]:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(state_file, "transaction", fail)
        with pytest.raises(StateError, match="disk is full"):
            connect(path)
    assert list(path.parent.iterdir()) == []
    with ThreadPoolExecutor(8) as pool:
        for connection in pool.map(connect, [path] * 24):
            connection.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("is_copy", [False, True])
def test_many_open_it_at_the_same_time(tmp_path: Path, is_copy: bool) -> None:
    """Nobody is told that it is locked: neither while it is made, nor where a copy has no log yet."""
    for number in range(30):
        path = tmp_path / str(number) / "keys.sqlite"
        if is_copy:
            with closing(connect(path)) as connection:
                assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
        with ThreadPoolExecutor(8) as pool:
            for opened in [pool.submit(connect, path) for _ in range(16)]:
                with closing(opened.result()) as connection:
                    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_folder_in_its_place_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StateError, match="directory"):
        connect(path)


def test_usage_adds_up(table: sqlite3.Connection) -> None:
    account = Account("2026-11-30", KeyId("a"), "m", "completed")
    other = account._replace(outcome="refused")
    usage.write(table, {account: Usage(1, 2, 1, 3, 1), other: Usage(1)})
    usage.write(table, {account: Usage(1, 20, 10, 30, 10), account._replace(day="2026-12-01"): Usage(1, 1, 0, 1, 0)})
    assert usage.read(table, until="2026-11-30") == [(account, Usage(2, 22, 11, 33, 11)), (other, Usage(1))]
    assert usage.spent_by_day(usage.read(table)) == {"a": {"2026-11-30": 55, "2026-12-01": 2}}


def test_a_server_sees_keys_come_and_go(table: sqlite3.Connection, path: Path) -> None:
    gatekeeper = Gatekeeper(database=path)
    gatekeeper.start()
    assert gatekeeper.anyone is not None
    key, secret = create(table)
    wait_until(lambda: gatekeeper.recognize(secret) is not None)
    assert gatekeeper.anyone is None
    key_table.revoke(table, key.key_id, now_s=2)
    wait_until(lambda: gatekeeper.recognize(secret) is None)
    assert gatekeeper.anyone is None, "the last key's end opens nothing"
    gatekeeper.close()


def test_what_was_counted_is_there_after_closing(path: Path) -> None:
    gatekeeper = Gatekeeper(database=path)
    gatekeeper.start()
    account = Account("2026-11-30", ANYONE, "m", "completed")
    for _ in range(1000):
        gatekeeper.count(account, Usage(1, 1, 0, 2, 0))
    gatekeeper.close()
    connection = connect(path)
    assert usage.read(connection) == [(account, Usage(1000, 1000, 0, 2000, 0))]
    connection.close()


def test_a_file_that_is_lost_opens_nothing(table: sqlite3.Connection, path: Path) -> None:
    _, secret = create(table)
    gatekeeper = Gatekeeper(database=path)
    gatekeeper.start()
    for file in path.parent.iterdir():
        file.unlink()
    gatekeeper.reload()
    time.sleep(0.1)
    assert gatekeeper.anyone is None
    assert gatekeeper.recognize(secret) is not None
    gatekeeper.close()


def test_usage_waits_while_the_file_is_locked(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bookkeeper, "POLL_S", 0.01)
    keeper = Bookkeeper(path)
    keeper._connection.execute("PRAGMA busy_timeout = 10")
    blocker = connect(path)
    blocker.execute("BEGIN IMMEDIATE")
    keeper.start(lambda keys: None)
    account = Account("2026-11-30", ANYONE, "m", "completed")
    keeper.count(account, Usage(1, 5, 0, 5, 0))
    wait_until(lambda: "locked" in caplog.text)
    keeper.count(account, Usage(1, 5, 0, 5, 0))
    blocker.execute("COMMIT")
    wait_until(lambda: usage.read(blocker) == [(account, Usage(2, 10, 0, 10, 0))])
    keeper.close()
    blocker.close()
    assert caplog.text.count("can't be used") == 1, "said once, not at every try"


def test_usage_waits_while_the_disk_is_full(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Bookkeeper(path)
    (num_pages,) = keeper._connection.execute("PRAGMA page_count").fetchone()
    keeper._connection.execute(f"PRAGMA max_page_count = {num_pages}")
    keeper.start(lambda keys: None)
    accounts = [Account("2026-11-30", KeyId(f"key-{number}"), "m" * 100, "completed") for number in range(200)]
    for account in accounts:
        keeper.count(account, Usage(1, 5, 0, 5, 0))
    wait_until(lambda: "full" in caplog.text)
    reader = connect(path)
    assert usage.read(reader) == [], "all of it, or nothing"
    keeper._connection.execute("PRAGMA max_page_count = 1000000")
    wait_until(lambda: len(usage.read(reader)) == 200)
    assert {used.requests for _, used in usage.read(reader)} == {1}
    reader.close()
    keeper.close()


def test_the_database_is_never_the_event_loops_business(path: Path) -> None:
    """A disk that takes seconds holds nobody up."""
    keeper = Bookkeeper(path)
    keeper.start(lambda keys: None)
    blocker = connect(path)
    blocker.execute("BEGIN IMMEDIATE")
    began_s = time.monotonic()
    for i in range(1000):
        keeper.count(Account("2026-11-30", KeyId(str(i % 7)), "m", "completed"), Usage(1))
    assert time.monotonic() - began_s < 4, "SQLite waits for five seconds"
    blocker.execute("COMMIT")
    keeper.close()
    assert sum(used.requests for _, used in usage.read(blocker)) == 1000
    blocker.close()


@contextmanager
def nobody() -> Iterator[None]:
    """Root may write anywhere: act as somebody who may not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_folder_that_cant_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with nobody(), pytest.raises(StateError, match=f"{tmp_path}.*Permission denied"):
        connect(tmp_path / "state" / "keys.sqlite")
