"""The fixture of the tests of the engine's process."""

from collections.abc import Iterator

import pytest
from process_fixtures import start

from freehold.engine.remote import ProcessEngine


@pytest.fixture
def engine() -> Iterator[ProcessEngine]:
    engine = start()
    yield engine
    engine.shutdown()
    engine.ledger().check(0)
