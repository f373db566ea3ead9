"""Who is let in: the keys that are valid now, and the meter of each."""

from collections.abc import Sequence
from pathlib import Path

from freehold.access.bookkeeper import Bookkeeper
from freehold.access.clocks import Clocks
from freehold.access.keys import ANYONE, EVERYTHING, Key, KeyId, digest, given_key, id_in, matches
from freehold.access.meter import Meter
from freehold.access.usage import Account, Usage


class Gatekeeper:
    """Knows the keys, and what they used. While none exists, anyone may enter.

    It closes with the first key and never opens again, whatever happens to the file: revoking the last key locks
    everybody out.
    """

    def __init__(self, given: Sequence[str] = (), database: Path | None = None, clocks: Clocks | None = None) -> None:
        """
        Args:
            given: secrets of keys that the operator brought along.
            database: keys and usage; None: only the given keys, and usage is not kept.

        Raises:
            StateError: the database can't be used.
        """
        self._clocks = clocks or Clocks()
        self._given = [given_key(position, secret) for position, secret in enumerate(given, 1)]
        self._nobody = Meter(Key(key_id=ANYONE, name="", digest=b"", scope=EVERYTHING), {}, self._clocks)
        self._bookkeeper = None if database is None else Bookkeeper(database)
        stored: tuple[Key, ...] = ()
        self._spent: dict[KeyId, dict[str, int]] = {}
        if self._bookkeeper is not None:
            stored = self._bookkeeper.keys
            self._spent = self._bookkeeper.spent(since=self._clocks.today()[:7])
        self._meters: dict[KeyId, Meter] = {}
        self._keys: dict[KeyId, Key] = {}
        self._is_open = True
        self._set_keys(stored)

    def start(self) -> None:
        """Begin to look for changes of keys, and to write usage."""
        if self._bookkeeper is not None:
            self._bookkeeper.start(self._set_keys)

    def reload(self) -> None:
        """Read the keys anew."""
        if self._bookkeeper is not None:
            self._bookkeeper.reload()

    def close(self) -> None:
        """Write the usage that isn't written yet."""
        if self._bookkeeper is not None:
            self._bookkeeper.close()

    @property
    def anyone(self) -> Meter | None:
        """The meter of those who need no key; None if a key is needed."""
        return self._nobody if self._is_open else None

    def recognize(self, secret: str) -> Meter | None:
        """The meter of the key that a secret belongs to; None if there is none, or it isn't valid any more."""
        presented = digest(secret)
        key = self._keys.get(KeyId(id_in(secret)))
        if key is None or not matches(key, presented):
            key = None
            for given in self._given:  # all of them, whichever it is
                if matches(given, presented):
                    key = given
        return None if key is None else self.meter(key.key_id)

    def meter(self, key_id: KeyId) -> Meter | None:
        """The meter of a key; None if there is no such key, or it isn't valid any more."""
        if key_id == ANYONE:
            return self.anyone
        key = self._keys.get(key_id)
        if key is None or key.state(self._clocks.wall_s()) != "active":
            return None
        if key_id not in self._meters:
            self._meters[key_id] = Meter(key, self._spent.get(key_id, {}), self._clocks)
        meter = self._meters[key_id]
        meter.key = key  # which may have been changed
        return meter

    def name_of(self, key_id: str) -> str:
        """The name that a key was given, or its id if it is gone; empty for no key."""
        key = self._keys.get(KeyId(key_id))
        return key_id if key is None else key.name

    def count(self, account: Account, used: Usage) -> None:
        """Add to the ledger."""
        if self._bookkeeper is not None:
            self._bookkeeper.count(account, used)

    def _set_keys(self, stored: Sequence[Key]) -> None:
        """Called in the bookkeeper's thread too: readers see the old keys or the new ones."""
        self._keys = {key.key_id: key for key in (*stored, *self._given)}
        if self._keys:
            self._is_open = False
