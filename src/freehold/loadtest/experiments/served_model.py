"""A server in a process of its own, and load tests of it."""

import asyncio
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from freehold import resolve
from freehold.errors import ResourceError
from freehold.loadtest.bench import Surroundings, run_bench
from freehold.loadtest.experiments.base import Setting
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, PointResult, RunResult
from freehold.loadtest.run import InterruptedRunError
from freehold.loadtest.store import RunStore

_START_S = 120.0
_END_S = 30.0


class ServedModel(AbstractContextManager["ServedModel"]):
    """``freehold serve`` as a user would start it.

    Attributes:
        url: of the server.
    """

    def __init__(self, setting: Setting, *flags: str) -> None:
        """
        Args:
            flags: of ``freehold serve``, beside the model and the address.

        Raises:
            ResourceError: the server doesn't start.
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        threads = ["--threads", str(setting.threads)] if setting.threads else []
        command = [sys.executable, "-m", "freehold", "serve", setting.model, "--port", str(port), *threads, *flags]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in _end
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL)
        try:
            self._wait()
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _wait(self) -> None:
        """Until it can answer."""
        until_s = time.monotonic() + _START_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                raise ResourceError(f"the server ended at its start: {self._said()}")
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=5.0):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        raise ResourceError(f"the server didn't start within {_START_S:.0f} s: {self._said()}")

    def _said(self) -> str:
        """The end of its output."""
        self._log.seek(0)
        return self._log.read()[-500:].decode(errors="replace").strip()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def load_test(options: BenchOptions, setting: Setting) -> RunResult:
    """Measure a server with `freehold bench`'s own means.

    Raises:
        KeyboardInterrupt: interrupted, even if some requests had ended: an experiment is whole or nothing.
        ResourceError: no server answers as it should.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "run.sqlite", options)
        surroundings = Surroundings(Path(folder), resolve.client_key())
        try:
            result = asyncio.run(run_bench(options, store, surroundings, _Told(setting)))
        except InterruptedRunError as error:
            raise KeyboardInterrupt from error
        finally:
            store.close()
    if not all(point.is_complete for point in result.points):
        raise KeyboardInterrupt
    return result


class _Told:
    """Tells of each point."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def begin(self, load: Load, repeat: int, num_requests: int) -> None:  # noqa: ARG002
        """As `Watcher.begin`."""
        self._setting.tell(f"{load.label}: {num_requests} requests")

    def record(self, record: RequestRecord) -> None:
        """As `Watcher.record`."""

    def point(self, result: PointResult) -> None:
        """As `Watcher.point`."""
