"""Engines under test: in a process of its own by default, and in a thread over scripts."""

from collections.abc import Iterator

import pytest
from engine_fixtures import scripted_config
from process_fixtures import start

from freehold.backends.script import Scripts
from freehold.engine.client import Engine
from freehold.engine.remote import ProcessEngine


@pytest.fixture
def engine() -> Iterator[ProcessEngine]:
    engine = start()
    yield engine
    engine.shutdown()
    engine.ledger().check(0)


@pytest.fixture
def scripts() -> Scripts:
    return Scripts()


@pytest.fixture
def scripted_engine(scripts: Scripts) -> Iterator[Engine]:
    """In a thread; leaves nothing behind."""
    with Engine.start(scripted_config(max_model_len=200), scripts=scripts) as engine:
        yield engine
    engine.ledger().check(0)
    assert len(engine._core._masks) == 0
    assert engine._core._scheduler.pool.num_held == 0
