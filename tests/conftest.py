"""What several parts' tests share: the real model, free ports, and that no process outlives its test."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import processes

from freehold import resolve
from freehold.errors import ModelNotFoundError
from freehold.files import store

# A shell starts background jobs with Ctrl-C ignored, and children inherit that; tests that send it need the usual way.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _processes_end_with_their_test() -> Iterator[None]:
    with processes.ending():
        yield


@pytest.fixture(scope="session", autouse=True)
def _processes_end_with_the_run() -> Iterator[None]:
    with processes.ending():
        yield


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model's GGUF, fetched once into the model store if it isn't there."""
    home = resolve.home_directory()
    try:
        return store.locate("smollm2", home)
    except ModelNotFoundError:
        return store.pull("smollm2", home, lambda _progress: None)


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback interface that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
