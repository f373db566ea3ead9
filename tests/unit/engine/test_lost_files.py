"""A model file that shrinks while it is being loaded: one sentence that names it, wherever it is noticed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_fixtures import scripted_config, wait_until
from scripted_child import PROGRAM

from freehold.engine.remote import ProcessEngine
from freehold.errors import ModelFileError
from freehold.files.tensors import DType
from freehold.synth import SynthConfig, write_checkpoint

MODEL = SynthConfig(
    family="llama", hidden_size=256, intermediate_size=512, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=64,
    vocab_size=4096,
)  # fmt: skip

# In a process of its own: were the file read through its mapping, the system would end that process.
LOADER = """
import os, sys, threading
from pathlib import Path
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.errors import ModelFileError
from freehold.faults import Fault, Point, Wait, armed

model, weights, backend, point = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]

class Truncating(threading.Event):
    def wait(self, timeout=None):
        os.truncate(weights, weights.stat().st_size // 2 // 4096 * 4096)
        return True

with armed(Fault(Point[point], Wait(until=Truncating()))):
    try:
        Engine.start(EngineConfig(model_path=model, backend=backend, kv_cache_bytes=4 << 20, max_model_len=256))
    except ModelFileError as error:
        print(error)
"""


@pytest.mark.parametrize("point", ["LOAD_WEIGHTS", "LOAD_CHECK"])
@pytest.mark.parametrize(("form", "backend"), [("gguf", "cpu"), ("hf", "cpu"), ("gguf", "reference")])
def test_it_is_truncated_while_it_is_read(form: str, backend: str, point: str, tmp_path: Path) -> None:
    path = tmp_path / ("m.gguf" if form == "gguf" else "m")
    write_checkpoint(MODEL, path, format="gguf" if form == "gguf" else "hf", dtype=DType.F16)
    weights = path if form == "gguf" else next(path.glob("*.safetensors"))
    size = weights.stat().st_size
    command = [sys.executable, "-c", LOADER, str(path), str(weights), backend, point]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended
    assert f"{weights} was truncated from {size} to {weights.stat().st_size} bytes" in ended.stdout


PARSER = """
import os, sys
from pathlib import Path
from freehold.errors import ModelFileError
from freehold.files.gguf import read_gguf
from freehold.files.mapped import MappedFile
from freehold.files.safetensors import read_safetensors

file = MappedFile(Path(sys.argv[1]))
os.truncate(sys.argv[1], 4)
try:
    (read_gguf if sys.argv[1].endswith("gguf") else read_safetensors)(file)
except ModelFileError as error:
    print(error)
"""


@pytest.mark.parametrize("form", ["gguf", "hf"])
def test_it_is_truncated_before_its_first_bytes_are_read(form: str, tmp_path: Path) -> None:
    path = tmp_path / ("m.gguf" if form == "gguf" else "m")
    write_checkpoint(MODEL, path, format="gguf" if form == "gguf" else "hf", dtype=DType.F16)
    weights = path if form == "gguf" else next(path.glob("*.safetensors"))
    ended = subprocess.run([sys.executable, "-c", PARSER, str(weights)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended
    assert "to 4 bytes while in use" in ended.stdout


def test_what_the_system_ends_for_it_before_it_is_loaded(tmp_path: Path) -> None:
    """Nothing of a model is loaded through a mapping; were it so again, or a library exchanged, it would be said."""
    with pytest.raises(ModelFileError, match="the model file was changed or truncated while it was read; restore"):
        ProcessEngine.start(scripted_config(), program=[sys.executable, "-c", "import os; os.kill(os.getpid(), 7)"])
    assert signal.SIGBUS == 7


def test_what_the_system_ends_for_it_later() -> None:
    with ProcessEngine.start(scripted_config(), program=PROGRAM) as engine:
        first = engine.pid
        assert first is not None
        os.kill(first, signal.SIGBUS)
        wait_until(lambda: engine.pid not in {None, first})
        assert engine.health().ok
