"""A run's SQLite file: each request is written as it ends, so that whatever ends the run loses nothing of it.

A thread of its own writes, in transactions of whatever has gathered since the last one: the event loop never waits for
the disk.
"""

import dataclasses
import fcntl
import queue
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import msgspec

from freehold.errors import ConfigError
from freehold.loadtest.measurement import Measurement
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import RunFacts
from freehold.transactions import transaction

FORMAT = 2

_TABLES = """
CREATE TABLE run (options TEXT NOT NULL, facts TEXT, is_finished INTEGER NOT NULL DEFAULT 0);
CREATE TABLE measurement (
    point INTEGER, repeat INTEGER, body TEXT NOT NULL, PRIMARY KEY (point, repeat)
);
CREATE TABLE request (
    point INTEGER, repeat INTEGER, request_id TEXT, record TEXT NOT NULL
);
CREATE TABLE attempt (point INTEGER, repeat INTEGER);
CREATE INDEX request_of ON request (point, repeat);
"""

_record_decoder = msgspec.json.Decoder(RequestRecord)
_measurement_decoder = msgspec.json.Decoder(Measurement)

Statement = tuple[str, tuple[str | int, ...]]


class RunStore:
    """The file of one run. One process may have it open at a time."""

    def __init__(self, path: Path, options: BenchOptions | None) -> None:
        """
        Args:
            options: of a new run; None opens one to resume it.

        Raises:
            ConfigError: the file holds a run that has begun and isn't finished, is missing, or holds no run.
        """
        self.path = path
        if options is not None and path.exists():
            _remove_finished(path)
        if options is None and not path.is_file():
            raise ConfigError(f"there is no run to resume at {path}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = path.open("ab")
        except OSError as error:
            raise ConfigError(f"can't open {path} as the file of a run: {error.strerror}") from None
        try:
            self._open(options)
        except BaseException:
            self._lock.close()
            raise
        self.error: sqlite3.Error | None = None
        self._work: queue.SimpleQueue[Statement | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="freehold-bench-store", daemon=True)
        self._thread.start()

    def facts(self) -> RunFacts | None:
        """Those of a run that had begun."""
        (text,) = self._connection.execute("SELECT facts FROM run").fetchone()
        return None if text is None else msgspec.json.decode(text, type=RunFacts)

    def measurement(self, point: int, repeat: int) -> Measurement | None:
        """A finished one, with its records; None if it isn't finished."""
        key = (point, repeat)
        row = self._connection.execute("SELECT body FROM measurement WHERE point = ? AND repeat = ?", key).fetchone()
        if row is None:
            return None
        found = _measurement_decoder.decode(row[0])
        rows = self._connection.execute("SELECT record FROM request WHERE point = ? AND repeat = ?", key)
        found.records = sorted((_record_decoder.decode(text) for (text,) in rows), key=lambda each: each.intended_s)
        return found

    def put_facts(self, facts: RunFacts) -> None:
        """Note what belongs to the run."""
        text = msgspec.json.encode(facts).decode()
        self._work.put(("UPDATE run SET facts = ?", (text,)))

    def num_attempts(self, point: int, repeat: int) -> int:
        """How often a measurement was begun when the file was opened, or before: the server may know its prompts."""
        key = (point, repeat)
        row = self._connection.execute("SELECT count(*) FROM attempt WHERE point = ? AND repeat = ?", key).fetchone()
        return int(row[0])

    def begin(self, point: int, repeat: int) -> None:
        """Note another attempt, and forget what an interrupted one left."""
        self._work.put(("INSERT INTO attempt VALUES (?, ?)", (point, repeat)))
        self._work.put(("DELETE FROM request WHERE point = ? AND repeat = ?", (point, repeat)))

    def put(self, point: int, repeat: int, record: RequestRecord) -> None:
        """Note a request that ended."""
        text = msgspec.json.encode(record).decode()
        self._work.put(("INSERT INTO request VALUES (?, ?, ?, ?)", (point, repeat, record.request_id, text)))

    def finish(self, point: int, repeat: int, measurement: Measurement) -> None:
        """Note that a measurement is complete."""
        bare = dataclasses.replace(measurement, records=[])  # they are there already
        text = msgspec.json.encode(bare).decode()
        self._work.put(("INSERT INTO measurement VALUES (?, ?, ?)", (point, repeat, text)))

    def finish_run(self) -> None:
        """Note that all points are measured: another run may take the file's place."""
        self._work.put(("UPDATE run SET is_finished = 1", ()))

    def close(self) -> None:
        """Write what is left, and let go of the file.

        Raises:
            ConfigError: something couldn't be written, now or before.
        """
        self._work.put(None)
        self._thread.join()
        self._connection.close()
        self._lock.close()
        if self.error is not None:
            raise ConfigError(f"can't write {self.path}: {self.error}")

    def _open(self, options: BenchOptions | None) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")  # others may read while it is written
            self._connection.execute("PRAGMA synchronous=NORMAL")
            if options is not None:
                self._create(options)
            self.options = self._read_options()
        except BlockingIOError:
            raise ConfigError(f"another process has {self.path} open; wait for it, or give another name") from None
        except sqlite3.Error as error:
            self._connection.close()
            raise ConfigError(f"can't use {self.path} as the file of a run: {error}") from None

    def _create(self, options: BenchOptions) -> None:
        with transaction(self._connection):
            for statement in _TABLES.split(";"):
                self._connection.execute(statement)
            self._connection.execute("INSERT INTO run (options) VALUES (?)", (msgspec.json.encode(options).decode(),))
            self._connection.execute(f"PRAGMA user_version={FORMAT}")

    def _read_options(self) -> BenchOptions:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            raise ConfigError(f"{self.path} is no run of `freehold bench`, or of another version (format {version})")
        (text,) = self._connection.execute("SELECT options FROM run").fetchone()
        return msgspec.json.decode(text, type=BenchOptions)

    def _write(self) -> None:
        """The thread: take what has gathered, write it, wait for more."""
        is_open = True
        while is_open:
            gathered = [self._work.get()]
            while not self._work.empty():
                gathered.append(self._work.get())
            if gathered[-1] is None:
                is_open = False
            try:
                with transaction(self._connection):
                    for statement in gathered:
                        if statement is not None:
                            self._connection.execute(*statement)
            except sqlite3.Error as error:
                self.error = error


def _remove_finished(path: Path) -> None:
    """Make room for another run, where one is finished or has measured nothing.

    Raises:
        ConfigError: the file is no finished run.
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            (is_finished,) = connection.execute(
                "SELECT is_finished OR NOT EXISTS (SELECT * FROM request) FROM run"
            ).fetchone()
    except sqlite3.Error as error:
        raise ConfigError(f"{path} is in the way and is no run of `freehold bench` ({error}); move it") from None
    if not is_finished:
        raise ConfigError(f"{path} holds a run that isn't finished; go on with --resume {path}, or remove it")
    path.unlink()
