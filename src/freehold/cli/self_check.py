"""Does the native code of this installation compute what it should on this processor?"""

import tempfile
from pathlib import Path
from typing import Any

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.errors import FreeholdError
from freehold.files.model import open_model
from freehold.files.tensors import DType
from freehold.files.vocabulary import load_text
from freehold.llm import LLM
from freehold.synth import PRESETS, write_checkpoint
from freehold.text.params import SamplingParams

NUM_TOKENS = 8


class SelfCheckError(FreeholdError):
    """The native code computes something else than the reference."""


def check_native(isa: str) -> None:
    """Let a small random model answer on the native backend and on the slow, obvious one, and compare.

    Args:
        isa: instruction-set level to check.

    Raises:
        SelfCheckError: the answers differ.
        UserError: the extension doesn't load.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write_checkpoint(PRESETS["tiny"], path, format="gguf", dtype=DType.F32)
        native = _answer(_config(path, backend="cpu", isa=isa))
        expected = _answer(_config(path, backend="reference"))
    if native != expected:
        raise SelfCheckError(f"with {isa} it answers {native}, the reference {expected}; please report this")


def _config(model_path: Path, **settings: Any) -> EngineConfig:
    """Made here and not resolved: a person's settings shall not decide what is compared."""
    return EngineConfig(
        model_path=model_path, kv_cache_dtype="f32", kv_cache_bytes=16 << 20, max_num_seqs=1, **settings
    )


def _answer(config: EngineConfig) -> tuple[int, ...]:
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    with open_model(config.model_path) as files:
        text = load_text(files)
    with LLM.over(Engine.start(config), text) as llm:
        return llm.generate("Freehold", params)[0].token_ids
