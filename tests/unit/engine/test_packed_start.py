"""Starts with kept packed weights: same answers, other files are noticed, settings are followed."""

import shutil
from pathlib import Path

import pytest

from freehold.config import EngineConfig
from freehold.engine import start
from freehold.files import digests
from freehold.files.packed_cache import list_packed
from freehold.files.tensors import DType
from freehold.synth import SynthConfig, write_checkpoint

MODEL = SynthConfig(
    family="llama", hidden_size=128, intermediate_size=256, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32,
    vocab_size=512,
)  # fmt: skip


@pytest.fixture(params=["gguf", "hf"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / ("m.gguf" if request.param == "gguf" else "m")
    write(path, 0)
    return path


def write(path: Path, seed: int) -> None:
    form = "gguf" if path.suffix else "hf"
    write_checkpoint(MODEL, path, format=form, dtype=DType.Q4_0 if path.suffix else DType.BF16, seed=seed)


def started(model: Path, **settings) -> str:
    """Start and close an engine whose packed weights are kept beside the model; the engine's fingerprint."""
    home = model.parent / "home"
    options = {"packed_dir": home / "packed", "packed_cache": "always", **settings}
    config = EngineConfig(model_path=model, cache_dir=home / "hashes", kv_cache_bytes=4 << 20, **options)
    loaded = start.load(config, publish=print, on_profile=print, on_step=print)
    packed = loaded.core._runner._backend._options.packed
    if packed is not None:
        packed.wait()
    loaded.core._runner._backend.close()
    return loaded.info.fingerprint


def test_the_second_start_reads(model: Path, monkeypatch, caplog) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(digests, "_SETTLE_NS", 0)  # hashes of files as young as these aren't remembered otherwise
    first = started(model)
    assert "keep" in caplog.text
    caplog.clear()
    assert started(model) == first
    assert "bytes of packed weights from" in caplog.text
    caplog.clear()
    model.unlink() if model.suffix else shutil.rmtree(model)
    write(model, 1)
    assert started(model) != first
    assert "bytes of packed weights from" not in caplog.text
    assert "keep" in caplog.text


@pytest.mark.parametrize("settings", [{"packed_dir": None}, {"packed_cache": "auto"}, {"packed_cache_bytes": 1000}])
def test_nothing_is_kept_unless_wanted(model: Path, settings) -> None:
    started(model, **settings)
    assert list_packed(model.parent / "home" / "packed") == []
