"""The stub server in a process of its own, and runs of the load tester against it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.loadtest.runs import Run, StubServer, bench


@pytest.fixture(scope="session")
def stub() -> Iterator[StubServer]:
    with StubServer() as server:
        yield server


@pytest.fixture
def against(stub: StubServer, tmp_path: Path) -> Callable[..., Run]:
    """Measures the stub and gives the result beside the truth."""

    def run(behaviour: Any = None, **options: Any) -> Run:
        return bench(stub, tmp_path, behaviour, **options)

    return run
