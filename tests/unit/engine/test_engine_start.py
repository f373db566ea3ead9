"""Memory is decided before anything is loaded, and what doesn't fit is refused with the setting that would help."""

import re
from dataclasses import replace
from typing import Any

import pytest
from engine_fixtures import scripted_config

from freehold.backends.base import NumericFormat
from freehold.engine import start
from freehold.engine.client import Engine
from freehold.engine.start import ModelSizes, check_memory, decide_memory
from freehold.errors import ConfigError, ResourceError

SIZES = ModelSizes(max_position=8192, block_bytes=32 * 1000, weight_bytes=50_000_000)


def test_the_context_is_the_models_where_it_fits() -> None:
    memory = decide_memory(scripted_config(kv_cache_bytes=400 * 32_000), SIZES)
    assert (memory.num_blocks, memory.max_model_len) == (400, 8192)


def test_the_context_shrinks_to_what_the_cache_holds() -> None:  # kv-03
    memory = decide_memory(scripted_config(kv_cache_bytes=100 * 32_000 + 31_999), SIZES)
    assert (memory.num_blocks, memory.max_model_len) == (100, 3200)


@pytest.mark.parametrize("max_model_len", [None, 256, 300, 8192])
def test_the_remedy_of_a_small_cache_is_exact(max_model_len: int | None) -> None:
    """The number of MiB in the message suffices, and one less doesn't."""
    settings: dict[str, Any] = {"max_model_len": max_model_len}
    with pytest.raises(ResourceError, match=r"62\.5 KiB holds 64 tokens.*--kv-cache-memory-bytes") as refusal:
        decide_memory(scripted_config(kv_cache_bytes=64_000, **settings), SIZES)
    enough = int(re.search(r"at least (\d+)M", str(refusal.value))[1]) << 20
    memory = decide_memory(scripted_config(kv_cache_bytes=enough, **settings), SIZES)
    assert memory.num_blocks * 32 >= memory.max_model_len >= 256
    with pytest.raises(ResourceError):
        decide_memory(scripted_config(kv_cache_bytes=enough - (1 << 20), **settings), SIZES)


def test_a_model_with_a_short_context_needs_no_more() -> None:
    memory = decide_memory(scripted_config(kv_cache_bytes=64_000), replace(SIZES, max_position=50))
    assert memory.max_model_len == 50


def test_no_context_beyond_the_models() -> None:
    with pytest.raises(ConfigError, match=r"--max-model-len 8193 .* 8192"):
        decide_memory(scripted_config(max_model_len=8193), SIZES)


def test_weights_cache_and_scratch_share_the_limit() -> None:
    config = scripted_config(kv_cache_bytes=400 * 32_000, memory_limit_bytes=62_800_000)
    decide_memory(config, SIZES)
    check_memory(config, 50_000_000, 12_800_000, 0)
    with pytest.raises(ResourceError, match="--kv-cache-memory-bytes to at most 12M"):
        check_memory(config, 50_000_000, 12_800_000, 1)
    with pytest.raises(ResourceError, match="smaller model"):
        check_memory(config, 62_800_000, 12_800_000, 0)
    with pytest.raises(ResourceError):
        decide_memory(scripted_config(kv_cache_bytes=401 * 32_000, memory_limit_bytes=62_800_000), SIZES)


@pytest.mark.parametrize(
    "settings",
    [{"block_size": 8}, {"block_size": 40}, {"max_num_seqs": 0}, {"max_num_batched_tokens": 0}, {"max_model_len": 0}],
)
def test_unusable_sizes_name_their_flag(settings: dict[str, int]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match="--" + name.replace("_", "-")):
        Engine.start(scripted_config(**settings))


def test_info_says_what_was_decided() -> None:
    with Engine.start(scripted_config(kv_cache_bytes=1 << 20, max_num_seqs=3)) as engine:
        info = engine.info
    assert (info.num_blocks, info.block_size, info.kv_tokens, info.kv_bytes) == (32, 32, 1024, 1 << 20)
    assert (info.max_model_len, info.max_position) == (1024, 8192)
    assert (info.max_num_seqs, info.backend) == (3, "scripted")
    assert re.fullmatch(r"fh-[0-9a-f]{16}", info.fingerprint)
    assert 0 < info.load_s < 60


def test_the_fingerprint_depends_on_all_that_fixes_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    form = NumericFormat(weights="q4g32m", activations="bf16", kv="bf16", isa="avx512")

    class Backend:
        def __init__(self, **changes: str) -> None:
            self.numeric_format = replace(form, **changes)

    changes = [{}, *({name: "other"} for name in ("weights", "activations", "kv", "isa"))]
    prints = [start._identity("model", Backend(**change)).fingerprint for change in changes]
    prints.append(start._identity("other model", Backend()).fingerprint)
    monkeypatch.setattr(start, "__version__", "other")
    prints.append(start._identity("model", Backend()).fingerprint)
    assert len(set(prints)) == len(prints)
    assert start._identity("model", Backend()).fingerprint == prints[-1]
