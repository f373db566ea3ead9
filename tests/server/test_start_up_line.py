"""What the server says of its memory when it starts, and which settings decide it."""

import logging
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freehold import resolve
from freehold.arch import read_model
from freehold.arch.sizes import kv_block_bytes
from freehold.config import ServeConfig
from freehold.engine.start import ModelSizes, decide_memory
from freehold.files.model import open_model
from freehold.machine import Machine
from freehold.protocol import EngineInfo
from freehold.serve.server import _announcement
from freehold.setting_kinds import parse_size

MACHINE = Machine(
    num_cores=4,
    cores_from="this test",
    memory_bytes=2 << 30,
    memory_from="this test",
    available_bytes=2 << 30,
    processor="of this test",
    isa_levels=(),
)


def announced(info: EngineInfo) -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        service: Any = SimpleNamespace(info=info, config=ServeConfig(served_model_name="mine"))
        return _announcement(service, listener)


def info(**changes: Any) -> EngineInfo:
    fields: dict[str, Any] = {
        "model_family": "llama", "vocab_size": 100, "max_model_len": 8192, "max_position": 8192, "max_num_seqs": 64,
        "block_size": 32, "num_blocks": 700, "kv_tokens": 22400, "weight_bytes": 80 << 20, "kv_bytes": 500 << 20,
        "scratch_bytes": 3 << 20, "backend": "cpu", "fingerprint": "fh-0", "load_s": 0.5,
    }  # fmt: skip
    return EngineInfo(**{**fields, **changes})


def test_the_line_has_every_part_of_the_memory_and_what_fits_in_it() -> None:
    line = announced(info())
    assert "weights 80 MiB, KV cache 22400 tokens (500 MiB), scratch 3 MiB; " in line
    assert "; 2 full-length requests of 8192 tokens fit" in line


@pytest.mark.parametrize(
    ("max_model_len", "fit"),
    [(22400, "1 full-length request of"), (11201, "1 full-length request of"), (11200, "2 full-length requests of")],
)
def test_what_fits_is_counted_in_whole_requests(max_model_len: int, fit: str) -> None:
    assert fit in announced(info(max_model_len=max_model_len))


@pytest.mark.parametrize("flags", [{"kv_cache_memory_bytes": "64M"}, {"memory_utilization": 0.17}, {}])
def test_two_settings_decide_what_fits(smollm2_path: Path, flags: dict[str, Any]) -> None:
    """The KV cache is what was asked for, or what the share of the machine's memory leaves, up to the default."""
    config = resolve.serve_config({"model": str(smollm2_path), **flags}, machine=MACHINE).engine
    with open_model(config.model_path) as files:
        spec, _ = read_model(files)
    block_bytes = kv_block_bytes(spec, config.block_size, config.kv_cache_dtype)
    memory = decide_memory(config, ModelSizes(spec.max_position, block_bytes, 0))
    if "memory_utilization" in flags:
        budget = int(flags["memory_utilization"] * MACHINE.memory_bytes)
        room = budget - resolve.OVERHEAD_BYTES - smollm2_path.stat().st_size
        assert 0 < room < resolve.DEFAULT_KV_BYTES
        assert memory.num_blocks == room // block_bytes
    else:
        asked = parse_size(flags.get("kv_cache_memory_bytes", str(resolve.DEFAULT_KV_BYTES)))
        assert memory.num_blocks == asked // block_bytes


def test_the_real_line_agrees_with_the_engine(smollm2_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Weights, cache and scratch of the real model: nothing is left out and nothing is zero."""
    from freehold.engine.client import Engine

    caplog.set_level(logging.WARNING)
    config = resolve.engine_config(model=str(smollm2_path), kv_cache_memory_bytes="64M", machine=MACHINE, threads=1)
    with Engine.start(config) as engine:
        line = announced(engine.info)
        sizes = (engine.info.weight_bytes, engine.info.kv_bytes, engine.info.scratch_bytes)
    assert all(size > 1 << 20 for size in sizes)
    assert sizes[1] <= 64 << 20
    numbers = re.search(r"weights ([\d.]+) MiB, KV cache (\d+) tokens \(([\d.]+) MiB\), scratch ([\d.]+) MiB", line)
    shown = [float(numbers[i]) for i in (1, 3, 4)]
    assert shown == [pytest.approx(size / (1 << 20), abs=0.06) for size in sizes]
