"""The offline API over the scripted backend, with the default model's real tokenizer and template."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from freehold import LLM
from freehold.backends.script import Scripts
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets, load_text


@pytest.fixture(scope="session")
def text(smollm2_path: Path) -> TextAssets:
    with open_model(smollm2_path) as files:
        return load_text(files)


@pytest.fixture
def scripts() -> Scripts:
    return Scripts()


@pytest.fixture
def engine(scripts: Scripts) -> Iterator[Engine]:
    config = EngineConfig(model_path=Path("/nowhere"), backend="scripted", max_num_seqs=4, max_model_len=500)
    engine = Engine.start(config, scripts=scripts)
    yield engine
    engine.shutdown()
    engine.ledger().check(0)


@pytest.fixture
def llm(engine: Engine, text: TextAssets) -> Iterator[LLM]:
    with LLM.over(engine, text) as llm:
        yield llm
