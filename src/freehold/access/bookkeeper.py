"""The thread that reads keys from the database and writes usage into it, so that no request ever waits for a disk."""

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from freehold.access import key_table, usage
from freehold.access.database import connect, state_errors
from freehold.access.keys import Key, KeyId
from freehold.access.usage import Account, Usage
from freehold.errors import StateError

POLL_S = 0.5
"""So soon a server sees keys that were created or revoked, and so much usage a kill can lose."""

_log = logging.getLogger(__name__)


class Bookkeeper:
    """Keys and usage on disk. What can't be written is kept and tried again; what can't be read stays as it was."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            StateError: see `connect`.
        """
        self._path = path
        self._connection = connect(path)
        with state_errors(path):
            self._version = self._data_version()
            self.keys = key_table.read_all(self._connection)
        self._counted: dict[Account, Usage] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closing = False
        self._has_failed = False
        self._on_keys: Callable[[tuple[Key, ...]], None] = lambda _keys: None
        self._thread = threading.Thread(target=self._run, name="bookkeeper", daemon=True)

    def spent(self, since: str) -> dict[KeyId, dict[str, int]]:
        """Tokens of each key by day, from a day on. Before `start`.

        Raises:
            StateError: the file can't be read.
        """
        with state_errors(self._path):
            return usage.spent_by_day(usage.read(self._connection, since))

    def start(self, on_keys: Callable[[tuple[Key, ...]], None]) -> None:
        """Begin to write and to look for changes.

        Args:
            on_keys: gets all keys after a change, in the bookkeeper's thread.
        """
        self._on_keys = on_keys
        self._thread.start()

    def count(self, account: Account, used: Usage) -> None:
        """Add to an account; written soon."""
        with self._lock:
            self._counted.setdefault(account, Usage()).add(used)

    def reload(self) -> None:
        """Read the keys now, changed or not."""
        self._version = None
        self._wake.set()

    def close(self) -> None:
        """Write what was counted, and end."""
        self._is_closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.wait(POLL_S)
            self._wake.clear()
            self._work()
        self._work()

    def _work(self) -> None:
        try:
            with state_errors(self._path):
                self._write()
                self._read()
        except StateError as error:
            if not self._has_failed:
                _log.error("%s; keys stay as they are and usage is kept in memory meanwhile", error)
            self._has_failed = True
        else:
            if self._has_failed:
                _log.warning("the file of keys and usage can be used again; nothing was lost")
            self._has_failed = False

    def _write(self) -> None:
        with self._lock:
            counted, self._counted = self._counted, {}
        if not counted:
            return
        try:
            usage.write(self._connection, counted)
        except sqlite3.Error:
            for account, used in counted.items():
                self.count(account, used)
            raise

    def _read(self) -> None:
        version = self._data_version()
        if version == self._version:
            return
        keys = key_table.read_all(self._connection)
        self._version = version
        self._on_keys(keys)

    def _data_version(self) -> int | None:
        """Changes when another connection has written."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)
