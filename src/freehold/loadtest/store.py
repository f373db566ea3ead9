"""A run's SQLite file: each request is written as it ends, so that whatever ends the run loses nothing of it.

A thread of its own writes, in transactions of whatever has gathered since the last one: the event loop never waits for
the disk.
"""

import dataclasses
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from freehold.errors import ConfigError, StateError
from freehold.loadtest.measurement import Measurement
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import RunFacts
from freehold.state_file import Layout, open_state, state_errors
from freehold.transactions import transaction

_LAYOUT = Layout(
    what="a load test",
    application_id=0x46524254,
    version=3,
    elsewhere="give another --result-filename",
    tables="""
CREATE TABLE run (options TEXT NOT NULL, facts TEXT, is_finished INTEGER NOT NULL DEFAULT 0);
CREATE TABLE measurement (
    point INTEGER, repeat INTEGER, body TEXT NOT NULL, PRIMARY KEY (point, repeat)
);
CREATE TABLE request (
    point INTEGER, repeat INTEGER, request_id TEXT, record TEXT NOT NULL
);
CREATE TABLE attempt (point INTEGER, repeat INTEGER);
CREATE INDEX request_of ON request (point, repeat)
""",
)

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
            ConfigError: the file holds a run that has begun and isn't finished, is missing, or is open elsewhere.
            StateError: it can't be used, or is something else.
        """
        self.path = path
        if options is not None and path.exists():
            _remove_finished(path)
        if options is None and not path.is_file():
            raise ConfigError(f"there is no run to resume at {path}")
        self._open = ExitStack()
        with ExitStack() as failing:
            failing.callback(self._open.close)
            self._connection = open_state(path, _LAYOUT)
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            # In this order: closing any descriptor of a file gives up the locks that SQLite holds on it.
            self._open.callback(os.close, descriptor)
            self._open.callback(self._connection.close)
            _lock(descriptor, path)
            self.options = self._begun(options)
            failing.pop_all()
        self._error: sqlite3.Error | None = None
        self._work: queue.SimpleQueue[Statement | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="freehold-bench-store", daemon=True)
        self._thread.start()

    def facts(self) -> RunFacts | None:
        """Those of a run that had begun.

        Raises:
            StateError: as from all that reads, the file can't be read or is damaged.
        """
        with self._reading() as connection:
            (text,) = connection.execute("SELECT facts FROM run").fetchone()
            return None if text is None else msgspec.json.decode(text, type=RunFacts)

    def is_finished(self) -> bool:
        """All points were measured when the file was opened."""
        with self._reading() as connection:
            return connection.execute("SELECT 1 FROM run WHERE is_finished").fetchone() is not None

    def measurement(self, point: int, repeat: int) -> Measurement | None:
        """A finished one, with its records; None if it isn't finished."""
        key = (point, repeat)
        with self._reading() as connection:
            row = connection.execute("SELECT body FROM measurement WHERE point = ? AND repeat = ?", key).fetchone()
            if row is None:
                return None
            found = _measurement_decoder.decode(row[0])
            rows = connection.execute("SELECT record FROM request WHERE point = ? AND repeat = ?", key)
            found.records = sorted((_record_decoder.decode(text) for (text,) in rows), key=lambda each: each.intended_s)
            return found

    def put_facts(self, facts: RunFacts) -> None:
        """Note what belongs to the run."""
        text = msgspec.json.encode(facts).decode()
        self._work.put(("UPDATE run SET facts = ?", (text,)))

    def num_attempts(self, point: int, repeat: int) -> int:
        """How often a measurement was begun when the file was opened, or before: the server may know its prompts."""
        key = (point, repeat)
        with self._reading() as connection:
            (num,) = connection.execute("SELECT count(*) FROM attempt WHERE point = ? AND repeat = ?", key).fetchone()
            return int(num)

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
            StateError: something couldn't be written, now or before. Nothing that came later was, so that the file
                has no gaps, and the run can be resumed from there.
        """
        self._work.put(None)
        self._thread.join()
        self._open.close()
        if self._error is not None:
            with state_errors(self.path, _LAYOUT):
                raise self._error

    def _begun(self, options: BenchOptions | None) -> BenchOptions:
        """Note the options of a new run, or read those of an old one.

        Raises:
            ConfigError: none has begun.
        """
        with self._reading() as connection:
            if options is not None:
                text = msgspec.json.encode(options).decode()
                connection.execute("INSERT INTO run (options) VALUES (?)", (text,))
                return options
            row = connection.execute("SELECT options FROM run").fetchone()
            if row is None:
                raise ConfigError(f"there is no run to resume in {self.path}: none has begun")
            return msgspec.json.decode(row[0], type=BenchOptions)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with state_errors(self.path, _LAYOUT):
                yield self._connection
        except msgspec.MsgspecError as error:
            raise StateError(f"the file of {_LAYOUT.what} {self.path} is damaged: {error}; remove it") from None

    def _write(self) -> None:
        """The thread: take what has gathered, write it, wait for more."""
        is_open = True
        while is_open:
            gathered = [self._work.get()]
            while not self._work.empty():
                gathered.append(self._work.get())
            is_open = gathered[-1] is not None
            if self._error is None:
                try:
                    with transaction(self._connection):
                        for statement in gathered:
                            if statement is not None:
                                self._connection.execute(*statement)
                except sqlite3.Error as error:
                    self._error = error


def _lock(descriptor: int, path: Path) -> None:
    """
    Raises:
        ConfigError: another process has the file open.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"another process has {path} open; wait for it, or give another name") from None


def _remove_finished(path: Path) -> None:
    """Make room for another run, where one is finished or has measured nothing.

    Raises:
        ConfigError: the file holds a run that isn't finished.
        StateError: it can't be used, or is something else.
    """
    with state_errors(path, _LAYOUT), closing(open_state(path, _LAYOUT)) as connection:
        (is_needed,) = connection.execute(
            "SELECT EXISTS (SELECT * FROM request) AND NOT EXISTS (SELECT * FROM run WHERE is_finished)"
        ).fetchone()
    if is_needed:
        raise ConfigError(f"{path} holds a run that isn't finished; go on with --resume {path}, or remove it")
    path.unlink()
