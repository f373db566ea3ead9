"""The real application on a real socket, over the scripted backend and SmolLM2's vocabulary."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.families import QWEN, family
from tests.server.running import Server, Start

from freehold.config import EngineConfig
from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets, load_text


@pytest.fixture(scope="session")
def text(smollm2_path: Path) -> Iterator[TextAssets]:
    with open_model(smollm2_path) as files:
        assets = load_text(files)
    assert assets.template is not None
    yield assets
    assets.template.close()


@contextmanager
def starting(text: TextAssets) -> Iterator[Start]:
    servers: list[Server] = []

    def start(assets: TextAssets = text, *, engine: dict[str, Any] | None = None, **settings: Any) -> Server:
        config = EngineConfig(model_path=Path("scripted"), backend="scripted", **(engine or {}))
        servers.append(Server(assets, config, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def qwen(text: TextAssets) -> Iterator[Server]:
    """A model that thinks and calls tools."""
    with starting(text) as start:
        yield start(family(text, QWEN, added=("<think>", "</think>")))


@pytest.fixture
def start(text: TextAssets) -> Iterator[Start]:
    """Start servers with settings of their own."""
    with starting(text) as starter:
        yield starter


@pytest.fixture(scope="session")
def shared_server(text: TextAssets) -> Iterator[Server]:
    with starting(text) as starter:
        yield starter()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """One server for all tests that need nothing special; it says "ok" until told otherwise."""
    shared_server.says("ok")
    return shared_server
