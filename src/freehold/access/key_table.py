"""Keys in the database: create, list, revoke."""

import sqlite3

import msgspec

from freehold.access.keys import Key, KeyId, KeyLimits, Scope, digest, new_id, new_secret
from freehold.config import RecordMode
from freehold.errors import ConfigError
from freehold.transactions import transaction

MAX_KEYS = 10_000
"""Keys that may be in use at once: each can be a label in the metrics."""


def create(
    connection: sqlite3.Connection,
    name: str,
    scope: Scope,
    limits: KeyLimits,
    *,
    now_s: float,
    expires_s: float | None,
    record: RecordMode | None = None,
) -> tuple[Key, str]:
    """Add a key. Its secret is returned and kept nowhere.

    Raises:
        ConfigError: a key that isn't revoked has the name, or there are too many.
    """
    key_id = new_id()
    secret = new_secret(key_id)
    key = Key(
        key_id=key_id,
        name=name,
        digest=digest(secret),
        scope=scope,
        limits=limits,
        created_s=now_s,
        expires_s=expires_s,
        record=record,
    )
    with transaction(connection):
        in_use = [other for other in read_all(connection) if other.revoked_s is None]
        if any(other.name == name for other in in_use):
            raise ConfigError(f"there is a key named {name!r} already; revoke it or choose another name")
        if len(in_use) >= MAX_KEYS:
            raise ConfigError(f"there are {len(in_use)} keys; revoke some that nobody uses")
        connection.execute(
            "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)",
            (
                key.key_id, key.name, key.digest, msgspec.json.encode(key.scope), msgspec.json.encode(key.limits),
                key.created_s, key.expires_s, key.record,
            ),
        )  # fmt: skip
    return key, secret


def discard(connection: sqlite3.Connection, key_id: KeyId) -> None:
    """Remove a key that nobody has, as if it had never been made."""
    with transaction(connection):
        connection.execute("DELETE FROM keys WHERE key_id = ?", (key_id,))


def revoke(connection: sqlite3.Connection, id_or_name: str, *, now_s: float) -> Key:
    """End a key for good. Its row stays, for the usage that it had.

    Raises:
        ConfigError: no key that isn't revoked has that id or name.
    """
    with transaction(connection):
        key = _in_use(connection, id_or_name)
        connection.execute("UPDATE keys SET revoked_s = ? WHERE key_id = ?", (now_s, key.key_id))
    return key


def set_record(connection: sqlite3.Connection, id_or_name: str, record: RecordMode | None) -> Key:
    """Say what the flight recorder keeps of a key's requests; None: as the server was told.

    Raises:
        ConfigError: no key that isn't revoked has that id or name.
    """
    with transaction(connection):
        key = _in_use(connection, id_or_name)
        connection.execute("UPDATE keys SET record = ? WHERE key_id = ?", (record, key.key_id))
    return key


def read_all(connection: sqlite3.Connection) -> tuple[Key, ...]:
    """Every key that ever was, the oldest first."""
    rows = connection.execute(
        "SELECT key_id, name, digest, scope, limits, created_s, expires_s, revoked_s, record FROM keys "
        "ORDER BY created_s, key_id"
    )
    return tuple(
        Key(
            key_id=KeyId(key_id),
            name=name,
            digest=key_digest,
            scope=msgspec.json.decode(scope, type=Scope),
            limits=msgspec.json.decode(limits, type=KeyLimits),
            created_s=created_s,
            expires_s=expires_s,
            revoked_s=revoked_s,
            record=record,
        )
        for key_id, name, key_digest, scope, limits, created_s, expires_s, revoked_s, record in rows
    )


def _in_use(connection: sqlite3.Connection, id_or_name: str) -> Key:
    """The key with an id or name.

    Raises:
        ConfigError: no key that isn't revoked has it.
    """
    in_use = [key for key in read_all(connection) if key.revoked_s is None]
    found = [key for key in in_use if key.key_id == id_or_name] or [key for key in in_use if key.name == id_or_name]
    if not found:
        raise ConfigError(f"there is no key {id_or_name!r} in use; `freehold keys list` shows what there is")
    return found[0]
