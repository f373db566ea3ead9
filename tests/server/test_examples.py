"""The examples run against the real model, each as a program of its own. Their packages are the extra ``examples``."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import starting
from tests.server.running import Server

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.files.vocabulary import TextAssets

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def real(text: TextAssets, smollm2_path: Path) -> Iterator[Server]:
    with starting(text) as start:
        yield start(handle=Engine.start(EngineConfig(model_path=smollm2_path)))


def run(*command: str) -> str:
    """What a program prints, if it goes well."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_langchain(real: Server) -> None:
    pytest.importorskip("langchain_openai")
    said = run("examples/langchain_tools.py", "--url", f"{real.url}/v1", "--model", "test")
    called = re.search(r"calls weather with (\{.*\})", said)
    assert called is not None, said
    assert "'days': 3" in called[1]
    assert re.search(r"answers '.+'", said)
    assert "summary Summary(city=" in said


def test_pydantic_ai(real: Server) -> None:
    pytest.importorskip("pydantic_ai")
    said = run("examples/pydantic_ai_agent.py", "--url", f"{real.url}/v1", "--model", "test")
    assert "city City(name=" in said
    assert "requests=1" in said, "the first answer was valid"


def test_lm_eval_scores_a_task(real: Server) -> None:
    pytest.importorskip("lm_eval")
    said = run(
        "-m", "lm_eval", "run", "--model", "local-completions",
        "--model_args", f"model=test,base_url={real.url}/v1/completions",
        "--include_path", "examples/lm_eval", "--tasks", "capitals",
    )  # fmt: skip
    accuracy = re.search(r"\|acc +\|↑ +\|([0-9.  ]+)\|", said)
    assert accuracy is not None, said
    assert float(accuracy[1]) >= 0.5
