"""Backends under test, and tiny models on disk."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kinds import Kind
from tiny_models import make_model, truth, write_gguf

from freehold.arch import read_model
from freehold.backends import open_backend
from freehold.backends.base import Backend, BackendOptions
from freehold.errors import ConfigError
from freehold.files.model import open_model


@dataclass(frozen=True)
class OnDisk:
    """A model on disk and the transformers model that is its truth."""

    path: Path
    truth: Callable[[list[int]], np.ndarray]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], OnDisk]:
    """From a name in `TINY_MODELS` and ``hf`` or a GGUF storage type to the model on disk; each is made once."""
    made: dict[tuple[str, str], OnDisk] = {}

    def make(name: str, form: str) -> OnDisk:
        if (name, form) not in made:
            model = make_model(name)
            path = tmp_path_factory.mktemp(f"{name}-{form}")
            if form == "hf":
                model.save_pretrained(path)
            else:
                path = path / "model.gguf"
                write_gguf(model, name, form, path)
            known = functools.cache(lambda ids: truth(model, list(ids)))
            made[name, form] = OnDisk(path, lambda ids: known(tuple(ids)))
        return made[name, form]

    return make


Open = Callable[..., Backend]


@pytest.fixture
def open_kind() -> Iterator[Open]:
    """Opens a model on a backend of some kind; closes them all at the end. Skips what the processor can't run."""
    opened: list[Backend] = []

    def open_one(path: Path, kind: Kind, **sizes: int) -> Backend:
        wanted = {"num_blocks": 96, "block_size": 16, "max_rows": 16, "max_tokens": 512} | sizes
        options = BackendOptions(**wanted, kv_dtype=kind.kv_dtype, activations=kind.activations, isa=kind.isa)
        with open_model(path) as files:
            try:
                backend = open_backend(kind.backend, *read_model(files), options)
            except ConfigError as error:
                if kind.isa is not None and kind.isa in str(error):
                    pytest.skip(str(error))
                raise
        opened.append(backend)
        return backend

    yield open_one
    for backend in opened:
        backend.close()
