"""The stub server in a process of its own, and runs of the load tester against it."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.loadtest.runs import Run, StubServer, bench
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit


@pytest.fixture(autouse=True)
def _what_was_there_before_is_no_garbage() -> None:
    """Each measurement collects garbage before it begins, and would look through a million objects: all tests and all
    that they import. That takes longer than most measurements."""
    gc.freeze()


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


@pytest.fixture(scope="session")
def word_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer whose tokens are words."""
    tokenizer = Tokenizer(WordLevel({"word": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path
